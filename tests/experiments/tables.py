"""A table of a paper for the tiny recipe: its file, its plan, and the command that makes it."""

import subprocess
from pathlib import Path
from typing import Any

from posenc_experiments.commands.options import Call
from posenc_experiments.commands.table import main, make_rows
from posenc_experiments.evaluation.tables.paper_table import COLUMNS, read_table
from posenc_experiments.workflow.plan import STAGES, Plan, make_plan
from tests import forked
from tests.experiments import tiny

ROOT = Path(__file__).resolve().parents[3]
HEADER = "\t".join(COLUMNS)
ROW = "K = 2\ten-de\ttiny\tshaw-k2\ttest\tsacrebleu\t25.8"


def write_table(recipe: Path, *lines: str, name: str = "paper") -> Path:
    path = recipe / "tables" / f"{name}.tsv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def call(root: Path, **options: Any) -> Call:
    """A call of table.sh on one CPU, with these options."""
    words = ["recipe", "paper", "--gpus", "0", "--cpus", "1", *map(str, tiny.directories(root))]
    return Call({**main.make_context("table", words).params, **options}, 1)


def plan(recipe: Path, seeds: str = "1", name: str = "paper", **options: Any) -> Plan:
    rows = make_rows(read_table(recipe, name).rows, recipe, call(recipe.parent, seeds=seeds, **options))
    return make_plan([one for _, experiments in rows for one in experiments], [*STAGES[:-1]])


def command(recipe: Path, *options: str) -> list[str]:
    words = [recipe, "paper", "--jobs", "1", "--source", recipe.parent / "corpus"]
    return tiny.command("table", *words, *tiny.directories(recipe.parent), *options)


def run_table(recipe: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return forked.run_command(command(recipe, *options))
