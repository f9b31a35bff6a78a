"""Which experiments run, and in which order: sweeps, plans and the pipeline."""
