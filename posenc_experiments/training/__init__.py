"""Stages `train` and `average`: a resumable training on one or several machines, and the average of its checkpoints."""
