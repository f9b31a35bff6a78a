"""Translations, scores, tables and plots of experiments, and counts of parameters."""
