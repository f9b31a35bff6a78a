"""Formats results as Markdown and JSON, with the settings, versions and hardware of the run."""

from __future__ import annotations

import datetime
import platform
import statistics
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import fairseq
import torch
from tabulate import tabulate  # type: ignore[import-untyped]

import fairseq_posenc

from . import growth
from .models import Setup
from .results import Result, exponent, quartiles
from .rounds import STOCK


def describe_run(setup: Setup, settings: dict[str, Any], command: str) -> dict[str, Any]:
    """The date, versions, hardware and settings of a run."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "versions": {
            "fairseq_posenc": fairseq_posenc.__version__,
            "fairseq": _fairseq_version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "device": device_name(setup.device),
        "threads": torch.get_num_threads(),
        "precision": setup.precision,
        "size": setup.size,
        "flags": list(setup.flags),
        "seed": setup.seed,
        **settings,
    }


def _fairseq_version() -> str:
    """The version of the ve-fairseq distribution, or ``fairseq.__version__`` without it."""
    try:
        return f"{metadata.version('ve-fairseq')} (ve-fairseq)"
    except metadata.PackageNotFoundError:
        return str(fairseq.__version__)


def device_name(device: str) -> str:
    """The name of the GPU, or of the CPU according to Linux."""
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def as_json(run: dict[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """The run and its results, with the figures of every round."""
    return {**run, "results": [result.as_dict() for result in results]}


def heading(run: dict[str, Any]) -> str:
    """Two lines: hardware and versions; settings and the meaning of the figures."""
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    flags = f", {' '.join(run['flags'])}" if run["flags"] else ""
    return (
        f"{run['device']}, {run['threads']} CPU thread(s), {run['precision']}; {versions}; {run['date']}\n"
        f"size {run['size']}{flags}; {run['clock']} time; ratio to stock fairseq's transformer: median (quartiles) of "
        f"{run['rounds']} rounds; above 1 is faster for words/s and sentences/s, below 1 is less for s, ms and MiB\n"
    )


def tables(results: Sequence[Result]) -> str:
    """A Markdown table for each measure."""
    rendered = []
    for measure in dict.fromkeys(result.measure for result in results):
        of_measure = [result for result in results if result.measure == measure]
        rendered.append(f"\n**{measure}**\n\n{_render(measure, of_measure)}\n")
    return "".join(rendered)


def _render(measure: str, results: Sequence[Result]) -> str:
    settings = list(dict.fromkeys(result.setting for result in results))
    by_place = {(result.encoding, result.setting): result for result in results}
    fits = measure in (growth.TIME, growth.MEMORY)
    rows = []
    for encoding in dict.fromkeys(result.encoding for result in results):
        cells = [cell for setting in settings for cell in _cells(by_place[encoding, setting])]
        rows.append([encoding, *cells, *([_exponent(encoding, results)] if fits else [])])
    unit = results[0].unit
    headers = ["encoding", *(text for setting in settings for text in (f"{setting}: {unit}", "ratio"))]
    headers += ["exponent"] if fits else []
    alignment = ("left", *["right"] * (len(headers) - 1))
    table = str(tabulate(rows, headers, tablefmt="pipe", disable_numparse=True, colalign=alignment))
    refused = [
        f"* {result.encoding}, {result.setting}, refused: {result.refused}" for result in results if result.refused
    ]
    return "\n\n".join([table, *(["\n".join(refused)] if refused else [])])


def _cells(result: Result) -> tuple[str, str]:
    """The cells of a result: the median, and the ratio with its quartiles."""
    if result.refused is not None:
        return "refused", "refused"
    own = _number(statistics.median(result.own))
    if result.encoding == STOCK:
        return own, "1"
    return own, ratio(result)


def ratio(result: Result) -> str:
    """The median ratio to stock and, of several rounds, its quartiles."""
    low, middle, high = quartiles(result.ratios)
    spread = f" ({low:.3f} to {high:.3f})" if len(result.ratios) > 1 else ""
    return f"{middle:.3f}{spread}"


def _number(value: float) -> str:
    """Formats a number with four significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.4g}"


def _exponent(encoding: str, results: Sequence[Result]) -> str:
    """The exponent of the growth with n; empty if fewer than two lengths were measured."""
    points = [
        (int(result.setting.removeprefix("n = ")), statistics.median(result.own))
        for result in results
        if result.encoding == encoding and result.refused is None
    ]
    if len(points) < 2:
        return ""
    return f"{exponent(*zip(*points, strict=True)):.2f}"
