"""What trained models do with positions, and how their translations differ."""
