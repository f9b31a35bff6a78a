"""The models that are compared: stock fairseq's Transformer, and the same size with each position encoding."""

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
from ..encodings.options import flag
from .results import BenchmarkError
from .rounds import STOCK

#: fairseq's architecture, and what else makes the size; hidden 512, 4 layers, 8 heads is DIET's BERT-small
SIZES: dict[str, tuple[str, tuple[str, ...]]] = {
    "small": ("wmt_en_de", ("--encoder-layers", "4", "--decoder-layers", "4")),
    "base": ("wmt_en_de", ()),
    "big": ("vaswani_wmt_en_de_big", ()),
    **{size: (size, ()) for size in architectures.SIZES},
}

PRECISIONS: dict[str, tuple[str, ...]] = {"fp32": (), "fp16": ("--fp16",), "bf16": ("--bf16",)}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

#: rows of position tables, fairseq's default
MAX_POSITIONS = 1024

TRAINING = (
    *("--task", "translation", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--lr", "0.0001"),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
)

#: flags of fairseq-train that this benchmark sets by itself, and what to say instead
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
    """A model to be measured: an encoding with flags of its own, or stock fairseq."""

    name: str
    #: None is stock
    encoding: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setup:
    """What all models have in common.

    Args:
        size: one of SIZES.
        device: "cpu" or "cuda".
        precision: one of PRECISIONS.
        flags: further flags of fairseq-train; those of this package's architectures are kept from stock.
        longest: the longest sentence; position tables have as many rows, but not fewer than fairseq's default.
    """

    size: str = "base"
    device: str = "cpu"
    precision: str = "fp32"
    seed: int = 1
    flags: tuple[str, ...] = ()
    longest: int = 0


def parse_candidate(text: str) -> Candidate:
    """``shaw`` or ``shaw:position_sharing=head,clipping_distance=16``.

    Raises:
        BenchmarkError: no such encoding, or no such option of any.
    """
    name, _, options_ = text.partition(":")
    if name not in ENCODINGS:
        raise BenchmarkError(
            f"{text}: there is no position encoding {name!r}; there are {', '.join(sorted(ENCODINGS))}."
        )
    known = [action.dest for action in _own_parser()._actions]
    flags = []
    for option in options_.split(",") if options_ else []:
        key, _, value = option.partition("=")
        if key not in known or not value:
            raise BenchmarkError(
                f"{text}: {option!r} is no option of an encoding; say KEY=VALUE with KEY one of {', '.join(known)}."
            )
        flags.append(f"{flag(key)}={value}")
    return Candidate(text, name, tuple(flags))


def candidates(texts: Sequence[str]) -> list[Candidate]:
    """Stock first, then each encoding as it was typed; all of them where none was.

    Raises:
        BenchmarkError: one is none.
    """
    return [Candidate(STOCK), *map(parse_candidate, dict.fromkeys(texts or ENCODINGS))]


def split_flags(flags: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The options that only this package's architectures have, with their values, and all other flags.

    Raises:
        ValueError: a value is none.
    """
    own, other = _own_parser().parse_known_args(list(flags))
    return {name: value for name, value in vars(own).items() if value is not None}, other


def _own_parser() -> ArgumentParser:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    add_flags(parser)
    return _raising(parser)


def _raising(parser: ArgumentParser) -> ArgumentParser:
    """The parser, raising where argparse would print its usage and exit."""

    def refuse(message: str) -> NoReturn:
        raise ValueError(message)

    parser.error = refuse  # type: ignore[method-assign]
    return parser


def check_flags(flags: Sequence[str]) -> None:
    """Refuses flags that would be overruled in silence.

    Raises:
        BenchmarkError: one sentence that names the flag and the mend.
    """
    for given in flags:
        name = given.partition("=")[0]
        if name in OWN_FLAGS:
            raise BenchmarkError(f"{name} after -- is decided by the benchmark itself: say {OWN_FLAGS[name]} instead.")


def configure(candidate: Candidate, setup: Setup, shared_dictionary: bool) -> Any:
    """fairseq's configuration of a training.

    Raises:
        ValueError: the flags have no meaning for this model.
    """
    return copy.deepcopy(_configuration(candidate, setup, shared_dictionary))


@functools.cache  # hydra takes longer for it than a small model to be built
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
    """A real fairseq trainer, as fairseq-train builds it.

    Raises:
        ValueError: there is no such model.
    """
    cfg = configure(candidate, setup, _shared(task))
    utils.set_torch_seed(setup.seed)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    # A step that raises would otherwise leave a crash.pt of some hundred megabytes behind.
    trainer.save_checkpoint = lambda *args, **kwargs: None
    return trainer


def build_inference_model(candidate: Candidate, setup: Setup, task: TranslationTask) -> Any:
    """A model as fairseq-generate prepares it, untrained.

    Raises:
        ValueError: there is no such model.
    """
    cfg = configure(candidate, setup, _shared(task))
    utils.set_torch_seed(setup.seed)
    model = task.build_model(cfg.model)
    model.to(device=setup.device, dtype=DTYPES[setup.precision])
    model.prepare_for_inference_(cfg)  # also puts it in evaluation mode
    return model


def to_device(batch: Any, setup: Setup) -> Any:
    """A batch of fairseq on the device of the models."""
    return utils.move_to_cuda(batch) if setup.device == "cuda" else batch


def _shared(task: TranslationTask) -> bool:
    """Whether both languages have one dictionary, so that embeddings are shared, as in the papers."""
    source: Dictionary = task.source_dictionary
    return bool(source == task.target_dictionary)
