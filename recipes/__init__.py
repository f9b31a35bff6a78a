"""Corpora, and the pipeline that trains and compares on them; a package, so that no other of this name is taken."""
