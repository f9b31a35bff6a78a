"""The basis of all other folders: errors, the .conf, the options of a call, markers of finished stages."""
