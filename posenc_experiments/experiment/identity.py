"""The identity of an experiment: all that its result depends on but the seed.

It is what was given: the architecture, the flags with normalized values, the settings of the preparation, the text and
the content of files. Its SHA-256 is the experiment's fingerprint, which names its directory; only seeds with the same
fingerprint are pooled. It leaves out flags that only affect where and how fast a training runs
(fairseq_posenc/hardware.py), the commit, and the versions of libraries, which are recorded separately. A change of the
code that changes results must raise a number: ``COMPUTATION`` in fairseq_posenc, or the ``initial_values`` of an
encoding.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import Flags
from posenc_experiments.base.markers import file_hash, fingerprint, not_default
from posenc_experiments.base.recipe import SAVE_INTERVAL, Recipe
from posenc_experiments.base.run import Run
from posenc_experiments.data.prepared import changed_settings, contents
from posenc_experiments.experiment.fairseq_flags import file_problem, where_set
from posenc_experiments.experiment.request import Request, package_directory, value_of, without_hardware

# Flags that change when the model is validated, and on which pairs; they count if validation affects the training.
VALIDATED_BY = {"save-interval", "save-interval-updates", "skip-invalid-size-inputs-valid-test"}
# Flags that name a file: its content counts, not its path.
FILES = ("finetune-from-model", "encoder-embed-path", "decoder-embed-path", "quantization-config-path")
# The files with the code of a training, as patterns of git.
CODE = (":/fairseq_posenc/*.py", ":/posenc_experiments/*.py", ":/recipes/*.py")


def made_from(request: Request) -> dict[str, Any]:
    """All that the trained weights depend on but the seed.

    Raises:
        RecipeError: a file that a flag names is missing.
    """
    import fairseq_posenc
    from fairseq_posenc.encodings import ENCODINGS

    run, recipe, flags = request.run, request.run.recipe, request.train_flags
    names = {request.encoding, *(flags.get(f"{side}-position-encoding") for side in ("source", "target"))}
    names |= {ENCODINGS[name].facts.in_decoder for name in names if name in ENCODINGS}
    prepare = changed_settings(run)
    if not _depends_on_validation(flags):
        prepare.pop("eval_max_tokens", None)  # only cuts validation and test sets
    if recipe.prepare.subwords == "none":  # no subwords are learnt
        prepare = {key: value for key, value in prepare.items() if key not in ("vocabulary", "sample")}
    # Flags that count although they are of hardware: the interval between checkpoints decides which are averaged.
    kept = {SAVE_INTERVAL[recipe.average_by]} | (set() if recipe.batch_tokens else {"max-tokens", "update-freq"})
    if _depends_on_validation(flags):
        kept |= VALIDATED_BY
    counted = without_hardware(flags) | {name: flags[name] for name in kept & flags.keys()}
    corpus = recipe.corpus
    found = {
        "computation": fairseq_posenc.COMPUTATION,
        # fairseq's parser refuses encodings that do not exist.
        "initial_values": {
            name: ENCODINGS[name].facts.initial_values for name in sorted(filter(None, names)) if name in ENCODINGS
        },
        "architecture": request.arch,
        "training": _normalized({name: value for name, value in counted.items() if name not in FILES}),
        "batch_tokens": recipe.batch_tokens,
        "files": {name.replace("-", "_"): _content(request, name) for name in FILES if flags.get(name)},
        "pair": run.pair,
        "prepare": prepare,
        "data": {
            "train": contents(run, corpus.train_splits(run.pair)),
            "valid": contents(run, [corpus.valid])[0],
        },
    }
    return {key: value for key, value in found.items() if value not in (None, {})}


def _depends_on_validation(flags: Flags) -> bool:
    """Whether validation affects the learning rate or the end of the training."""
    return "patience" in flags or flags.get("lr-scheduler") == "reduce_lr_on_plateau"


def _normalized(flags: Flags) -> dict[str, Any]:
    """Flags with values that are equal for spellings of the same value, in the order of their names."""
    return {name.replace("-", "_"): value_of(value) if value else True for name, value in sorted(flags.items())}


def translation(run: Run) -> dict[str, Any]:
    """What translations depend on beside the training: which checkpoints are averaged, the search, and its input."""
    recipe, flags = run.recipe, _normalized(without_hardware(run.recipe.generate))
    flags.pop("batch_size", None)  # does not change the translation of a sentence
    if "lm_path" in flags and Path(flags["lm_path"]).is_file():  # check_settings refuses one that is missing
        flags["lm_path"] = _hash_of(Path(flags["lm_path"]))
    if recipe.length_penalty != "power":
        flags["length_penalty"] = recipe.length_penalty
    limit = {key: value for key, value in not_default(recipe.prepare).items() if key == "eval_max_tokens"}
    return {**averaging(recipe), **flags, **limit}


def averaging(recipe: Recipe) -> dict[str, Any]:
    """The settings of averaging; empty if only the last checkpoint is used."""
    if recipe.average == 1:
        return {}
    return {"average": recipe.average, **({} if recipe.average_by == "epochs" else {"average_by": recipe.average_by})}


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
