"""Patches of fairseq's loading of checkpoints, so that it runs no code from a file and names the cause of an error.

:mod:`.patches` lists the faults that they fix.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tarfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq.checkpoint_utils import _upgrade_state_dict
from fairseq.dataclass.utils import omegaconf_no_object_check, overwrite_args_by_name
from fairseq.file_io import PathManager
from omegaconf import OmegaConf, open_dict

from .arguments import plugin_flags
from .checkpoints import load_checkpoint, message_types, safe_loading
from .encodings.contract.registry import known_options
from .errors import TRACEBACK, CheckpointError, FlagError, Refusal, brief, few
from .model import fine_tuning


def extract_safely(load_archive_file: Any) -> Any:
    """Refuses members outside the target directory, as tarfile does by itself from Python 3.14 on."""

    @functools.wraps(load_archive_file)
    def load(archive_file: str) -> Any:
        before = tarfile.TarFile.extraction_filter
        tarfile.TarFile.extraction_filter = before or staticmethod(tarfile.data_filter)
        try:
            return load_archive_file(archive_file)
        finally:
            tarfile.TarFile.extraction_filter = before

    return load


def receive_safely(broadcast_object: Any) -> Any:
    """Lets processes send each other the configuration in a checkpoint; torch would refuse to read it."""

    @functools.wraps(broadcast_object)
    def broadcast(*args: Any, **kwargs: Any) -> Any:
        with safe_loading(message_types()):
            return broadcast_object(*args, **kwargs)

    return broadcast


@contextlib.contextmanager
def name_files_in_errors(*sources: str) -> Iterator[None]:
    """Turns every error in loading these files into a refusal that names them."""
    try:
        yield
    except Exception as error:
        # fairseq's trainer replaces the error by a plain Exception.
        reason = (error.__context__ or error) if type(error) is Exception else error
        if not isinstance(reason, Refusal):
            raise CheckpointError(
                f"{few(sources)} cannot be loaded ({brief(reason)}); {TRACEBACK}=1 shows where it fails."
            ) from reason
        if any(str(Path(source)) in str(reason) for source in sources):
            raise reason from None
        raise type(reason)(f"{few(sources)}: {reason}") from None


def read_safely(load_checkpoint_to_cpu: Any) -> Any:
    """Follows fairseq's own steps, but reads the checkpoint safely, once, and validates it."""

    @functools.wraps(load_checkpoint_to_cpu)
    def load(path: str, arg_overrides: Any = None, load_on_all_ranks: bool = False) -> dict[str, Any]:
        with name_files_in_errors(str(path)):
            # Not memory-mapped: a training overwrites checkpoint_last.pt in place while it uses its tensors.
            state = load_checkpoint(PathManager.get_local_path(path), mapped=False)
            overrides = arg_overrides or {}
            if "position_encoding" in overrides:
                raise FlagError(
                    "position_encoding in --model-overrides has no effect, since the architecture names the encoding: "
                    "leave it out."
                )
            if state.get("args") is not None:
                _forget_embedding_files(vars(state["args"]))
                vars(state["args"]).update(overrides)
            if state.get("cfg") is not None:
                model = state["cfg"].get("model") or {}
                _forget_embedding_files(vars(model) if isinstance(model, Namespace) else model)
                with omegaconf_no_object_check():
                    state["cfg"] = OmegaConf.create(state["cfg"])
                overwrite_args_by_name(state["cfg"], overrides)
                _add_overrides(state["cfg"].get("model"), overrides)
            return _upgrade_state_dict(state)

    return load


def _add_overrides(model: Any, overrides: dict[str, Any]) -> None:
    """Sets options of this package that the configuration of fairseq-hydra-train lacks; fairseq drops these."""
    if OmegaConf.is_dict(model):
        ours = plugin_flags() | known_options()
        with open_dict(model):
            model.update({name: value for name, value in overrides.items() if name in ours})


def _forget_embedding_files(model: dict[str, Any]) -> None:
    for name in ("encoder_embed_path", "decoder_embed_path"):
        if model.get(name):
            model[name] = None


def read_ema_safely(load_ema_from_checkpoint: Any) -> Any:
    """Loads averaged parameters (EMA) like fairseq, but reads the checkpoint safely."""

    @functools.wraps(load_ema_from_checkpoint)
    def load(fpath: str) -> dict[str, Any]:
        with name_files_in_errors(str(fpath)):
            if not (load_checkpoint(fpath).get("extra_state") or {}).get("ema"):
                raise CheckpointError("it has no averaged parameters; use a checkpoint of a training with --store-ema.")
            with safe_loading():
                state: dict[str, Any] = load_ema_from_checkpoint(fpath)
            return state

    return load


def explain_load_errors(load_model_ensemble_and_task: Any) -> Any:
    """Names the files in errors of loading models."""

    @functools.wraps(load_model_ensemble_and_task)
    def load(filenames: list[str], *args: Any, **kwargs: Any) -> Any:
        with name_files_in_errors(*map(str, filenames)):
            return load_model_ensemble_and_task(filenames, *args, **kwargs)

    return load


def check_start(load_checkpoint: Any) -> Any:
    """Refuses to start from a missing checkpoint, and tells models whether a checkpoint is fine-tuned.

    Only the training's own last checkpoint may be missing, since the user has named all others.
    """

    @functools.wraps(load_checkpoint)
    def load(trainer: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        cfg = trainer.cfg.checkpoint
        own = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
        resumes = os.path.abspath(filename) == os.path.abspath(own)
        if not resumes and not PathManager.isfile(filename):
            flag = "--finetune-from-model"
            if cfg.restore_file != "checkpoint_last.pt":
                flag = "--restore-file"
            elif getattr(cfg, "continue_once", None):
                flag = "--continue-once"
            wrong = "is a directory" if os.path.isdir(filename) else "does not exist"
            if os.path.exists(filename) and not os.path.isdir(filename):
                wrong = "is a pipe or a device"
            raise FlagError(
                f"{flag} {filename} {wrong}; name a file that fairseq-train wrote, such as checkpoint_best.pt, or "
                f"leave {flag} out to start from random parameters."
            )
        with name_files_in_errors(filename), fine_tuning(not resumes and filename == cfg.finetune_from_model):
            return load_checkpoint(trainer, filename, *args, **kwargs)

    return load
