#!/usr/bin/env python
"""`fairseq-posenc describe`."""

from posenc_experiments.cli import script

script(__file__, "describe")
