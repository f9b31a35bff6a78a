"""Base classes, buckets, tables and products that several encodings use. No file here defines an encoding."""
