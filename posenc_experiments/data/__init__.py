"""Stages `download` and `prepare`: from archives, a generator or the user's own text to binarized data."""
