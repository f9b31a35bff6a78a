"""The order of the stages."""

from recipes.common import download, prepare
from recipes.common.run import Run


def run_stages(run: Run, stages: list[str], names: list[str], seeds: list[int]) -> None:
    """Runs the stages asked for, for every experiment and seed."""
    if "download" in stages:
        download.download(run)
    if "prepare" in stages:
        prepare.prepare(run)
