"""The last stage of a recipe, `--analyse`: the page of one call's experiments."""

from posenc_experiments.base.run import Run
from posenc_experiments.experiment.experiment import Experiment


def analyse_run(run: Run, experiments: list[Experiment]) -> None:
    """Runs the stage; what is unchanged is not analysed again."""
    directories = [experiment.directory for experiment in experiments]
    page, cpu = run.pair_results_dir / "analysis.html", not run.hardware.gpus
    if run.dry_run:
        run.dry(
            [*run.module("posenc_experiments"), "analyse", *(["--cpu"] if cpu else []), "--output", page, *directories]
        )
        return
    # Here, because it imports sacrebleu and matplotlib, which --help and --dry-run need not wait for.
    from posenc_experiments.analysis.analyse import analyse

    analyse(directories, page, run.say, cpu=cpu)
