"""What an export needs of a training: the model, its dictionaries, and sentences to try it on."""

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

#: where recipes leave the SentencePiece model of the binarized data, seen from there
SENTENCEPIECE = Path("..") / "sentencepiece.model"


@dataclass(frozen=True)
class Trained:
    """A model, in single precision and evaluation mode, with all that belongs to it."""

    model: Any
    task: Any
    checkpoint: Path
    #: the binarized data, or whatever directory holds the dictionaries
    data: Path

    @property
    def source(self) -> Any:
        return self.task.source_dictionary

    @property
    def target(self) -> Any:
        return self.task.target_dictionary

    def takes(self, source: Tensor) -> bool:
        """Whether a source is within the model's limit, beyond which fairseq-generate refuses it."""
        return len(source) <= self.model.max_positions()[0]

    @property
    def sentencepiece(self) -> Path | None:
        """The SentencePiece model of its subwords, where a recipe trained it."""
        path = self.data / SENTENCEPIECE
        return path.resolve() if path.is_file() else None


def load(checkpoint: Path, data: Path | None = None) -> Trained:
    """Reads a checkpoint of this package, and its dictionaries.

    Args:
        checkpoint: trained or averaged.
        data: the directory with the dictionaries; by default the one that the model was trained on.

    Raises:
        ExportError: the checkpoint is none, or of another model; or the dictionaries are missing or of another model.
    """
    try:
        state = load_checkpoint(checkpoint)
    except CheckpointError as error:
        raise ExportError(str(error)) from None
    arch = _setting(state, "model", "_name") or _setting(state, "model", "arch")  # as fairseq looks it up
    if not issubclass(ARCH_MODEL_REGISTRY.get(arch, object), PositionTransformer):
        raise ExportError(
            f"{checkpoint} is a model of {arch}, not of this package: ct2-fairseq-converter, which comes with "
            "CTranslate2, exports stock fairseq's."
        )
    data = data or Path(utils.split_paths(str(_setting(state, "task", "data")))[0])
    _check_dictionaries(data, state)
    try:
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
    except PositionMismatch:
        raise ExportError(
            f"{checkpoint} was trained with other positions than its settings say: export it as the training wrote it."
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
        ExportError: they are missing or damaged, or nobody knows their languages.
    """
    languages = [_setting(state, "task", f"{side}_lang") for side in ("source", "target")]
    if data.is_dir() and None in languages:
        languages = list(data_utils.infer_language_pair(str(data)))
    if data.is_dir() and None in languages:
        raise ExportError(f"{data} does not tell the languages of this training: name its data directory with --data.")
    for language in languages:
        path = data / f"dict.{language or 'LANGUAGE'}.txt"
        if not path.is_file():
            raise ExportError(
                f"{path} is missing: name the directory that holds the dictionaries of this training with --data."
            )
        try:
            Dictionary.load(str(path))
        except Exception:  # fairseq raises bare Exceptions here
            raise ExportError(
                f"{path} is damaged: restore it, or name another directory that holds the dictionaries of this "
                "training with --data."
            ) from None


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
