"""A recipe small enough for tests: a corpus of reversed words, and a recipe that trains on it in seconds."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner, Result

from posenc_experiments.base.hardware import Hardware
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.base.run import Run
from posenc_experiments.cli import group
from posenc_experiments.data import download, prepare
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.training import train
from tests import forked
from tests.toy import make_corpus

SPLITS = ("train", "valid", "test")
SOURCES = "split\tpairs\tlanguage\tarchive\tmember\tlines\n"
ARCHIVES = "archive\turl\tbytes\tchecksum\n"

CONF = """
corpus:
  name: tiny
  sources: sources.tsv
  pairs: en-de de-en
  train: train
  valid: valid
  tests: test

prepare:
  subwords: none

model:
  size: tiny
  encoder-layers: 1
  decoder-layers: 1
  encoder-embed-dim: 16
  decoder-embed-dim: 16
  encoder-ffn-embed-dim: 32
  decoder-ffn-embed-dim: 32

train:
  batch-tokens: 400
  max-tokens: 200
  max-epoch: 4
  optimizer: adam
  lr: 1e-2
  log-interval: 2
  num-workers: 0
  keep-last-epochs: 2

generate:
  average: 2
  beam: 2

experiments:
  default: shaw-k2
  shaw-k2: shaw --clipping-distance 2
  sinusoidal: sinusoidal
"""


def write_sources(recipe: Path, corpus: Path, url: str = "http://localhost:1") -> Path:
    """Writes the tables for the corpus's current files; returns that of archives."""
    names = [(split, language) for split in SPLITS for language in ("en", "de")]
    rows = [f"{split}\t*\t{language}\t{split}.{language}\t-\t-\n" for split, language in names]
    (recipe / "sources.tsv").write_text("".join([SOURCES, *rows]))
    table = recipe / "archives.tsv"
    files = [corpus / f"{split}.{language}" for split, language in names]
    table.write_text("".join([ARCHIVES, *(archive_row(path, path.name, f"{url}/{path.name}") for path in files)]))
    return table


def archive_row(path: Path, name: str, url: str) -> str:
    """A row of archives.tsv for the current content of a file."""
    data = path.read_bytes()
    return f"{name}\t{url}\t{len(data)}\tsha256:{hashlib.sha256(data).hexdigest()}\n"


def make_recipe(directory: Path, conf: str = CONF, lines: int = 120) -> tuple[Path, Path]:
    """Writes corpus and recipe; returns the recipe's and the corpus's path."""
    corpus = make_corpus(directory / "corpus", lines=lines)
    recipe = directory / "recipe"
    recipe.mkdir()
    write_sources(recipe, corpus)
    (recipe / "tiny.yaml").write_text(conf)
    return recipe / "tiny.yaml", corpus


def prepare_data(run: Run) -> Run:
    """Runs the stages download and prepare; returns the run."""
    download.download(run)
    with forked_commands():
        prepare.prepare(run)
    return run


@contextmanager
def forked_commands() -> Iterator[None]:
    """Has stages that are called in this process run fairseq in a fork, to save its start."""
    with mock.patch.object(prepare, "run_command", _run_forked), mock.patch.object(train, "run_command", _run_forked):
        yield


def _run_forked(run: Run, words: list[str], log: Path, what: str, *_: object) -> None:
    done = forked.run(words[3], words[4:], None, os.environ)  # after `python -P -m`
    log.write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stderr


def command(name: str, *options: object) -> list[str]:
    """A command of the experiments on one CPU."""
    words = [sys.executable, "-m", "posenc_experiments", name, "--gpus", "0", "--cpus", "1", *options]
    return [str(word) for word in words]


def recipe_command(root: Path, *options: object) -> list[str]:
    """The command that runs the tiny recipe in a directory."""
    return command("run", "--conf", root / "recipe" / "tiny.yaml", *directories(root), *options)


def run_recipe(root: Path, *options: object) -> subprocess.CompletedProcess[str]:
    """Runs this command in a fork."""
    return forked.run_command(recipe_command(root, *options))


def directories(root: Path, output: Path | None = None) -> list[str | Path]:
    """The options for data and output in a directory; for output in another, if one is given."""
    return ["--data-dir", root / "data", "--output-dir", output or root / "output"]


def run_here(*words: object) -> Result:
    """Runs a command of the experiments in this process."""
    return CliRunner().invoke(group, [*map(str, words)])


def make_run(
    directory: Path,
    conf: Path | None = None,
    source: Path | None = None,
    overrides: Sequence[str] = (),
    **options: object,
) -> Run:
    """A Run for the pipeline's functions in this process, by default of the tiny recipe in the directory.

    Args:
        overrides: values of --set.
        options: fields of Run, or of its Hardware.
    """
    hardware = {field.name: options.pop(field.name) for field in fields(Hardware) if field.name in options}
    given = {"pair": "en-de", "data_dir": directory / "data", "output_dir": directory / "output", **options}
    return Run(
        recipe=read_recipe(conf or directory / "recipe" / "tiny.yaml", overrides),
        source_dir=source,
        hardware=Hardware(**hardware),  # type: ignore[arg-type]
        **given,  # type: ignore[arg-type]
    )


def make_experiment(directory: Path, name: str = "shaw-k2", seed: int = 1, **options: Any) -> Experiment:
    """An experiment of the tiny recipe in the directory; `options` are those of `make_run`."""
    return Experiment(make_run(directory, **options), name, seed)
