"""Both WMT recipes as a user runs them, offline, with small archives of the real layout from a local server.

Every stage from download to table is killed and resumed, and must write the same bytes.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from fairseq_posenc.checkpoints import load_checkpoint
from posenc_experiments.base.files import file_hash, fingerprint, read_json
from tests import forked
from tests.experiments import tiny
from tests.experiments.data.server import serve
from tests.recipes.wmt import write_archives, write_conf, write_table
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LINES = 300
SMALL = {
    **{
        f"model.{side}-{dimension}": size
        for side in ("encoder", "decoder")
        for dimension, size in {"layers": 1, "embed-dim": 16, "ffn-embed-dim": 32, "attention-heads": 2}.items()
    },
    **{"prepare.vocabulary": 300, "train.batch-tokens": 3000, "train.max-tokens": 1500, "train.max-update": 6},
    **{"train.save-interval-updates": 2, "train.warmup-updates": 2, "train.num-workers": 0},
    **{"generate.max-len-a": 0, "generate.max-len-b": 8, "generate.beam": 2},
}


def command(name: str, corpus: str, root: Path, *options: str) -> list[str]:
    return tiny.command(name, root / corpus, *tiny.directories(root), *options)


def run(*words: str) -> str:
    process = forked.run_command(list(words))
    assert process.returncode == 0, process.stdout + process.stderr
    return str(process.stdout)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small version of each recipe, with archives of its layout on a server."""
    root = tmp_path_factory.mktemp("wmt")
    with serve(root / "www") as (url, _):
        for corpus in ("wmt14", "wmt18"):
            made = write_archives(ROOT / "recipes" / corpus, root / "www" / corpus, lines=LINES)
            table = write_table(made, root / corpus / "archives.tsv", f"{url}/{corpus}")
            for conf in (ROOT / "recipes" / corpus).glob("*.yaml"):
                write_conf(root / corpus / conf.name, conf, SMALL | {"corpus.archives": table})
            shutil.copytree(ROOT / "recipes" / corpus / "tables", root / corpus / "tables")
        yield root


def results(root: Path) -> dict[str, str]:
    """The hashes of all files of a run except those that depend on time (logs, the training's state, its speed).

    Of averaged.pt, only the weights are compared, because pickle writes equal settings differently if they are one
    object.
    """
    hashes = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        timed = path.suffix in (".log", ".pt") or path.name in ("training.json", "done.json", ".lock")
        if path.name == "experiment.json":  # without the commit, which may change while the test runs
            about = read_json(path)
            hashes[name] = fingerprint({key: value for key, value in about.items() if key != "environment"})
        elif path.is_file() and not timed and not path.name.startswith("compare."):
            hashes[name] = file_hash(path)
    return hashes


OPTIONS = ["--conf", "shaw-base", "--pair", "en-de", "--experiments", "shaw-k16"]
PATTERN = "output/wmt14/en-de/shaw-k16-????????/seed1/"
# Files that exist only in the middle of each stage, as patterns.
IN_THE_MIDDLE = {
    "download": "data/wmt/download/**/*.t?z*",
    "extract": "data/wmt14/en-de/prepared-*.work/*/europarl-v7/*",
    "encode": "data/wmt14/en-de/prepared-*.work/encode",
    "binarize": "data/wmt14/en-de/prepared-*.work/binarize",
    "train": f"{PATTERN}checkpoints/checkpoint_*_2.pt",
    "checkpoint": f"{PATTERN}checkpoints/checkpoint_*_4.pt*",
    "last": f"{PATTERN}checkpoints/checkpoint_*_6.pt*",
    "average": f"{PATTERN}training.json",
    "translate": f"{PATTERN}newstest2013.hyp",
    "score": f"{PATTERN}newstest2013.sacrebleu.json",
}


def interrupt(root: Path, words: list[str], stage: str, number: int = signal.SIGKILL, delay: float = 0) -> None:
    """Starts the recipe, sends it a signal in the middle of a stage, and checks that all its processes end."""
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A shell makes background processes ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    # On a busy machine the stage may be over before it is seen.
    patterns = [*IN_THE_MIDDLE.values()][[*IN_THE_MIDDLE].index(stage) :]
    wait_until(lambda: any(any(root.glob(pattern)) for pattern in patterns), process)
    time.sleep(delay)
    assert process.poll() is None, f"it ended before it could be interrupted in {stage}"
    if number == signal.SIGINT:  # a terminal sends the signal to all processes
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.wait(60) != 0
    if number == signal.SIGKILL or stage != "score":  # otherwise the last score may end orderly
        assert not any('"score"' in path.read_text() for path in root.glob(f"{PATTERN}done.json"))
    wait_until(lambda: not working_on(root))


def working_on(root: Path) -> list[str]:
    """The commands that run on files of a directory."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if int(process.name) != os.getpid() and any(word.startswith(f"{root}/") for word in words):
                commands.append(" ".join(words))
    return commands


@pytest.fixture(scope="module")
def unbroken(root: Path) -> tuple[list[str], dict[str, str]]:
    """The command of an uninterrupted run, and its results; its files are moved away from other runs."""
    words = command("run", "wmt14", root, *OPTIONS)
    said = run(*words)
    for line in ("prepare: newstest2014: 300 pairs", "tok. BLEU (historical)", "shaw-k16"):
        assert line in said
    expected = results(root)
    for name in ("data", "output"):
        (root / name).rename(root / f"unbroken-{name}")
    return words, expected


def assert_ends_alike(root: Path, words: list[str], expected: dict[str, str]) -> None:
    """Asserts that the recipe, started again, ends with the results of the uninterrupted run."""
    run(*words)
    assert {name: value for name, value in results(root).items() if not name.startswith("unbroken-")} == expected
    assert "Loaded checkpoint" in next(root.glob(f"{PATTERN}train.log")).read_text()
    ours, theirs = (
        load_checkpoint(next(root.glob(f"{place}{PATTERN}averaged.pt")))["model"] for place in ("", "unbroken-")
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_interrupted_at_each_stage_and_resumed_it_writes_the_same_bytes(
    root: Path, unbroken: tuple[list[str], dict[str, str]], number: signal.Signals
) -> None:
    for name in ("data", "output"):
        shutil.rmtree(root / name, ignore_errors=True)
    stages = list(IN_THE_MIDDLE)
    if number != signal.SIGKILL:
        stages = stages[number == signal.SIGTERM :: 2]
    delays = random.Random(int(number))
    for stage in stages:
        # After the first score, only that of the other test set follows.
        interrupt(root, unbroken[0], stage, number, 0 if stage == "score" else delays.uniform(0, 0.05))
    assert_ends_alike(root, *unbroken)


def test_wmt18_from_download_to_the_papers_table(root: Path) -> None:
    options = ["--pair", "cs-en", "--experiments", "diet_rel"]
    said = run(*command("run", "wmt18", root, "--conf", "diet", *options))
    (experiment,) = root.glob("output/wmt18/cs-en/diet_rel-????????/seed1")
    scores = json.loads((experiment / "newstest2018.sacrebleu.json").read_text())
    assert {row["name"] for row in scores} >= {"BLEU", "chrF2"}
    assert len((experiment / "newstest2018.hyp").read_text().split("\n")) == LINES + 1
    for part in ("europarl-v7", "commoncrawl", "news-commentary-v13"):
        assert part in said
    table = run(*command("table", "wmt18", root, "diet-table4", "--show"))
    assert "23.93" in table
    assert f"{scores[0]['score']:.2f}" in table


@pytest.mark.parametrize(
    ("corpus", "conf", "pair", "experiment", "average"),
    [
        ("wmt14", "shaw-big-en-fr", "fr-en", "shaw-k8", 20),
        ("wmt14", "shaw-base-t2t", "en-fr", "alibi", 1),
        ("wmt18", "diet", "en-de", "shaw-t2t", 1),
        ("wmt18", "diet", "en-cs", "sinusoidal", 1),
    ],
)
def test_every_pair_and_conf(root: Path, corpus: str, conf: str, pair: str, experiment: str, average: int) -> None:
    if average > 1:
        # Of 26 updates, those that end an epoch are not saved as updates: some four.
        values = {"train.max-update": "26", "train.save-interval-updates": "1"}
        write_conf(root / corpus / "many.yaml", root / corpus / f"{conf}.yaml", values)
    options = ["--conf", "many" if average > 1 else conf, "--pair", pair, "--experiments", experiment]
    said = run(*command("run", corpus, root, *options))
    averaged = next(line for line in said.split("\n") if line.startswith("average: "))
    assert averaged.count("checkpoint_") == (average if average > 1 else 1)
    assert [*(root / "output" / corpus / pair).glob(f"{experiment}-*/seed1/newstest201?.historical.json")]
