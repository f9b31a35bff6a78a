"""Jobs, the pool of threads that runs them, and SLURM's queue."""
