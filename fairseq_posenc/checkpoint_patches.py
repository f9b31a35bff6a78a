"""Patches of fairseq's loading of checkpoints, so that it runs no code from a file and names the cause of an error.

:mod:`.patches` lists the faults that they fix.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq.checkpoint_utils import _upgrade_state_dict
from fairseq.dataclass.utils import omegaconf_no_object_check, overwrite_args_by_name
from fairseq.file_io import PathManager
from omegaconf import OmegaConf, open_dict

from .arguments import plugin_flags
from .checkpoints import load_checkpoint
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


def send_by_pickle(_broadcast_object_slow: Any) -> Any:
    """Sends an object to the other processes as torch does; fairseq reads it as a file, which may hold fewer types."""

    @functools.wraps(_broadcast_object_slow)
    def broadcast(obj: Any, src_rank: int, group: Any, dist_device: Any) -> Any:
        objects = [obj]
        torch.distributed.broadcast_object_list(objects, src_rank, group, dist_device)
        return objects[0]

    return broadcast


def literal(text: Any, *_: Any) -> Any:
    """Replaces ``eval``: the value of a Python literal; lists may be repeated and joined, as those of layers are.

    Raises:
        TypeError: it is no text, as ``eval`` says.
        ValueError: it names or calls anything.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    tree = ast.parse(text.strip(), mode="eval")
    if not all(isinstance(node, _LITERAL) for node in ast.walk(tree)):
        raise ValueError(f"fairseq would run the setting {text!r} as code; it must be a literal")
    return eval(compile(tree, "<setting>", "eval"))


#: the syntax of literals, and of lists that are repeated and joined: ``[(512, 3)] * 4 + [(1024, 3)]``
_LITERAL = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load),
    *(ast.UnaryOp, ast.UAdd, ast.USub, ast.BinOp, ast.Add, ast.Mult),
)


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
            # A model needs none of the files with vectors that its training began with.
            given = arg_overrides or {}
            files = ("encoder_embed_path", "decoder_embed_path", "input_positions_from")
            overrides = dict.fromkeys(files) | given
            if "position_encoding" in overrides:
                raise FlagError(
                    "position_encoding in --model-overrides has no effect, since the architecture names the encoding: "
                    "leave it out."
                )
            if state.get("args") is not None:
                vars(state["args"]).update(overrides)
            if state.get("cfg") is not None:
                with omegaconf_no_object_check():
                    state["cfg"] = OmegaConf.create(state["cfg"])
                overwrite_args_by_name(state["cfg"], overrides)
                model = state["cfg"].get("model")
                if OmegaConf.is_dict(model):  # of fairseq-hydra-train; options that it lacks are dropped above
                    known = plugin_flags() | known_options()
                    with open_dict(model):
                        model.update({name: value for name, value in given.items() if name in known})
            return _upgrade_state_dict(state)

    return load


def read_ema_safely(load_ema_from_checkpoint: Any) -> Any:
    """Loads averaged parameters (EMA) like fairseq, but reads the checkpoint safely."""

    @functools.wraps(load_ema_from_checkpoint)
    def load(fpath: str) -> dict[str, Any]:
        with name_files_in_errors(fpath):
            state = load_checkpoint(fpath, mapped=False)
            averaged = state["extra_state"]["ema"].items()
        return {
            **state,
            "model": {name: value.float() if value.dtype == torch.half else value for name, value in averaged},
        }

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
            raise FlagError(
                f"{filename}, of --restore-file, --finetune-from-model or --continue-once, does not exist or is no "
                "file; name one that fairseq-train wrote, such as checkpoint_best.pt, or leave the flag out to start "
                "from random parameters."
            )
        with name_files_in_errors(filename), fine_tuning(not resumes and filename == cfg.finetune_from_model):
            return load_checkpoint(trainer, filename, *args, **kwargs)

    return load
