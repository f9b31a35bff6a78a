#!/usr/bin/env python
"""`fairseq-posenc keep-results`."""

from posenc_experiments.cli import script

script(__file__, "keep-results")
