"""`fairseq-posenc compare`: tables of scored experiments and of their differences, and plots of both."""

from pathlib import Path

import click

from posenc_experiments.base.files import require_output
from posenc_experiments.commands.number_types import Positive
from posenc_experiments.commands.options import choose_seeds
from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU, BY_LENGTH
from posenc_experiments.evaluation.tables.report import FORMATS


@click.command()
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "style", type=click.Choice(FORMATS), default="text")
@click.option(
    "--baseline", help="An experiment's name, or a part of it: adds differences from it, with intervals and verdicts."
)
@click.option("--metric", default=BLEU, help="The metric that is tested against the baseline.")
@click.option(
    "--margin",
    type=Positive(),
    help="The largest difference that does not matter, such as 0.5: rows may be equivalent to the baseline.",
)
@click.option(
    "--questions",
    "questions_path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A YAML file of questions, each with its comparisons: prints the verdicts of each. With --baseline, only its "
    "comparisons have a verdict.",
)
@click.option("--pool-variance", is_flag=True, help="Tests with one variance over seeds for all rows.")
@click.option("--all-tests", is_flag=True, help="Adds a table of BLEU on all test sets together.")
@click.option(
    "--by-length",
    is_flag=True,
    help="Adds a table of BLEU on the longer half of all test sets less that on the shorter.",
)
@click.option(
    "--words",
    metavar="RANGES",
    help="Adds tables of the sentences of each test set whose sources have so many words, such as '1-14 15-'.",
)
@click.option(
    "--documents",
    multiple=True,
    metavar="[TEST=]FILE",
    help="A file with the name of the document of each line of a test set: the test set varies by these documents, not "
    "by its sentences. TEST is needed if there are several test sets. May be repeated.",
)
@click.option("--seeds", help="Only these seeds, such as 1,2,3, of the experiments that have all of them.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A recipe's --data-dir: tests, --all-tests, --by-length and --words take the text that experiments "
    "lack, as in results/, from its prepared data.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="Draws the differences from --baseline or of --questions, or else BLEU against clipping distance, into this "
    "file (.png, .pdf, .svg).",
)
def main(
    directories: tuple[Path, ...],
    style: str,
    baseline: str | None,
    metric: str,
    margin: float | None,
    questions_path: Path | None,
    pool_variance: bool,
    all_tests: bool,
    by_length: bool,
    words: str | None,
    documents: tuple[str, ...],
    seeds: str | None,
    data_dir: Path | None,
    plot: Path | None,
) -> None:
    """Prints a table of scored experiments; with --baseline or --questions, also how they differ.

    DIRECTORIES are experiment directories (seedN), which keep their order, or directories that hold experiments at any
    depth, which are sorted in natural order, k2 before k16. Seeds of one setting are pooled.
    """
    if plot is not None:
        require_output(plot, "compare.png", "--plot")
        from posenc_experiments.evaluation.plots.clipping import require_format

        require_format(plot)
    import pandas as pd

    from posenc_experiments.evaluation.plots.clipping import plot as draw_clipping
    from posenc_experiments.evaluation.plots.clipping import title_in_words
    from posenc_experiments.evaluation.plots.forest import draw_forest
    from posenc_experiments.evaluation.results import read_results
    from posenc_experiments.evaluation.statistics.comparison import Comparison, answered, compared_with_baseline
    from posenc_experiments.evaluation.statistics.documents import with_documents
    from posenc_experiments.evaluation.statistics.pooling import pool, with_seeds
    from posenc_experiments.evaluation.statistics.questions import read_questions
    from posenc_experiments.evaluation.statistics.together import parts_of_tests, together
    from posenc_experiments.evaluation.tables.comparisons import report, report_answers

    if baseline is None and (metric != BLEU or margin is not None or pool_variance):
        raise click.UsageError("--metric, --margin and --pool-variance need --baseline: name the row to compare with.")
    if questions_path is not None and (metric != BLEU or margin is not None or pool_variance or words is not None):
        raise click.UsageError(
            "--questions excludes --metric, --margin, --pool-variance and --words: its file has metric and margin."
        )
    if documents and baseline is None and questions_path is None:
        raise click.UsageError("--documents needs --baseline or --questions: without them nothing is tested.")
    if by_length and pool_variance:
        raise click.UsageError("--by-length and --pool-variance exclude each other: leave one of them out.")
    questions = None if questions_path is None else read_questions(questions_path)
    metric, margin = (metric, margin) if questions is None else (questions.metric, questions.margin)
    results = with_documents(read_results(directories, data_dir), documents)
    if seeds is not None:
        results, lacking = with_seeds(results, choose_seeds(seeds))
        if lacking:
            click.echo(f"Left out, because they lack one of the seeds {seeds}: {', '.join(lacking)}.", err=True)
    whole = pd.concat([results, together(results, metric, ALL_TESTS)]) if all_tests else results
    tables = [whole]
    if by_length:
        tables.append(together(results, metric, BY_LENGTH))
    if words is not None:
        tables.append(parts_of_tests(whole, metric, words))
    everything = pd.concat(tables)
    if questions is not None and baseline is None:
        answers = answered(everything, questions)
        click.echo(report_answers(answers).format(style), nl=False)
        panels = [(one.question.question, one.compared) for one in answers]
        known = [one.question for one in answers]
        if absent := [one.question for one in questions.questions if one.comparisons and one not in known]:
            click.echo(f"Left out, because no experiment here is of their tables: {' '.join(absent)}", err=True)
    elif baseline is None:
        pooled = pool(everything)
        click.echo(report(pooled).format(style), nl=False)
    else:
        how = Comparison(metric, pool_variance, margin, questions)
        compared = compared_with_baseline(everything, baseline, how)
        click.echo(report(compared).format(style), nl=False)
        panels = [(title_in_words(table.rows[0].row.setting), [table]) for table in compared]
    if plot is not None:
        if baseline is None and questions is None:
            draw_clipping([rows for rows in pooled if rows[0].setting.test != BY_LENGTH], plot)
        else:
            draw_forest(panels, plot)
        click.echo(f"Plot: {plot}", err=True)
