"""A trained model with its dictionaries, loaded for use outside fairseq's commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from torch import Tensor

from .checkpoints import check_finite
from .errors import CheckpointError, Refusal, brief
from .model import PositionTransformer

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

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def accepts(self, source: Tensor) -> bool:
        """Whether a source is within the model's maximum length; fairseq-generate refuses longer ones."""
        return len(source) <= self.model.max_positions()[0]

    @property
    def sentencepiece(self) -> Path | None:
        """The SentencePiece model of the data, if a recipe trained one."""
        path = self.data / SENTENCEPIECE
        return path.resolve() if path.is_file() else None


def load_trained(
    checkpoint: Path,
    data: Path | None = None,
    model_overrides: Mapping[str, Any] | None = None,
    cpu: bool = True,
) -> Trained:
    """Loads a checkpoint of this package, and its dictionaries.

    Args:
        checkpoint: a trained or averaged checkpoint.
        data: directory of the dictionaries; by default the data directory of the training.
        model_overrides: settings of the model that replace those of the training, as --model-overrides of
            fairseq-generate.
        cpu: whether the model stays on the CPU even where there is a GPU.

    Raises:
        CheckpointError: it is no checkpoint, or of a model that is not of this package; or the dictionaries are
            missing, damaged or of another model.
    """
    if not checkpoint.is_file():
        raise CheckpointError(f"{checkpoint} does not exist or is no file: name a checkpoint.")
    given = {} if data is None else {"data": str(data)}
    try:
        (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={**(model_overrides or {}), **given}
        )
    except Refusal as error:
        if error.__cause__ is None:
            raise CheckpointError(str(error)) from None
        raise CheckpointError(
            f"{checkpoint} cannot be loaded with the dictionaries in {data or 'the directory of its training'} "
            f"({brief(error.__cause__)}): name the data of its training with --data."
        ) from None
    if not isinstance(model, PositionTransformer):
        raise CheckpointError(
            f"{checkpoint} is a {type(model).__name__}, no model of this package: name a checkpoint of one of its "
            "architectures."
        )
    model = model.float().eval()
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            check_finite(checkpoint, name, value)
    if not cpu and torch.cuda.is_available():
        model = model.cuda()
    return Trained(model, task, checkpoint, data or Path(utils.split_paths(cfg.task.data)[0]))
