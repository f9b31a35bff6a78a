"""Jobs, the scheduler that runs them, and where they run."""
