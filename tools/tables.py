"""Writes the tables and pictures of README.md and docs/ that have data in results/, in docs/data/ or in the
package: `python tools/tables.py`.
"""

import itertools
import logging
import math
import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
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
from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU, CHRF, TOKENIZED, csv_column
from posenc_experiments.evaluation.plots import clipping as plot
from posenc_experiments.evaluation.plots.forest import draw_forest
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.evaluation.statistics.comparison import FIGURES, ComparedRow, ComparedTable, Comparison
from posenc_experiments.evaluation.statistics.pooling import PooledRow, PooledScore, Setting, pool
from posenc_experiments.evaluation.statistics.questions import Question, read_questions
from posenc_experiments.evaluation.tables.comparisons import difference, verdict
from posenc_experiments.evaluation.tables.paper_table import PaperTable, read_table
from posenc_experiments.experiment.versions import as_list

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "data"
RESULTS = ROOT / "results"
Run = dict[str, Any]

IMAGES = ROOT / "docs" / "images"
EN_DE, EN_FR, JA_EN = "multi30k/en-de", "multi30k/en-fr", "kftt/ja-en"  # in results/
BASELINE = "sinusoidal"
#: the rows of README's plot, and of its table
CLIPPING = [*(f"shaw-k{k}" for k in (0, 1, 2, 4, 16, 64)), BASELINE, "diet_rel", "diet_rel-gain"]
SHORT_CLIPPING = ["shaw-k0", "shaw-k1", "shaw-k2", "shaw-k16", BASELINE]
MULTI30K = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
QUESTIONS = read_questions(ROOT / "docs" / "questions.yaml")
QUICKSTART = QUESTIONS.questions[-1]  # in docs/scores.md; docs/plan.md has the others
#: the directories of results/ with the experiments of a question, by the title of the table of its test set
DIRECTORIES = {
    f"{EN_DE.replace('/', ' ')} {ALL_TESTS}": [
        EN_DE,
        *(f"multi30k-{kind}/{EN_DE}" for kind in ("6e-3", "twice", "exchange")),
    ],
    f"{JA_EN.replace('/', ' ')} test": [JA_EN],
}
RATES = "multi30k-rates/multi30k/en-de"  # seed 1 at several learning rates
#: target words/s of one GPU in training transformer_wmt_en_de (docs/reproducing.md says where these are from)
V100 = 40_000
GPUS = {"V100, fp32": 18_000, "V100, fp16": V100, "A100, bf16": 2.2 * V100, "H100, bf16": 3.7 * V100}


def read(path: Path, **form: str) -> list[Run]:
    """The rows of a CSV as text."""
    return list(pd.read_csv(path, dtype=str, keep_default_na=False, **form).to_dict("records"))


@cache
def results_of(directory: str) -> pd.DataFrame:
    """The results of the experiments in a directory of results/."""
    return read_results([RESULTS / directory])


def bleu_of(directory: str, test: str) -> pd.DataFrame:
    """The BLEU of all experiments in a directory of results/ on a test set."""
    rows = results_of(directory)
    return rows[(rows["test"] == test) & (rows["metric"] == BLEU)]


def table(headers: list[str], rows: list[list[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def trainings() -> str:
    """What the trainings of results/ ran on, and at which commits."""
    older = read(RESULTS / "devices.tsv", sep="\t", comment="#")
    commits: dict[tuple[str, str], list[str]] = {}
    for directory in sorted({str(path.parent.relative_to(RESULTS)) for path in RESULTS.rglob("*.zip")}):
        for run in results_of(directory).drop_duplicates(["directory"]).to_dict("records"):
            key = f"`{directory}`", ", then ".join(as_list(device_of(directory, run, older)))
            commits.setdefault(key, []).append(", then ".join(one[:7] for one in as_list(run["environment"]["commit"])))
    rows = [
        [*key, ", ".join(f"{commit} ({count})" for commit, count in Counter(made).most_common())]
        for key, made in commits.items()
    ]
    return table(["folder", "device", "commits, and how many trainings of each"], rows)


def device_of(directory: str, run: Run, older: list[Run]) -> str | list[str]:
    """The device of a training, as its record has it, or else the first line of devices.tsv that fits."""
    if "device" in run["environment"]:
        device: str | list[str] = run["environment"]["device"]
        return device
    for known in older:
        seeds = known["seeds"].split(",")
        if (
            known["folder"] == directory
            and known["experiment"] in ("", run["name"])
            and {"", str(run["seed"])} & {*seeds}
        ):
            return str(known["device"])
    raise ValueError(f"results/devices.tsv has no line for {run['name']}, seed {run['seed']}, of {directory}.")


def machines() -> dict[str, str]:
    """What the trainings ran on, and how BLEU of the same ones differs between processors and between seeds."""
    by_cpu = pd.read_csv(DATA / "machines.csv").pivot(index=["name", "seed"], columns="cpu", values="bleu")
    here, kept = by_cpu["AVX-512"], bleu_of("quickstart", "test").set_index(["name", "seed"])["score"]
    before = (kept - here).dropna()
    seeds = [list(scores) for _, scores in kept[before.index].groupby("name")]
    compared = {
        "the same command twice": (by_cpu["AVX-512 again"] - here).dropna(),
        "AVX2 and AVX-512 of one EPYC": (by_cpu["AVX2"] - here).dropna(),
        "results/ and the EPYC": before,
        "the same, means over three seeds": before.groupby("name").mean(),
        "two seeds in results/": [a - b for scores in seeds for a, b in itertools.combinations(scores, 2)],
    }
    rows = [
        [what, str(len(gaps)), f"{math.hypot(*gaps) / math.sqrt(len(gaps)):.2f}", f"{max(map(abs, gaps)):.2f}"]
        for what, gaps in compared.items()
    ]
    return {"trainings": trainings(), "machines": table(["compared", "pairs", "root mean square", "largest"], rows)}


def reproducing() -> dict[str, str]:
    captions = {name: row.row.bleu.mean for name, row in compared(RATES)[ALL_TESTS].items()}
    kftt = dict(bleu_of("kftt-rates", "test")[["name", "score"]].itertuples(index=False))
    short = " --max-update 3500 --lr {} --total-num-update 3500"
    return {
        "cost": cost(),
        "published": published(),
        "multi30k-rates": rates(
            RATES,
            captions,
            {"1.5e-3": " --lr 1.5e-3", "3e-3 (the recipe's)": "", "6e-3": " --lr 6e-3"},
            (BASELINE, "shaw-k16", "diet_rel-gain", "rotary"),
        ),
        "kftt-rates": rates(
            "kftt-rates",
            kftt,
            {rate: short.format(rate[:4]) for rate in ("1e-3", "2e-3 (the recipe's)", "4e-3")},
            (BASELINE, "shaw-k16"),
        ),
    }


def rates(directory: str, scores: dict[str, float], flags: dict[str, str], encodings: Collection[str]) -> str:
    """BLEU and, in brackets, the validation loss of encodings at several learning rates, seed 1.

    Args:
        directory: in results/.
        scores: BLEU by the experiment's name.
        flags: what follows the encoding's name in that of an experiment, by rate.
        encodings: the rows.
    """
    losses = dict(results_of(directory)[["name", "valid_loss"]].itertuples(index=False))
    cells = {name: f"{scores[name]:.2f} ({losses[name]:.3f})" for name in scores}
    rows = [[f"`{encoding}`", *(cells[encoding + flag] for flag in flags.values())] for encoding in encodings]
    return table(["encoding", *flags], rows)


def published() -> str:
    """The scores of Multi30k's published setting."""
    rows = itertools.chain.from_iterable(pool(results_of("multi30k-lc")))
    cells = [[row.setting.test, f"{row.scores[TOKENIZED].mean:.2f}", str(row.bleu)] for row in rows]
    return table(["test set", "tok. BLEU (lowercased)", "SacreBLEU, lowercased"], cells)


def cost() -> str:
    """The GPU-hours of each of the papers' tables, by GPU."""
    recipes = [ROOT / "recipes" / name for name in ("wmt14", "wmt18")]
    by_table = zip(*(estimates(recipes, words_per_second) for words_per_second in GPUS.values()), strict=True)
    rows = [
        [f"`{costs[0].table}`", f"{costs[0].words / 1e9:.1f}", *(f"{estimate.hours:,.0f}" for estimate in costs)]
        for costs in by_table
    ]
    return table(["table", "billion target words", *GPUS], rows)


def read_tables(path: Path) -> list[tuple[str, ComparedTable]]:
    """The tables of a CSV of `compare`, each with its question, if there is one."""
    cells = pd.read_csv(path).astype(object)
    tables: dict[tuple[str, ...], list[ComparedRow]] = {}
    for record in cells.where(cells.notna(), None).to_dict("records"):
        key = record.get("question", ""), record["baseline"], record["corpus"], record["pair"], record["test"]
        figures = {figure: record[figure] for figure in FIGURES}
        row, baseline = (as_row(record, *key[2:], record[name]) for name in ("experiment", "baseline"))
        tables.setdefault(key, []).append(ComparedRow(row, baseline, **figures))
    how = Comparison(margin=QUESTIONS.margin)
    return [(question, ComparedTable(rows, how)) for (question, *_), rows in tables.items()]


def as_row(record: Run, corpus: str, pair: str, test: str, name: str) -> PooledRow:
    """A row of a CSV of `compare`."""
    seeds = [int(seed) for seed in str(record["seeds"]).split()]
    bleu = PooledScore(*(record[csv_column(BLEU, what)] for what in ("", "interval", "spread")))
    scores = {BLEU: bleu} if record["chrf"] is None else {BLEU: bleu, CHRF: PooledScore(record["chrf"])}
    setting = Setting(corpus, pair, test, record["setup"], name)
    flags, parameters = record["flags"] or "", record["parameters"]
    return PooledRow(setting, record["arch"], name.partition("-")[0], flags, name, seeds, scores, parameters)


@cache
def compared(directory: str, file: str = "compare.csv") -> dict[str, dict[str, ComparedRow]]:
    """The rows of a file in a directory of results/, which `compare --baseline ... --format csv` wrote, by test set and
    experiment.

    Raises:
        ValueError: they are not those of the experiments in results/.
    """
    tests: dict[str, dict[str, ComparedRow]] = {}
    for _, table_of in read_tables(RESULTS / directory / file):
        for row in table_of.rows:
            tests.setdefault(row.row.setting.test, {})[row.row.setting.name] = row
    # Scores on all tests together, on halves and on parts need the references, which are not kept.
    written = [row.row for test, rows in tests.items() if " " not in test for row in rows.values()]
    pooled = itertools.chain.from_iterable(pool(results_of(directory)))
    sides = [{(row.setting.test, row.setting.name, row.bleu.mean) for row in rows} for rows in (written, pooled)]
    if sides[0] != sides[1]:
        raise ValueError(f"results/{directory}/{file} is outdated: regenerate it as results/README.md says.")
    return tests


def results() -> dict[str, str]:
    """The questions with their answers; an answered one links to its comparisons."""
    page = (ROOT / "docs" / "comparisons.md").read_text(encoding="utf-8")
    rows = []
    for question in planned():
        anchor = re.sub(r"[^\w -]", "", question.question.lower()).replace(" ", "-")
        answered = f"\n## {question.question}\n" in page
        text = f"[{question.question}](comparisons.md#{anchor})" if answered else question.question
        rows.append([text, question.state])
    return {"answers": table(["question", "answer"], rows)}


def comparisons_by_question() -> dict[str, str]:
    """The rule and the comparisons of each question that has any results."""
    tables = answers()
    return {
        f"question-{key_of(question.question)}": ruled(question, tables[question.question])
        for question in planned()
        if tables[question.question]
    }


def ruled(question: Question, tables: list[ComparedTable]) -> str:
    """A question's comparisons, below its rule."""
    rule = textwrap.fill(f"*Rule*: {question.rule}", 120) + "\n\n" if question.rule else ""
    return rule + comparisons(tables)


def scores() -> dict[str, str]:
    return multi30k() | {
        "quickstart": one_test("quickstart"),
        "pairs": f"{QUICKSTART.state}\n\n{comparisons(answers()[QUICKSTART.question])}",
        "kftt": one_test(JA_EN, without_penalty=True),
    }


def lengths() -> dict[str, str]:
    return {
        "short": by_words("quickstart-short", "test"),
        "short-captions": by_words("multi30k-short/en-de", ALL_TESTS),
    }


def plan() -> dict[str, str]:
    """The questions with their comparisons and rules."""
    rows = []
    for question in planned():
        lists = [
            f"{', '.join(f'`{name}`' for name in names)} with `{baseline}`"
            for baseline, names in question.comparisons.items()
        ]
        places = " and ".join(" ".join(place.split()[:2]) for place in question.tables)
        compared_rows = f"{question.size} on {places}: {'; '.join(lists)}" if lists else ""
        rows.append([question.question, compared_rows, question.rule])
    return {"plan": table(["question", "comparisons", "rule"], rows)}


def planned() -> list[Question]:
    """The questions of docs/plan.md."""
    return [question for question in QUESTIONS.questions if question != QUICKSTART]


def key_of(question: str) -> str:
    """The first word of a question, its number: `5b`."""
    return question.split()[0].rstrip(".:").lower()


def answers() -> dict[str, list[ComparedTable]]:
    """The comparisons of each question that has any, as `compare --questions ... --format csv` wrote them."""
    tables: dict[str, list[ComparedTable]] = {question.question: [] for question in QUESTIONS.questions}
    for question, comparison in read_tables(RESULTS / "questions.csv"):
        tables[question].append(comparison)
    return tables


def comparisons(tables: list[ComparedTable]) -> str:
    """A table of comparisons; without BLEU's brevity penalty where all of these are of whole test sets."""
    rows = [row for comparison in tables for row in comparison.rows]
    places = [row.row.setting.title for row in rows]
    lines, headers = [], ["experiment", "compared with", "difference", "verdict"]
    for row in rows:
        cells = [f"`{row.row.shown}`", f"`{row.baseline_name}`", difference(row), verdict(row) or "one seed"]
        if len(set(places)) > 1:
            cells.insert(2, f"{row.row.setting.corpus} {row.row.setting.pair}")
        lines.append(cells)
    if len(set(places)) > 1:
        headers.insert(2, "on")
    elif places[0] in DIRECTORIES:
        headers.insert(3, "without BP")
        for row, cells in zip(rows, lines, strict=True):
            sides = [located(places[0], name) for name in (row.row.shown, row.baseline_name)]
            cells.insert(3, difference_without_penalty(*sides))
    return table(headers, lines)


def located(place: str, name: str) -> tuple[str, str]:
    """The directory of results/ that has an experiment, and its name.

    Args:
        place: the title of the table of its test set.
        name: the experiment.
    """
    directory = next(one for one in DIRECTORIES[place] if name in set(results_of(one)["name"]))
    return directory, name


def one_test(directory: str, without_penalty: bool = False) -> str:
    """The experiments in a directory of results/ on its only test set, best first."""
    rows = []
    for name, tested in sorted(compared(directory)["test"].items(), key=lambda item: -item[1].row.bleu.mean):
        row = tested.row
        score = str(row.bleu) if len(row.seeds) > 1 else f"{row.bleu.mean:.2f}"  # ± is over seeds
        figures = [f"{len(row.seeds)}", score, f"{row.scores[CHRF].mean:.2f}", f"{row.parameters:,.0f}"]
        figures += [
            difference(tested),
            *([difference_without_penalty((directory, name), (directory, BASELINE))] * without_penalty),
        ]
        rows.append([f"`{name}`", *figures, verdict(tested)])
    headers = ["experiment", "seeds", "BLEU", "chrF", "parameters", "difference"]
    return table([*headers, *["without BP"] * without_penalty, "verdict"], rows)


def scoring() -> dict[str, str]:
    """The level and the power of the test of a difference, as tools/calibration.py measured them."""
    rows = read(DATA / "calibration.csv")
    power, kept, simulated = [], [], []
    for pair in zip(rows[::2], rows[1::2], strict=True):
        welch, pooled = pair
        assert (welch["test"], pooled["test"]) == ("welch", "pooled")
        if welch["data"] != "simulated":
            ranges = [f" ({row['level_low']} to {row['level_high']})" * bool(row["level_low"]) for row in pair]
            kept.append([welch["data"], welch["rows"], welch["level"] + ranges[0], pooled["level"] + ranges[1]])
            continue
        seeds = (welch["baseline_seeds"], welch["seeds"])
        units = "documents" if float(welch["of_document"]) else "sentences"
        if (welch["of_seed"], welch["of_system"], welch["of_model"]) != ("0.2", "3", "5") or "2" in seeds:
            continue  # others are in the file
        if seeds in (("3", "3"), ("6", "3"), ("6", "6")):
            keys = ("level", "false_equivalence", "false_verdict")
            figures = [f"{float(row[key]):.3f}" for row in pair for key in keys]
            simulated.append([" + ".join(seeds), welch["of_baseline"] or welch["of_seed"], units, *figures])
        if len(set(seeds)) == 1 and not welch["of_baseline"]:
            effects = [key.removeprefix("power_") for key in welch if key.startswith("power_")]
            powers = [
                f"{float(welch[f'power_{key}']):.2f} ({float(welch[f'verdict_power_{key}']):.2f})" for key in effects
            ]
            power.append([units, welch["seeds"], *powers])
    return {
        "thresholds": thresholds(),
        "power": table(["units", "seeds", *(f"{effect} BLEU" for effect in effects)], power),
        "level": table(["trainings", "settings", "level", "pooled"], kept),
        "simulated": table(
            [
                *("seeds of baseline + row", "spread of the baseline", "units"),
                *("level", "false equivalence", "false verdict"),
                *("pooled: level", "false equivalence", "false verdict"),
            ],
            simulated,
        ),
    }


def by_words(directory: str, test: str) -> str:
    """BLEU on a test set by words of the source, trained on short sources and on all."""
    cells: dict[str, dict[str, str]] = {}
    tables = read_tables(RESULTS / directory / "compare.csv")
    for row in (tested.row for _, table_of in tables for tested in table_of.rows):
        whole, *part = row.setting.test.split(", ")
        if part and whole == test:
            is_short = row.setting.corpus.endswith("-short")
            name = f"`{row.setting.name}`" + ", all lengths" * (not is_short)
            # ± is the interval of one seed
            cells.setdefault(name, {})[part[0]] = str(row.bleu) if is_short else f"{row.bleu.mean:.2f}"
    return table(["experiment", *next(iter(cells.values()))], [[name, *row.values()] for name, row in cells.items()])


def multi30k() -> dict[str, str]:
    """The scores of Multi30k's experiments, and the differences on all tests together, best first: from sinusoids, also
    without BLEU's brevity penalty, and from `shaw-k16`.
    """
    from_shaw = compared(EN_DE, "compare-shaw-k16.csv")[ALL_TESTS]
    all_tests = compared(EN_DE)[ALL_TESTS]
    choice, several, single = [], [], []
    for name, row in ranked(EN_DE):
        cells, without = scores_of_tests(EN_DE, name), difference_without_penalty((EN_DE, name), (EN_DE, BASELINE))
        if len(row.row.seeds) == 1:
            single.append([*cells, difference(row), without])
            continue
        several.append(cells)
        parameters = f"{(row.row.parameters or 0) - (all_tests[BASELINE].row.parameters or 0):,.0f}"
        choice.append(
            [f"`{name}`", f"{len(row.row.seeds)}", parameters, difference(row), without, difference(from_shaw[name])]
        )
    headers = ["experiment", *MULTI30K, ALL_TESTS]
    differences = ["from `sinusoidal`", "without BP", "from `shaw-k16`"]
    return {
        "choice": table(["experiment", "seeds", "parameters of positions", *differences], choice),
        "multi30k": table(headers, several),
        "multi30k-seed1": table([*headers, "difference", "without BP"], single),
        "multi30k-french": table(
            [*headers, "difference", "without BP"],
            [
                [
                    *scores_of_tests(EN_FR, name),
                    difference(row),
                    difference_without_penalty((EN_FR, name), (EN_FR, BASELINE)),
                ]
                for name, row in ranked(EN_FR)
            ],
        ),
    }


def ranked(directory: str) -> list[tuple[str, ComparedRow]]:
    """The experiments on Multi30k on all tests together, best first."""
    return sorted(compared(directory)[ALL_TESTS].items(), key=lambda item: -item[1].row.bleu.mean)


def scores_of_tests(directory: str, name: str) -> list[str]:
    """The name of an experiment on Multi30k, and its scores."""
    by_test = compared(directory)
    return [f"`{name}`", *(str(by_test[test][name].row.bleu) for test in (*MULTI30K, ALL_TESTS))]


def difference_without_penalty(row: tuple[str, str], baseline: tuple[str, str]) -> str:
    """The difference of two rows' BLEU divided by its brevity penalty; empty for a row and itself.

    Args:
        row: a directory of results/ and the name of an experiment there.
        baseline: the same.
    """
    return "" if row == baseline else f"{unpenalized(*row) - unpenalized(*baseline):+.2f}"


@cache
def unpenalized(directory: str, name: str) -> float:
    """BLEU divided by the brevity penalty, means over the seeds, of an experiment on all its test sets together."""
    rows, penalties = results_of(directory), []
    for seed in set(rows["directory"][rows["name"] == name]):
        records = [read_json(path)[0] for path in seed.glob("*.sacrebleu.json")]
        # BLEU is the first score: `hyp_len = 11989 ref_len = 12106`.
        sizes = [re.findall(r"_len = (\d+)", record["verbose_score"]) for record in records]
        own, reference = (sum(map(int, column)) for column in zip(*sizes, strict=True))
        penalties.append(min(1.0, math.exp(1 - reference / own)))
    test = ALL_TESTS if ALL_TESTS in compared(directory) else "test"
    return compared(directory)[test][name].row.bleu.mean / statistics.fmean(penalties)


def paper_table() -> PaperTable:
    """The clipping distances of Shaw et al. (2018)."""
    return read_table(ROOT / "recipes" / "wmt14", "shaw-table2")


def readme() -> dict[str, str]:
    captions, kftt = compared(EN_DE)[ALL_TESTS], compared(JA_EN)["test"]
    rows = []
    for name in SHORT_CLIPPING:
        both = captions[name], kftt[name]
        cells = [f"{row.row.bleu.mean:.2f} BLEU" if name == BASELINE else difference(row) for row in both]
        rows.append([f"`{name}`", *cells])
    return {
        "quickstart": f"```text\n{(DATA / 'quickstart.txt').read_text(encoding='utf-8')}```",
        "clipping": table(["experiment", "captions (Multi30k en-de)", "articles (KFTT ja-en)"], rows),
    }


def draw(path: Path) -> None:
    """Draws BLEU against clipping distance: Multi30k's on all tests together, KFTT's, and the paper's."""
    corpora = compared(EN_DE)[ALL_TESTS], compared(JA_EN)["test"]
    tables = [[by_name[name].row for name in CLIPPING if name in by_name] for by_name in corpora]
    for test, rows in itertools.groupby(paper_table().rows, lambda row: row.test):
        setting = replace(tables[0][0].setting, corpus="Shaw et al. (2018), Table 2: WMT14", test=test)
        paper = replace(tables[0][0], setting=setting)
        tables.append(
            [
                replace(
                    paper,
                    flags=f"--clipping-distance {row.row.removeprefix('K = ')}",
                    scores={BLEU: PooledScore(row.paper)},
                )
                for row in rows
                if row.paper is not None
            ]
        )
    plot.plot(tables, path)


def draw_differences(images: Path) -> None:
    """Draws the differences from sinusoids on both corpora, and the comparisons of three questions."""
    panels = []
    for directory, test in ((EN_DE, ALL_TESTS), (JA_EN, "test")):
        for _, comparison in read_tables(RESULTS / directory / "compare.csv"):
            if comparison.rows[0].row.setting.test == test:
                rows = [row for row in comparison.rows if len(row.row.seeds) > 1]
                panels.append((plot.title_in_words(rows[0].row.setting), [replace(comparison, rows=rows)]))
    draw_forest(panels, images / "differences.png")
    for question, tables in answers().items():
        if key_of(question) in ("2", "4", "5"):
            draw_forest([(question, tables)], images / f"question-{key_of(question)}.png")


def options() -> dict[str, str]:
    """What each position augmentation does with each architecture, from what its encodings declare, and what SHAPE did
    to the quickstart's `sinusoidal`.
    """
    spelled = {WORKS: "works", NO_EFFECT: "refused: no effect", UNDEFINED: "refused: undefined"}
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, cls in ENCODINGS.items():
        sides = [cls, ENCODINGS[cls.facts.in_decoder or name]]
        effects = [combined([effect(mode, side, side.facts.input_positions) for side in sides]) for mode in MODES]
        alike.setdefault(tuple(spelled[result] for result in effects), []).append(f"`{name}`")
    rows = [[", ".join(names), *effects] for effects, names in alike.items()]
    shape = read(DATA / "shape.csv")
    return {
        "places": places(),
        "shape": table(list(shape[0]), [list(row.values()) for row in shape]),
        "augmentation": table(["encodings", *(f"`{mode}`" for mode in MODES)], rows),
    }


#: why encodings cannot be used between source and target
NOT_BETWEEN = {
    ("nopos", "sinusoidal", "learned"): "no: has nothing inside attention; `sinusoidal_qk` and `learned_qk` have",
    ("linformer", "diet_abs_lin"): "no: attends to mixtures of words, in the encoder only",
    (
        "huang1",
        "huang2",
        "huang3",
    ): "no: multiplies q kᵀ by a factor of the distance, which no paper does between two sentences",
    (
        "huang4",
        "deberta",
        "transformer_xl",
        "xlnet",
    ): "no: not included; `shaw` has a vector for each distance, too",
    ("pope",): "no: not included; `rotary` rotates, too",
    ("forget",): "no: sums what is forgotten from one word of a sentence to another",
}


def thresholds() -> str:
    """The differences of metrics at which people agree with them equally often: Kocmi et al.'s fitted curves."""
    curves = {row["metric"]: (float(row["highest"]), float(row["slope"])) for row in read(DATA / "thresholds.csv")}
    highest, slope = curves["BLEU"]
    rows = []
    for points in (0.5, 1, 2, 3):
        accuracy = highest / (1 + math.exp(-slope * points))
        others = [f"{-math.log(most / accuracy - 1) / own:.2f}" for most, own in list(curves.values())[1:]]
        rows.append([f"{points} BLEU", f"{accuracy:.0f} of 100", *others])
    return table(["difference", "people agree", *list(curves)[1:]], rows)


def places() -> str:
    """For each encoding, at which places it is defined, or why not."""
    reasons = {name: reason for names, reason in NOT_BETWEEN.items() for name in names}
    missing = {name for name, cls in ENCODINGS.items() if not cls.facts.supports_cross_attention} - reasons.keys()
    assert not missing, f"say in NOT_BETWEEN why {missing} cannot be used between source and target"
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, cls in ENCODINGS.items():
        replacement = cls.facts.in_decoder
        decoder = f"no: has no causal form; `{replacement}` replaces it" if replacement else "yes"
        between = "yes" if cls.facts.supports_cross_attention else reasons[name]
        alike.setdefault(("yes", decoder, between), []).append(f"`{name}`")
    rows = [[", ".join(names), *defined] for defined, names in alike.items()]
    return table(["encodings", "encoder", "decoder", "between source and target"], rows)


def contrast() -> dict[str, str]:
    """The accuracy by phenomenon, as `fairseq-posenc contrast --format csv` printed it."""
    rows: dict[str, list[Run]] = {}
    for run in read(DATA / "contrast.csv"):
        if run["distance"] == "all":
            rows.setdefault(run["phenomenon"], []).append(run)
    models = dict.fromkeys(run["model"] for runs in rows.values() for run in runs)
    keys = ("accuracy", "low", "high")
    lines = [
        [phenomenon, runs[0]["pairs"], *(shown(*(float(run[key]) for key in keys)) for run in runs)]
        for phenomenon, runs in rows.items()
    ]
    return {"contrast": table(["phenomenon", "pairs", *(f"`{name}`" for name in models)], lines)}


def analysis() -> dict[str, str]:
    return contrast() | {"attention": table(*analyses.attention())}


def performance() -> dict[str, str]:
    gpu = "Not measured on a GPU yet: `bash scripts/check_gpu.sh OUT` measures it."
    if (on_gpu := speed.gpu()) is not None:
        gpu = f"Ratio to stock. Of time, memory and kernels, below 1 is less.\n\n{table(*on_gpu)}"
    return {
        "speed": table(*speed.speed()),
        "cross": table(*speed.cross()),
        "growth": table(*speed.growth()),
        "gpu": gpu,
    }


PAGES: dict[str, Callable[[], dict[str, str]]] = {
    "README.md": readme,
    "docs/analysis.md": analysis,
    "docs/comparisons.md": comparisons_by_question,
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
        text, count = re.subn(pattern, rf"\g<1>{filling}\n\g<2>", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{path} has {count} places for the table '{place}', not one.")
    return path, text


if __name__ == "__main__":
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # importing fairseq sets the root logger to DEBUG
    for name in PAGES:
        page_path, page_text = filled(name)
        page_path.write_text(page_text, encoding="utf-8")
    draw(IMAGES / "clipping-distance.png")
    draw_differences(IMAGES)
    analyses.draw(IMAGES)
