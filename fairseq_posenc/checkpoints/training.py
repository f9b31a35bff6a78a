"""What all checkpoints of one training share: the settings of its model, seed, batches, precision, optimization, data.

The table of effects (effects.py) says which settings count: hardware, speed, duration, saving and logging may differ.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from ..arguments import plugin_flags
from ..augmentation import choice as augmentation
from ..effects import effect
from ..position_record import POSITION_RECORD

#: groups of a configuration that no training reads
_UNREAD = {"common_eval", "generation", "eval_lm", "interactive", "job_logging_cfg"}
#: settings that only begin a training
_MAY_DIFFER = {"encoder_embed_path", "decoder_embed_path", "no_seed_provided"}
#: settings that one of two checkpoints may lack: fairseq-train may infer the languages, and a resumed training need not
#: name the model that it began with
_MAY_BE_MISSING = {"source_lang", "target_lang", "data", "finetune_from_model"}


def training_settings(state: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are equal in all checkpoints of one training; empty without a configuration.

    A configuration has groups (model, optimization, checkpoint, ...), or, in files of old versions, one namespace
    (``args``). A record of positions in the checkpoint replaces the flags of positions.
    """
    given = _settings(state.get("cfg") or {"model": state.get("args")})
    # The record has the flags of positions but for augmentation.
    described = plugin_flags().keys() - augmentation.FLAGS if POSITION_RECORD in state["model"] else set()
    settings = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None
        and name not in _MAY_DIFFER | described
        and not name.startswith("eval_")
        and effect(name) in ("result", "precision")
    }
    if "data" in settings:  # directories, joined by colons
        settings["data"] = ":".join(map(os.path.realpath, str(settings["data"]).split(":")))
    # A schedule as long as the training may differ, like the length of the training.
    if settings.get("total_num_update") == given.get("max_update"):
        settings.pop("total_num_update", None)
    processes = given.get("distributed_world_size") or 1
    frequency = given.get("update_freq") or [1]
    frequency = list(frequency) if isinstance(frequency, list | tuple) else [frequency]
    for size in ("max_tokens", "batch_size", "max_sentences"):  # split in any way among processes and updates
        if given.get(size):
            settings[f"{size} x update_freq x processes"] = [given[size] * each * processes for each in frequency]
    return settings


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Where two checkpoints differ in settings of their trainings, or in facts about their models, each as a clause."""
    for name in sorted(one.keys() | other.keys()):
        known = name not in _MAY_BE_MISSING or (name in one and name in other)
        if known and one.get(name) != other.get(name):
            yield f"{name} is {one.get(name, '(not set)')} and {other.get(name, '(not set)')}"


def _settings(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a configuration's groups, and the name of the group's component (``_name``) as the group's."""
    settings: dict[str, Any] = {}
    # The model's group first: as a namespace it repeats the settings of all groups.
    for group in sorted(configuration.keys() - _UNREAD, key=lambda group: (group != "model", group)):
        values = configuration[group]
        values = vars(values) if isinstance(values, Namespace) else values
        if isinstance(values, dict):
            settings |= {**values, group: values.get("_name"), "_name": None}
    return settings
