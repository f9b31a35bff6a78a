"""Stage `compare`: the table and the plot of one call's experiments, as `fairseq-posenc compare` makes them."""

from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import write_text
from posenc_experiments.base.run import Run
from posenc_experiments.evaluation.scores.score import ScoreStage
from posenc_experiments.experiment.experiment import Experiment


def compare(run: Run, experiments: list[Experiment]) -> None:
    """Runs the stage; it is never skipped, as it is quick but for neural metrics, whose scores are kept."""
    from posenc_experiments.evaluation.scores.neural import score_neural

    directories = [experiment.directory for experiment in experiments]
    folder = run.pair_results_dir
    if run.dry_run:
        score_neural(run, experiments)
        run.dry([*run.module("posenc_experiments"), "compare", "--plot", folder / "compare.png", *directories])
        return
    for experiment in experiments:
        if not ScoreStage().is_done(experiment):
            raise RecipeError(f"{experiment.title} has no scores with these settings: run the stages train..score.")
    try:
        score_neural(run, experiments)
    finally:
        _write_table(run, directories)  # even if a neural metric fails


def _write_table(run: Run, directories: list[Path]) -> None:
    # Imported here, because it imports sacrebleu, which would slow down --help and --dry-run.
    from posenc_experiments.evaluation.plots.clipping import plot
    from posenc_experiments.evaluation.results import read_results
    from posenc_experiments.evaluation.statistics.pooling import pool
    from posenc_experiments.evaluation.tables.comparisons import report

    folder, tables = run.pair_results_dir, pool(read_results(directories))
    text = report(tables).format("text")
    write_text(folder / "compare.txt", text)
    picture = plot(tables, folder / "compare.png")
    run.say("\n" + text)
    run.say(f"Plot: {picture}")
