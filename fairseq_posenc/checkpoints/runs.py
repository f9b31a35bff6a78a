"""Compares training runs by the configurations of their checkpoints: seed, batches, optimization, start and data.

Hardware, speed, duration, saving and logging may differ within one run.
"""

from __future__ import annotations

import filecmp
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..hardware import is_hardware
from .settings import CHOSEN, chosen_groups, configuration, general_settings

#: settings that must be equal within one run, in the groups that every training has
_COMPARED = {
    "common": ("seed",),
    "dataset": ("train_subset", "curriculum"),
    "optimization": ("lr", "clip_norm", "sentence_avg", "use_bmuf", "skip_remainder_batch"),
    "task": ("left_pad_source", "left_pad_target", "upsample_primary", "truncate_source"),
}


def run_settings(state: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are equal in all checkpoints of one run, as far as this configuration contains them."""
    groups = _groups(state)
    settings = {key: groups[name][key] for name, keys in _COMPARED.items() for key in keys if key in groups[name]}
    settings |= _batch(groups)
    general = general_settings()
    for name in CHOSEN:  # in these groups all settings are compared, except those of hardware
        for key, value in groups[name].items():
            if key == "_name":
                settings[name] = value
            elif key not in general and not is_hardware(key):
                settings[f"{name}.{key}"] = value
    # A schedule as long as the training may differ, like the length of the training.
    if settings.get("lr_scheduler.total_num_update") == groups["optimization"].get("max_update"):
        settings.pop("lr_scheduler.total_num_update", None)
    settings["finetune_from_model"] = groups["checkpoint"].get("finetune_from_model")
    settings["data"] = groups["task"].get("data")
    return settings


def _groups(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The groups of a configuration; for old versions, which have no groups, one namespace serves as each group."""
    cfg, args = configuration(state.get("cfg")), configuration(state.get("args"))
    names = {*_COMPARED, *CHOSEN, "distributed_training", "checkpoint"}
    if cfg:
        return {name: configuration(cfg.get(name)) for name in names}
    return {**dict.fromkeys(names, args), **chosen_groups(args)}


def _batch(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The total batch size of an update, which may be split in any way among processes and --update-freq."""
    frequency = groups["optimization"].get("update_freq") or [1]
    processes = groups["distributed_training"].get("distributed_world_size") or 1
    sizes = {key: groups["dataset"].get(key) for key in ("max_tokens", "batch_size", "max_sentences")}
    return {
        f"{key} x update_freq x processes": [int(size) * int(each) * int(processes) for each in _listed(frequency)]
        for key, size in sizes.items()
        if size
    }


def differences_of_runs(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Describes the differences of two results of `run_settings`. A setting that only one of them has is ignored."""
    for key in sorted(one.keys() & other.keys() - {"data", "finetune_from_model"}):
        if _plain(one[key]) != _plain(other[key]):
            yield f"{key} is {one[key]} and {other[key]}"
    if one["finetune_from_model"] and other["finetune_from_model"]:  # a resumed run may omit it
        yield from _differing_files(one["finetune_from_model"], other["finetune_from_model"])
    if one["data"] and other["data"]:
        subset = str(one.get("train_subset") or "train")
        yield from _differing_data(str(one["data"]), str(other["data"]), subset)


def _differing_files(one: str, other: str) -> Iterator[str]:
    if one != other and not _same_content(Path(one), Path(other)):
        yield f"finetune_from_model is {one} and {other}"


def _differing_data(one: str, other: str, subset: str) -> Iterator[str]:
    """The first difference of two data directories in their dictionaries and binarized training sets."""
    from fairseq.utils import split_paths

    if one == other:
        return
    here, there = split_paths(one), split_paths(other)
    if len(here) != len(there):
        yield f"data is {one} and {other}"
        return
    for pair in zip(map(Path, here), map(Path, there), strict=True):
        if pair[0].resolve() == pair[1].resolve():
            continue
        files = [_training_files(path, subset) for path in pair]
        for path, found in zip(pair, files, strict=True):
            if not found:
                yield f"data is {one} and {other}, which cannot be compared, since {path} holds no training set"
                return
        for name in sorted(files[0].keys() | files[1].keys()):
            if not (name in files[0] and name in files[1] and _same_content(files[0][name], files[1][name])):
                yield f"data is {one} and {other}, which differ in {name}"
                return


def _training_files(directory: Path, subset: str) -> dict[str, Path]:
    """The files of the binarized training set and of the dictionaries, by name; empty without a training set."""
    wanted = rf"{re.escape(subset)}\d*\..+"
    try:
        paths = {path.name: path for path in directory.iterdir() if path.is_file()}
    except OSError:
        return {}
    if not any(re.fullmatch(wanted, name) for name in paths):
        return {}
    return {name: path for name, path in paths.items() if re.fullmatch(rf"dict\..+\.txt|{wanted}", name)}


def _same_content(one: Path, other: Path) -> bool:
    try:
        return filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
