"""The basis of all other folders: errors, the recipe, the options of a call, markers of finished stages."""
