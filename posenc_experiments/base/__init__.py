"""What all else builds on: errors, the .conf, the options of a call, markers of finished stages."""
