"""The contract of an encoding, its options, what can be added to any encoding, and the registry."""
