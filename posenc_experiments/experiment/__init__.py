"""One experiment: its directory, its commands, its identity, and what its stages have in common."""
