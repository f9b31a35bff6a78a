"""A toy parallel corpus and fairseq's own command lines, with which tests run real trainings in
seconds.

Everything here is a plain function without pytest, so that fixtures of any scope can call it:

    corpus = make_corpus(tmp / "text")                        # train/valid/test .en and .de
    data = binarize(corpus, tmp / "data-bin")                 # fairseq_cli.preprocess
    train(data, tmp / "model", "transformer_tiny", "--max-update", "2", user_dir=PACKAGE)
    run = generate(data, tmp / "model" / "checkpoint_last.pt", user_dir=PACKAGE)
    hypotheses(run.stdout)                                    # {0: "w3 w1", 1: ...}, by line of the corpus

fairseq's commands run in their own processes, each with one thread (:mod:`tests.forked`).
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import forked

PACKAGE = Path(__file__).resolve().parents[1] / "fairseq_posenc"
"""The argument of `--user-dir`."""

SOURCE, TARGET = "en", "de"

WORDS = 20
"""The number of words of each language."""

TINY = (
    *("--encoder-layers", "2", "--decoder-layers", "2"),
    *("--encoder-embed-dim", "16", "--decoder-embed-dim", "16"),
    *("--encoder-ffn-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--encoder-attention-heads", "2", "--decoder-attention-heads", "2"),
)
"""Flags that shrink any Transformer architecture to a size that trains in a moment."""


def make_corpus(directory: str | Path, *, lines: int | Mapping[str, int] = 60, max_words: int = 9) -> Path:
    """Write `{train,valid,test}.{en,de}` into `directory` and return it.

    Each target sentence is the reversed source sentence with renamed words, so that order matters and the
    languages share no word. `lines` is the number of training lines (with 20 each for valid and test), or a
    number for each split. Every word occurs in the first training lines.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    sizes = {"train": lines, "valid": 20, "test": 20} if isinstance(lines, int) else dict(lines)
    rng = random.Random(1)
    for split, size in sizes.items():
        sentences = [[rng.randrange(WORDS) for _ in range(rng.randint(1, max_words))] for _ in range(size)]
        if split == "train":
            every_word = [[*range(WORDS)[start : start + max_words]] for start in range(0, WORDS, max_words)]
            sentences[: len(every_word)] = every_word[:size]
        source = "".join(" ".join(f"s{word}" for word in sentence) + "\n" for sentence in sentences)
        target = "".join(" ".join(f"t{word}" for word in reversed(sentence)) + "\n" for sentence in sentences)
        (directory / f"{split}.{SOURCE}").write_text(source, encoding="utf-8")
        (directory / f"{split}.{TARGET}").write_text(target, encoding="utf-8")
    return directory


def run_fairseq(
    module: str,
    *arguments: str | Path,
    user_dir: str | Path | None = None,
    check: bool = True,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m fairseq_cli.<module> arguments` and return the finished process (outputs as text).

    With `check`, a non-zero exit is an AssertionError that shows the command and the end of both outputs.
    """
    words = [*map(str, arguments), *([] if user_dir is None else ["--user-dir", str(user_dir)])]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    run = forked.run(f"fairseq_cli.{module}", words, stdin, variables)
    if check and run.returncode != 0:
        raise AssertionError(f"{' '.join(run.args)}\nexit {run.returncode}\n{run.stdout[-3000:]}\n{run.stderr[-5000:]}")
    return run


def binarize(corpus: str | Path, destination: str | Path, *flags: str | Path, joined: bool = False) -> Path:
    """Binarize every split of `corpus` with fairseq_cli.preprocess; return `destination`.

    `joined` makes one dictionary for both sides, as `--share-all-embeddings` needs.
    """
    corpus, destination = Path(corpus), Path(destination)
    splits = [split for split in ("train", "valid", "test") if (corpus / f"{split}.{SOURCE}").exists()]
    run_fairseq(
        "preprocess",
        *("--source-lang", SOURCE, "--target-lang", TARGET, "--workers", "1", "--destdir", destination),
        *(argument for split in splits for argument in (f"--{split}pref", corpus / split)),
        *(["--joined-dictionary"] if joined else []),
        *flags,
    )
    return destination


def train_flags(data: str | Path, save_dir: str | Path, arch: str) -> tuple[str | Path, ...]:
    """Flags that train `arch`, shrunk by TINY, on binarized `data`: two updates, a checkpoint after the last one."""
    return (
        *(data, "--arch", arch, *TINY, "--save-dir", save_dir),
        *("--optimizer", "adam", "--lr", "0.01", "--max-tokens", "200", "--max-update", "2"),
        *("--dropout", "0.1", "--seed", "1", "--num-workers", "0", "--required-batch-size-multiple", "1"),
        # Its thread can abort the interpreter when a training ends within an epoch.
        *("--data-buffer-size", "0", "--disable-validation"),
        *("--no-progress-bar", "--log-format", "simple", "--log-interval", "1"),
    )


def train(
    data: str | Path, save_dir: str | Path, arch: str, *flags: str | Path, validate: bool = False, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Train with these flags and fairseq_cli.train, on the CPU; later `flags` override. Validation only if asked for.

    Other arguments are those of `run_fairseq`.
    """
    words = [word for word in train_flags(data, save_dir, arch) if word != "--disable-validation" or not validate]
    return run_fairseq("train", *words, "--cpu", *flags, **how)


def losses(log: str) -> dict[int, float]:
    """Training loss by number of updates, from fairseq's log."""
    rows = re.findall(r"train_inner \| epoch.* loss=([\d.]+),.* num_updates=(\d+)", log)
    return {int(updates): float(loss) for loss, updates in rows}


def hydra_train(
    data: str | Path, save_dir: str | Path, model: str, *settings: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Train this `model={...}` on binarized `data` with fairseq-hydra-train, on the CPU; later `settings` override."""
    return run_fairseq(
        "hydra_train",
        *("task=translation", f"task.data={data}", f"common.user_dir={PACKAGE}", "common.cpu=true"),
        *("criterion=cross_entropy", "optimizer=adam", "optimization.lr=[0.01]", "dataset.max_tokens=200"),
        *("dataset.num_workers=0", "dataset.data_buffer_size=0", "dataset.disable_validation=true"),
        *(f"model={model}", f"checkpoint.save_dir={save_dir}", f"hydra.run.dir={save_dir}/hydra", *settings),
        check=check,
    )


def generate(
    data: str | Path, checkpoint: str | Path, *flags: str | Path, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Translate the test split of `data` with fairseq_cli.generate, beam 2, on the CPU; flags come last.

    The batch size multiple is 1 because fairseq silently drops the last batch otherwise. Other arguments are those of
    `run_fairseq`.
    """
    return run_fairseq(
        *("generate", data, "--path", checkpoint, "--cpu", "--beam", "2", "--batch-size", "7", "--max-len-b", "20"),
        *("--required-batch-size-multiple", "1", "--no-progress-bar", *flags),
        **how,
    )


def hypotheses(stdout: str) -> dict[int, str]:
    """The best hypothesis of each sentence in the output of fairseq-generate or -interactive, by id (`H-<id>`
    lines).
    """
    rows = re.findall(r"^H-(\d+)\t\S+\t(.*)$", stdout, re.MULTILINE)
    return {int(number): text for number, text in reversed(rows)}  # the best one comes first
