#!/usr/bin/env python
"""`fairseq-posenc average`."""

from posenc_experiments.cli import script

script(__file__, "average")
