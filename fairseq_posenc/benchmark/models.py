"""The models of a benchmark: stock fairseq's Transformer, and the same size with each position encoding."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from fairseq import options, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from .. import architectures
from ..architectures import architecture_name
from ..arguments import add_flags
from ..encodings import ENCODINGS, find_encoding
from ..encodings.contract.options import flag
from ..errors import FlagError
from .rounds import STOCK, BenchmarkError

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
SEED = 1

TRAINING = (
    *("--task", "translation", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--lr", "0.0001"),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
)

#: flags of fairseq-train that the benchmark sets itself
OWN_FLAGS = (
    *("--arch", "-a", "--max-tokens", "--batch-size", "--max-sentences", "--update-freq"),
    *("--cpu", "--fp16", "--bf16", "--seed", "--beam"),
)


@dataclass(frozen=True)
class Settings:
    """The settings of a benchmark, which all models have in common.

    Args:
        size: one of SIZES.
        device: "cpu" or "cuda".
        precision: one of PRECISIONS.
        clock: one of CLOCKS.
        data: directory of a binarized corpus; random sentences are used if None.
        rounds: number of rounds, without the warm-up.
        updates: number of batches in a round of training.
        tokens: tokens in a batch.
        sentences: sentences in a batch of generation.
        lengths: sentence lengths, for measures at fixed lengths; empty for the defaults of each measure.
        group: number of models in memory at the same time, in addition to stock.
        flags: additional flags of fairseq-train, for stock fairseq too.
    """

    size: str = "base"
    device: str = "cpu"
    precision: str = "fp32"
    clock: str = "wall"
    data: Path | None = None
    rounds: int = 9
    updates: int = 2
    tokens: int = 2048
    sentences: int = 32
    lengths: tuple[int, ...] = ()
    group: int = 6
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for given in self.flags:
            if (name := given.partition("=")[0]) in OWN_FLAGS:
                raise BenchmarkError(f"{name} after -- is set by the benchmark itself: use its own option (--help).")


@dataclass(frozen=True)
class Candidate:
    """A model to measure: an encoding with its options, or stock fairseq."""

    name: str = STOCK
    #: None for stock fairseq
    encoding: str | None = None
    flags: tuple[str, ...] = ()


def parse_candidate(text: str) -> Candidate:
    """Parses ``shaw`` or ``shaw:position_sharing=head,clipping_distance=16``.

    Raises:
        BenchmarkError: there is no such encoding, no such option of encodings, or a value is invalid.
    """
    name, _, listed = text.partition(":")
    flags = tuple(flag(option) for option in listed.split(",") if option)
    parser = ArgumentParser(add_help=False, allow_abbrev=False, argument_default=None)
    add_flags(parser)
    try:
        find_encoding(name)
        _raising(parser).parse_args(flags)
    except FlagError as error:
        raise BenchmarkError(f"{text}: {error}") from None
    return Candidate(text, name, flags)


def candidates(texts: Sequence[str]) -> list[Candidate]:
    """Stock fairseq, then each encoding that the user named, or all encodings.

    Raises:
        BenchmarkError: there is no such encoding or option.
    """
    return [Candidate(), *map(parse_candidate, dict.fromkeys(texts or ENCODINGS))]


def _raising(parser: ArgumentParser) -> ArgumentParser:
    """Makes the parser raise FlagError where argparse would print its usage and exit."""

    def refuse(message: str) -> NoReturn:
        raise FlagError(message)

    parser.error = refuse  # type: ignore[method-assign]
    return parser


def configure(candidate: Candidate, settings: Settings, task: TranslationTask) -> Any:
    """fairseq's configuration of a training.

    Raises:
        FlagError: the flags are invalid for this model.
    """
    size, size_flags = SIZES[settings.size]
    arch = f"transformer_{size}" if candidate.encoding is None else architecture_name(candidate.encoding, size)
    rows = str(max(MAX_POSITIONS, *settings.lengths, 0))
    arguments = [
        *("no-data", "--arch", arch, "--seed", str(SEED), *TRAINING, *size_flags, *PRECISIONS[settings.precision]),
        *("--max-source-positions", rows, "--max-target-positions", rows),
        *("--distributed-world-size", "1"),  # fairseq's default is the number of GPUs
        *(["--cpu"] if settings.device == "cpu" else []),
        # As in the papers, where the languages have a joint dictionary.
        *(["--share-all-embeddings"] if task.source_dictionary == task.target_dictionary else []),
        *settings.flags,
        *candidate.flags,
    ]
    parser = _raising(options.get_training_parser())
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))


def build_trainer(candidate: Candidate, settings: Settings, task: TranslationTask) -> Trainer:
    """A fairseq trainer, as fairseq-train builds it.

    Raises:
        ValueError: the model cannot be built.
    """
    cfg = configure(candidate, settings, task)
    utils.set_torch_seed(SEED)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    # fairseq would write a crash.pt of some hundred megabytes if a step raises an error.
    trainer.save_checkpoint = lambda *args, **kwargs: None
    return trainer


def build_inference_model(candidate: Candidate, settings: Settings, task: TranslationTask) -> Any:
    """An untrained model, prepared as in fairseq-generate.

    Raises:
        ValueError: the model cannot be built.
    """
    cfg = configure(candidate, settings, task)
    utils.set_torch_seed(SEED)
    model = task.build_model(cfg.model)
    model.to(device=settings.device, dtype=DTYPES[settings.precision])
    model.prepare_for_inference_(cfg)  # also puts it in evaluation mode
    return model
