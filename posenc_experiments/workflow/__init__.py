"""Chooses, plans and runs experiments: sweeps, plans and the pipeline."""
