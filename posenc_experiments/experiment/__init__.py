"""One experiment: its directory, its commands, its identity, and the base class of its stages."""
