"""Stage `prepare`: streams raw parallel text into fairseq's binarized data, and counts every dropped sentence.

`prepared-HASH/` holds the learnt subwords, `binarized/` for fairseq-train, each test set unchanged
(`<test>.<language>`, the references of scores), and the counts: prepare.json, and prepare.txt for people. The outputs
of earlier steps are in `prepared-HASH.work/` until the last step is done.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import (
    empty_directory,
    file_hash,
    is_done,
    locked,
    naming_full_disk,
    read_json,
    replace_directory,
    set_done,
    write_json,
)
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.base.run import Run, run_command
from posenc_experiments.base.step import Step
from posenc_experiments.data import clean, context, encode, subwords, text
from posenc_experiments.data.counts import EvalCounts, TrainCounts, compare, compare_known
from posenc_experiments.data.lengths import index_file, read_sizes
from posenc_experiments.data.parallel import in_child, in_order
from posenc_experiments.data.prepared import binarized_dir, download_dir, is_prepared, prepared_dir
from posenc_experiments.data.raw import Raw, documents, extract, has_members, raw_files
from posenc_experiments.data.sources import known_counts, pair_tests
from posenc_experiments.data.subwords import Subwords

#: the share of training pairs that may be damaged; more is text in another encoding
MOST_BAD_UTF8 = 0.1


def subset(run: Run, test: str) -> str:
    """fairseq's name for a test set: test, test1, test2..."""
    index = pair_tests(run).index(test)
    return f"test{index or ''}"


class Preparation:
    """The data of a pair in preparation; its directory's name stands for all that the steps depend on."""

    def __init__(self, run: Run) -> None:
        final = prepared_dir(run)
        self.run, self.title, self.directory = run, run.pair, final.with_name(f"{final.name}.work")

    def path(self, step: str) -> Path:
        """The directory of a step's outputs."""
        return self.directory / step

    def facts_path(self, step: str) -> Path:
        return self.directory / f"{step}.json"

    def facts(self, step: str) -> Any:
        """What a step returned."""
        return read_json(self.facts_path(step))

    def inputs(self, step: str) -> str:
        return ""

    def is_done(self, step: str) -> bool:
        return is_done(self.directory, step)


class Part(Step):
    """A step of the preparation: a function that fills an empty directory and returns facts, for JSON.

    Its outputs are deleted as soon as no later step reads them, so that the disk never holds a corpus more than twice.
    """

    def __init__(self, name: str, reads: tuple[str, ...], function: Callable[[Preparation, Path], Any]) -> None:
        self.name, self.reads, self.function = name, reads, function

    def make(self, one: Preparation, locks: tuple[int, ...]) -> list[Path]:
        one.run.say(f"prepare: {self.name}...")
        directory = empty_directory(one.path(self.name))
        with naming_full_disk(directory):
            write_json(one.facts_path(self.name), self.function(one, directory))
        return [one.facts_path(self.name)]


def parts_of(run: Run) -> list[Part]:
    """The steps of the stage, in order."""
    extracted: tuple[str, ...] = ("extract",) if has_members(run) else ()
    return [
        *([Part("extract", (), _extract)] if extracted else []),
        Part("evaluation", extracted, _evaluation),
        Part("clean", extracted, _clean),
        Part("learn", ("clean",), _learn),
        Part("encode", ("evaluation", "clean", "learn"), _encode),
        Part("binarize", ("encode",), _binarize),
        Part("publish", ("evaluation", "learn", "binarize"), _publish),
    ]


def prepare(run: Run) -> None:
    """Runs the stage; after a kill, it resumes with the first step that is not done."""
    final, work = prepared_dir(run), Preparation(run)
    if run.dry_run:
        settings = run.recipe.prepare
        if has_members(run):
            run.say(f"# extract the members that sources.tsv names from the archives in {download_dir(run)}")
        changes = "".join(f"{change}, " for change in settings.changes)
        how = f"{changes}learn subwords ({settings.subwords}, {settings.vocabulary:,})"
        run.say(f"# clean, {how} and encode in {work.directory}")
        run.dry(_preprocess_command(run, work.path("encode"), work.path("binarize")))
        run.say(f"# move {work.path('publish')} to {final}")
        return
    if is_prepared(run):
        run.say(f"prepare: done before, in {final}")
    else:
        with locked(work.directory) as lock:
            said = [] if is_prepared(run) else _make(work, final, lock)  # another call may have made it meanwhile
        for line in said:
            run.say(f"prepare: {line}")
        run.say(f"prepare: binarized in {binarized_dir(run)}")
    shutil.rmtree(work.directory, ignore_errors=True)  # may also be left by a run that was killed after its last step


def _make(work: Preparation, final: Path, lock: int) -> list[str]:
    """Runs the steps that are not done and publishes their result; returns what to say."""
    run, parts = work.run, parts_of(work.run)
    to_do = [part for part in parts if not part.is_done(work)]
    needed = {"publish", *(name for part in to_do for name in part.reads)} - {part.name for part in to_do}
    if not all(work.path(name).is_dir() for name in needed):  # deleted since
        to_do = parts
    if len(to_do) < len(parts):
        run.say(f"prepare: resumes {f'with the step {to_do[0].name}' if to_do else 'after the last step'}")
    for number, part in enumerate(to_do):
        part.complete(work, (lock,))
        # The inputs of the last step stay until its result has been moved.
        read = {name for later in (*to_do[number + 1 :], parts[-1]) for name in (*later.reads, "publish")}
        for other in parts:
            if other.name not in read:
                shutil.rmtree(work.path(other.name), ignore_errors=True)
    said: list[str] = work.facts("publish")["said"]
    set_done(work.path("publish"), "prepare")
    replace_directory(work.path("publish"), final)
    return said


def _extract(work: Preparation, directory: Path) -> None:
    extract(work.run, directory)


def _raw(work: Preparation, split: str) -> list[tuple[Raw, Raw]]:
    run = work.run
    sides = [raw_files(run, work.path("extract"), split, side) for side in (run.source, run.target)]
    return list(zip(*sides, strict=True))  # wanted_sources has checked that both sides have as many files


def _evaluation(work: Preparation, directory: Path) -> list[str]:
    """Copies the validation and test sets unchanged, and checks them before the steps that take hours."""
    run, said = work.run, list[str]()
    corpus = run.recipe.corpus
    for split in dict.fromkeys((corpus.valid, *pair_tests(run))):
        raw = _raw(work, split)
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
                f"fix or replace them in {download_dir(run)}."
            )
        if not lines[0]:
            raise RecipeError(f"{split} is empty: check {download_dir(run)}.")
        if (known := raw[0][0].known_lines) is not None:
            said.append(compare(split, lines[0], known, str(corpus.sources)))
    return said


def _clean(work: Preparation, directory: Path) -> dict[str, Any]:
    run, corpus = work.run, work.run.recipe.corpus
    named = [(split, raw) for split in corpus.train_splits(run.pair) for raw in _raw(work, split)]
    sizes: list[int] = []
    batches = clean.read_batches([raw for _, raw in named], sizes, run.recipe.prepare)
    function = partial(clean.clean_batch, settings=run.recipe.prepare, source=run.source)
    counts = _write(run, directory, "train", in_order(function, batches, run.hardware.cpus))
    said = [
        compare(split, size, raw[0].known_lines, str(corpus.sources))
        for (split, raw), size in zip(named, sizes, strict=True)
        if raw[0].known_lines is not None
    ]
    if counts.bad_utf8 > MOST_BAD_UTF8 * counts.read:
        raise RecipeError(
            f"{counts.bad_utf8:,} of the {counts.read:,} pairs of '{' '.join(corpus.train_splits(run.pair))}' are not "
            f"UTF-8, first at line {counts.first_bad_utf8:,}: convert them, such as by iconv -f latin1 -t utf-8, in "
            f"{corpus.text or download_dir(run)}."
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
        f"{run.recipe.corpus.text or download_dir(run)} and the limits of `prepare`."
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


def _learn(work: Preparation, directory: Path) -> list[str]:
    """Learns subwords from every n-th pair, a sample of the corpus without random numbers; returns what to say."""
    run, settings = work.run, work.run.recipe.prepare
    counts = TrainCounts(**work.facts("clean")["counts"])
    pairs = counts.after_steps()["kept"]  # by the step before
    step = max(1, -(-pairs // settings.sample)) if settings.sample else 1
    # Languages are sorted, so that both directions of a pair learn the same subwords.
    files = [(language, work.path("clean") / f"train.{language}") for language in sorted((run.source, run.target))]
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
    return subwords.load(directory or prepared_dir(run), language, run.recipe.prepare)


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


def _encode(work: Preparation, directory: Path) -> dict[str, Any]:
    run, learnt = work.run, work.path("learn")
    corpus, settings = run.recipe.corpus, run.recipe.prepare
    cleaned = work.facts("clean")
    sides = [work.path("clean") / f"train.{side}" for side in (run.source, run.target)]
    batches = clean.read_batches([(Raw(sides[0], sides[0].name), Raw(sides[1], sides[1].name))], [])
    start = (learnt, run.source, run.target, settings)
    counts = TrainCounts(**cleaned["counts"])
    counts.add(
        _write(run, directory, "train", in_order(encode.encode_batch, batches, run.hardware.cpus, encode.start, start))
    )
    if not counts.kept:
        raise _nothing_left(run, counts)
    said = [
        f"{' '.join(corpus.train_splits(run.pair))}: {'; '.join(counts.sentences(settings, run.source))}",
        *cleaned["said"],
    ]
    if settings.changes:
        said.append(f"the model's text: {', '.join(settings.changes)}; references are unchanged")
    said += work.facts("learn")
    said += compare_known(counts.after_steps(), known_counts(run))
    evals = {}
    for name, split in [("valid", corpus.valid), *((subset(run, test), test) for test in pair_tests(run))]:
        found = _encode_eval(work, directory, name, split)
        evals[name] = {"split": split, **asdict(found)}
        said.append(f"{split}: {'; '.join(found.sentences(settings.eval_max_tokens))}")
    train = {"splits": cleaned["splits"], **asdict(counts), "after": counts.after_steps()}
    said += [*work.facts("evaluation"), *_forms_of_references(work)]
    return {"train": train, "evaluation": evals, "said": said}


def _encode_eval(work: Preparation, directory: Path, name: str, split: str) -> EvalCounts:
    run, counts = work.run, EvalCounts()
    limit = run.recipe.prepare.eval_max_tokens
    encoded = []
    for side in (run.source, run.target):
        path = work.path("evaluation") / f"{split}.{side}"
        lines = context.with_before(text.clean_eval_lines(path), documents(run, split), "\t")
        encoded.append(context.encode(load_subwords(run, side, work.path("learn")), lines))
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


def _forms_of_references(work: Preparation) -> list[str]:
    """A warning if references have characters that the model never writes."""
    run, found = work.run, []
    settings = run.recipe.prepare
    for test in pair_tests(run):
        lines = text.clean_eval_lines(work.path("evaluation") / f"{test}.{run.target}")
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


def _binarize(work: Preparation, directory: Path) -> Any:
    run = work.run
    command = _preprocess_command(run, work.path("encode"), directory)
    run_command(run, command, run.pair_dir / "preprocess.log", "fairseq-preprocess")
    facts = work.facts("encode")
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
    words += ["--testpref", tests, "--destdir", str(directory), "--workers", str(run.hardware.cpus)]
    return [*words, *(["--joined-dictionary"] if run.recipe.prepare.joined_dictionary else [])]


def _publish(work: Preparation, directory: Path) -> Any:
    """Collects the outputs that training and scoring read, as hard links, which take no space."""
    run, facts = work.run, work.facts("binarize")
    shutil.copytree(work.path("binarize"), directory / "binarized", copy_function=_link)
    for path in work.path("learn").iterdir():
        _link(path, directory / path.name)
    for path in work.path("evaluation").iterdir():
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
