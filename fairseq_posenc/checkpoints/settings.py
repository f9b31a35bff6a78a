"""What a checkpoint's configuration says about its model, as opposed to how, where and how long it was
trained.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ..arguments import plugin_flags
from ..errors import CheckpointError
from ..hardware import is_hardware
from ..signature import SIGNATURE

# Flags of a model that say how it is started, not what it computes.
_STARTED_BY = {"encoder_embed_path", "decoder_embed_path", "no_seed_provided"}

#: groups of settings that come with something chosen by name
CHOSEN = ("criterion", "optimizer", "lr_scheduler")


def model_settings(source: Path, state: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that checkpoints of one model agree in: the model's, and the task's name and languages.

    A configuration has groups (model, optimization, checkpoint ...), but that of a model without a
    dataclass is one namespace with the settings of all groups; those that another group holds too
    (save_dir, seed, lr ...) are not the model's. Where there is a record of positions, that says what the model does
    with them, whatever flags were typed.
    """
    cfg, args = configuration(state.get("cfg")), configuration(state.get("args"))
    if not cfg and not args:
        raise CheckpointError(
            f"{source} says nothing about its model: it has neither 'cfg' nor 'args'; "
            "name a file that fairseq-train wrote."
        )
    if cfg:
        model, task = configuration(cfg.get("model")), configuration(cfg.get("task"))
        others = set(cfg).union(*(configuration(group) for name, group in cfg.items() if name != "model"))
    else:
        model, task = args, {**args, "_name": args.get("task")}
        others = general_settings() | {"task", "source_lang", "target_lang", "data", *CHOSEN}
        others = others.union(*chosen_groups(args).values())
    others |= _STARTED_BY
    if SIGNATURE in configuration(state.get("model")):
        others |= plugin_flags().keys()
    settings = {
        key: value
        for key, value in _flat(model).items()
        if key == "_name" or (key.split(".")[0] not in others and not is_hardware(key))
    }
    settings |= {f"task.{key}": task[key] for key in ("_name", "source_lang", "target_lang") if task.get(key)}
    return settings


def differing_settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, value in `one`, value in `other`) of each of the model's settings in which they differ."""
    for key in sorted(one.keys() | other.keys()):
        here, there = (settings.get(key) for settings in (one, other))
        # fairseq-train may leave the languages to be found in the data directory; then nothing is known.
        known = not key.startswith("task.") or (key in one and key in other)
        if known and here != there:
            yield key, _said(here), _said(there)


def chosen_groups(args: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of criterion, optimizer and schedule in a file of old versions, which has one namespace for all."""
    from fairseq.registry import REGISTRIES

    groups = {}
    for name in CHOSEN:
        dataclass = REGISTRIES[name]["dataclass_registry"].get(args.get(name))
        own = [field.name for field in fields(dataclass)] if dataclass else []
        groups[name] = {"_name": args.get(name), **{key: args[key] for key in own if key in args}}
    return groups


def _said(value: Any) -> Any:
    return "(not set)" if value is None else value


def general_settings() -> set[str]:
    """The names of the settings of every training, for files of old versions, which have no groups."""
    from fairseq.dataclass.configs import FairseqConfig

    groups = [field.default for field in fields(FairseqConfig) if is_dataclass(field.default)]
    return {field.name for group in groups for field in fields(group)}


def configuration(group: Any) -> dict[str, Any]:
    """A group of settings, however it was written; empty if it is none."""
    if isinstance(group, argparse.Namespace):
        return vars(group)
    return group if isinstance(group, dict) else {}


def _flat(group: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in group.items():
        inner = configuration(value)
        flat.update(_flat(inner, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value})
    return flat
