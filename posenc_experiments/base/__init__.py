"""The basis of all other folders: errors, the recipe, the options of a call, records of finished stages."""
