"""The identity of an experiment: all that its result depends on but the seed.

If it changes, the experiment is trained again; only seeds with the same identity are pooled. ``made_from`` holds the
identity as normalized values that differ from their defaults; its SHA-256 is the experiment's fingerprint. It leaves
out flags that only affect where and how fast a training runs (fairseq_posenc/hardware.py). It also leaves out the
commit and the versions of libraries, which are recorded separately. A change of the code that changes results must
raise a number: ``COMPUTATION`` in fairseq_posenc, or the ``initial_values`` of an encoding.
"""

from __future__ import annotations

import subprocess
from argparse import Namespace
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import Flags, flag_words
from posenc_experiments.base.markers import file_hash, fingerprint, not_default
from posenc_experiments.base.recipe import GENERATION_TASKS, SAVE_INTERVAL, Recipe
from posenc_experiments.base.run import Run
from posenc_experiments.data import download
from posenc_experiments.data.prepare import changed_settings
from posenc_experiments.experiment.fairseq_flags import Refused, file_problem, read, refusal, where_set
from posenc_experiments.experiment.request import Request, package_directory, value_of, without_hardware

# Flags of every training, unless it sets them itself.
TRAIN_DEFAULTS = {
    "log-format": "json",
    # The buffer's thread can abort the interpreter ("terminate called without an active exception") when a training
    # ends within an epoch. The workers of the data loader read ahead without it.
    "data-buffer-size": "0",
    # fairseq distributes sentences of equal length to batches at random, depending on the epoch in which the process
    # started. If batches are made again for each epoch, a resumed run has the same batches as an uninterrupted one.
    "update-epoch-batch-itr": "True",
}
# Flags that change when the model is validated, and on which pairs; they count if validation affects the training.
VALIDATED_BY = {"save-interval", "save-interval-updates", "skip-invalid-size-inputs-valid-test"}
# Flags that name a file: its content counts, not its path.
FILES = ("finetune-from-model", "encoder-embed-path", "decoder-embed-path", "quantization-config-path")
# The files with the code of a training, as patterns of git.
CODE = (":/fairseq_posenc/*.py", ":/posenc_experiments/*.py", ":/recipes/*.py")
# Settings that choose a component by name; each component adds its own flags.
CHOICES = ("criterion", "optimizer", "lr_scheduler")


def made_from(request: Request) -> dict[str, Any]:
    """All that the trained weights depend on but the seed; "data" is None until the text has been downloaded or made.

    Raises:
        RecipeError: fairseq refuses a flag, or a file that a flag names is missing.
    """
    import fairseq_posenc
    from fairseq_posenc.arguments import SIDES, encoding_of
    from fairseq_posenc.augmentation import describe_augmentation
    from fairseq_posenc.encodings import ENCODINGS
    from fairseq_posenc.signature import describe_positions

    run, recipe, flags = request.run, request.run.recipe, request.train_flags
    try:
        args, settings = _training(request)
    except Refused as error:
        raise RecipeError(refusal(run, str(error), request)) from None
    encodings = {encoding_of(args, side) for side in SIDES}
    prepare = changed_settings(run)
    if not _depends_on_validation(flags):
        prepare.pop("eval_max_tokens", None)  # only cuts validation and test sets
    if recipe.prepare.subwords == "none":  # no subwords are learnt
        prepare = {key: value for key, value in prepare.items() if key not in ("vocabulary", "sample")}
    found = {
        "computation": fairseq_posenc.COMPUTATION,
        "initial_values": {name: ENCODINGS[name].facts.initial_values for name in sorted(encodings)},
        "architecture": request.arch,
        "positions": describe_positions(args),
        "augmentation": describe_augmentation(args),
        "training": settings,
        "batch_tokens": recipe.batch_tokens,
        "files": {name.replace("-", "_"): _content(request, name) for name in FILES if flags.get(name)},
        "pair": run.pair,
        "prepare": prepare,
    }
    return {**{key: value for key, value in found.items() if value not in (None, {})}, "data": _data(request)}


def _depends_on_validation(flags: Flags) -> bool:
    """Whether validation affects the learning rate or the end of the training."""
    return "patience" in flags or flags.get("lr-scheduler") == "reduce_lr_on_plateau"


def _data(request: Request) -> dict[str, Any] | None:
    run, corpus = request.run, request.run.recipe.corpus
    train = [download.contents(run, split) for split in corpus.train_splits(run.pair)]
    valid = download.contents(run, corpus.valid)
    return None if valid is None or None in train else {"train": train, "valid": valid}


def _training(request: Request) -> tuple[Namespace, dict[str, Any]]:
    """All arguments of the training, and those that differ from fairseq's defaults.

    The defaults are those of the same architecture, criterion, optimizer and scheduler. The second value leaves out
    arguments of hardware and positions.
    """
    from fairseq_posenc.arguments import input_flags, plugin_flags

    recipe, given = request.run.recipe, request.train_flags
    # Flags that count although they are of hardware: the interval between checkpoints decides which are averaged.
    kept = {SAVE_INTERVAL[recipe.average_by]} | (set() if recipe.batch_tokens else {"max-tokens", "update-freq"})
    if _depends_on_validation(given):
        kept |= VALIDATED_BY
    flags = without_hardware({**TRAIN_DEFAULTS, **given}) | {name: given[name] for name in kept if name in given}
    plain = ["data", "--user-dir", str(package_directory()), "--task", "translation", "--arch", request.arch]
    found = read("train", [*plain, *flag_words({name: value for name, value in flags.items() if name not in FILES})])
    choices = {name: found[name] for name in CHOICES if found[name] is not None}
    chosen = {name.replace("_", "-"): str(value) for name, value in choices.items()}
    defaults = read("train", [*plain, *flag_words({**without_hardware(TRAIN_DEFAULTS), **chosen})])
    args = Namespace(**found)
    # describe_positions and describe_augmentation record these.
    of_positions = {*plugin_flags(), *input_flags(args), "position_encoding"}
    differing = _differing(found, defaults, kept)
    return args, {key: value for key, value in differing.items() if key not in of_positions} | choices


def _differing(found: Mapping[str, Any], defaults: Mapping[str, Any], kept: Iterable[str] = ()) -> dict[str, Any]:
    """The arguments that differ from their defaults, without those of hardware except `kept`."""
    # Arguments without a default in the parser and the architecture have that of the model's configuration.
    from fairseq.models.transformer import TransformerConfig

    config = TransformerConfig()
    names = {*without_hardware(found), *(name.replace("-", "_") for name in kept)}.intersection(found)
    values = {
        name: (value_of(found[name]), value_of(defaults.get(name, getattr(config, name, None)))) for name in names
    }
    return {name: value for name, (value, default) in sorted(values.items()) if value != default}


def translation(run: Run) -> dict[str, Any]:
    """All that translations depend on beside the training: which checkpoints are averaged, the search, and its input.

    Raises:
        RecipeError: fairseq refuses a flag of `generate`.
    """
    limit = {key: value for key, value in not_default(run.recipe.prepare).items() if key == "eval_max_tokens"}
    return {**averaging(run.recipe), **_generation(run), **limit}


def averaging(recipe: Recipe) -> dict[str, Any]:
    """The settings of averaging; empty if only the last checkpoint is used."""
    if recipe.average == 1:
        return {}
    return {"average": recipe.average, **({} if recipe.average_by == "epochs" else {"average_by": recipe.average_by})}


def _generation(run: Run) -> dict[str, Any]:
    recipe = run.recipe
    plain = ["data", "--user-dir", str(package_directory()), "--task", GENERATION_TASKS[recipe.length_penalty]]
    plain += ["--path", "model"]
    flags: Flags = without_hardware(recipe.generate)
    try:
        found = _differing(read("generate", [*plain, *flag_words(flags)]), read("generate", plain))
    except Refused as error:
        raise RecipeError(refusal(run, str(error))) from None
    found.pop("batch_size", None)  # does not change the translation of a sentence
    if "lm_path" in found and Path(found["lm_path"]).is_file():  # check_settings refuses one that is missing
        found["lm_path"] = _hash_of(Path(found["lm_path"]))
    return found | ({} if recipe.length_penalty == "power" else {"length_penalty": recipe.length_penalty})


def _content(request: Request, flag: str) -> str:
    """The checksum of the file that a flag names, or the fingerprint of the experiment that it continues.

    Raises:
        RecipeError: there is no such file.
    """
    name = request.train_flags[flag]
    if flag == "finetune-from-model" and request.start is not None:
        return f"experiment:{fingerprint([made_from(request.start), averaging(request.run.recipe)])}"
    if problem := file_problem(name):
        raise RecipeError(f"{where_set(request.run, request, flag)}: --{flag} {name}: {problem}")
    return _hash_of(Path(name))


def _hash_of(path: Path) -> str:
    about = path.stat()
    return f"sha256:{_sha256(path.absolute(), about.st_size, about.st_mtime_ns)}"


@cache
def _sha256(path: Path, size: int, changed: int) -> str:
    return file_hash(path)


def environment() -> dict[str, Any]:
    """The versions of code and libraries, recorded for information.

    Returns:
        The commit (None outside of a checkout), whether Python files differ from it, and versions of torch and fairseq.
    """
    import fairseq
    import torch

    # Only if git tracks the plugin: it may be installed inside a checkout of something else.
    commit = _git("rev-parse", "HEAD") if _git("ls-files", "hardware.py") else ""
    changed = bool(_git("status", "--porcelain", "--", *CODE)) if commit else None
    return {
        "commit": commit or None,
        "changed": changed,
        "torch": str(torch.__version__),
        "fairseq": str(fairseq.__version__),
    }


def all_environments(earlier: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The environment of a resumed training; what differs between its processes is a list of all values, in order."""
    found = {}
    for key in earlier | now:
        values = list(dict.fromkeys([*as_list(earlier.get(key)), now.get(key)]))
        found[key] = values if len(values) > 1 else values[0]
    return found


def as_list(value: Any) -> list[Any]:
    """The values of an environment's key."""
    return value if isinstance(value, list) else [value]


def _git(*words: str) -> str:
    """The output of git in the plugin's directory; empty if it is in no checkout, or git is not installed."""
    try:
        process = subprocess.run(
            ["git", *words], cwd=package_directory(), capture_output=True, encoding="utf-8", check=False
        )
    except OSError:
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""
