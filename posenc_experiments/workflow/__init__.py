"""Configuration, stages, experiments and the commands that run them."""
