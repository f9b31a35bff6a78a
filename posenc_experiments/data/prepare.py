"""Stage `prepare`: streams raw parallel text into fairseq's binarized data, and counts every dropped sentence.

`prepared-HASH/` holds the learnt subwords, `binarized/` for fairseq-train, each test set unchanged
(`<test>.<language>`, the references of scores) with its documents if they are known (`<test>.documents`), and the
counts: prepare.json, and prepare.txt for people. The outputs of earlier steps are in `prepared-HASH.work/` until the
last step is done.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, islice, product, takewhile
from pathlib import Path
from typing import Any

from posenc_experiments.base.done import locked, set_done
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import empty_directory, read_json, write_json
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.base.run import Run
from posenc_experiments.base.subprocesses import run_command
from posenc_experiments.data import clean, context, prepared, subwords, text
from posenc_experiments.data.counts import Counts, said_of_test, said_of_training
from posenc_experiments.data.documents import add_documents
from posenc_experiments.data.download import archive_path
from posenc_experiments.data.parallel import in_child, in_order
from posenc_experiments.data.prepared import binarized_dir, download_dir, is_prepared, prepared_dir
from posenc_experiments.data.raw import documents, extract, members, raw_files
from posenc_experiments.data.sources import pair_tests, split_sources

#: the share of training pairs that may be damaged; more is text in another encoding
MOST_BAD_UTF8 = 0.1
LOW_CEILING = 99.9  # BLEU


def prepare(run: Run) -> None:
    """Runs the stage; after a kill, it resumes with the first step that is not done."""
    final = prepared_dir(run)
    work = final.with_name(f"{final.name}.work")
    if run.dry_run:
        settings = run.recipe.prepare
        if members(run, work):
            run.say(f"# extract the members that sources.tsv names from the archives in {download_dir(run)}")
        changes = "".join(f"{change}, " for change in settings.changes)
        how = f"{changes}learn subwords ({settings.subwords}, {settings.vocabulary:,})"
        run.say(f"# clean, {how} and encode in {work}")
        run.dry(_preprocess_command(run, work / "encode", work / "binarize"))
        run.say(f"# move {work / 'publish'} to {final}")
        return
    if is_prepared(run):
        run.say(f"prepare: done before, in {final}")
    else:
        with locked(work):
            if not is_prepared(run):  # another call may have made it meanwhile
                _make(run, work)
        run.say(f"prepare: binarized in {binarized_dir(run)}")
    add_documents(run)
    shutil.rmtree(work, ignore_errors=True)  # may also be left by a run that was killed after its last step


def _make(run: Run, work: Path) -> None:
    """Runs the steps that are not done, and publishes their outputs.

    A step fills the directory `work/STEP`, and is done when there is `work/STEP.json`, which holds what it returned.
    Outputs are deleted as soon as no later step reads them, so that the disk never holds a corpus more than twice.
    """
    for step, make in STEPS.items():
        record, directory = work / f"{step}.json", work / step
        if not record.is_file():
            run.say(f"prepare: {step}...")
            write_json(record, make(run, work, empty_directory(directory)))
        if step in LAST_READ:
            shutil.rmtree(work / LAST_READ[step], ignore_errors=True)
    _publish(run, work)


def _publish(run: Run, work: Path) -> None:
    """Moves the outputs that training and scoring read to the prepared data; what a killed call moved is there."""
    directory, facts = work / "publish", read_json(work / "encode.json")
    directory.mkdir(exist_ok=True)
    for path in [*(work / "evaluation").iterdir(), *(work / "learn").iterdir()]:
        path.replace(directory / path.name)
    if (work / "binarize").is_dir():
        (work / "binarize").replace(directory / "binarized")
    report = {"pair": run.pair, "settings": asdict(run.recipe.prepare)}
    report |= {"libraries": prepared.text_libraries(run.recipe.prepare)}
    write_json(directory / "prepare.json", {**report, "train": facts["train"], "evaluation": facts["evaluation"]})
    (directory / "prepare.txt").write_text("\n".join(facts["said"]) + "\n", encoding="utf-8")
    set_done(directory, "prepare")
    shutil.rmtree(prepared_dir(run), ignore_errors=True)  # it lacks files, or was not recorded
    directory.replace(prepared_dir(run))
    for line in facts["said"]:
        run.say(f"prepare: {line}")


def _extract(run: Run, work: Path, directory: Path) -> None:
    for archive, wanted in members(run, directory).items():
        extract(archive_path(run, archive), wanted, run.recipe.corpus.sources)


def _evaluation(run: Run, work: Path, directory: Path) -> list[str]:
    """Copies the validation and test sets unchanged, and checks them before the steps that take hours."""
    corpus, said = run.recipe.corpus, list[str]()
    for split in dict.fromkeys((corpus.valid, *pair_tests(run))):
        parts = raw_files(run, work / "extract", split)
        if len(parts) != 1:
            raise RecipeError(f"{corpus.sources}: '{split}' must have one file in {run.source}, not {len(parts)}.")
        paths = parts[0][:2]
        size = sum(1 for _ in text.pairs(paths, *map(text.clean_eval_lines, paths)))
        if not size:
            raise RecipeError(f"{split} is empty: check {download_dir(run)}.")
        for side, path in zip((run.source, run.target), paths, strict=True):
            with text.open_raw(path) as file, open(directory / f"{split}.{side}", "wb") as copy:
                shutil.copyfileobj(file, copy)
        said += _compare_lines(run, split, [size])
    return said


def _compare_lines(run: Run, split: str, sizes: list[int]) -> list[str]:
    """A warning for each part of a split whose lines are not as many as sources.tsv says.

    It is always printed, as training accepts lost lines.
    """
    rows = split_sources(run, split, run.source)
    return [
        f"warning: {split}: {size:,} pairs here, but {row.lines:,} are known ({run.recipe.corpus.sources})"
        for row, size in zip(rows, sizes, strict=bool(rows))
        if row.lines not in (None, size)
    ]


def _clean(run: Run, work: Path, directory: Path) -> dict[str, Any]:
    corpus, settings = run.recipe.corpus, run.recipe.prepare
    sizes: dict[str, list[int]] = {split: [] for split in corpus.train_splits(run.pair)}
    parts = {split: raw_files(run, work / "extract", split) for split in sizes}
    batches = chain.from_iterable(clean.read_batches(parts[split], read) for split, read in sizes.items())
    function = partial(clean.clean_batch, settings=settings, source=run.source)
    counts = _write(run, directory, in_order(function, batches, run.hardware.cpus))
    if counts["bad_utf8"] > MOST_BAD_UTF8 * counts["read"]:
        raise RecipeError(
            f"{counts['bad_utf8']:,} of the {counts['read']:,} pairs of '{' '.join(sizes)}' are not UTF-8, first at "
            f"line {counts['first_bad_utf8']:,}: convert them, such as by iconv -f latin1 -t utf-8, in "
            f"{corpus.text or download_dir(run)}."
        )
    _require_kept(run, counts)
    said = [warning for split, read in sizes.items() for warning in _compare_lines(run, split, read)]
    return {"counts": counts, "said": said}


def _require_kept(run: Run, counts: Counts) -> None:
    if not counts["kept"]:
        splits = " ".join(run.recipe.corpus.train_splits(run.pair))
        raise RecipeError(
            f"None of the {counts['read']:,} pairs of '{splits}' is fit for training "
            f"({said_of_training(counts, run.recipe.prepare, run.source)}): check "
            f"{run.recipe.corpus.text or download_dir(run)} and the limits of `prepare`."
        )


def _write(run: Run, directory: Path, batches: Iterable[clean.Cleaned]) -> Counts:
    """Writes both sides of all batches of training text in order, and returns the sum of their counts."""
    counts = Counts()
    with open(directory / f"train.{run.source}", "wb") as left, open(directory / f"train.{run.target}", "wb") as right:
        for one, other, more in batches:
            left.write(one)
            right.write(other)
            if first := more.pop("first_bad_utf8", 0):
                counts.setdefault("first_bad_utf8", counts["read"] + first)
            counts.update(more)
    return counts


def _learn(run: Run, work: Path, directory: Path) -> list[str]:
    """Learns subwords from every n-th pair, a sample of the corpus without random numbers; returns what to say."""
    settings = run.recipe.prepare
    pairs = read_json(work / "clean.json")["counts"]["kept"]
    step = max(1, -(-pairs // settings.sample)) if settings.sample else 1
    # Languages are sorted, so that both directions of a pair learn the same subwords.
    files = [(language, work / "clean" / f"train.{language}") for language in sorted((run.source, run.target))]
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

    size, least, most = settings.vocabulary, 0, 0
    while True:
        try:
            subwords.learn(directory, lines(), replace(settings, vocabulary=size))
            return size
        except subwords.WrongSize as error:
            limit = re.search(r"required_chars\. \d+ vs (?P<least>\d+)|value <= (?P<most>\d+)", str(error))
            if not resizes or limit is None:
                raise
            least, most = int(limit["least"] or least), int(limit["most"] or most)
            size = settings.vocabulary + least
            if most:
                # Of the largest number, a half or more are parts of words, or of sentences without blanks, that are
                # tokens as a whole, and most tokens occur once.
                size = most // 4 if most // 4 >= least else min(most // 4 + least, most)


def _encode(run: Run, work: Path, directory: Path) -> dict[str, Any]:
    corpus, settings = run.recipe.corpus, run.recipe.prepare
    cleaned, sides = read_json(work / "clean.json"), (run.source, run.target)
    part = (work / "clean" / f"train.{run.source}", work / "clean" / f"train.{run.target}", None)
    function = partial(clean.encode_batch, directory=work / "learn", languages=sides, settings=settings)
    batches = clean.read_batches([part], [])
    counts = Counts({**cleaned["counts"], "kept": 0})
    counts.update(_write(run, directory, in_order(function, batches, run.hardware.cpus)))
    _require_kept(run, counts)
    splits = " ".join(corpus.train_splits(run.pair))
    said = [f"{splits}: {said_of_training(counts, settings, run.source)}", *cleaned["said"]]
    if settings.changes:
        said.append(f"the model's text: {', '.join(settings.changes)}; references are unchanged")
    said += read_json(work / "learn.json")
    evals = {}
    for name, split in [("valid", corpus.valid), *((prepared.subset(run, test), test) for test in pair_tests(run))]:
        evals[name] = _encode_eval(run, work, directory, name, split)
        said.append(f"{split}: {said_of_test(evals[name], settings)}")
        if name != "valid":
            evals[name]["ceiling"], sentence = _ceiling(run, work, split)
            said.append(f"{split}: {sentence}")
    said += read_json(work / "evaluation.json")
    return {"train": counts, "evaluation": evals, "said": said}


def _encode_eval(run: Run, work: Path, directory: Path, name: str, split: str) -> dict[str, Any]:
    """Encodes a validation or test set; returns its name, its size, and the line numbers of each of NOTES."""
    settings, limit = run.recipe.prepare, run.recipe.prepare.eval_max_tokens
    sides, encoded = (run.source, run.target), []
    for side in sides:
        path = work / "evaluation" / f"{split}.{side}"
        lines = context.with_before(text.clean_eval_lines(path), documents(run, split), "\t")
        encoded.append(context.encode(subwords.load(work / "learn", side, settings), lines))
    pairs = list(zip(*encoded, strict=True))
    cut = [[(before, sentence[:limit]) for before, sentence in pair] for pair in pairs]
    joined = [context.join(pair, settings.max_tokens) for pair in cut]
    for number, side in enumerate(sides):
        (directory / f"{name}.{side}").write_bytes(clean.as_lines([" ".join(line[number]) for line in joined]))
    references = text.clean_eval_lines(work / "evaluation" / f"{split}.{run.target}")
    numbered = [(number, source, target) for number, ((_, source), (_, target)) in enumerate(pairs, 1)]
    return {
        "split": split,
        "lines": len(pairs),
        "empty_source": [number for number, source, _ in numbered if not source],
        "empty_target": [number for number, _, target in numbered if not target],
        "cut": [number for number, *both in numbered if max(map(len, both)) > limit],
        "other_form": subwords.lines_of_other_form(references, settings),
    }


def _ceiling(run: Run, work: Path, split: str) -> tuple[float, str]:
    """BLEU of a test set's references that are split into tokens and joined again, and a sentence about it."""
    from sacrebleu.metrics.bleu import BLEU  # imported here, because it would slow down --help and --dry-run

    references = list(text.clean_eval_lines(work / "evaluation" / f"{split}.{run.target}"))
    written = subwords.load(work / "learn", run.target, run.recipe.prepare)
    joined = [text.clean(written.decode(tokens)) for tokens in written.encode(references)]
    if run.recipe.prepare.lowercase:
        references = [line.lower() for line in references]
    pairs = zip(references, joined, strict=True)
    changed = [(number, *pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1]]
    # BLEU of a few short lines is below 100 even if all are equal
    bleu = BLEU(tokenize=run.tokenizer).corpus_score(joined, [references]).score if changed else 100.0
    said = f"BLEU of its references, split into tokens and joined again, is {bleu:.2f}"
    if bleu < LOW_CEILING:
        number, one, other = changed[0]
        same = sum(1 for _ in takewhile(lambda letters: letters[0] == letters[1], zip(one, other, strict=False)))
        shown = slice(max(0, same - 20), same + 20)
        said += (
            ", a warning: no translation can score more (docs/data.md). "
            f"{len(changed):,} of {len(joined):,} lines change, "
            f"first line {number:,}, from '{one[shown]}' to '{other[shown]}'"
        )
    return round(bleu, 2), said


def _binarize(run: Run, work: Path, directory: Path) -> None:
    command = _preprocess_command(run, work / "encode", directory)
    run_command(run, command, run.pair_dir / "preprocess.log", "fairseq-preprocess")
    facts = read_json(work / "encode.json")
    lines = {"train": facts["train"]["kept"], **{name: one["lines"] for name, one in facts["evaluation"].items()}}
    for (name, count), side in product(lines.items(), (run.source, run.target)):
        path = prepared.index_file(directory, name, run.pair, side)
        if (size := len(prepared.read_sizes(path))) != count:  # then references and translations would not be aligned
            raise RecipeError(f"{path} has {size:,} of the {count:,} lines of its text: run the stage prepare again.")


def _preprocess_command(run: Run, tokens: Path, directory: Path) -> list[str]:
    tests = ",".join(str(tokens / prepared.subset(run, test)) for test in pair_tests(run))
    words = [*run.module("fairseq_cli.preprocess"), "--source-lang", run.source, "--target-lang", run.target]
    words += ["--trainpref", str(tokens / "train"), "--validpref", str(tokens / "valid")]
    words += ["--testpref", tests, "--destdir", str(directory), "--workers", str(run.hardware.cpus)]
    return words + ["--joined-dictionary"] * run.recipe.prepare.joined_dictionary


#: the steps, in order; each fills a directory and returns facts, for JSON
STEPS: dict[str, Callable[[Run, Path, Path], object]] = {
    "extract": _extract,
    "evaluation": _evaluation,
    "clean": _clean,
    "learn": _learn,
    "encode": _encode,
    "binarize": _binarize,
}
#: the step whose outputs each step is the last to read
LAST_READ = {"clean": "extract", "encode": "clean", "binarize": "encode"}
