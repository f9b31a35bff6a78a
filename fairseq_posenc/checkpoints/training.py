"""What all checkpoints of one training have in common: the settings of its model, seed, batches, optimization, data.

Hardware, speed, duration, saving and logging may differ within one training.
"""

from __future__ import annotations

import filecmp
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from .. import augmentation
from ..arguments import plugin_flags
from ..hardware import is_hardware
from ..signature import SIGNATURE

#: settings that count, of the groups that every training has
_COUNTED = {
    *("seed", "lr", "clip_norm", "sentence_avg", "use_bmuf", "skip_remainder_batch", "train_subset", "curriculum"),
}
#: settings of other groups that do not: files are compared by content, and these only begin a training
_MAY_DIFFER = {"data", "encoder_embed_path", "decoder_embed_path", "no_seed_provided"}


def training_settings(state: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are equal in all checkpoints of one training; empty without a configuration.

    A configuration has groups (model, optimization, checkpoint, ...), or, in files of old versions, one namespace. A
    record of positions in the checkpoint replaces the flags of positions.
    """
    given = _given(state)
    ignored = (_general_settings() - _COUNTED) | _MAY_DIFFER
    if SIGNATURE in state["model"]:
        ignored |= plugin_flags().keys() - augmentation.FLAGS.keys()  # the record leaves out augmentation
    found = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None and name not in ignored and not name.startswith("eval_") and not is_hardware(name)
    }
    # A schedule as long as the training may differ, like the length of the training.
    if found.get("total_num_update") == given.get("max_update"):
        found.pop("total_num_update", None)
    processes = given.get("distributed_world_size") or 1
    frequency = given.get("update_freq") or [1]
    frequency = list(frequency) if isinstance(frequency, list | tuple) else [frequency]
    for size in ("max_tokens", "batch_size", "max_sentences"):  # split in any way among processes and updates
        if given.get(size):
            found[f"{size} x update_freq x processes"] = [given[size] * each * processes for each in frequency]
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """In which settings two checkpoints show that they are of different trainings, each as a clause."""
    mine, theirs = training_settings(one), training_settings(other)
    for name in sorted(mine.keys() | theirs.keys()):
        # The configuration has no languages if fairseq-train inferred them from the data directory.
        known = name not in ("source_lang", "target_lang") or (name in mine and name in theirs)
        if known and mine.get(name) != theirs.get(name):
            yield f"{name} is {mine.get(name, '(not set)')} and {theirs.get(name, '(not set)')}"
    here, there = _given(one), _given(other)
    start, other_start = (given.get("finetune_from_model") for given in (here, there))
    if start and other_start and not _same_files(Path(start), Path(other_start)):  # a resumed training may omit it
        yield f"finetune_from_model is {start} and {other_start}"
    data, other_data = (given.get("data") for given in (here, there))
    if data and other_data and not _same_data(data, other_data, here.get("train_subset") or "train"):
        yield f"data is {data} and {other_data}, which differ"


def _same_data(one: str, other: str, subset: str) -> bool:
    """Whether data directories, joined by colons, have the same dictionaries and binarized training sets."""
    from fairseq.utils import split_paths

    pairs = [[Path(part) for part in split_paths(paths)] for paths in (one, other)]
    if len(pairs[0]) != len(pairs[1]):
        return False
    for here, there in zip(*pairs, strict=True):
        if here.resolve() == there.resolve():
            continue
        names = [{path.name for glob in ("dict.*", f"{subset}*.*") for path in of.glob(glob)} for of in (here, there)]
        if not names[0] or names[0] != names[1] or not all(_same_files(here / name, there / name) for name in names[0]):
            return False
    return True


def _same_files(one: Path, other: Path) -> bool:
    try:
        return one == other or filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _general_settings() -> set[str]:
    """The names of the settings that every training has."""
    from fairseq.dataclass.configs import FairseqConfig

    groups = [field.default for field in fields(FairseqConfig) if is_dataclass(field.default)]
    return {field.name for group in groups for field in fields(group)}


def _given(state: Mapping[str, Any]) -> dict[str, Any]:
    return _flat(state.get("cfg")) or _flat(state.get("args"))


def _flat(configuration: Any, group: str = "", prefix: str = "") -> dict[str, Any]:
    """All settings in one dict, the choice of a component (``_name``) under the name of its group."""
    found: dict[str, Any] = {}
    values = vars(configuration) if isinstance(configuration, Namespace) else configuration
    if not isinstance(values, dict):
        return found
    # The model's group first: as a namespace it repeats the settings of all groups.
    for key, value in sorted(values.items(), key=lambda item: item[0] != "model"):
        if isinstance(value, dict | Namespace):
            # The model's settings may be nested; those of two groups have different names.
            found |= _flat(value, key, f"{prefix}{key}." if group else "")
        else:
            found[f"{prefix}{key}" if key != "_name" else group] = value
    return found
