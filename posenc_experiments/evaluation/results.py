"""Scores of experiments: read from their directories, pooled over seeds, tested, and shown as a table or a
plot.

Everything comes from the files that the pipeline leaves in an experiment directory (experiment.json,
training.json and, for each test set, <test>.sacrebleu.json with <test>.hyp and <test>.ref, and perhaps
<test>.historical.json), never from logs. A score whose files changed since is refused.
"""

import csv
import hashlib
import io
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest
from tabulate import tabulate  # type: ignore[import-untyped]

from posenc_experiments.errors import RecipeError
from posenc_experiments.evaluation.differences import differences, is_explained, listed, spelled

SCORES, HISTORICAL = ".sacrebleu.json", ".historical.json"
RECORDED = {"hyp": "hypotheses", "ref": "references"}  # files whose hashes scores record
COLUMNS = (
    *("corpus", "pair", "test", "setup", "experiment", "arch", "flags", "seeds"),
    *("bleu", "bleu_interval", "bleu_spread", "chrf", "tokenized_bleu_historical"),
    *("parameters", "words_per_second", "p_value"),
    *("bleu_signature", "chrf_signature", "tokenized_bleu_historical_signature"),
    *("fingerprint", "verified"),
)
OLD = "*"  # marks what was trained before experiments had fingerprints


@dataclass(frozen=True)
class Metric:
    """One metric's score with half the width of its 95 % bootstrap interval (None if SacreBLEU was not asked
    for one).
    """

    score: float
    interval: float | None
    signature: str
    reference: str | None = None  # where a SacreBLEU test set was named: how far the reference is that one's
    hypotheses: str | None = None  # SHA-256 of what was scored; None of older runs
    references: str | None = None
    translation: dict[str, Any] | None = None  # what made the translations, without what stands at its default

    @property
    def lowercased(self) -> bool:
        return "|case:lc|" in self.signature


@dataclass(frozen=True)
class Score:
    """One experiment (one seed) on one test set."""

    directory: Path
    corpus: str
    pair: str
    test: str
    name: str
    arch: str
    encoding: str
    flags: dict[str, Any]
    seed: int
    bleu: Metric
    chrf: Metric | None
    parameters: int | None
    words_per_second: float | None
    setup: str | None = None  # such as shaw-base: everything but the encoding
    historical: Metric | None = None
    made_from: dict[str, Any] | None = None  # everything that makes the result but the seed; None: not recorded then
    fingerprint: str | None = None  # of made_from, as the training recorded it
    environment: dict[str, Any] = field(default_factory=dict)  # code and libraries, for information
    references: str | None = None  # SHA-256; None if neither the scores record it nor the file is there
    verified: bool = False  # whether the files that are there are those that were scored

    @property
    def metrics(self) -> dict[str, Metric]:
        """Those that it has, by their names in tables."""
        found = {"BLEU": self.bleu, "chrF": self.chrf, "tok. BLEU": self.historical}
        return {name: metric for name, metric in found.items() if metric is not None}

    @property
    def setting(self) -> tuple[str | None, ...]:
        """What seeds of one setting have in common."""
        return (self.corpus, self.pair, self.test, self.setup, self.arch, json.dumps(self.flags, sort_keys=True))

    @property
    def long_name(self) -> str:
        return f"{self.setup} {self.name}" if self.setup else self.name


@dataclass(frozen=True)
class Row:
    """One setting on one test set, pooled over its seeds; `p_value` is against the chosen baseline, the
    baseline's own is None.
    """

    scores: tuple[Score, ...]
    p_value: float | None = None

    @property
    def first(self) -> Score:
        return self.scores[0]

    @property
    def bleu(self) -> float:
        return statistics.fmean(score.bleu.score for score in self.scores)

    @property
    def bleu_spread(self) -> float | None:
        """The standard deviation over seeds (n - 1); None for one seed."""
        return statistics.stdev(score.bleu.score for score in self.scores) if len(self.scores) > 1 else None

    @property
    def bleu_interval(self) -> float | None:
        """Half the width of the 95 % bootstrap interval; None for several seeds, whose spread says more."""
        return self.first.bleu.interval if len(self.scores) == 1 else None

    @property
    def chrf(self) -> float | None:
        return _mean(score.chrf.score if score.chrf else None for score in self.scores)

    @property
    def historical(self) -> float | None:
        return _mean(score.historical.score if score.historical else None for score in self.scores)

    @property
    def historical_interval(self) -> float | None:
        return self.first.historical.interval if len(self.scores) == 1 and self.first.historical else None

    @property
    def historical_spread(self) -> float | None:
        known = [score.historical.score for score in self.scores if score.historical]
        return statistics.stdev(known) if len(known) > 1 else None

    @property
    def verified(self) -> bool:
        return all(score.verified for score in self.scores)

    @property
    def words_per_second(self) -> float | None:
        return _mean(score.words_per_second for score in self.scores)

    @property
    def clipping_distance(self) -> int | None:
        value = self.first.flags.get("clipping-distance")
        return value if isinstance(value, int) else None

    @property
    def group(self) -> tuple[str, str, str]:
        """Rows of one group are comparable: same corpus, pair and test set."""
        return (self.first.corpus, self.first.pair, self.first.test)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def read_experiments(paths: Iterable[Path]) -> list[Score]:
    """Reads experiment directories in the order given, then those that are found below other directories, in natural
    order of their paths; RecipeError if a directory holds no score.
    """
    scores: dict[Path, list[Score]] = {}  # by the experiment's real path
    named: list[Path] = []
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise RecipeError(f"{path} is not a directory: name experiment directories, or one that holds them.")
        if (path / "experiment.json").is_file():
            here = [path]
            named += here
        else:
            here = [one.parent for one in path.rglob("experiment.json")]
            found += here
        for one in here:
            if one.resolve() not in scores:
                scores[one.resolve()] = _read_experiment(one)
        if not any(scores[one.resolve()] for one in here):
            raise RecipeError(f"{path} holds no scored experiment: run the recipe's stages up to score.")
    ordered = dict.fromkeys(one.resolve() for one in [*named, *sorted(found, key=_natural_path)])
    return [score for one in ordered for score in scores[one]]


def _natural_path(path: Path) -> list[list[str | float]]:
    return [_natural(part) for part in path.parts]


def _natural(text: str) -> list[str | float]:
    """What sorts `k2` before `k16` and `dropout-0.15` before `dropout-0.2`."""
    pieces = re.split(r"([0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)", text)
    return [float(piece) if number % 2 else piece for number, piece in enumerate(pieces)]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecipeError(f"{path} cannot be read ({error}): run the stage that makes it again.") from None


def _read_object(path: Path, types: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object whose values are of these types (with None among them where they may be missing)."""
    value = _read_json(path)
    if not isinstance(value, dict):
        raise RecipeError(f"{path} is damaged (it holds no JSON object): run its recipe again.")
    for key, wanted in types.items():
        if not isinstance(value.get(key), wanted):
            problem = f"its {key!r} is {value[key]!r}" if key in value else f"it lacks {key!r}"
            raise RecipeError(f"{path} is damaged ({problem}): run its recipe again.")
    return value


def _read_experiment(directory: Path) -> list[Score]:
    words = dict.fromkeys(("corpus", "pair", "name", "arch", "encoding"), str)
    types: dict[str, Any] = {**words, "flags": dict, "seed": int, "setup": str | None}
    types |= {"made_from": dict | None, "fingerprint": str | None, "environment": dict | None}
    about = _read_object(directory / "experiment.json", types)
    training_file = directory / "training.json"
    numbers = dict.fromkeys(("parameters", "words_per_second"), int | float | None)
    training = _read_object(training_file, numbers) if training_file.is_file() else {}
    scores = []
    for path in sorted(directory.glob(f"*{SCORES}"), key=_natural_path):
        test, metrics = path.name.removesuffix(SCORES), _read_metrics(path)
        if "BLEU" not in metrics:
            raise RecipeError(f"{path} holds no BLEU: run the stage score again.")
        historical = directory / f"{test}{HISTORICAL}"
        old = next(iter(_read_metrics(historical).values())) if historical.is_file() else None
        hashes = {kind: _verified_hash(directory / f"{test}.{kind}", [metrics["BLEU"], old]) for kind in RECORDED}
        _require_equal_counts(directory, test)
        made_from, environment = about.get("made_from"), about.get("environment") or {}
        # Not in the fingerprint, but other results: how it was translated, and a batch that hardware left inexact.
        beside = {"translation": metrics["BLEU"].translation, "batch": environment.get("batch")}
        if made_from is not None:
            made_from = {**made_from, **{key: value for key, value in beside.items() if value is not None}}
        scores.append(
            Score(
                directory=directory,
                test=test,
                **{key: about[key] for key in (*words, "flags", "seed")},
                setup=about.get("setup"),
                made_from=made_from,
                fingerprint=about.get("fingerprint"),
                environment=environment,
                bleu=metrics["BLEU"],
                chrf=next((metric for name, metric in metrics.items() if name.startswith("chrF")), None),
                historical=old,
                parameters=training.get("parameters"),
                words_per_second=training.get("words_per_second"),
                references=hashes["ref"][0],
                verified=all(verified for _, verified in hashes.values()),
            )
        )
    return scores


def _verified_hash(file: Path, metrics: Iterable[Metric | None]) -> tuple[str | None, bool]:
    """The SHA-256 of what was scored, and whether the file is known to be that; RecipeError if it is another."""
    found = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    recorded = [getattr(metric, RECORDED[file.suffix[1:]]) for metric in metrics if metric is not None]
    if found is not None and any(one not in (None, found) for one in recorded):
        raise RecipeError(f"{file} is not what was scored (it was made again since): run the stage score again.")
    return found or recorded[0], found is not None and None not in recorded


def _require_equal_counts(directory: Path, test: str) -> None:
    """RecipeError unless there are as many hypotheses as references; scores of older runs record no hashes to tell."""
    files = [directory / f"{test}.{kind}" for kind in RECORDED]
    if all(file.is_file() for file in files):
        found, wanted = (len(_lines(file)) for file in files)
        if found != wanted:
            raise RecipeError(
                f"{files[0]} has {found:,} lines and {files[1]} has {wanted:,}: run the stages translate and score."
            )


def _read_metrics(path: Path) -> dict[str, Metric]:
    """SacreBLEU's JSON: a list of metrics, or one alone."""
    value = _read_json(path)
    try:
        found = {
            one["name"]: Metric(
                score=float(one["score"]),
                interval=one.get("confidence_var"),
                **{key: one.get(key) for key in ("reference", "hypotheses", "references", "translation")},
                signature=one["signature"],
            )
            for one in (value if isinstance(value, list) else [value])
        }
    except (AttributeError, TypeError, KeyError, ValueError):
        found = {}
    if not found:
        raise RecipeError(f"{path} is not what `sacrebleu -f json` prints: run the stage score again.")
    return found


def pool(scores: Sequence[Score], baseline: str | None = None) -> list[Row]:
    """One row a setting and test set, in the order given, with all seeds that were made from the same (one a seed
    where that was not recorded); with `baseline`, a name (`SETUP NAME` where several setups have one), each row's
    p-value against it.
    """
    settings: dict[tuple[str | None, ...], list[Score]] = {}
    pooled: dict[tuple[str | None, ...], list[Score]] = {}
    for score in scores:
        for other in settings.setdefault(score.setting, []):
            _require_seeds_of_one(other, score)
        settings[score.setting].append(score)
        own = () if score.made_from is not None else (str(score.directory),)
        pooled.setdefault((*score.setting, *own), []).append(score)
    rows = [Row(tuple(sorted(group, key=lambda score: score.seed))) for group in pooled.values()]
    rows = [row for group in _groups(rows) for row in group]
    for group in _groups(rows):
        _require_comparable([score for row in group for score in row.scores])
    if baseline is None:
        return rows
    names = list(dict.fromkeys(name for group in _groups(rows) for name in _names(group)))
    if not any(_is_named(row, baseline) for row in rows):
        raise RecipeError(f"--baseline {baseline}: there is no such experiment here; there are {', '.join(names)}.")
    return [row for group in _groups(rows) for row in _tested(group, baseline)]


def _require_seeds_of_one(one: Score, other: Score) -> None:
    """RecipeError unless two scores of one setting may stand in one table."""
    if one.made_from is not None and other.made_from is not None:
        found = list(differences(one.made_from, other.made_from))
        if found:
            raise RecipeError(
                f"{one.directory} and {other.directory} are no seeds of one experiment: they differ in "
                f"{listed(found)}; run one of them again with the settings of the other, or compare them apart."
            )
    if one.seed == other.seed:
        raise RecipeError(f"{one.directory} and {other.directory} are the same setting and seed: name one of them.")


def _require_comparable(scores: Sequence[Score]) -> None:
    """RecipeError unless all of one corpus, pair and test set were scored alike and against one reference."""
    seen: dict[str, tuple[str, Score]] = {}
    for score in scores:
        facts = {f"{name} signature": metric.signature for name, metric in score.metrics.items()}
        if score.references is not None:
            facts["reference"] = score.references
        for fact, value in facts.items():
            other, first = seen.setdefault(fact, (value, score))
            if other == value:
                continue
            if fact == "reference":
                raise RecipeError(
                    f"{first.directory} and {score.directory} have different references for {score.test}: they cannot "
                    "be compared; prepare, translate and score both from the same data, or name only one of them."
                )
            raise RecipeError(
                f"{first.directory} and {score.directory} were scored differently on {score.test} ({fact}s {other} and "
                f"{value}): run the stage score of both with the same software, or name only one of them."
            )


def _is_named(row: Row, name: str) -> bool:
    return name in (row.first.name, row.first.long_name)


def _names(rows: Sequence[Row]) -> list[str]:
    """What comparable rows are called: with their setups, where these differ."""
    several = len({row.first.setup for row in rows}) > 1
    return [row.first.long_name if several else row.first.name for row in rows]


def _shown(rows: Sequence[Row]) -> list[str]:
    """The names of comparable rows for a reader, who must see which ones are of unknown origin."""
    names = _names(rows)
    shown = []
    for row, name in zip(rows, names, strict=True):
        seed = f" (seed {row.first.seed})" if names.count(name) > 1 else ""
        shown.append(name if row.first.made_from is not None else f"{name}{seed} {OLD}")
    return shown


def _groups(rows: Iterable[Row]) -> list[list[Row]]:
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    return list(groups.values())


def _tested(rows: list[Row], baseline: str) -> list[Row]:
    """Rows with p-values: of several seeds, each against the baseline's same seed (or its first), and the
    largest p counts.
    """
    found = [row for row in rows if _is_named(row, baseline)]
    if not found:
        return rows
    if len(setups := list(dict.fromkeys(row.first.long_name for row in found))) > 1:
        raise RecipeError(
            f"--baseline {baseline}: several setups have one on {rows[0].first.test}; name one of {', '.join(setups)}."
        )
    base = found[0]
    of_seed = {score.seed: score for score in base.scores}
    tested = []
    for row in rows:
        if row is base:
            tested.append(row)
            continue
        values = [paired_bootstrap(of_seed.get(score.seed, base.first), score) for score in row.scores]
        tested.append(Row(row.scores, max(values)))
    return tested


def paired_bootstrap(baseline: Score, system: Score) -> float:
    """The p-value of the difference in BLEU, by SacreBLEU's own paired bootstrap resampling (1,000 samples;
    the seed is SACREBLEU_SEED, 12345 where it is not set).
    """
    _require_comparable([baseline, system])
    systems: list[tuple[str, Sequence[str]]] = [
        (name, _lines(score.directory / f"{score.test}.hyp"))
        for name, score in (("Baseline", baseline), ("System", system))
    ]
    references = _lines(baseline.directory / f"{baseline.test}.ref")
    _, results = PairedTest(
        systems,
        {"BLEU": BLEU(references=[references], lowercase=baseline.bleu.lowercased)},
        references=None,
        test_type="bs",
    )()
    return float(results["BLEU"][1].p_value)  # type: ignore[union-attr,arg-type]


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read ({error}): run the stage translate again.") from None
    # As SacreBLEU reads files: lines end at newlines only.
    return [line.rstrip() for line in text.removesuffix("\n").split("\n")]


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"


def with_error(value: float, error: float | None) -> str:
    """A score as tables show it."""
    return f"{value:.2f}" if error is None else f"{value:.2f} ± {error:.2f}"


def _tokenized_name(rows: list[Row]) -> str:
    """What the tokenized BLEU of comparable rows is called."""
    lowercased = any(score.historical and score.historical.lowercased for row in rows for score in row.scores)
    return f"tok. BLEU ({'lowercased' if lowercased else 'historical'})"


def _table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells; a column that would be empty is left out."""
    several = any(len(row.scores) > 1 for row in rows)
    tested = any(row.p_value is not None for row in rows)
    historical = any(row.historical is not None for row in rows)
    headers = [
        "experiment",
        *(["seeds"] if several else []),
        "BLEU",
        "chrF",
        *([_tokenized_name(rows)] if historical else []),
        "parameters",
        "train words/s",
        *(["p"] if tested else []),
    ]
    cells = []
    for row, name in zip(rows, _shown(rows), strict=True):
        bleu = with_error(row.bleu, row.bleu_interval if row.bleu_spread is None else row.bleu_spread)
        line = [name, *([str(len(row.scores))] if several else []), bleu, _number(row.chrf, 2)]
        if historical:
            line.append("" if row.historical is None else with_error(row.historical, row.historical_spread))
        line += [_number(row.first.parameters, 0), _number(row.words_per_second, 0)]
        cells.append([*line, *([("baseline" if row.p_value is None else f"{row.p_value:.3f}")] if tested else [])])
    return headers, cells


def _notes(rows: list[Row]) -> list[str]:
    """What a reader must know beside the numbers: the errors' meaning and SacreBLEU's signatures."""
    notes = []
    if any(row.bleu_interval is not None for row in rows):
        notes.append(
            "±: 95 % confidence interval (bootstrap)"
            + (", of one seed." if any(len(row.scores) > 1 for row in rows) else ".")
        )
    if any(row.bleu_spread is not None for row in rows):
        notes.append("Several seeds: mean ± standard deviation over the seeds.")
    if any(row.p_value is not None for row in rows):
        notes.append("p: paired bootstrap of BLEU against the baseline; of several seeds, the largest.")
    if any(row.historical is not None for row in rows):
        notes.append(f"{_tokenized_name(rows)}: tokenized BLEU as some papers print it, not comparable with BLEU.")
    if any(score.bleu.lowercased for row in rows for score in row.scores):
        notes.append("BLEU and chrF ignore case (case:lc), as these models write no capitals.")
    if any(row.first.made_from is None for row in rows):
        notes.append(
            f"{OLD}: trained before experiments recorded what they are made from: each seed stands alone, and what it "
            "may differ in is unknown."
        )
    notes += [*_environments(rows), *_hidden_differences(rows)]
    unverified = [name for row, name in zip(rows, _names(rows), strict=True) if not row.verified]
    if unverified:
        notes.append(
            f"Not verified: {', '.join(unverified)}; the scores do not record the files that they were made from, or "
            "these are not there. Run the stage score again to verify them."
        )
    scores = [score for row in rows for score in row.scores]
    notes += dict.fromkeys(f"Reference: {score.bleu.reference}" for score in scores if score.bleu.reference)
    signatures = {name: metric.signature for score in scores for name, metric in score.metrics.items()}
    order = ("BLEU", "chrF", "tok. BLEU")
    return notes + [f"{name}: {signatures[name]}" for name in order if name in signatures]


def _environments(rows: list[Row]) -> Iterable[str]:
    """Where the seeds of a row were not trained by the same code and libraries."""
    for row, name in zip(rows, _shown(rows), strict=True):
        keys = dict.fromkeys(key for score in row.scores for key in score.environment)
        values = {key: list(dict.fromkeys(spelled(score.environment.get(key)) for score in row.scores)) for key in keys}
        differing = [f"{key} ({', '.join(found)})" for key, found in values.items() if len(found) > 1]
        if differing:
            yield f"The seeds of {name} were trained with different code or libraries: {', '.join(differing)}."


def _hidden_differences(rows: list[Row]) -> Iterable[str]:
    """Where rows of one setup differ in what neither their architectures nor their flags say."""
    # Here, because it imports torch and fairseq, which other tables need not wait for.
    from fairseq_posenc.arguments import MODEL_FLAGS

    names = dict(zip(map(id, rows), _shown(rows), strict=True))
    found: dict[str, dict[str, list[str]]] = {}  # by what differs, the rows of each value
    for one, other in combinations((row for row in rows if row.first.made_from is not None), 2):
        if one.first.setup != other.first.setup:
            continue
        flags = [
            name
            for name in one.first.flags.keys() | other.first.flags.keys()
            if one.first.flags.get(name) != other.first.flags.get(name)
        ]
        if "bias-gain" in one.first.flags | other.first.flags:  # `auto` is another number by encoding, and at the input
            flags += ["bias-gain", "input-gain"]
        for difference in differences(one.first.made_from, other.first.made_from):
            if not is_explained(difference, flags, one.first.arch != other.first.arch, MODEL_FLAGS):
                path, *values = difference
                of_value = found.setdefault(" ".join(path), {})
                for row, value in zip((one, other), values, strict=True):
                    here = of_value.setdefault(spelled(value), [])
                    if names[id(row)] not in here:
                        here.append(names[id(row)])
    for what, of_value in found.items():
        listing = "; ".join(f"{value}: {', '.join(of_rows)}" for value, of_rows in of_value.items())
        yield f"Warning: rows differ in more than their names say, {what} ({listing})."


def as_text(rows: Sequence[Row]) -> str:
    """Tables for a terminal, one for each corpus, pair and test set."""
    return "\n".join(
        f"{' '.join(group[0].group)}\n\n{_render(group, 'simple')}\n\n" + "".join(f"{note}\n" for note in _notes(group))
        for group in _groups(rows)
    )


def as_markdown(rows: Sequence[Row]) -> str:
    """The same as Markdown."""
    return "\n".join(
        f"**{' '.join(group[0].group)}**\n\n{_render(group, 'github')}\n\n"
        + "".join(f"- {note}\n" for note in _notes(group))
        for group in _groups(rows)
    )


def _render(rows: list[Row], style: str) -> str:
    headers, cells = _table(rows)
    return tabulate(
        cells,
        headers,
        tablefmt=style,
        disable_numparse=True,
        colalign=("left", *["right"] * (len(headers) - 1)),
    )


def as_csv(rows: Sequence[Row]) -> str:
    """One line a row, every number unrounded and on its own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        first = row.first
        flags = " ".join(f"--{name} {value}".rstrip() for name, value in first.flags.items())
        seeds = " ".join(str(score.seed) for score in row.scores)
        numbers = [
            row.bleu,
            row.bleu_interval,
            row.bleu_spread,
            row.chrf,
            row.historical,
            first.parameters,
            row.words_per_second,
            row.p_value,
        ]
        others = [metric.signature if metric else "" for metric in (first.chrf, first.historical)]
        signatures = [first.bleu.signature, *others]
        verified = "yes" if row.verified else "no"
        names = [*row.group, first.setup or "", first.name, first.arch, flags, seeds]
        writer.writerow([*names, *numbers, *signatures, first.fingerprint or "", verified])
    return text.getvalue()


def plot(rows: Sequence[Row], path: Path) -> Path:
    """BLEU against clipping distance, a panel for each corpus, pair and test set; other encodings are
    horizontal lines.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = _groups(rows)
    if not groups:
        raise RecipeError("There are no scores to plot.")
    figure = Figure(figsize=(7, 4.5 * len(groups)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, group in zip(figure.subplots(len(groups), squeeze=False)[:, 0], groups, strict=True):
        draw(axes, group)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"{path}: the plot cannot be written ({error}): give a path that ends in .png, .pdf or .svg."
        ) from None
    return path


def draw(axes: Any, rows: list[Row]) -> None:
    """Draws comparable rows into matplotlib's axes; the legend has their order."""
    names = dict(zip(map(id, rows), _shown(rows), strict=True))
    curves: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.clipping_distance is not None:
            other = {name: value for name, value in row.first.flags.items() if name != "clipping-distance"}
            curves[(row.first.setup or "", row.first.arch, json.dumps(other, sort_keys=True))].append(row)
    longest = max((len(curve) for curve in curves.values()), default=0)
    # One distance alone makes no curve, unless nothing does.
    drawn = {key: curve for key, curve in curves.items() if len(curve) > 1 or longest == 1}
    colours = iter(f"C{number}" for number in range(len(rows) + 1))
    distances: set[int] = set()
    shown: dict[int, Any] = {}  # what the legend explains, by the row that it begins with
    for (setup, arch, rest), curve in drawn.items():
        first, curve = curve[0], sorted(curve, key=lambda row: row.clipping_distance or 0)
        distances.update(row.clipping_distance or 0 for row in curve)
        errors = [(row.bleu_interval if row.bleu_spread is None else row.bleu_spread) or 0.0 for row in curve]
        words = [
            *([setup] if setup and len({row.first.setup for row in rows}) > 1 else []),
            curve[0].first.encoding,
            *([rest] if sum(key[:2] == (setup, arch) for key in drawn) > 1 else []),
        ]
        label = " ".join(words)
        xs, ys = [row.clipping_distance for row in curve], [row.bleu for row in curve]
        shown[id(first)] = axes.errorbar(xs, ys, yerr=errors, marker="o", capsize=3, color=next(colours), label=label)
    in_curves = [row for curve in drawn.values() for row in curve]
    for row in rows:
        if row not in in_curves:
            shown[id(row)] = axes.axhline(row.bleu, linestyle="--", color=next(colours), label=names[id(row)])
    if distances:
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_xticks(sorted(distances), [str(distance) for distance in sorted(distances)])
        axes.set_xticks([], minor=True)
    else:
        axes.set_xticks([])
    axes.set_xlabel("clipping distance K")
    axes.set_ylabel("BLEU")
    axes.set_title(" ".join(rows[0].group))
    axes.grid(alpha=0.3)
    axes.legend(handles=[shown[id(row)] for row in rows if id(row) in shown])
