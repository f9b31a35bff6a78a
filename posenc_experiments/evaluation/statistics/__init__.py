"""Results pooled over seeds, their differences, and tests of these."""
