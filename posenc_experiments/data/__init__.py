"""From archives or generators to binarized text."""
