"""Translations, scores, results, tables and plots: the owner of what is in an experiment directory."""
