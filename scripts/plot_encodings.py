#!/usr/bin/env python
"""`fairseq-posenc plot-encodings`."""

from posenc_experiments.cli import script

script(__file__, "plot-encodings")
