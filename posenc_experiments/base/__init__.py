"""The basis of all other folders: errors, the recipe, the settings and hardware of a call, and records."""
