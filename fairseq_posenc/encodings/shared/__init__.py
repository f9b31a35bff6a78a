"""What several encodings have in common: base classes, tables and products. No file here is an encoding."""
