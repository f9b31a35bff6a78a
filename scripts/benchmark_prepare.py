#!/usr/bin/env python
"""Measures time, memory and disk of every step of the WMT recipes from archive to binarized data, on synthetic text.

    python scripts/benchmark_prepare.py --lines 2000000 --cpus 16 --out DIRECTORY

Sentence pairs are random with a fixed seed: words follow Zipf's law, with 25 words per sentence on average. They are
written to an archive in the layout of the real one (training/europarl-v7.de-en.{en,de} in a .tgz). The recipe's own
command line then runs `download` and `prepare` with the settings of recipes/common/wmt/corpus.conf, first on a quarter
of the pairs and then on all of them. The CPU time and peak memory of each step (PSS, where shared pages count once) are
sampled from the process tree five times a second, the peak size from the data directory.

The results are extrapolated linearly from the two runs to `--pairs` on a machine with `--cpus` cores. The benchmark
runs the same number of processes, possibly on fewer cores, so that their memory is measured.

* Memory: constant, since the steps are streams (use at least 200,000 lines, so that the queues of 16 processes are
  full). The exception is `binarize`: fairseq-preprocess holds two Python lists of numbers when it merges the parts of
  its workers, which we measured as 86 bytes per pair.
* Time: computed from CPU seconds, since the machine may run other jobs. `clean` and `encode` run on all cores, but no
  faster than the single process that reads and writes. `binarize` runs on all cores, `extract` on one. `learn` reads a
  sample of constant size.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from posenc_experiments.base.markers import file_hash

ROOT = Path(__file__).resolve().parents[1]
STEPS = ("extract", "evaluation", "clean", "learn", "encode", "binarize")
MEMBER = "training/europarl-v7.de-en"
SECONDS = 0.2
FAIRSEQ_BYTES = 86  # MMapIndexedDatasetBuilder's sizes and pointers, of 4 million sentences joined from two parts
TICK = os.sysconf("SC_CLK_TCK")

CONF = f"""
[extends]
conf = {ROOT}/recipes/common/wmt/corpus.conf
[corpus]
name = benchmark
pairs = en-de
sources = sources.tsv
archives = archives.tsv
downloads = benchmark/download
train = train
valid = valid
tests = valid
[prepare]
vocabulary = {{vocabulary}}
sample = {{sample}}
[model]
size = tiny
[experiments]
sinusoidal = sinusoidal
"""


@dataclass
class Measured:
    """The measurements of one step."""

    step: str
    lines: int
    seconds: float = 0.0
    main_cpu: float = 0.0  # CPU seconds of the main process
    cpu: float = 0.0  # CPU seconds of all processes
    memory: int = 0  # bytes of all processes
    disk: int = 0


def words(rng: np.random.Generator, count: int, letters: str) -> np.ndarray:
    """Random words in the order of their frequency; frequent words are shorter."""
    lengths = np.clip(2 + np.log2(1 + np.arange(count)) / 2 + rng.poisson(1.0, count), 2, 16).astype(int)
    table = np.array(list(letters))
    return np.array(["".join(table[rng.integers(0, len(table), length)]) for length in lengths], dtype=object)


def sentences(lines: int, side: str, seed: int = 1) -> Iterator[bytes]:
    """Yields blocks of lines of one language; the sentences of a pair differ in length by at most two words."""
    lengths_rng = np.random.default_rng(seed)  # the same for both languages
    rng = np.random.default_rng([seed, len(side), ord(side[0])])
    vocabulary = words(rng, 300_000, "etaoinshrdlucmfgypwbvk" if side == "en" else "enisratdhulcgmobwfkzüä")
    frequency = np.cumsum(1 / np.arange(1, len(vocabulary) + 1))
    frequency /= frequency[-1]
    while lines > 0:
        size = min(lines, 20_000)
        lengths = np.clip(lengths_rng.gamma(3.0, 25 / 3, size), 1, 120).astype(int)
        if side != "en":
            lengths = np.clip(lengths + rng.integers(-2, 3, size), 1, None)
        drawn = vocabulary[np.searchsorted(frequency, rng.random(lengths.sum()))]
        ends = np.cumsum(lengths)
        parts = (drawn[end - length : end] for end, length in zip(ends, lengths, strict=True))
        yield "".join(" ".join(part) + " .\n" for part in parts).encode()
        lines -= size


def write_corpus(directory: Path, lines: int, conf: str) -> None:
    """Writes the recipe and the archive for the stage `download`."""
    archive = directory / "corpus.tgz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tarred:
        for name, size in ((MEMBER, lines), ("dev/newstest2013", min(lines, 3000))):
            for side in ("en", "de"):
                text = directory / "member.tmp"
                with open(text, "wb") as file:
                    file.writelines(sentences(size, side))
                tarred.add(text, f"{name}.{side}")
                text.unlink()
    rows = [
        (split, side, name)
        for split, name in (("train", MEMBER), ("valid", "dev/newstest2013"))
        for side in ("en", "de")
    ]
    with open(directory / "sources.tsv", "w", encoding="utf-8") as file:
        file.write("split\tpairs\tlanguage\tarchive\tmember\tlines\n")
        file.writelines(f"{split}\t*\t{side}\tcorpus\t{name}.{side}\t-\n" for split, side, name in rows)
    with open(directory / "archives.tsv", "w", encoding="utf-8") as file:
        file.write(
            f"archive\turl\tbytes\tchecksum\ncorpus\thttp://localhost:1/{archive.name}\t{archive.stat().st_size}\t"
        )
        file.write(f"sha256:{file_hash(archive)}\n")
    (directory / "benchmark.conf").write_text(conf, encoding="utf-8")


def process_tree(root: int) -> dict[int, list[str]]:
    """The fields of /proc/PID/stat after the name, for a process and its descendants."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                found[int(path.name)] = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
    descendants = {root}
    for pid in sorted(found):  # misses a child with a smaller number than its parent, which is rare
        if int(found[pid][1]) in descendants:
            descendants.add(pid)
    return {pid: found[pid] for pid in descendants if pid in found}


def pss(pid: int) -> int:
    """The proportional set size of a process in bytes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().split("\n")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def cpu_seconds(processes: dict[int, list[str]], root: int) -> tuple[float, float]:
    """CPU seconds of the main process, and of all processes.

    Each process has four numbers: user and system time of its own, and of its finished children.
    """
    times = {pid: [int(number) / TICK for number in stat[11:15]] for pid, stat in processes.items()}
    return sum(times.get(root, [0.0])[:2]), sum(map(sum, times.values()))


def size_of(directory: Path) -> int:
    """The disk space of a directory in bytes."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512 // path.stat().st_nlink if path.is_file() else 0
        except OSError:
            continue
    return total


def measure(directory: Path, lines: int, cpus: int) -> list[Measured]:
    """Runs the recipe on a corpus and measures its steps."""
    data = directory / "data"
    options = ["--conf", directory / "benchmark.conf", "--source", directory, "--data-dir", data, "--gpus", "0"]
    options += ["--output-dir", directory / "output", "--cpus", str(cpus), "--stages", "download,prepare"]
    process = subprocess.Popen(
        [sys.executable, "-m", "posenc_experiments", "run", *map(str, options)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    steps = [Measured("download", lines)]
    started: list[tuple[float, tuple[float, float]]] = [(time.perf_counter(), (0.0, 0.0))]
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(SECONDS):
            processes, now = process_tree(process.pid), steps[-1]
            now.memory = max(now.memory, sum(map(pss, processes)))
            now.disk = max(now.disk, size_of(data))

    def finish(now: float, spent: tuple[float, float]) -> None:
        begun, before = started[-1]
        steps[-1].seconds = now - begun
        steps[-1].main_cpu, steps[-1].cpu = (after - earlier for after, earlier in zip(spent, before, strict=True))

    watcher = threading.Thread(target=watch)
    watcher.start()
    spent = (0.0, 0.0)
    for line in process.stdout:
        word = line.removeprefix("prepare: ").strip().removesuffix("...")
        if line.startswith("prepare: ") and line.strip().endswith("..."):
            spent = cpu_seconds(process_tree(process.pid), process.pid)
            finish(time.perf_counter(), spent)
            started.append((time.perf_counter(), spent))
            steps.append(Measured(word, lines))
            click.echo(f"  {word}", err=True)
    finished.set()
    watcher.join()
    if process.wait() != 0:
        raise SystemExit(f"error: the recipe ended with exit status {process.returncode}.")
    return [step for step in steps if step.step in STEPS]


@dataclass
class Extrapolated:
    """The extrapolated time, memory and disk of a step."""

    step: str
    hours: float
    memory: int
    disk: int


def line_through(small: tuple[int, float], large: tuple[int, float], at: int) -> float:
    """The value at `at` of the line through two points, with a slope of at least 0."""
    (x0, y0), (x1, y1) = small, large
    slope = max(0.0, (y1 - y0) / (x1 - x0))
    return y1 + slope * (at - x1)


def extrapolate(small: Measured, large: Measured, pairs: int, cpus: int) -> Extrapolated:
    """Extrapolates a step from two runs, as described at the top of this file."""

    def at(name: str) -> float:
        return line_through((small.lines, getattr(small, name)), (large.lines, getattr(large, name)), pairs)

    memory = large.memory + (FAIRSEQ_BYTES * (pairs - large.lines) if large.step == "binarize" else 0)
    seconds = at("cpu")
    if large.step in ("clean", "encode"):
        seconds = max(at("main_cpu"), (at("cpu") - at("main_cpu")) / cpus)
    elif large.step == "binarize":
        seconds = at("cpu") / cpus
    elif large.step in ("learn", "evaluation"):
        seconds = large.cpu
    return Extrapolated(large.step, seconds / 3600, int(memory), int(large.disk * pairs / large.lines))


def report(small: list[Measured], large: list[Measured], pairs: int, cpus: int) -> str:
    """A Markdown table of measured and extrapolated figures."""
    rows = [
        f"| step | lines/s here | CPU s | peak memory | peak disk "
        f"| {pairs / 1e6:g}M pairs on {cpus} cores: hours | memory | disk |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    extrapolated = [extrapolate(*runs, pairs, cpus) for runs in zip(small, large, strict=True)]
    for step, far in zip(large, extrapolated, strict=True):
        rows.append(
            f"| {step.step} | {step.lines / step.seconds:,.0f} | {step.cpu:,.0f} | {step.memory / 2**20:,.0f} MiB "
            f"| {step.disk / 2**30:.2f} GiB | {far.hours:.2f} "
            f"| {far.memory / 2**30:.1f} GiB | {far.disk / 2**30:.0f} GiB |"
        )
    rows.append(
        f"| all | {large[0].lines / sum(step.seconds for step in large):,.0f} | {sum(step.cpu for step in large):,.0f} "
        f"| {max(step.memory for step in large) / 2**20:,.0f} MiB | {max(step.disk for step in large) / 2**30:.2f} GiB "
        f"| {sum(far.hours for far in extrapolated):.2f} "
        f"| {max(far.memory for far in extrapolated) / 2**30:.1f} GiB "
        f"| {max(far.disk for far in extrapolated) / 2**30:.0f} GiB |"
    )
    return "\n".join(rows)


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--lines", default=2_000_000, show_default=True, type=click.IntRange(min=1000), help="Number of pairs.")
@click.option("--cpus", default=16, show_default=True, type=click.IntRange(min=1), help="Number of processes.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Directory for the text and benchmark.json."
)
@click.option(
    "--pairs",
    default=36_000_000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of pairs to extrapolate to.",
)
@click.option("--vocabulary", default=32768, show_default=True, type=click.IntRange(min=100))
@click.option(
    "--sample",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Pairs from which subwords are learnt.",
)
def main(lines: int, cpus: int, out: Path, pairs: int, vocabulary: int, sample: int) -> None:
    conf = CONF.format(vocabulary=vocabulary, sample=sample)
    out.mkdir(parents=True, exist_ok=True)
    runs = []
    for size in (lines // 4, lines):
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=out) as work:
            click.echo(f"generating {size:,} pairs", err=True)
            write_corpus(Path(work), size, conf)
            runs.append(measure(Path(work), size, cpus))
    table = report(runs[0], runs[1], pairs, cpus)
    about = {
        "machine": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "cpus": cpus,
        "python": platform.python_version(),
    }
    result = {"about": about, "runs": [[asdict(step) for step in run] for run in runs], "table": table}
    (out / "benchmark.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    click.echo(table)


if __name__ == "__main__":
    main()
