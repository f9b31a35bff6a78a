"""The order of the stages."""

from recipes.common import download, prepare
from recipes.common.average import average
from recipes.common.check_flags import check_flags
from recipes.common.compare import compare
from recipes.common.experiment import make_experiments
from recipes.common.run import Run
from recipes.common.score import score
from recipes.common.train import train
from recipes.common.translate import translate


def run_stages(run: Run, stages: list[str], names: list[str], seeds: list[int]) -> None:
    """Runs the stages asked for: those on data once, the others experiment by experiment."""
    experiments = make_experiments(run, names, seeds)
    if not run.dry_run:
        check_flags(run, experiments, stages)
    if "download" in stages:
        download.download(run)
    if "prepare" in stages:
        prepare.prepare(run)
    for number, experiment in enumerate(experiments, 1):
        if "train" in stages:
            train(experiment, f"{number} of {len(experiments)}")
        for name, stage in (("average", average), ("translate", translate), ("score", score)):
            if name in stages:
                stage(experiment)
    if "compare" in stages:
        compare(run, experiments)
