"""Writes the tables and pictures of README.md and docs/ that have data in results/, in docs/data/ or in the
package: `python tools/tables.py`.
"""

import itertools
import logging
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import analyses
import pandas as pd
import speed

from fairseq_posenc.augmentation.choice import MODES, NO_EFFECT, UNDEFINED, WORKS, combined, effect
from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.analysis.contrast import shown
from posenc_experiments.base.files import read_json
from posenc_experiments.commands.estimate_cost import estimates
from posenc_experiments.evaluation import plot
from posenc_experiments.evaluation.comparison import Comparison
from posenc_experiments.evaluation.forest import draw_forest
from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU, TOKENIZED, csv_name
from posenc_experiments.evaluation.paper_table import read_table
from posenc_experiments.evaluation.pooling import pool, scored
from posenc_experiments.evaluation.questions import read_questions
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.evaluation.tables import difference, verdict

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "data"
RESULTS = ROOT / "results"
Run = dict[str, Any]

IMAGES = ROOT / "docs" / "images"
EN_DE, JA_EN = "multi30k/en-de", "kftt/ja-en"  # in results/
BASELINE = "sinusoidal"
#: the rows of README's plot, and of its table
CLIPPING = [*(f"shaw-k{k}" for k in (0, 1, 2, 4, 16, 64)), BASELINE, "diet_rel", "diet_rel-gain"]
SHORT_CLIPPING = ["shaw-k0", "shaw-k1", "shaw-k2", "shaw-k16", BASELINE]
MULTI30K = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
QUESTIONS = read_questions(ROOT / "docs" / "questions.yaml")
RATES = "multi30k-rates/multi30k/en-de"  # seed 1 at several learning rates
#: target words/s of one GPU in training transformer_wmt_en_de (docs/reproducing.md says where these are from)
V100 = 40_000
GPUS = {"V100, fp32": 18_000, "V100, fp16": V100, "A100, bf16": 2.2 * V100, "H100, bf16": 3.7 * V100}


def read(path: Path) -> list[Run]:
    """The rows of a CSV as text."""
    return list(pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records"))


@cache
def results_of(directory: str) -> pd.DataFrame:
    """The results of the experiments in a directory of results/."""
    return read_results([RESULTS / directory])


def bleu_of(directory: str, test: str) -> pd.DataFrame:
    """The BLEU of all experiments in a directory of results/ on a test set."""
    return results_of(directory).query("test == @test and metric == @BLEU")


def table(headers: list[str], rows: list[list[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def keyed_table(rows: Iterable[Mapping[str, str]]) -> str:
    """A table of rows that have their cells by column."""
    rows = list(rows)
    return table(list(rows[0]), [list(row.values()) for row in rows])


def machines() -> dict[str, str]:
    """How BLEU of the same trainings differs between processors, beside how seeds differ."""
    bleu = pd.read_csv(DATA / "machines.csv").pivot(index=["name", "seed"], columns="cpu", values="bleu")
    here, kept = bleu["AVX-512"], bleu_of("quickstart", "test").set_index(["name", "seed"])["score"]
    before = (kept - here).dropna()
    seeds = [list(scores) for _, scores in kept[before.index].groupby("name")]
    compared = {
        "the same command twice": (bleu["AVX-512 again"] - here).dropna(),
        "AVX2 and AVX-512 of one EPYC": (bleu["AVX2"] - here).dropna(),
        "results/ and the EPYC": before,
        "the same, means over three seeds": before.groupby("name").mean(),
        "two seeds in results/": [one - other for scores in seeds for one, other in itertools.combinations(scores, 2)],
    }
    rows = [
        [what, str(len(by)), f"{math.hypot(*by) / math.sqrt(len(by)):.2f}", f"{max(map(abs, by)):.2f}"]
        for what, by in compared.items()
    ]
    return {"machines": table(["compared", "pairs", "root mean square", "largest"], rows)}


def reproducing() -> dict[str, str]:
    captions = {name: row[BLEU] for name, row in compared(RATES)[ALL_TESTS].items()}
    articles = dict(bleu_of("kftt-rates", "test")[["name", "score"]].itertuples(index=False))
    short = " --max-update 3500 --lr {} --total-num-update 3500"
    flags = {"1.5e-3": " --lr 1.5e-3", "3e-3 (the recipe's)": "", "6e-3": " --lr 6e-3"}
    short_flags = {rate: short.format(rate[:4]) for rate in ("1e-3", "2e-3 (the recipe's)", "4e-3")}
    return {
        "cost": cost(),
        "published": published(),
        "multi30k-rates": rates(RATES, captions, flags, BASELINE, "shaw-k16", "diet_rel-gain", "rotary"),
        "kftt-rates": rates("kftt-rates", articles, short_flags, BASELINE, "shaw-k16"),
    }


def rates(directory: str, scores: dict[str, float], flags: dict[str, str], *encodings: str) -> str:
    """BLEU and, in brackets, the validation loss of encodings at several learning rates, seed 1.

    Args:
        directory: in results/.
        scores: BLEU by the experiment's name.
        flags: what follows the encoding's name in that of an experiment, by rate.
        encodings: the rows.
    """
    losses = dict(results_of(directory)[["name", "valid_loss"]].itertuples(index=False))
    cells = {name: f"{scores[name]:.2f} ({losses[name]:.3f})" for name in scores}
    rows = [[f"`{one}`", *(cells[one + flag] for flag in flags.values())] for one in encodings]
    return table(["encoding", *flags], rows)


def published() -> str:
    """The scores of Multi30k's published setting."""
    rows = pool(results_of("multi30k-lc")).to_dict("records")
    cells = [[row["test"], f"{row[TOKENIZED]:.2f}", scored(row)] for row in rows]
    return table(["test set", "tok. BLEU (lowercased)", "SacreBLEU, lowercased"], cells)


def cost() -> str:
    """The GPU-hours of each of the papers' tables, by GPU."""
    recipes = [ROOT / "recipes" / name for name in ("wmt14", "wmt18")]
    rows: dict[str, dict[str, str]] = {}
    for gpu, words_per_second in GPUS.items():
        for one in estimates(recipes, words_per_second):
            row = {"table": f"`{one.table}`", "billion target words": f"{one.words / 1e9:.1f}"}
            rows.setdefault(one.table, row)[gpu] = f"{one.hours:,.0f}"
    return keyed_table(rows.values())


def read_scores(path: Path) -> list[Run]:
    """The rows of a CSV of `compare`, with the keys of `pool`."""
    keys = {csv_name(key): key for key in (BLEU, f"{BLEU} interval", f"{BLEU} spread")}
    rows = pd.read_csv(path).rename(columns=keys).astype(object)
    return list(rows.where(rows.notna(), None).to_dict("records"))


@cache
def compared(directory: str, file: str = "compare.csv") -> dict[str, dict[str, Run]]:
    """The rows of a file in a directory of results/, which `compare --baseline ... --format csv` wrote, by test set and
    experiment.

    Raises:
        ValueError: they are not those of the experiments in results/.
    """
    rows, pooled = read_scores(RESULTS / directory / file), pool(results_of(directory))
    # Scores on all tests together, on halves and on parts need the references, which are not kept.
    written = {(row["test"], row["experiment"], row[BLEU]) for row in rows if " " not in row["test"]}
    if written != set(zip(pooled["test"], pooled["name"], pooled[BLEU], strict=True)):
        raise ValueError(f"results/{directory}/{file} is outdated: regenerate it as results/README.md says.")
    tests: dict[str, dict[str, Run]] = {}
    for row in rows:
        tests.setdefault(row["test"], {})[row["experiment"]] = row
    return tests


def results() -> dict[str, str]:
    """The comparisons of each question of which there are any."""
    return {f"question-{key_of(question)}": comparisons(rows) for question, rows in answers().items()}


def scores() -> dict[str, str]:
    return multi30k() | {"quickstart": one_test("quickstart"), "kftt": one_test(JA_EN, without_penalty=True)}


def lengths() -> dict[str, str]:
    return {
        "short": by_words("quickstart-short", "test"),
        "short-captions": by_words("multi30k-short/en-de", ALL_TESTS),
    }


def plan() -> dict[str, str]:
    """The questions with their comparisons, rules and states."""
    rows = []
    for one in QUESTIONS.questions[:-1]:  # the last one is of the quickstart
        lists = [
            f"{', '.join(f'`{name}`' for name in names)} with `{baseline}`"
            for baseline, names in one.comparisons.items()
        ]
        places = " and ".join(" ".join(place.split()[:2]) for place in one.tables)
        compared_rows = f"{one.size} on {places}: {'; '.join(lists)}" if lists else ""
        rows.append([one.question, compared_rows, one.rule, one.state])
    return {"plan": table(["question", "comparisons", "rule", "state"], rows)}


def key_of(question: str) -> str:
    """The first word of a question, its number: `5b`."""
    return question.split()[0].rstrip(".:").lower()


def answers() -> dict[str, list[Run]]:
    """The comparisons of each question that has any, as `compare --questions ... --format csv` wrote them."""
    rows = read_scores(RESULTS / "questions.csv")
    return {question: list(own) for question, own in itertools.groupby(rows, itemgetter("question"))}


def comparisons(rows: list[Run]) -> str:
    """A table of comparisons; without BLEU's brevity penalty where all of these are of whole test sets."""
    directories = {f"{EN_DE.replace('/', ' ')} {ALL_TESTS}": EN_DE, f"{JA_EN.replace('/', ' ')} test": JA_EN}
    places = {" ".join(row[key] for key in ("corpus", "pair", "test")) for row in rows}
    directory = directories.get(min(places)) if len(places) == 1 and "--" not in rows[0]["experiment"] else None
    lines = []
    for row in rows:
        line = {"experiment": f"`{row['experiment']}`", "compared with": f"`{row['baseline']}`"}
        if len(places) > 1:
            line["on"] = f"{row['corpus']} {row['pair']}"
        line["difference"] = difference(row)
        if directory is not None:
            line["without BP"] = difference_without_penalty(directory, row["experiment"], row["baseline"])
        lines.append(line | {"verdict": verdict(row) or "one seed"})
    return keyed_table(lines)


def one_test(directory: str, without_penalty: bool = False) -> str:
    """The experiments in a directory of results/ on its only test set, best first."""
    rows = []
    for row in sorted(compared(directory)["test"].values(), key=lambda row: -row[BLEU]):
        score = scored(row) if seeds_of(row) > 1 else f"{row[BLEU]:.2f}"  # ± is over seeds
        figures = [f"{seeds_of(row)}", score, f"{row['chrf']:.2f}", f"{row['parameters']:,.0f}", difference(row)]
        figures += [difference_without_penalty(directory, row["experiment"], BASELINE)] if without_penalty else []
        rows.append([f"`{row['experiment']}`", *figures, verdict(row)])
    headers = ["experiment", "seeds", "BLEU", "chrF", "parameters", "difference"]
    return table([*headers, *["without BP"] * without_penalty, "verdict"], rows)


def scoring() -> dict[str, str]:
    """The level and the power of the test of a difference, as tools/calibration.py measured them."""
    rows = read(DATA / "calibration.csv")
    power, kept, simulated = [], [], []
    for one, pooled in zip(rows[::2], rows[1::2], strict=True):
        assert (one["test"], pooled["test"]) == ("welch", "pooled")
        if one["data"] != "simulated":
            ranges = [f" ({row['level_low']} to {row['level_high']})" * bool(row["level_low"]) for row in (one, pooled)]
            kept.append([one["data"], one["rows"], one["level"] + ranges[0], pooled["level"] + ranges[1]])
            continue
        seeds, units = (one["baseline_seeds"], one["seeds"]), "documents" if float(one["of_document"]) else "sentences"
        if (one["of_seed"], one["of_system"], one["of_model"]) != ("0.2", "3", "5") or "2" in seeds:
            continue  # others are in the file
        if seeds in (("3", "3"), ("6", "3"), ("6", "6")):
            keys = ("level", "false_equivalence", "false_verdict")
            figures = [f"{float(row[key]):.3f}" for row in (one, pooled) for key in keys]
            simulated.append([" + ".join(seeds), one["of_baseline"] or one["of_seed"], units, *figures])
        if len(set(seeds)) == 1 and not one["of_baseline"]:
            effects = [key.removeprefix("power_") for key in one if key.startswith("power_")]
            shares = [f"{float(one[f'power_{key}']):.2f} ({float(one[f'verdict_power_{key}']):.2f})" for key in effects]
            power.append([units, one["seeds"], *shares])
    errors = ["level", "false equivalence", "false verdict"]
    headers = ["seeds of baseline + row", "spread of the baseline", "units", *errors, "pooled: level", *errors[1:]]
    return {
        "power": table(["units", "seeds", *(f"{effect} BLEU" for effect in effects)], power),
        "level": table(["trainings", "settings", "level", "pooled"], kept),
        "simulated": table(headers, simulated),
    }


def by_words(directory: str, test: str) -> str:
    """BLEU on a test set by words of the source, trained on short sources and on all."""
    lines: dict[str, dict[str, str]] = {}
    for row in read_scores(RESULTS / directory / "compare.csv"):
        whole, *part = row["test"].split(", ")
        if part and whole == test:
            is_short = row["corpus"].endswith("-short")
            name = f"`{row['experiment']}`" + ", all lengths" * (not is_short)
            # ± is the interval of one seed
            score = scored(row) if is_short else f"{row[BLEU]:.2f}"
            lines.setdefault(name, {"experiment": name})[part[0]] = score
    return keyed_table(lines.values())


def multi30k() -> dict[str, str]:
    """The scores of Multi30k's experiments, and the differences on all tests together, best first: from sinusoids, also
    without BLEU's brevity penalty, and from `shaw-k16`.
    """
    tests, from_shaw = compared(EN_DE), compared(EN_DE, "compare-shaw-k16.csv")[ALL_TESTS]
    together = tests[ALL_TESTS]
    choice, several, single = [], [], []
    for name, row in sorted(together.items(), key=lambda item: -item[1][BLEU]):
        experiment = {"experiment": f"`{name}`"}
        scores = experiment | {test: scored(tests[test][name]) for test in (*MULTI30K, ALL_TESTS)}
        without = difference_without_penalty(EN_DE, name, BASELINE)
        if seeds_of(row) == 1:
            single.append({**scores, "difference": difference(row), "without BP": without})
            continue
        several.append(scores)
        parameters = f"{row['parameters'] - together[BASELINE]['parameters']:,.0f}"
        experiment |= {"seeds": f"{seeds_of(row)}", "parameters of positions": parameters}
        experiment |= {"from `sinusoidal`": difference(row), "without BP": without}
        choice.append({**experiment, "from `shaw-k16`": difference(from_shaw[name])})
    return {"choice": keyed_table(choice), "multi30k": keyed_table(several), "multi30k-seed1": keyed_table(single)}


def seeds_of(row: Run) -> int:
    """How many seeds a row has."""
    return len(str(row["seeds"]).split())


def difference_without_penalty(directory: str, name: str, baseline: str) -> str:
    """The difference of two rows' BLEU divided by its brevity penalty; empty for a row and itself."""
    one, other = (unpenalized(directory, row) for row in (name, baseline))
    return "" if name == baseline else f"{one - other:+.2f}"


@cache
def unpenalized(directory: str, name: str) -> float:
    """BLEU divided by the brevity penalty, means over the seeds, of an experiment on all its test sets together."""
    penalties = []
    for seed in set(results_of(directory).query("name == @name")["directory"]):
        records = [read_json(path)[0] for path in seed.glob("*.sacrebleu.json")]
        # BLEU is the first score: `hyp_len = 11989 ref_len = 12106`.
        sizes = [re.findall(r"_len = (\d+)", record["verbose_score"]) for record in records]
        own, reference = (sum(map(int, column)) for column in zip(*sizes, strict=True))
        penalties.append(min(1.0, math.exp(1 - reference / own)))
    test = ALL_TESTS if ALL_TESTS in compared(directory) else "test"
    return float(compared(directory)[test][name][BLEU]) / statistics.fmean(penalties)


def readme() -> dict[str, str]:
    captions, articles = compared(EN_DE)[ALL_TESTS], compared(JA_EN)["test"]
    rows = []
    for name in SHORT_CLIPPING:
        cells = [
            f"{row[BLEU]:.2f} BLEU" if name == BASELINE else difference(row) for row in (captions[name], articles[name])
        ]
        rows.append([f"`{name}`", *cells])
    return {
        "quickstart": f"```text\n{(DATA / 'quickstart.txt').read_text(encoding='utf-8')}```",
        "clipping": table(["experiment", "captions (Multi30k en-de)", "articles (KFTT ja-en)"], rows),
    }


def draw(path: Path) -> None:
    """Draws BLEU against clipping distance: Multi30k's on all tests together, KFTT's, and the paper's."""
    rows = [
        scores[name] | {"encoding": name.partition("-")[0], "shown": name}
        for scores in (compared(EN_DE)[ALL_TESTS], compared(JA_EN)["test"])
        for name in CLIPPING
        if name in scores
    ]
    paper = rows[0] | {"corpus": "Shaw et al. (2018), Table 2: WMT14", f"{BLEU} spread": None, f"{BLEU} interval": None}
    for row in read_table(ROOT / "recipes" / "wmt14", "shaw-table2").rows:
        flags = f"--clipping-distance {row.row.removeprefix('K = ')}"
        rows.append(paper | {"test": row.test, "flags": flags, BLEU: row.paper})
    plot.plot(pd.DataFrame(rows), path)


def draw_differences(images: Path) -> None:
    """Draws the differences from sinusoids on both corpora, and the comparisons of three questions."""
    both = (compared(EN_DE)[ALL_TESTS], compared(JA_EN)["test"])
    several = [[row for row in rows.values() if seeds_of(row) > 1] for rows in both]
    draw_forest(list(map(as_drawn, several)), images / "differences.png")
    for question, rows in answers().items():
        if key_of(question) in ("2", "4", "5"):
            draw_forest([as_drawn(rows).assign(panel=question)], images / f"question-{key_of(question)}.png")


def as_drawn(rows: list[Run]) -> pd.DataFrame:
    """The rows of a CSV of `compare` as `draw_forest` takes them."""
    drawn = pd.DataFrame(rows, dtype=object)
    return drawn.assign(shown=drawn["experiment"], comparison=Comparison("", BLEU, margin=QUESTIONS.margin))


def options() -> dict[str, str]:
    """What each position augmentation does with each architecture, from what its encodings declare, and what SHAPE did
    to the quickstart's `sinusoidal`.
    """
    spelled = {WORKS: "works", NO_EFFECT: "refused: no effect", UNDEFINED: "refused: undefined"}
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, cls in ENCODINGS.items():
        sides = [cls, ENCODINGS[cls.facts.in_decoder or name]]
        effects = [combined([effect(mode, side, side.facts.input_positions) for side in sides]) for mode in MODES]
        alike.setdefault(tuple(spelled[one] for one in effects), []).append(f"`{name}`")
    modes = [f"`{mode}`" for mode in MODES]
    rows = [
        {"encodings": ", ".join(names), **dict(zip(modes, effects, strict=True))} for effects, names in alike.items()
    ]
    return {"shape": keyed_table(read(DATA / "shape.csv")), "augmentation": keyed_table(rows)}


def contrast() -> dict[str, str]:
    """The accuracy by phenomenon, as `fairseq-posenc contrast --format csv` printed it."""
    rows: dict[str, dict[str, str]] = {}
    for run in read(DATA / "contrast.csv"):
        if run["distance"] == "all":
            row = rows.setdefault(run["phenomenon"], {"phenomenon": run["phenomenon"], "pairs": run["pairs"]})
            row[f"`{run['model']}`"] = shown(*(float(run[key]) for key in ("accuracy", "low", "high")))
    return {"contrast": keyed_table(rows.values())}


def analysis() -> dict[str, str]:
    return contrast() | {"attention": table(*analyses.attention())}


def performance() -> dict[str, str]:
    gpu = "Not measured on a GPU yet: `bash scripts/check_gpu.sh OUT` measures it."
    if (on_gpu := speed.gpu()) is not None:
        gpu = f"Ratio to stock. Of time, memory and kernels, below 1 is less.\n\n{table(*on_gpu)}"
    return {"speed": table(*speed.speed()), "growth": table(*speed.growth()), "gpu": gpu}


PAGES: dict[str, Callable[[], dict[str, str]]] = {
    "README.md": readme,
    "docs/analysis.md": analysis,
    "docs/options.md": options,
    "docs/performance.md": performance,
    "docs/reproducing.md": reproducing,
    "docs/lengths.md": lengths,
    "docs/plan.md": plan,
    "docs/results.md": results,
    "docs/scores.md": scores,
    "docs/scoring.md": scoring,
    "results/README.md": machines,
}


def filled(page: str) -> tuple[Path, str]:
    """A page, and its text with each table filled at the mark with its name."""
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    for place, made in PAGES[page]().items():
        pattern = rf"(<!-- table: {place} -->\n).*?(<!-- end -->)"
        filling = made.replace("\\", r"\\")
        text, places = re.subn(pattern, rf"\g<1>{filling}\n\g<2>", text, flags=re.DOTALL)
        if places != 1:
            raise ValueError(f"{path} has {places} places for the table '{place}', not one.")
    return path, text


if __name__ == "__main__":
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # importing fairseq sets the root logger to DEBUG
    for name in PAGES:
        page_path, page_text = filled(name)
        page_path.write_text(page_text, encoding="utf-8")
    draw(IMAGES / "clipping-distance.png")
    draw_differences(IMAGES)
    analyses.draw(IMAGES)
