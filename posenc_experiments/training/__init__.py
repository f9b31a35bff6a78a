"""One training, resumable, on one machine or several, and the average of its checkpoints."""
