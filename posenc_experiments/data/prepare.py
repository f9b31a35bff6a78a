"""Stage `prepare`: streams raw parallel text into fairseq's binarized data, and counts every dropped sentence.

`prepared/` holds the learnt subwords, `binarized/` for fairseq-train, each test set unchanged (`<test>.<language>`,
the references of scores), and the counts: prepare.json, and prepare.txt for people. The outputs of earlier steps are
in `prepare.work/` until the last step is done.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import is_unspaced, unit
from posenc_experiments.base.markers import (
    Markers,
    file_hash,
    fingerprint,
    locked,
    not_default,
    read_json,
    replace_directory,
    shared,
    write_json,
)
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.base.run import Run, run_command
from posenc_experiments.data import clean, context, download, encode, subwords, text
from posenc_experiments.data.counts import EvalCounts, TrainCounts, compare, compare_known
from posenc_experiments.data.lengths import index_file, read_sizes
from posenc_experiments.data.parallel import in_child, in_order
from posenc_experiments.data.raw import Raw, documents, extract, has_members, raw_files
from posenc_experiments.data.sources import known_counts, pair_tests
from posenc_experiments.data.steps import Steps
from posenc_experiments.data.subwords import Subwords

#: the share of training pairs that may be damaged; more is text in another encoding
MOST_BAD_UTF8 = 0.1


def inputs(run: Run) -> str:
    """The fingerprint of all inputs of this stage: text, pair, splits and settings."""
    corpus = run.recipe.corpus
    splits = [corpus.train_splits(run.pair), corpus.valid, pair_tests(run)]
    return fingerprint([_split_contents(run), run.pair, splits, changed_settings(run)])


def changed_settings(run: Run) -> dict[str, Any]:
    """The settings of `prepare` that differ from their defaults, for fingerprints."""
    found = not_default(run.recipe.prepare)
    limited = found.keys() & {"train_min_words", "train_max_words"}
    return found | ({"length_unit": unit(run.source)} if limited and is_unspaced(run.source) else {})


def _split_contents(run: Run) -> list[Any]:
    corpus = run.recipe.corpus
    splits = dict.fromkeys((*corpus.train_splits(run.pair), corpus.valid, *pair_tests(run)))
    return [[split, download.contents(run, split)] for split in splits]


def test_inputs(run: Run) -> str:
    """The fingerprint of the test sets: their text, and the length that they are cut to for the model."""
    contents = [download.contents(run, test) for test in pair_tests(run)]
    return fingerprint([contents, run.recipe.prepare.eval_max_tokens])


def subset(run: Run, test: str) -> str:
    """fairseq's name for a test set: test, test1, test2..."""
    index = pair_tests(run).index(test)
    return f"test{index or ''}"


def prepare(run: Run) -> None:
    """Runs the stage."""
    work = run.pair_dir / "prepare.work"
    if run.dry_run:
        settings = run.recipe.prepare
        if has_members(run):
            run.say(f"# extract the members that sources.tsv names from the archives in {run.download_dir}")
        changes = "".join(f"{change}, " for change in settings.changes)
        run.say(f"# clean, {changes}learn subwords ({settings.subwords}, {settings.vocabulary:,}) and encode in {work}")
        run.dry(_preprocess_command(run, work / "encode", work / "binarize"))
        run.say(f"# move {work / 'publish'} to {run.prepared_dir}")
        return
    if is_prepared(run):
        run.say(f"prepare: done before, in {run.prepared_dir}")
        _delete(run, work)  # left by a run that was killed after its last step
        return
    markers = Markers(run.pair_dir)
    with locked(run.pair_dir):
        markers.clear("prepare")
        steps = make_steps(run, work)
        try:
            result = steps.run(lambda words: run.say(f"prepare: {words}"))
        except BaseException:
            steps.delete_if_nothing_is_done()
            raise
        said = steps.facts("publish")["said"]
        replace_directory(result, run.prepared_dir)
        files = [path for path in run.prepared_dir.rglob("*") if path.is_file()]
        markers.set_done("prepare", inputs(run), files)
    _delete(run, work)
    for line in said:
        run.say(f"prepare: {line}")
    run.say(f"prepare: binarized in {run.binarized_dir}")


def _delete(run: Run, work: Path) -> None:
    """Deletes the outputs of the steps, unless another run is preparing with them; trainings may read prepared data."""
    if work.is_dir():
        with suppress(RecipeError), shared(run.pair_dir):
            shutil.rmtree(work, ignore_errors=True)


def make_steps(run: Run, work: Path) -> Steps:
    """The steps of the stage, with the settings that each depends on."""
    corpus, settings = run.recipe.corpus, run.recipe.prepare
    steps = Steps(work)

    def add(name: str, reads: Sequence[str], own: object, function: Callable[[Run, Steps, Path], Any]) -> None:
        steps.add(name, reads, own, partial(function, run, steps))

    limits = [settings.min_tokens, settings.max_tokens, settings.max_ratio, settings.eval_max_tokens]
    if has_members(run):
        add("extract", (), _split_contents(run), _extract)
    raw = [_split_contents(run), run.pair]
    add("evaluation", ("extract",), [raw, corpus.valid, pair_tests(run)], _evaluation)
    words = [settings.train_min_words, settings.train_max_words]
    # Here and below only what is not a default, so that the fingerprint of other settings stays.
    unspaced = [unit(run.source)] if is_unspaced(run.source) else []
    limited = [words, *unspaced] if any(words) else []
    joins = ["context"] * settings.context
    cleaning = [raw, corpus.train_splits(run.pair), settings.drop_identical, *limited, *joins]
    add("clean", ("extract",), cleaning, _clean)
    learning = [settings.subwords, settings.vocabulary, settings.sample, *settings.changes]
    learning += [getattr(settings, key) for key in ("normalize", "character_coverage") if key in not_default(settings)]
    add("learn", ("clean",), learning, _learn)
    add("encode", ("evaluation", "clean", "learn"), limits, _encode)
    add("binarize", ("encode",), settings.joined_dictionary, _binarize)
    add("publish", ("evaluation", "learn", "binarize"), None, _publish)
    return steps


def _extract(run: Run, steps: Steps, directory: Path) -> None:
    extract(run, directory)


def _raw(run: Run, steps: Steps, split: str) -> list[tuple[Raw, Raw]]:
    sides = [raw_files(run, steps.path("extract"), split, side) for side in (run.source, run.target)]
    return list(zip(*sides, strict=True))  # wanted_sources has checked that both sides have as many files


def _evaluation(run: Run, steps: Steps, directory: Path) -> list[str]:
    """Copies the validation and test sets unchanged, and checks them before the steps that take hours."""
    corpus, said = run.recipe.corpus, []
    for split in dict.fromkeys((corpus.valid, *pair_tests(run))):
        raw = _raw(run, steps, split)
        if len(raw) != 1:
            raise RecipeError(f"{corpus.sources}: '{split}' must have one file in {run.source}, not {len(raw)}.")
        lines = []
        for side, one in zip((run.source, run.target), raw[0], strict=True):
            cleaned = text.clean_eval_lines(one.path, one.name)
            lines.append(clean.count_lines(cleaned, one.name, run.recipe.prepare))
            with text.open_raw(one.path) as file, open(directory / f"{split}.{side}", "wb") as copy:
                shutil.copyfileobj(file, copy)
        if lines[0] != lines[1]:
            raise RecipeError(
                f"{split}.{run.source} has {lines[0]:,} lines and {split}.{run.target} has {lines[1]:,}: "
                f"fix or replace them in {run.download_dir}."
            )
        if not lines[0]:
            raise RecipeError(f"{split} is empty: check {run.download_dir}.")
        if (known := raw[0][0].known_lines) is not None:
            said.append(compare(split, lines[0], known, str(corpus.sources)))
    return said


def _clean(run: Run, steps: Steps, directory: Path) -> dict[str, Any]:
    corpus = run.recipe.corpus
    named = [(split, raw) for split in corpus.train_splits(run.pair) for raw in _raw(run, steps, split)]
    sizes: list[int] = []
    batches = clean.read_batches([raw for _, raw in named], sizes, run.recipe.prepare)
    function = partial(clean.clean_batch, settings=run.recipe.prepare, source=run.source)
    counts = _write(run, directory, "train", in_order(function, batches, run.cpus))
    said = [
        compare(split, size, raw[0].known_lines, str(corpus.sources))
        for (split, raw), size in zip(named, sizes, strict=True)
        if raw[0].known_lines is not None
    ]
    if counts.bad_utf8 > MOST_BAD_UTF8 * counts.read:
        raise RecipeError(
            f"{counts.bad_utf8:,} of the {counts.read:,} pairs of '{' '.join(corpus.train_splits(run.pair))}' are not "
            f"UTF-8, first at line {counts.first_bad_utf8:,}: convert them, such as by iconv -f latin1 -t utf-8, in "
            f"{corpus.text or run.download_dir}."
        )
    if not counts.after_steps()["kept"]:
        raise _nothing_left(run, counts)
    splits = [{"split": split, "pairs": size} for (split, _), size in zip(named, sizes, strict=True)]
    return {"counts": asdict(counts), "splits": splits, "said": said}


def _nothing_left(run: Run, counts: TrainCounts) -> RecipeError:
    splits = " ".join(run.recipe.corpus.train_splits(run.pair))
    return RecipeError(
        f"None of the {counts.read:,} pairs of '{splits}' is fit for training "
        f"({'; '.join(counts.sentences(run.recipe.prepare, run.source))}): check "
        f"{run.recipe.corpus.text or run.download_dir} and the limits of `prepare`."
    )


def _write(run: Run, directory: Path, prefix: str, batches: Iterable[clean.Cleaned]) -> TrainCounts:
    """Writes both sides of all batches in order, and returns the sum of their counts."""
    counts = TrainCounts()
    with (
        open(directory / f"{prefix}.{run.source}", "wb") as left,
        open(directory / f"{prefix}.{run.target}", "wb") as right,
    ):
        for one, other, found in batches:
            left.write(one)
            right.write(other)
            counts.add(found)
    return counts


def _learn(run: Run, steps: Steps, directory: Path) -> list[str]:
    """Learns subwords from every n-th pair, a sample of the corpus without random numbers; returns what to say."""
    settings = run.recipe.prepare
    counts = TrainCounts(**steps.facts("clean")["counts"])
    pairs = counts.after_steps()["kept"]  # by the step before
    step = max(1, -(-pairs // settings.sample)) if settings.sample else 1
    # Languages are sorted, so that both directions of a pair learn the same subwords.
    files = [(language, steps.path("clean") / f"train.{language}") for language in sorted((run.source, run.target))]
    size = in_child(learn_from, directory, files, step, settings, run.recipe.corpus.text is not None)
    if size == settings.vocabulary:
        return []
    return [f"{size:,} subwords, because {settings.vocabulary:,} do not fit this text"]


def learn_from(
    directory: Path, files: list[tuple[str, Path]], step: int, settings: Prepare, resizes: bool = False
) -> int:
    """Learns subwords from every `step`-th line of each language's file; returns their number.

    Args:
        resizes: whether to choose a number that fits, where the text cannot have as many as the settings ask for.
    """

    def lines() -> Iterator[tuple[str, str]]:
        for language, path in files:
            for line in islice(text.read_lines(path), 0, None, step):
                yield language, line.decode("utf-8").rpartition("\t")[2]

    size, least, most = settings.vocabulary, 0, None
    while True:
        try:
            subwords.learn(directory, lines(), replace(settings, vocabulary=size))
        except subwords.WrongSize as error:
            if not resizes:
                raise
            least, most = error.least or least, error.most or most
            # Of the largest number, a half or more are parts of words, or of sentences without blanks, that are tokens
            # as a whole, and most tokens occur once.
            if most is None:
                size = settings.vocabulary + least
            else:
                size = most // 4 if most // 4 >= least else min(most // 4 + least, most)
        else:
            return size


def load_subwords(run: Run, language: str, directory: Path | None = None) -> Subwords:
    """Loads the learnt subwords, to encode or decode one language."""
    return subwords.load(directory or run.prepared_dir, language, run.recipe.prepare)


def dictionaries(binarized: Path, *languages: str) -> list[Path]:
    """fairseq's dictionaries of these languages in a directory of binarized data."""
    return [binarized / f"dict.{language}.txt" for language in languages]


def vocabulary(binarized: Path, *languages: str) -> list[str]:
    """The checksums of these dictionaries."""
    return [file_hash(path) for path in dictionaries(binarized, *languages)]


def subwords_of(binarized: Path, language: str) -> Subwords:
    """The subwords that a directory of binarized data was made with; none, if this stage did not make it.

    Raises:
        RecipeError: the record of the prepared data is damaged.
    """
    record = binarized.parent / "prepare.json"
    if not record.is_file():
        return subwords.NoSubwords(binarized, language)
    try:
        settings = Prepare(**read_json(record)["settings"])
        return subwords.load(record.parent, language, settings)
    except (KeyError, TypeError, OSError) as error:
        raise RecipeError(f"The subwords of {record} cannot be loaded ({error}): prepare the data again.") from None


def _encode(run: Run, steps: Steps, directory: Path) -> dict[str, Any]:
    corpus, settings, learnt = run.recipe.corpus, run.recipe.prepare, steps.path("learn")
    cleaned = steps.facts("clean")
    sides = [steps.path("clean") / f"train.{side}" for side in (run.source, run.target)]
    batches = clean.read_batches([(Raw(sides[0], sides[0].name), Raw(sides[1], sides[1].name))], [])
    start = (learnt, run.source, run.target, settings)
    counts = TrainCounts(**cleaned["counts"])
    counts.add(_write(run, directory, "train", in_order(encode.encode_batch, batches, run.cpus, encode.start, start)))
    if not counts.kept:
        raise _nothing_left(run, counts)
    said = [
        f"{' '.join(corpus.train_splits(run.pair))}: {'; '.join(counts.sentences(settings, run.source))}",
        *cleaned["said"],
    ]
    if settings.changes:
        said.append(f"the model's text: {', '.join(settings.changes)}; references are unchanged")
    said += steps.facts("learn") or []  # None, if an earlier version made it
    said += compare_known(counts.after_steps(), known_counts(run))
    evals = {}
    for name, split in [("valid", corpus.valid), *((subset(run, test), test) for test in pair_tests(run))]:
        found = _encode_eval(run, steps, directory, name, split)
        evals[name] = {"split": split, **asdict(found)}
        said.append(f"{split}: {'; '.join(found.sentences(settings.eval_max_tokens))}")
    train = {"splits": cleaned["splits"], **asdict(counts), "after": counts.after_steps()}
    said += [*steps.facts("evaluation"), *_forms_of_references(run, steps)]
    return {"train": train, "evaluation": evals, "said": said}


def _encode_eval(run: Run, steps: Steps, directory: Path, name: str, split: str) -> EvalCounts:
    counts, limit = EvalCounts(), run.recipe.prepare.eval_max_tokens
    encoded = []
    for side in (run.source, run.target):
        path = steps.path("evaluation") / f"{split}.{side}"
        lines = context.with_before(text.clean_eval_lines(path), documents(run, split), "\t")
        encoded.append(context.encode(load_subwords(run, side, steps.path("learn")), lines))
        counts.odd_separators += sum(map(text.odd_separators, text.read_lines(path)))
    with (
        _open_for_writing(directory / f"{name}.{run.source}") as left,
        _open_for_writing(directory / f"{name}.{run.target}") as right,
    ):
        for number, pair in enumerate(zip(*encoded, strict=True), 1):
            (_, source), (_, target) = pair
            counts.lines += 1
            counts.empty_source += [] if source else [number]
            counts.empty_target += [] if target else [number]
            counts.cut += [number] if max(len(source), len(target)) > limit else []
            cut = [(before, sentence[:limit]) for before, sentence in pair]
            for file, tokens in zip((left, right), context.join(cut, run.recipe.prepare.max_tokens), strict=True):
                file.write(" ".join(tokens) + "\n")
    return counts


def _forms_of_references(run: Run, steps: Steps) -> list[str]:
    """A warning if references have characters that the model never writes."""
    settings, found = run.recipe.prepare, []
    for test in pair_tests(run):
        lines = text.clean_eval_lines(steps.path("evaluation") / f"{test}.{run.target}")
        if numbers := subwords.of_other_form(lines, settings):
            found.append(f"{len(numbers):,} of {test} (first in line {numbers[0]:,})")
    if not found:
        return []
    return [
        f"warning: references have characters that the model never writes, {', '.join(found)}: SentencePiece replaces "
        f"them in the model's text (prepare.normalize = {settings.normalize}); set normalize = identity if the "
        "training text has them too, or else convert the references (docs/data.md)"
    ]


def _open_for_writing(path: Path) -> TextIO:
    return open(path, "w", encoding="utf-8", newline="\n")


def _binarize(run: Run, steps: Steps, directory: Path) -> Any:
    command = _preprocess_command(run, steps.path("encode"), directory)
    run_command(run, command, run.pair_dir / "preprocess.log", "fairseq-preprocess")
    facts = steps.facts("encode")
    require_lines(run, directory, facts["train"]["kept"])
    return facts


def require_lines(run: Run, directory: Path, pairs: int) -> None:
    """RecipeError if fairseq-preprocess lost or repeated lines; its workers find their parts of a text by seeking."""
    for side in (run.source, run.target):
        sentences = len(read_sizes(index_file(directory, "train", run.pair, side)))
        if sentences != pairs:
            raise RecipeError(
                f"fairseq-preprocess wrote {sentences:,} sentences of {side} instead of {pairs:,}: see "
                f"{run.pair_dir / 'preprocess.log'}, and run again with fewer --cpus."
            )


def _preprocess_command(run: Run, tokens: Path, directory: Path) -> list[str]:
    tests = ",".join(str(tokens / subset(run, test)) for test in pair_tests(run))
    words = [*run.module("fairseq_cli.preprocess"), "--source-lang", run.source, "--target-lang", run.target]
    words += ["--trainpref", str(tokens / "train"), "--validpref", str(tokens / "valid")]
    words += ["--testpref", tests, "--destdir", str(directory), "--workers", str(run.cpus)]
    return [*words, *(["--joined-dictionary"] if run.recipe.prepare.joined_dictionary else [])]


def _publish(run: Run, steps: Steps, directory: Path) -> Any:
    """Collects the outputs that training and scoring read, as hard links, which take no space."""
    facts = steps.facts("binarize")
    shutil.copytree(steps.path("binarize"), directory / "binarized", copy_function=_link)
    for path in steps.path("learn").iterdir():
        _link(path, directory / path.name)
    for path in steps.path("evaluation").iterdir():
        _link(path, directory / path.name)
    report = {"pair": run.pair, "settings": asdict(run.recipe.prepare)}
    write_json(directory / "prepare.json", {**report, "train": facts["train"], "evaluation": facts["evaluation"]})
    (directory / "prepare.txt").write_text("\n".join(facts["said"]) + "\n", encoding="utf-8")
    return facts


def _link(origin: str | Path, copy: str | Path) -> None:
    with suppress(OSError):
        os.link(origin, copy)
        return
    shutil.copyfile(origin, copy)  # not every file system has links


def is_prepared(run: Run) -> bool:
    """Whether the data is prepared with the current settings."""
    return Markers(run.pair_dir).is_done("prepare", inputs(run))


def require(run: Run) -> None:
    """RecipeError unless the data is prepared with the current settings."""
    if not is_prepared(run):
        raise RecipeError(
            f"The data in {run.pair_dir} is not prepared (or its settings changed since): run the "
            f"stages download..prepare."
        )


@contextmanager
def in_use(run: Run) -> Iterator[int]:
    """Locks the prepared data for reading while the block runs; yields the lock's file descriptor.

    A child that inherits the descriptor holds the lock too.

    Raises:
        RecipeError: the data is not prepared with the current settings.
    """
    if not run.pair_dir.is_dir():
        require(run)
    with shared(run.pair_dir) as lock:
        require(run)
        yield lock
