#!/usr/bin/env python
"""`fairseq-posenc benchmark`."""

from posenc_experiments.cli import script

script(__file__, "benchmark")
