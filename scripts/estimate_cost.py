#!/usr/bin/env python
"""`fairseq-posenc estimate-cost`."""

from posenc_experiments.cli import script

script(__file__, "estimate-cost")
