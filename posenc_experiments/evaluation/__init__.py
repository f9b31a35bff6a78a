"""Translations, scores, results, tables and plots: all that reads experiment directories; counts of parameters."""
