"""Analyses of experiments, what models learned and how their translations differ, and a page that shows them."""
