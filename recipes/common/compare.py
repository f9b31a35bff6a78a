"""Stage `compare`: the table and the plot of one call's experiments, as scripts/compare.py makes them."""

from recipes.common.experiment import Experiment, package_directory
from recipes.common.run import Run


def compare(run: Run, experiments: list[Experiment]) -> None:
    """Runs the stage; it is quick, so it is never skipped."""
    directories = [experiment.directory for experiment in experiments]
    folder = run.output_dir / run.recipe.corpus.name / run.pair
    if run.dry_run:
        script = package_directory().parent / "scripts" / "compare.py"
        run.dry([run.python, script, "--plot", folder / "compare.png", *directories])
        return
    from fairseq_posenc import results

    found = results.read_experiments(directories)
    rows = results.pool(found)
    text = results.as_text(rows)
    (folder / "compare.txt").write_text(text, encoding="utf-8")
    run.say("\n" + text)
    plot = results.plot(rows, folder / "compare.png")
    run.say(f"Plot: {plot}")
