"""Loads a trained model, its dictionaries, and sentences to compare translations."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor

from ..checkpoints import check_finite, load_checkpoint
from ..errors import CheckpointError, Refusal, brief
from ..model import PositionMismatch, PositionTransformer
from .errors import ExportError
from .segmentation import Segmentation

#: path of the recipes' SentencePiece model, relative to the binarized data
SENTENCEPIECE = Path("..") / "sentencepiece.model"


@dataclass(frozen=True)
class Trained:
    """A trained model, in single precision and evaluation mode, with its task and data."""

    model: Any
    task: Any
    checkpoint: Path
    #: the binarized data, or another directory with the dictionaries
    data: Path

    @property
    def source(self) -> Any:
        """The source dictionary."""
        return self.task.source_dictionary

    @property
    def target(self) -> Any:
        """The target dictionary."""
        return self.task.target_dictionary

    def accepts(self, source: Tensor) -> bool:
        """Whether a source is within the model's maximum length; fairseq-generate refuses longer ones."""
        return len(source) <= self.model.max_positions()[0]

    @property
    def sentencepiece(self) -> Path | None:
        """The SentencePiece model of the data, if a recipe trained one."""
        path = self.data / SENTENCEPIECE
        return path.resolve() if path.is_file() else None


def load(checkpoint: Path, data: Path | None = None) -> Trained:
    """Loads a checkpoint of this package, and its dictionaries.

    Args:
        checkpoint: a trained or averaged checkpoint.
        data: directory of the dictionaries; by default the data directory of the training.

    Raises:
        ExportError: the checkpoint cannot be loaded or is of another architecture; or the dictionaries are missing or
            do not match the model.
    """
    try:
        state = load_checkpoint(checkpoint)
    except CheckpointError as error:
        raise ExportError(str(error)) from None
    arch = _setting(state, "model", "_name") or _setting(state, "model", "arch")  # as fairseq looks it up
    if not issubclass(ARCH_MODEL_REGISTRY.get(arch, object), PositionTransformer):
        raise ExportError(
            f"{checkpoint} is a model of {arch}, not of this package: use ct2-fairseq-converter, which comes with "
            "CTranslate2, for models of stock fairseq."
        )
    data = data or Path(utils.split_paths(str(_setting(state, "task", "data")))[0])
    _check_dictionaries(data, state)
    try:
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
    except PositionMismatch:
        raise ExportError(
            f"{checkpoint} was trained with other positions than its settings say: export the checkpoint as the "
            "training wrote it."
        ) from None
    except Refusal as error:
        if error.__cause__ is None:
            raise ExportError(str(error)) from None
        raise ExportError(
            f"{checkpoint} cannot be loaded with the dictionaries in {data} ({brief(error.__cause__)})."
        ) from None
    model = model.float().eval()
    try:
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                check_finite(checkpoint, name, value)
    except CheckpointError as error:
        raise ExportError(str(error)) from None
    return Trained(model, task, checkpoint, data)


def _setting(state: dict[str, Any], group: str, key: str) -> Any:
    settings = (state.get("cfg") or {}).get(group) or state.get("args")
    return settings.get(key) if isinstance(settings, dict) else getattr(settings, key, None)


def _check_dictionaries(data: Path, state: dict[str, Any]) -> None:
    """Refuses a directory without the dictionaries of this model.

    Raises:
        ExportError: they are missing or damaged, or their languages are unknown.
    """
    languages = [_setting(state, "task", f"{side}_lang") for side in ("source", "target")]
    if data.is_dir() and None in languages:
        languages = list(data_utils.infer_language_pair(str(data)))
    if data.is_dir() and None in languages:
        raise ExportError(f"{data} does not show the languages of this training: name its data directory with --data.")
    for language in languages:
        path = data / f"dict.{language or 'LANGUAGE'}.txt"
        if not path.is_file():
            raise ExportError(
                f"{path} is missing: name the directory that holds the dictionaries of this training with --data."
            )
        try:
            Dictionary.load(str(path))
        except Exception:  # fairseq raises plain Exceptions here
            raise ExportError(
                f"{path} is damaged: restore it, or name another directory that holds the dictionaries of this "
                "training with --data."
            ) from None


def read_lines(path: Path) -> list[str]:
    """The lines of a text; only a newline ends a line.

    Raises:
        ExportError: the text cannot be read, is empty, or is not UTF-8.
    """
    try:
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except OSError as error:
        raise ExportError(
            f"{path} cannot be read ({error.strerror}): name a text with one sentence per line."
        ) from None
    except UnicodeDecodeError as error:
        raise ExportError(f"{path} is not UTF-8 ({error.reason}): convert it or name another text.") from None
    if lines == [""]:
        raise ExportError(f"{path} is empty: name a text with one sentence per line.")
    return [" ".join(line.split()) for line in lines]


def read_sentences(path: Path, trained: Trained, segmentation: Segmentation) -> list[Tensor]:
    """The source sentences of a text in fairseq's form: one tensor of indices per line, (length,), int64, with </s>.

    Raises:
        ExportError: the text cannot be read, or a line is longer than the model's maximum length.
    """
    dictionary = trained.source
    sentences = [
        torch.tensor([*map(dictionary.index, segmentation.encode(line)), dictionary.eos()], dtype=torch.int64)
        for line in read_lines(path)
    ]
    for number, sentence in enumerate(sentences, 1):
        if not trained.accepts(sentence):
            longest = trained.model.max_positions()[0]
            raise ExportError(
                f"{path}, line {number}: it has {len(sentence)} tokens, and the model accepts {longest} at most: "
                "shorten or remove the line."
            )
    return sentences


def some_sentences(trained: Trained, count: int) -> tuple[list[Tensor], str]:
    """Sentences evenly spaced in the validation or test set, or random sentences if the data has no such set.

    Returns:
        the sentences, and a description of where they are from.

    Raises:
        ExportError: the data is damaged.
    """
    config = trained.task.cfg
    for split in ("valid", "test"):
        languages = f"{config.source_lang}-{config.target_lang}.{config.source_lang}"
        path = trained.data / f"{split}.{languages}"
        found = [sentence for sentence in non_empty(_read_split(path, trained.source)) if trained.accepts(sentence)]
        if found:
            return found[:: max(len(found) // count, 1)][:count], f"sentences of {path}"
    longest = trained.model.max_positions()[0] - 1
    return [
        random_sentence(trained.source, min(1 + number, longest), seed=number) for number in range(count)
    ], "random sentences"


def _read_split(path: Path, dictionary: Any) -> list[Tensor]:
    """The sentences of one language of a binarized split; none if it is missing or empty.

    Raises:
        ExportError: the files are damaged.
    """
    if not indexed_dataset.dataset_exists(str(path), impl=None):
        return []
    if Path(f"{path}.bin").stat().st_size == 0:  # fairseq cannot memory-map an empty file
        return []
    try:
        return [sentence.long() for sentence in data_utils.load_indexed_dataset(str(path), dictionary)]
    except Exception:  # the type depends on where the file was truncated
        raise ExportError(
            f"{path}.bin or .idx is damaged: binarize the data again, or name a text to compare on with --sample."
        ) from None


def non_empty(sentences: Iterable[Tensor]) -> list[Tensor]:
    """The sentences with at least one word. For an empty line CTranslate2 outputs an empty line, fairseq does not."""
    return [sentence for sentence in sentences if len(sentence) > 1]


def random_sentence(dictionary: Any, length: int, seed: int) -> Tensor:
    """A sentence of ``length`` random words and </s>."""
    rng = random.Random(seed)
    words = [rng.randrange(dictionary.nspecial, len(dictionary)) for _ in range(length)]
    return torch.tensor([*words, dictionary.eos()], dtype=torch.int64)
