"""Options of the commands that load trained models."""

from pathlib import Path

import click

#: --data BINARIZED, passed as `binarized`
data_option = click.option(
    "--data",
    "binarized",
    metavar="BINARIZED",
    type=click.Path(path_type=Path),
    help="What fairseq-preprocess wrote; needed for a checkpoint.  [default: what the experiment was translated from]",
)
#: --cpu, passed as `cpu`
cpu_option = click.option("--cpu", is_flag=True, help="Compute on the CPU, even where there is a GPU.")
