#!/usr/bin/env python
"""Runs fairseq's own tests with this plugin's architectures in place of stock's Transformer, and compares the outcomes.

python scripts/run_fairseq_tests.py --fairseq CHECKOUT --output docs/data/fairseq-tests.csv
python docs/data/tables.py        # puts the tables into docs/fairseq.md
"""

import csv
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
CHILD = ROOT / "scripts" / "fairseq_tests" / "substituted.py"
OPTIONS = "options"  # this project's tests next to CHILD; all others are fairseq's
TESTS = (
    "test_binaries.TestTranslation",
    "test_binaries.TestActivationCheckpointing",
    "test_sequence_generator",
    "test_train",
    "test_reproducibility",
    "test_inference_dropout",
    "test_checkpoint_utils",
    "test_constraints",
    "test_activation_checkpointing",
    "test_iterators",
    OPTIONS,
)
DEFAULT_ENCODINGS = ("sinusoidal", "shaw", "diet_rel", "rotary", "t5", "deberta")
STOCK, LOADED = "stock", "plugin"  # stock's architectures without and with the plugin loaded
FIELDS = ("group", "test", "title", "with", "outcome", "substituted", "reason")
Row = dict[str, str]


def split(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    """Splits ``a,b`` into a list without duplicates."""
    return list(dict.fromkeys(name for name in text.split(",") if name))


def run(checkout: Path, what: str, groups: list[str], tests: list[str]) -> list[Row]:
    """Runs tests in a subprocess that can import fairseq's tests and examples, but not the checkout's fairseq."""
    with tempfile.TemporaryDirectory() as directory:
        for name in ("tests", "examples"):
            os.symlink(checkout.resolve() / name, Path(directory, name))
        report = Path(directory, "report.json")
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        # Since torch 2.6 stock fairseq cannot load checkpoints without it. With the plugin it must not be necessary.
        environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1" if what == STOCK else "0"
        process = subprocess.run(
            [sys.executable, "-P", str(CHILD), what, str(report), *tests],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if not report.exists():
            click.echo(process.stderr[-2000:], err=True)
            raise click.ClickException(f"the tests with {what} ended with status {process.returncode} and no report.")
        rows = json.loads(report.read_text(encoding="utf-8"))
    for row in rows:
        group = next(group for group in groups if f".{group}." in f".{row['test']}.")
        row |= {"group": group, "with": what, "reason": without_paths(row["reason"])}
        row["title"] *= group == OPTIONS  # only these tests have their title in the docstring
    click.echo(f"{what}: {counts(rows)}", err=True)
    return rows


def names_transformer(row: Row) -> bool:
    """Whether a test uses a Transformer. All tests of options do, some in a subprocess that CHILD cannot observe."""
    return row["substituted"] == "yes" or row["group"] == OPTIONS


def without_paths(text: str) -> str:
    """Reduces each absolute path in ``text`` to its last part, since directories differ between machines."""
    return re.sub(r"(?<!\w)/(?:[^\s/:]+/)+", "", text)


def write(path: Path, rows: list[Row]) -> None:
    """Writes the rows atomically, in the order of TESTS."""
    order = {group: place for place, group in enumerate(TESTS)}
    rows = sorted(rows, key=lambda row: order.get(row["group"], len(order)))
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text.getvalue(), encoding="utf-8")
    temporary.replace(path)


def read(path: Path) -> list[Row]:
    """Reads the rows of an earlier run.

    Raises:
        ValueError: the file has other columns.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for line, row in enumerate(rows, start=2):
        if tuple(row) != FIELDS or None in row.values():
            raise ValueError(f"{path}, row {line}, does not have the columns {', '.join(FIELDS)}: name another file.")
    return rows


def columns(rows: list[Row]) -> list[str]:
    """The names of what was tested: stock, the loaded plugin, then encodings."""
    return sorted(dict.fromkeys(row["with"] for row in rows), key=lambda name: (name != STOCK, name != LOADED))


def code(text: str) -> str:
    """Formats ``text`` as code in a cell of a table."""
    return f"`{text.replace('`', '')}`".replace("|", "\\|") if text else ""


def table(headers: list[str], lines: list[list[str]]) -> str:
    cells = [headers, ["---"] * len(headers), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def counts(rows: list[Row]) -> str:
    """The numbers passed/failed/skipped."""
    count = Counter(row["outcome"] for row in rows)
    return "/".join(str(count[outcome]) for outcome in ("passed", "failed", "skipped")) if rows else ""


def summary(rows: list[Row]) -> str:
    """A table with a line for each group of fairseq's tests."""
    names = columns(rows)
    groups = [group for group in dict.fromkeys(row["group"] for row in rows) if group != OPTIONS]
    lines = [
        [f"`{group}`", *(counts([row for row in rows if (row["group"], row["with"]) == (group, n)]) for n in names)]
        for group in groups
    ]
    return table(["tests", *(f"`{name}`" for name in names)], lines)


def differences(rows: list[Row]) -> str:
    """A table of the tests that pass with stock but not with an encoding, grouped by reason."""
    passed = {(row["group"], row["test"]) for row in rows if row["with"] == STOCK and row["outcome"] == "passed"}
    failing: dict[tuple[str, str], list[str]] = {}  # by name and reason, with what
    for row in rows:
        if row["outcome"] != "passed" and (row["group"], row["test"]) in passed:
            name = row["title"] or f"`{row['test'].rpartition('.')[2]}`"
            failing.setdefault((name, row["reason"]), []).append(f"`{row['with']}`")
    lines: dict[tuple[str, str], list[str]] = {}
    for (name, reason), what in failing.items():
        lines.setdefault((", ".join(what), reason), []).append(name)
    return table(
        ["tests", "fail with", "because"],
        [[", ".join(names), what, code(reason)] for (what, reason), names in lines.items()],
    )


def trials(rows: list[Row]) -> str:
    """A table with a line for each option, and stock's message if stock fails."""
    rows = [row for row in rows if row["group"] == OPTIONS]
    names = columns(rows)
    words = {"passed": "works", "failed": "fails", "skipped": "skipped", None: ""}
    lines = []
    for test in dict.fromkeys(row["test"] for row in rows):
        of = {row["with"]: row for row in rows if row["test"] == test}
        outcomes = [words[of[name]["outcome"] if name in of else None] for name in names]
        lines.append([of[STOCK]["title"], *outcomes, code(of[STOCK]["reason"])])
    return table(["option", *(f"`{name}`" for name in names), "stock's message"], lines)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option(
    "--fairseq",
    "checkout",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A checkout of facebookresearch/fairseq, for its tests; the fairseq tested is the installed one.",
)
@click.option("--encodings", default=",".join(DEFAULT_ENCODINGS), callback=split, show_default=True)
@click.option(
    "--tests",
    "groups",
    default=",".join(TESTS),
    callback=split,
    show_default=True,
    help=f"Modules of its tests, or classes in them; '{OPTIONS}' is this project's tests of options.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="CSV file with a row for each test. Tests in it are not run again: delete the file to start over.",
)
def main(checkout: Path, encodings: list[str], groups: list[str], output: Path | None) -> None:
    """Runs fairseq's tests with stock's Transformer, then again with the plugin: tests that use a Transformer with
    each encoding's architecture in its place, all other tests once.
    """
    if not (checkout / "tests" / "test_binaries.py").is_file():
        raise click.UsageError(f"--fairseq {checkout} has no tests/test_binaries.py: name a checkout of fairseq.")
    spec = importlib.util.find_spec("fairseq")
    if spec is None or checkout.resolve() in Path(str(spec.origin)).resolve().parents:
        raise click.UsageError("fairseq must be installed, and PYTHONPATH must not name the checkout: unset it.")
    rows: list[Row] = []
    if output is not None:
        if not output.parent.is_dir():
            raise click.UsageError(f"--output {output}: there is no directory {output.parent}; make it first.")
        try:
            rows = read(output) if output.exists() else []
        except ValueError as error:
            raise click.UsageError(f"--output {error}") from None
    from fairseq_posenc.encodings import find_encoding

    for encoding in encodings:
        try:
            find_encoding(encoding)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--encodings") from None
    for what in (STOCK, LOADED, *encodings):
        done = {row["group"] for row in rows if row["with"] == what}
        left = [group for group in groups if group not in done]
        if what == STOCK:
            tests = [group if group == OPTIONS else f"tests.{group}" for group in left]
        else:
            tests = [
                row["test"]
                for row in rows
                if row["with"] == STOCK and row["group"] in left and names_transformer(row) == (what != LOADED)
            ]
        if tests:
            rows += run(checkout, what, left, tests)
            if output is not None:
                write(output, rows)
    for text in (summary(rows), differences(rows), trials(rows)):
        if text.count("\n") > 1:  # more than the header
            click.echo(f"{text}\n")


if __name__ == "__main__":
    main()
