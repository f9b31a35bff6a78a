"""Stage `compare`: the table and the plot of one call's experiments, as scripts/compare.py makes them."""

from recipes.common.errors import RecipeError
from recipes.common.experiment import Experiment
from recipes.common.identity import package_directory
from recipes.common.run import Run
from recipes.common.stages import atomic_path


def compare(run: Run, experiments: list[Experiment]) -> None:
    """Runs the stage; it is quick, so it is never skipped."""
    directories = [experiment.directory for experiment in experiments]
    folder = run.output_dir / run.recipe.corpus.name / run.pair
    if run.dry_run:
        script = package_directory().parent / "scripts" / "compare.py"
        run.dry([run.python, script, "--plot", folder / "compare.png", *directories])
        return
    for experiment in experiments:
        if not experiment.markers.is_done("score", experiment.score_inputs()):
            raise RecipeError(f"{experiment.title} has no scores with these settings: run the stages train..score.")
    # Here, because it imports torch and fairseq, which --help and --dry-run need not wait for.
    from fairseq_posenc import results

    try:
        rows = results.pool(results.read_experiments(directories))
        text = results.as_text(rows)
        with atomic_path(folder / "compare.txt") as temporary:
            temporary.write_text(text, encoding="utf-8")
        plot = results.plot(rows, folder / "compare.png")
    except results.ResultsError as error:
        raise RecipeError(str(error)) from None
    run.say("\n" + text)
    run.say(f"Plot: {plot}")
