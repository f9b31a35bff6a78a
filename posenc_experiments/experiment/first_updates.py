"""Finds flags with which fairseq builds no criterion, optimizer or schedule, or fails at its first updates."""

import logging
import warnings
from argparse import Namespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, override_module_args
from fairseq.optim import build_optimizer
from fairseq.optim.lr_scheduler import build_lr_scheduler
from fairseq.tasks.translation import TranslationTask

from posenc_experiments.experiment.fairseq_flags import Refused

#: the settings that were found to work, as fairseq's configuration has them, without those of the model
_known: set[tuple[str, ...]] = set()


def require_updates(settings: dict[str, Any]) -> None:
    """Builds what a training has beside its model and data, and makes updates of a single parameter.

    Args:
        settings: fairseq-train's arguments.

    Raises:
        Refused: this fails, so that the training would, too.
    """
    # The first two differ between experiments; apex's Adam, which the last avoids, needs a GPU.
    args = Namespace(**settings | {"seed": 1, "save_dir": "", "use_old_adam": True})
    key = tuple(override_module_args(args)[0])
    if key in _known:
        return
    try:
        _update(args)
    except (ImportError, RuntimeError):
        pass  # of the machine, not of the flags: a package or a GPU is missing
    except Exception as error:  # fairseq raises any
        problem = f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")
        raise Refused(
            f"--optimizer {args.optimizer}, --lr-scheduler {args.lr_scheduler} and --criterion {args.criterion} cannot "
            f"train with these flags ({problem})."
        ) from error
    _known.add(key)


def _update(args: Namespace) -> None:
    logger = logging.getLogger("fairseq.dataclass.utils")  # reports a faulty configuration in full
    logger.disabled = True
    try:
        with warnings.catch_warnings(action="ignore"):  # Hydra's, of the old way in which fairseq calls it
            config = convert_namespace_to_omegaconf(args)
    finally:
        logger.disabled = False
    TranslationTask(config.task, Dictionary(), Dictionary()).build_criterion(config.criterion)
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    parameter.grad = torch.ones(2, 2)
    if args.optimizer in ("composite", "cpu_adam", "lamb"):  # which need a model's groups of parameters, or a GPU
        return
    optimizer = build_optimizer(config.optimizer, [parameter])
    schedule = build_lr_scheduler(config.lr_scheduler, optimizer)
    for updates in (0, 1, args.max_update or 2):
        schedule.step_update(updates)
        optimizer.step()
