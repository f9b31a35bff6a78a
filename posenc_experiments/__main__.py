"""`python -m posenc_experiments` is `fairseq-posenc`."""

from posenc_experiments.cli import main

main()
