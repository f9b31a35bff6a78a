#!/usr/bin/env python
"""`fairseq-posenc compare-ctranslate2`."""

from posenc_experiments.cli import script

script(__file__, "compare-ctranslate2")
