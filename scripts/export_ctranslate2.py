#!/usr/bin/env python
"""`fairseq-posenc export`."""

from posenc_experiments.cli import script

script(__file__, "export")
