"""One experiment: its identity, its directory, its commands, and checks of its flags."""
