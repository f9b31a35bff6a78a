"""Writes the tables and pictures of README.md and docs/ that have data in results/, beside this file, or in the
package: `python docs/data/tables.py`.
"""

import io
import json
import logging
import re
import statistics
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any

import analyses
import pandas as pd
from rich.console import Console

from fairseq_posenc.augmentation import MODES, NO_EFFECT, UNDEFINED, WORKS, combined, effect
from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.commands.estimate_cost import estimates
from posenc_experiments.evaluation import plot
from posenc_experiments.evaluation.comparison import difference, star
from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU, TOKENIZED
from posenc_experiments.evaluation.pooling import pool, scored
from posenc_experiments.evaluation.report import number
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.experiment.layout import SACREBLEU

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "results"
Run = dict[str, Any]

GAINS = {"1": "", "√d": "--bias-gain auto", "d": "--bias-gain 16"}
#: what `bash recipes/quickstart/run.sh` printed, with paths relative to the repository
OUTPUT = HERE / "quickstart.txt"
IMAGES = ROOT / "docs" / "images"
TERMINAL = IMAGES / "quickstart.svg"
EN_DE, EN_FR = "multi30k/en-de", "multi30k/en-fr"  # in results/
#: the directory in results/ and the test set of each plot
PLOTS = {
    "clipping-distance.png": (EN_DE, "test_2016_flickr"),
    "clipping-distance-quickstart.png": ("quickstart", "test"),
}
BASELINE = "sinusoidal"
#: the rows of README and of the plots
CLIPPING = [*(f"shaw-k{k}" for k in (0, 1, 2, 4, 16, 64)), BASELINE, "diet_rel", "diet_rel-gain"]
#: the other baselines of Multi30k
PAIRED = ("shaw-k16", "shaw-k2", "diet_rel")
MULTI30K = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
COLUMNS = (*MULTI30K, ALL_TESTS)
SHORT, SHORT_CAPTIONS = "quickstart-short", "multi30k-short/en-de"
DEEPER = ("test_depth3", "test_depth4")
SCALARS = ("diet_rel", "t5", "tupe_rel", "kerple_log", "huang1", "huang2", "learned")
#: target words/s of one GPU in training transformer_wmt_en_de (docs/reproducing.md says where these are from)
V100 = 40_000
GPUS = {"V100, fp32": 18_000, "V100, fp16": V100, "A100, bf16": 2.2 * V100, "H100, bf16": 3.7 * V100}
VECTORS = {"sinusoidal": "", "shaw": "--clipping-distance 16"}


@cache
def results_of(directory: str) -> pd.DataFrame:
    """The results of the experiments in a directory of results/."""
    return read_results([RESULTS / directory])


def setting(directory: str, test: str, encoding: str, flags: str = "") -> pd.DataFrame:
    """The BLEU of all seeds of a setting in a directory of results/."""
    found = results_of(directory)
    of_test = found[(found["test"] == test) & (found["metric"] == BLEU)]
    return of_test[(of_test["encoding"] == encoding) & (of_test["flags"] == flags)]


def score(seeds: pd.DataFrame) -> str:
    """Mean BLEU with its standard deviation over seeds, and how many seeds there are."""
    if not len(seeds):
        return ""
    values = list(seeds["score"])
    spread = statistics.stdev(values) if len(values) > 1 else None
    return f"{scored({BLEU: statistics.fmean(values), f'{BLEU} spread': spread})} ({len(values)})"


def loss(seeds: pd.DataFrame) -> str:
    """Mean validation loss."""
    return f"{seeds['valid_loss'].mean():.3f}" if len(seeds) else ""


def table(headers: list[str], rows: list[list[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def learning() -> dict[str, str]:
    gain = []
    for name in SCALARS:
        settings = [setting("quickstart", "test", name, flags) for flags in GAINS.values()]
        gain.append([f"`{name}`", *map(score, settings), *map(loss, settings)])
    for name, flags in VECTORS.items():
        found = setting("quickstart", "test", name, flags)
        gain.append([f"`{name}`", score(found), "", "", loss(found), "", ""])
    longer = []
    for g, flags in (("1", ""), ("√d", "--bias-gain auto"), ("d", "--bias-gain 32")):
        tests = [setting(EN_DE, test, "diet_rel", flags) for test in MULTI30K]
        longer.append([g, *map(score, tests), loss(tests[0])])
    return {
        "gain": table(["encoding", *(f"G = {g}" for g in GAINS), *(f"loss, G = {g}" for g in GAINS)], gain),
        "longer": table(["G", *MULTI30K, "loss"], longer),
    }


def reproducing() -> dict[str, str]:
    return {"cost": cost(), "published": published()}


def published() -> str:
    """The scores of Multi30k's published setting."""
    rows = pool(results_of("multi30k-lc")).to_dict("records")
    cells = [[row["test"], f"{row[TOKENIZED]:.2f}", scored(row)] for row in rows]
    return table(["test set", "tok. BLEU (lowercased)", "SacreBLEU, lowercased"], cells)


def cost() -> str:
    """The GPU-hours of each of the papers' tables, by GPU."""
    recipes = [ROOT / "recipes" / name for name in ("wmt14", "wmt18")]
    of_tables = zip(*(estimates(recipes, words_per_second) for words_per_second in GPUS.values()), strict=True)
    rows = [
        [f"`{of_gpu[0].table}`", f"{of_gpu[0].words / 1e9:.1f}", *(f"{one.hours:,.0f}" for one in of_gpu)]
        for of_gpu in of_tables
    ]
    return table(["table", "billion target words", *GPUS], rows)


def read_scores(path: Path) -> list[Run]:
    """The rows of a CSV of `compare` or `table.sh`, with the keys of `pool`: also of BLEU by words of the source."""
    rows = pd.read_csv(path).astype(object)
    names = {name: re.fullmatch(r"bleu(?:_(interval|spread))?(?: (\S+))?", name) for name in rows}
    keys = {name: " ".join(filter(None, (key[2] or BLEU, key[1]))) for name, key in names.items() if key}
    return list(rows.where(rows.notna(), None).rename(columns=keys).to_dict("records"))


@cache
def compared(directory: str, file: str = "compare.csv") -> dict[str, dict[str, Run]]:
    """The rows of a file in a directory of results/, which `compare --baseline ... --format csv` wrote, by test set and
    experiment.

    Raises:
        ValueError: they are not those of the experiments in results/.
    """
    rows, pooled = read_scores(RESULTS / directory / file), pool(results_of(directory))
    # Scores on all tests together need the references, which are not kept.
    written = {(row["test"], row["experiment"], row[BLEU]) for row in rows if row["test"] != ALL_TESTS}
    if written != set(zip(pooled["test"], pooled["name"], pooled[BLEU], strict=True)):
        raise ValueError(f"results/{directory}/{file} is outdated: regenerate it as results/README.md says.")
    tests: dict[str, dict[str, Run]] = {}
    for row in rows:
        tests.setdefault(row["test"], {})[row["experiment"]] = row
    return tests


def results() -> dict[str, str]:
    found = sorted(compared("quickstart")["test"].values(), key=lambda row: -row[BLEU])
    generated = [
        [
            *(f"`{row['experiment']}`", scored(row), *test_of(row)),
            *(f"{row['chrf']:.2f}", f"{row['parameters']:,.0f}"),
        ]
        for row in found
    ]
    of_all = compared(EN_DE)[ALL_TESTS]
    several, single = (
        [name for name, row in of_all.items() if (" " in str(row["seeds"])) == more] for more in (True, False)
    )
    return {
        "quickstart": table(["experiment", "BLEU", "difference", "p", "chrF", "parameters"], generated),
        "multi30k": multi30k_scores(several),
        "multi30k-seed1": multi30k_scores(single),
        "multi30k-en-fr": multi30k_scores(directory=EN_FR),
        "multi30k-pairs": multi30k_pairs(several),
        **lengths(),
    }


def multi30k_pairs(names: Collection[str]) -> str:
    """The differences between Multi30k's experiments and each baseline of PAIRED, on all tests together."""
    of_baseline = [compared(EN_DE, f"compare-{baseline}.csv")[ALL_TESTS] for baseline in PAIRED]
    rows = [[f"`{name}`", *(cell for of_all in of_baseline for cell in test_of(of_all[name]))] for name in names]
    return table(["experiment", *(cell for name in PAIRED for cell in (f"from `{name}`", "p"))], rows)


def test_of(row: Run) -> tuple[str, str]:
    """The difference from the baseline, and p with Holm's correction."""
    return difference(row), number(row["holm_p_value"], ".3f")


def by_words(directory: str) -> str:
    """BLEU by words of the source, as `table.sh short` of a recipe wrote it."""
    rows = [row for row in read_scores(RESULTS / directory / "short.csv") if not row["missing"]]
    ranges = [name.removeprefix("sentences ") for name in rows[0] if name.startswith("sentences ")]
    cells = [[f"`{row['experiment']}`", *(scored(row, words) for words in ranges)] for row in rows]
    return table(["experiment", *(f"{words} words" for words in ranges)], cells)


def lengths() -> dict[str, str]:
    """Scores of models that were trained on short sentences."""
    of_test = compared(SHORT)
    ratios = length_ratios(SHORT)
    deeper = [
        [f"`{name}`", *(cell for test in DEEPER for cell in (scored(of_test[test][name]), ratios[test, name]))]
        for name in of_test[DEEPER[0]]
    ]
    return {
        "short": by_words(SHORT),
        "short-captions": by_words(SHORT_CAPTIONS),
        "short-captions-tests": multi30k_scores(directory=SHORT_CAPTIONS),
        "deeper": table(["experiment", *(cell for test in DEEPER for cell in (test, "length ratio"))], deeper),
    }


def length_ratios(directory: str) -> dict[tuple[str, str], str]:
    """Words of the translations by words of the references, the mean over seeds, by test set and experiment."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in results_of(directory).drop_duplicates(["directory", "test"]).itertuples():
        bleu = json.loads((one.directory / f"{one.test}.{SACREBLEU}").read_text(encoding="utf-8"))[0]
        (ratio,) = re.findall(r"ratio = ([\d.]+)", bleu["verbose_score"])
        found.setdefault((one.test, one.name), []).append(float(ratio))
    return {key: f"{statistics.fmean(ratios):.3f}" for key, ratios in found.items()}


def multi30k_scores(names: Collection[str] | None = None, file: str = "compare.csv", directory: str = EN_DE) -> str:
    """BLEU of Multi30k's experiments in a file of `compare`, by default of all, on each test set and on all together,
    with the differences on all together.

    Raises:
        ValueError: results/ has no such experiment.
    """
    of_test = compared(directory, file)
    found = of_test[MULTI30K[0]]
    chosen = names or list(found)
    if missing := [name for name in chosen if name not in found]:
        raise ValueError(
            f"results/{directory} has no {', '.join(missing)}: run `bash recipes/multi30k/run.sh --experiments "
            f"{','.join(missing)}`, and keep it as results/README.md says."
        )
    rows = []
    for name in chosen:
        whole, single = of_test[ALL_TESTS][name], [of_test[test][name] for test in MULTI30K]
        scores = [scored(row) + star(row) for row in single]
        rows.append([f"`{name}`", *scores, scored(whole), *test_of(whole)])
    headers = ["experiment", *COLUMNS, "difference", "p"]
    if not any(row[-1] for row in rows):  # of one seed
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    return table(headers, rows)


def readme() -> dict[str, str]:
    return {"clipping": multi30k_scores(CLIPPING)}


def draw(path: Path, directory: str, test: str) -> None:
    """Draws BLEU against clipping distance."""
    found = results_of(directory)
    chosen = found[(found["test"] == test) & found["name"].isin(CLIPPING)]
    plot.plot(pool(chosen.sort_values("name", key=lambda names: names.map(CLIPPING.index), kind="stable")), path)


def draw_terminal(path: Path) -> None:
    """Draws the first and the last lines of the quickstart's output as a terminal."""
    command = "bash recipes/quickstart/run.sh"
    lines = OUTPUT.read_text(encoding="utf-8").splitlines()
    table = next(number for number, line in enumerate(lines) if line.startswith("quickstart xa-xb test"))
    console = Console(record=True, width=100, file=io.StringIO())
    for line in [f"$ {command}", *lines[:3], "...", *lines[table - 5 :]]:
        console.print(line, markup=False, highlight=False, overflow="ellipsis", no_wrap=True)
    svg = console.export_svg(title=command, unique_id="quickstart")
    without_fonts = re.sub(r"(@font-face \{.*?\}|<!--.*?-->)\s*", "", svg, flags=re.DOTALL)  # they are on the network
    path.write_text(without_fonts, encoding="utf-8")


def options() -> dict[str, str]:
    """What each position augmentation does with each architecture, from what its encodings declare."""
    spelled = {WORKS: "works", NO_EFFECT: "refused: no effect", UNDEFINED: "refused: undefined"}
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, cls in ENCODINGS.items():
        sides = [cls, ENCODINGS[cls.facts.in_decoder or name]]
        effects = [combined([effect(mode, side, side.facts.input_positions) for side in sides]) for mode in MODES]
        alike.setdefault(tuple(spelled[found] for found in effects), []).append(f"`{name}`")
    rows = [[", ".join(names), *effects] for effects, names in alike.items()]
    return {"augmentation": table(["encodings", *(f"`{mode}`" for mode in MODES)], rows)}


PAGES: dict[str, Callable[[], dict[str, str]]] = {
    "README.md": readme,
    "docs/learning.md": learning,
    "docs/options.md": options,
    "docs/reproducing.md": reproducing,
    "docs/results.md": results,
}


def filled(page: str) -> tuple[Path, str]:
    """A page, and its text with each table filled at the mark with its name."""
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    for place, made in PAGES[page]().items():
        pattern = rf"(<!-- table: {place} -->\n).*?(<!-- end -->)"
        text, found = re.subn(pattern, lambda match, made=made: f"{match[1]}{made}\n{match[2]}", text, flags=re.DOTALL)
        if found != 1:
            raise ValueError(f"{path} has {found} places for the table '{place}', not one.")
    return path, text


if __name__ == "__main__":
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # importing fairseq sets the root logger to DEBUG
    for name in PAGES:
        page_path, page_text = filled(name)
        page_path.write_text(page_text, encoding="utf-8")
    for picture, chosen in PLOTS.items():
        draw(IMAGES / picture, *chosen)
    analyses.draw(IMAGES)
    draw_terminal(TERMINAL)
