"""Recipes: corpora and settings of experiments. This is a package, so that no other package `recipes` is imported."""
