"""The models of a benchmark: stock fairseq's Transformer, and the same size with each position encoding."""

from __future__ import annotations

import copy
import functools
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from .. import architectures
from ..architectures import architecture_name
from ..arguments import add_flags
from ..encodings import ENCODINGS
from ..encodings.contract.options import flag
from .results import BenchmarkError
from .rounds import STOCK

#: by size: fairseq's architecture and additional flags; "small" is DIET's BERT-small (hidden 512, 4 layers, 8 heads)
SIZES: dict[str, tuple[str, tuple[str, ...]]] = {
    "small": ("wmt_en_de", ("--encoder-layers", "4", "--decoder-layers", "4")),
    "base": ("wmt_en_de", ()),
    "big": ("vaswani_wmt_en_de_big", ()),
    **{size: (size, ()) for size in architectures.SIZES},
}

PRECISIONS: dict[str, tuple[str, ...]] = {"fp32": (), "fp16": ("--fp16",), "bf16": ("--bf16",)}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

#: fairseq's default for the number of rows of position tables
MAX_POSITIONS = 1024

TRAINING = (
    *("--task", "translation", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--lr", "0.0001"),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
)

#: flags of fairseq-train that the benchmark sets itself, and what to use instead
OWN_FLAGS = {
    "--arch": "name encodings and --size",
    "-a": "name encodings and --size",
    "--max-tokens": "--tokens",
    "--batch-size": "--tokens",
    "--max-sentences": "--tokens",
    "--cpu": "--device cpu",
    "--fp16": "--precision fp16",
    "--bf16": "--precision bf16",
    "--seed": "--seed before --",
    "--beam": "--beam before --",
    "--update-freq": "--updates",
}


@dataclass(frozen=True)
class Candidate:
    """A model to measure: an encoding with its flags, or stock fairseq."""

    name: str
    #: None for stock fairseq
    encoding: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setup:
    """Settings that all models have in common.

    Args:
        size: one of SIZES.
        device: "cpu" or "cuda".
        precision: one of PRECISIONS.
        flags: additional flags of fairseq-train; stock fairseq does not get those of this package's architectures.
        longest: the maximum sentence length; position tables have at least this many rows.
    """

    size: str = "base"
    device: str = "cpu"
    precision: str = "fp32"
    seed: int = 1
    flags: tuple[str, ...] = ()
    longest: int = 0


def parse_candidate(text: str) -> Candidate:
    """Parses ``shaw`` or ``shaw:position_sharing=head,clipping_distance=16``.

    Raises:
        BenchmarkError: there is no such encoding, or no encoding has such an option.
    """
    name, _, options_ = text.partition(":")
    if name not in ENCODINGS:
        raise BenchmarkError(
            f"{text}: there is no position encoding {name!r}; use one of {', '.join(sorted(ENCODINGS))}."
        )
    known = [action.dest for action in _own_parser()._actions]
    flags = []
    for option in options_.split(",") if options_ else []:
        key, _, value = option.partition("=")
        if key not in known or not value:
            raise BenchmarkError(
                f"{text}: {option!r} is not an option of an encoding; use KEY=VALUE with KEY one of {', '.join(known)}."
            )
        flags.append(f"{flag(key)}={value}")
    return Candidate(text, name, tuple(flags))


def candidates(texts: Sequence[str]) -> list[Candidate]:
    """Stock fairseq, then each encoding that the user named, or all encodings.

    Raises:
        BenchmarkError: there is no such encoding or option.
    """
    return [Candidate(STOCK), *map(parse_candidate, dict.fromkeys(texts or ENCODINGS))]


def split_flags(flags: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Splits flags into the options of this package's architectures, with their values, and all other flags.

    Raises:
        ValueError: a value is invalid.
    """
    own, other = _own_parser().parse_known_args(list(flags))
    return {name: value for name, value in vars(own).items() if value is not None}, other


def _own_parser() -> ArgumentParser:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    add_flags(parser)
    return _raising(parser)


def _raising(parser: ArgumentParser) -> ArgumentParser:
    """Makes the parser raise ValueError where argparse would print its usage and exit."""

    def refuse(message: str) -> NoReturn:
        raise ValueError(message)

    parser.error = refuse  # type: ignore[method-assign]
    return parser


def check_flags(flags: Sequence[str]) -> None:
    """Refuses flags that the benchmark would silently override.

    Raises:
        BenchmarkError: the message names the flag and the fix.
    """
    for given in flags:
        name = given.partition("=")[0]
        if name in OWN_FLAGS:
            raise BenchmarkError(f"{name} after -- is set by the benchmark itself: use {OWN_FLAGS[name]} instead.")


def configure(candidate: Candidate, setup: Setup, shared_dictionary: bool) -> Any:
    """fairseq's configuration of a training.

    Raises:
        ValueError: the flags are invalid for this model.
    """
    return copy.deepcopy(_configuration(candidate, setup, shared_dictionary))


@functools.cache  # hydra takes longer than building a small model
def _configuration(candidate: Candidate, setup: Setup, shared_dictionary: bool) -> Any:
    size, size_flags = SIZES[setup.size]
    if candidate.encoding is None:
        arch = f"transformer_{size}"
        _, flags = split_flags(setup.flags)
    else:
        arch, flags = architecture_name(candidate.encoding, size), list(setup.flags)
    rows = str(max(MAX_POSITIONS, setup.longest))
    arguments = [
        *("no-data", "--arch", arch, "--seed", str(setup.seed), *TRAINING, *size_flags, *PRECISIONS[setup.precision]),
        *("--max-source-positions", rows, "--max-target-positions", rows),
        *("--distributed-world-size", "1"),  # fairseq's default is the number of GPUs
        *(["--cpu"] if setup.device == "cpu" else []),
        *(["--share-all-embeddings"] if shared_dictionary else []),
        *flags,
        *candidate.flags,
    ]
    parser = _raising(options.get_training_parser())
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))


def build_trainer(candidate: Candidate, setup: Setup, task: TranslationTask) -> Trainer:
    """A fairseq trainer, as fairseq-train builds it.

    Raises:
        ValueError: the model cannot be built.
    """
    cfg = configure(candidate, setup, _shared(task))
    utils.set_torch_seed(setup.seed)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    # fairseq would write a crash.pt of some hundred megabytes if a step raises an error.
    trainer.save_checkpoint = lambda *args, **kwargs: None
    return trainer


def build_inference_model(candidate: Candidate, setup: Setup, task: TranslationTask) -> Any:
    """An untrained model, prepared as in fairseq-generate.

    Raises:
        ValueError: the model cannot be built.
    """
    cfg = configure(candidate, setup, _shared(task))
    utils.set_torch_seed(setup.seed)
    model = task.build_model(cfg.model)
    model.to(device=setup.device, dtype=DTYPES[setup.precision])
    model.prepare_for_inference_(cfg)  # also puts it in evaluation mode
    return model


def to_device(batch: Any, setup: Setup) -> Any:
    """Moves a batch to the device of the models."""
    return utils.move_to_cuda(batch) if setup.device == "cuda" else batch


def _shared(task: TranslationTask) -> bool:
    """Whether the languages have a joint dictionary; embeddings are then shared, as in the papers."""
    source: Dictionary = task.source_dictionary
    return bool(source == task.target_dictionary)
