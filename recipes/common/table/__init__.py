"""A paper's table as one command: a list of settings, run where something is missing, printed beside its figures."""
