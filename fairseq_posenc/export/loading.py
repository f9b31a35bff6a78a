"""What an export needs of a training: the model, its dictionaries, and sentences to try it on."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils, indexed_dataset
from torch import Tensor

from ..errors import CheckpointError
from ..trained import OtherModel, Trained, load_trained
from .errors import ExportError
from .segmentation import Segmentation


def load(checkpoint: Path, data: Path | None = None) -> Trained:
    """As :func:`..trained.load_trained`, whose refusals become an export's.

    Raises:
        ExportError: the checkpoint is none, or of another model; or the dictionaries are missing or of another model.
    """
    try:
        return load_trained(checkpoint, data)
    except OtherModel as error:
        raise ExportError(
            f"{error.what}: ct2-fairseq-converter, which comes with CTranslate2, exports stock fairseq's."
        ) from None
    except CheckpointError as error:
        raise ExportError(str(error)) from None


def read_lines(path: Path) -> list[str]:
    """The lines of a text, which end at a newline and nothing else.

    Raises:
        ExportError: it cannot be read, holds no line, or is not UTF-8.
    """
    try:
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except OSError as error:
        raise ExportError(f"{path} cannot be read ({error.strerror}): name a text with one sentence a line.") from None
    except UnicodeDecodeError as error:
        raise ExportError(f"{path} is not UTF-8 ({error.reason}): mend it or name another text.") from None
    if lines == [""]:
        raise ExportError(f"{path} is empty: name a text with one sentence a line.")
    return [" ".join(line.split()) for line in lines]


def read_sentences(path: Path, trained: Trained, segmentation: Segmentation) -> list[Tensor]:
    """Sources as fairseq has them: indices, (length,), int64, ended by </s>; one for each line.

    Raises:
        ExportError: the text cannot be read, or a line is longer than the model's sources may be.
    """
    dictionary = trained.source
    sentences = [
        torch.tensor([*map(dictionary.index, segmentation.encode(line)), dictionary.eos()], dtype=torch.int64)
        for line in read_lines(path)
    ]
    for number, sentence in enumerate(sentences, 1):
        if not trained.takes(sentence):
            longest = trained.model.max_positions()[0]
            raise ExportError(f"{path}, line {number}: {len(sentence)} tokens, and the model takes {longest} at most.")
    return sentences


def some_sentences(trained: Trained, count: int) -> tuple[list[Tensor], str]:
    """Sentences of the data's validation or test set, from all of its length, and what they are in words; random ones
    where there are none.

    Raises:
        ExportError: the data is damaged.
    """
    config = trained.task.cfg
    for split in ("valid", "test"):
        languages = f"{config.source_lang}-{config.target_lang}.{config.source_lang}"
        path = trained.data / f"{split}.{languages}"
        found = [sentence for sentence in spoken(_read_split(path, trained.source)) if trained.takes(sentence)]
        if found:
            return found[:: max(len(found) // count, 1)][:count], f"sentences of {path}"
    longest = trained.model.max_positions()[0] - 1
    return [
        random_sentence(trained.source, min(1 + number, longest), seed=number) for number in range(count)
    ], "random sentences"


def _read_split(path: Path, dictionary: Any) -> list[Tensor]:
    """All sentences of one language of a binarized split; none where it is missing or empty.

    Raises:
        ExportError: it is damaged.
    """
    if not indexed_dataset.dataset_exists(str(path), impl=None):
        return []
    if Path(f"{path}.bin").stat().st_size == 0:  # which fairseq cannot map into memory
        return []
    try:
        return [sentence.long() for sentence in data_utils.load_indexed_dataset(str(path), dictionary)]
    except Exception:  # of many kinds, by what is cut off
        raise ExportError(
            f"{path}.bin or .idx is damaged: binarize the data again, or name a text to compare on with --sample."
        ) from None


def spoken(sentences: Iterable[Tensor]) -> list[Tensor]:
    """Those with words: CTranslate2 answers an empty line by an empty one, where fairseq invents something."""
    return [sentence for sentence in sentences if len(sentence) > 1]


def random_sentence(dictionary: Any, length: int, seed: int) -> Tensor:
    """Words of a dictionary by chance, and </s>."""
    chance = random.Random(seed)
    words = [chance.randrange(dictionary.nspecial, len(dictionary)) for _ in range(length)]
    return torch.tensor([*words, dictionary.eos()], dtype=torch.int64)
