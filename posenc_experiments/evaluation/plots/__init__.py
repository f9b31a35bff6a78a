"""Plots of scores and of differences."""
