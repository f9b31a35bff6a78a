"""Writes the tables of docs/ that have data beside this file: `python docs/data/tables.py`."""

import csv
import re
import runpy
import statistics
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGES = {  # by the name of the page, its runs
    "fairseq": "fairseq-tests.csv",
    "learning": "learning.csv",
    "reproducing": "multi30k-settings.csv",
}
Run = dict[str, str]

GAINS = {"1": "", "√d": "--bias-gain auto", "d": "--bias-gain 16"}
SCALARS = ("diet_rel", "t5", "tupe_rel", "kerple_log", "huang1", "huang2")
OLD = "initial rms 0.02"  # of t5, before it started from its authors' values


def read(name: str) -> list[Run]:
    """The runs in a file, one a row."""
    with open(HERE / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def of(runs: Iterable[Run], encoding: str, flags: str = "", changed: str = "", optimizer: str = "adam") -> list[Run]:
    """All seeds of one setting."""
    wanted = {"encoding": encoding, "flags": flags, "changed": changed, "optimizer": optimizer}
    return [run for run in runs if wanted.items() <= run.items()]


def score(runs: list[Run]) -> str:
    """Mean BLEU with the standard deviation over seeds, and how many seeds there are."""
    values = [float(run["bleu"]) for run in runs]
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread} ({len(values)})"


def loss(runs: list[Run]) -> str:
    """Mean validation loss."""
    return f"{statistics.fmean(float(run['valid_loss']) for run in runs):.3f}" if runs else ""


def table(headers: list[str], rows: list[list[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def learning(runs: list[Run]) -> dict[str, str]:
    gain = []
    for name in SCALARS:
        settings = [of(runs, name, flags, OLD if name == "t5" else "") for flags in GAINS.values()]
        gain.append([f"`{name}`", *(score(found) for found in settings), *(loss(found) for found in settings)])
    for name in ("sinusoidal", "shaw"):
        found = [run for run in of(runs, name) + of(runs, name, "--clipping-distance 16") if run]
        gain.append([f"`{name}`", score(found), "", "", loss(found), "", ""])
    initial = [
        [rms, *(score(of(runs, "t5", flags, f"initial rms {rms}")) for flags in ("", "--bias-gain auto"))]
        for rms in ("0.02", "0.125", "0.224")
    ]
    others = [
        (name, changed or "as it stands", of(runs, name, flags, changed))
        for name, flags, changed in (
            ("learned", "", ""),
            ("learned", "", "gain 8"),
            ("learned", "", "initial values x 8"),
            ("learned", "", "gain 8, initial values x 8"),
            ("alibi", "", ""),
            ("alibi", "", "slopes x 0.25"),
            ("alibi", "", "slopes x 4"),
            ("alibi", "", "slopes x 16"),
            ("huang3", "", ""),
            ("huang3", "", "vector = 1 + 4 (theta - 1)"),
        )
    ]
    return {
        "gain": table(["encoding", *(f"G = {g}" for g in GAINS), *(f"loss, G = {g}" for g in GAINS)], gain),
        "initial": table(["root mean square of the initial values", "`t5`", "`t5`, G = √d"], initial),
        "others": table(
            ["encoding", "change", "BLEU", "valid loss"],
            [[f"`{name}`", what, score(found), loss(found)] for name, what, found in others if found],
        ),
    }


def reproducing(runs: list[Run]) -> dict[str, str]:
    headers = ["layers", "width, ffn", "tokens a batch", "updates", "rate", "dropout"]
    rows = [
        [run["layers"], f"{run['width']}, {run['ffn']}", run["batch_tokens"], run["updates"], run["lr"], run["dropout"]]
        + [run[key] for key in ("valid_bleu", "test_bleu", "valid_bleu_averaged", "test_bleu_averaged")]
        + [f"{float(run['cpu_seconds']) / 60:.1f}"]
        for run in runs
    ]
    scores = ["valid", "test_2016_flickr", "valid, last 3 averaged", "test, last 3 averaged"]
    return {"settings": table([*headers, *scores, "CPU minutes"], rows)}


def fairseq(runs: list[Run]) -> dict[str, str]:
    """As the script prints them that made the data."""
    script = runpy.run_path(str(HERE.parents[1] / "scripts" / "run_fairseq_tests.py"))
    return {
        "tests": script["summary"](runs),
        "differences": script["differences"](runs),
        "options": script["trials"](runs),
    }


TABLES = {"fairseq": fairseq, "learning": learning, "reproducing": reproducing}


def filled(name: str) -> tuple[Path, str]:
    """A page and its text with the tables made again, each at the place that bears its name."""
    path = HERE.parent / f"{name}.md"
    page = path.read_text(encoding="utf-8")
    for place, text in TABLES[name](read(PAGES[name])).items():
        pattern = rf"(<!-- table: {place} -->\n).*?(<!-- end -->)"
        page, found = re.subn(pattern, lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page, flags=re.DOTALL)
        if found != 1:
            raise ValueError(f"{path} has {found} places for the table '{place}', not one.")
    return path, page


if __name__ == "__main__":
    for page_name in PAGES:
        page_path, page_text = filled(page_name)
        page_path.write_text(page_text, encoding="utf-8")
