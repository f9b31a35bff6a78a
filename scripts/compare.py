#!/usr/bin/env python
"""`fairseq-posenc compare`."""

from posenc_experiments.cli import script

script(__file__, "compare")
