"""Stage `prepare`: raw parallel text to fairseq's binarized data, streamed, with every lost sentence counted.

`prepared/` holds the learnt subwords, `binarized/` for fairseq-train, each test set as it came
(`<test>.<language>`, what scores are computed against), and the account of what was found: prepare.json, and
prepare.txt for people.
"""

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path

from recipes.common import download, text
from recipes.common.errors import RecipeError
from recipes.common.run import Run, run_command
from recipes.common.stages import Markers, empty_directory, fingerprint, locked, replace_directory, write_json
from recipes.common.subwords import METHODS, Subwords

TOKENS = "tokens"  # a folder of what is only needed until it is binarized


def inputs(run: Run) -> str:
    """The fingerprint of what decides this stage's outputs."""
    corpus = run.recipe.corpus
    splits = [corpus.train, corpus.valid, corpus.tests]
    return fingerprint([download.inputs(run), run.pair, splits, asdict(run.recipe.prepare)])


def training_inputs(run: Run) -> str:
    """The fingerprint of what decides the training and validation data: another test set makes no other training."""
    corpus, settings = run.recipe.corpus, asdict(run.recipe.prepare)
    del settings["eval_max_tokens"]
    splits = (corpus.train, corpus.valid)
    return fingerprint([download.inputs(run, splits), run.pair, splits, settings])


def subset(run: Run, test: str) -> str:
    """fairseq's name for a test set: test, test1, test2..."""
    index = run.recipe.corpus.tests.index(test)
    return f"test{index or ''}"


def prepare(run: Run) -> None:
    """Runs the stage."""
    temporary = run.prepared_dir.with_name("prepared.tmp")
    if run.dry_run:
        settings = run.recipe.prepare
        run.say(f"# clean, learn subwords ({settings.subwords}, {settings.vocabulary:,}) and encode into {temporary}")
        run.dry(_preprocess_command(run, temporary))
        run.dry(["mv", temporary, run.prepared_dir])
        return
    markers = Markers(run.pair_dir)
    with locked(run.pair_dir):
        if markers.is_done("prepare", inputs(run)):
            run.say(f"prepare: done before, in {run.prepared_dir}")
            return
        markers.clear("prepare")
        empty_directory(temporary)
        try:
            said = _prepare(run, temporary)
        except BaseException:
            shutil.rmtree(temporary)
            raise
        replace_directory(temporary, run.prepared_dir)
        files = [path for path in run.prepared_dir.rglob("*") if path.is_file()]
        markers.set_done("prepare", inputs(run), files)
    for line in said:
        run.say(f"prepare: {line}")
    run.say(f"prepare: binarized in {run.binarized_dir}")


def _prepare(run: Run, directory: Path) -> list[str]:
    corpus, settings = run.recipe.corpus, run.recipe.prepare
    (directory / TOKENS).mkdir()
    counts = text.TrainCounts()
    _clean_training(run, directory, counts)
    cleaned = counts.read - counts.bad_utf8 - counts.empty
    if cleaned:
        _learn(run, directory, cleaned)
        _encode_training(run, directory, counts)
    if not counts.kept:
        raise RecipeError(
            f"None of the {counts.read:,} pairs of '{corpus.train}' is fit for training "
            f"({'; '.join(counts.sentences(settings.max_tokens))}): check {run.download_dir}."
        )
    said = [f"{corpus.train}: {'; '.join(counts.sentences(settings.max_tokens))}"]
    evals = {}
    for name, split in [("valid", corpus.valid), *((subset(run, test), test) for test in corpus.tests)]:
        found = _encode_eval(run, directory, name, split)
        evals[split] = {"subset": name, **text.as_dict(found)}
        said.append(f"{split}: {'; '.join(found.sentences(settings.eval_max_tokens))}")
    run_command(run, _preprocess_command(run, directory), run.pair_dir / "preprocess.log", "fairseq-preprocess")
    # 36 million pairs of these would only fill the disk: what training reads is binarized.
    shutil.rmtree(directory / TOKENS)
    write_json(
        directory / "prepare.json",
        {"pair": run.pair, "settings": asdict(settings), "train": text.as_dict(counts), "evaluation": evals},
    )
    (directory / "prepare.txt").write_text("\n".join(said) + "\n", encoding="utf-8")
    return said


def _clean_training(run: Run, directory: Path, counts: text.TrainCounts) -> None:
    train = run.recipe.corpus.train
    source, target = download.raw_files(run, train, run.source), download.raw_files(run, train, run.target)
    if len(source) != len(target):
        raise RecipeError(
            f"{run.recipe.corpus.sources}: '{train}' has {len(source)} files in {run.source}, "
            f"{len(target)} in {run.target}."
        )
    with (
        _write(directory / TOKENS / f"clean.{run.source}") as left,
        _write(directory / TOKENS / f"clean.{run.target}") as right,
    ):
        for one, other in text.clean_training_pairs(source, target, counts):
            left.write(one + "\n")
            right.write(other + "\n")


def _write(path: Path):  # type: ignore[no-untyped-def]
    return open(path, "w", encoding="utf-8", newline="\n")


def _clean_lines(directory: Path, language: str) -> Iterator[str]:
    return (line.decode("utf-8") for line in text.read_lines(directory / TOKENS / f"clean.{language}"))


def _learn(run: Run, directory: Path, pairs: int) -> None:
    """Learns from every n-th pair, so that a sample needs no random numbers and is spread over the whole
    corpus.
    """
    settings = run.recipe.prepare
    step = max(1, -(-pairs // settings.sample)) if settings.sample else 1

    def lines() -> Iterator[tuple[str, str]]:
        # In the languages' order, not the pair's: both directions learn the same subwords.
        for language in sorted((run.source, run.target)):
            for number, line in enumerate(_clean_lines(directory, language)):
                if number % step == 0:
                    yield language, line

    METHODS[settings.subwords].learn(directory, lines(), settings, run.cpus)


def load_subwords(run: Run, language: str, directory: Path | None = None) -> Subwords:
    """The learnt subwords, for encoding or decoding one language."""
    return METHODS[run.recipe.prepare.subwords](directory or run.prepared_dir, language, run.cpus)


def _encode_training(run: Run, directory: Path, counts: text.TrainCounts) -> None:
    limit = run.recipe.prepare.max_tokens
    sides = [
        load_subwords(run, side, directory).encode(_clean_lines(directory, side)) for side in (run.source, run.target)
    ]
    with (
        _write(directory / TOKENS / f"train.{run.source}") as left,
        _write(directory / TOKENS / f"train.{run.target}") as right,
    ):
        for source, target in zip(*sides, strict=True):
            if not source or not target:  # characters that subwords leave out, such as zero-width spaces
                counts.empty += 1
            elif max(len(source), len(target)) > limit:
                counts.too_long += 1
            else:
                counts.kept += 1
                left.write(" ".join(source) + "\n")
                right.write(" ".join(target) + "\n")


def _encode_eval(run: Run, directory: Path, name: str, split: str) -> text.EvalCounts:
    counts, limit = text.EvalCounts(), run.recipe.prepare.eval_max_tokens
    encoded = []
    for side in (run.source, run.target):
        raw = download.raw_files(run, split, side)
        if len(raw) != 1:
            raise RecipeError(f"{run.recipe.corpus.sources}: '{split}' must have one file in {side}, not {len(raw)}.")
        untouched = directory / f"{split}.{side}"
        with text.open_raw(raw[0]) as file, open(untouched, "wb") as copy:
            shutil.copyfileobj(file, copy)
        encoded.append(load_subwords(run, side, directory).encode(text.clean_eval_lines(raw[0])))
        counts.odd_separators += sum(map(text.odd_separators, text.read_lines(untouched)))
    sizes = [sum(1 for _ in text.read_lines(directory / f"{split}.{side}")) for side in (run.source, run.target)]
    if sizes[0] != sizes[1]:
        raise RecipeError(
            f"{split}.{run.source} has {sizes[0]:,} lines and {split}.{run.target} has {sizes[1]:,}: "
            f"mend or replace them in {run.download_dir}."
        )
    with (
        _write(directory / TOKENS / f"{name}.{run.source}") as left,
        _write(directory / TOKENS / f"{name}.{run.target}") as right,
    ):
        for number, (source, target) in enumerate(zip_longest(*encoded), 1):
            counts.lines += 1
            counts.empty_source += [] if source else [number]
            counts.empty_target += [] if target else [number]
            counts.cut += [number] if max(len(source), len(target)) > limit else []
            left.write(" ".join(source[:limit]) + "\n")
            right.write(" ".join(target[:limit]) + "\n")
    if not counts.lines:
        raise RecipeError(f"{split} is empty: check {run.download_dir}.")
    return counts


def _preprocess_command(run: Run, directory: Path) -> list[str]:
    tokens = directory / TOKENS
    tests = ",".join(str(tokens / subset(run, test)) for test in run.recipe.corpus.tests)
    words = [
        run.python,
        "-m",
        "fairseq_cli.preprocess",
        "--source-lang",
        run.source,
        "--target-lang",
        run.target,
    ]
    words += ["--trainpref", str(tokens / "train"), "--validpref", str(tokens / "valid")]
    words += ["--testpref", tests, "--destdir", str(directory / "binarized"), "--workers", str(run.cpus)]
    return [*words, *(["--joined-dictionary"] if run.recipe.prepare.joined_dictionary else [])]


def require(run: Run) -> None:
    """RecipeError unless the prepared data is what the settings say."""
    if not Markers(run.pair_dir).is_done("prepare", inputs(run)):
        raise RecipeError(
            f"The data in {run.pair_dir} is not prepared (or its settings changed since): run the "
            f"stages download..prepare."
        )
