"""Patches of fairseq's functions that read checkpoints: they run no code from them, and explain errors in one sentence.

* fairseq unpickles a checkpoint without restriction to data, evaluates some of its settings, and reads the files of
  embeddings that they name, though the embeddings are in the checkpoint.
* A damaged checkpoint, or one of another model, ends in an error that does not name the file or hides the reason.
* A ``--restore-file`` or ``--continue-once`` that does not exist, and a ``--finetune-from-model`` that is a directory,
  are ignored: the training starts from random parameters, exit status 0.
* Models are not told whether a checkpoint is resumed or fine-tuned, which decides whether its positions may differ.
* ``FastaDataset`` passes file names unquoted to a shell; ``from_pretrained`` unpacks archives whose files may go
  anywhere on the disk.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import tarfile
from argparse import Namespace
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq.checkpoint_utils import _upgrade_state_dict
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.file_io import PathManager
from omegaconf import OmegaConf

from .checkpoints import check_complete, ignore_unsafe_switch, load_checkpoint
from .errors import TRACEBACK, CheckpointError, FlagError, Refusal, brief, few
from .model import fine_tuning


def unpack_inside() -> None:
    """Makes tarfile extract nothing outside the target directory by default, as from Python 3.14 on."""
    if tarfile.TarFile.extraction_filter is None:  # none was chosen
        tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)


@contextlib.contextmanager
def explained(*sources: str) -> Iterator[None]:
    """Turns every failure in loading these files into a refusal that names them."""
    try:
        yield
    except Exception as error:
        # fairseq's trainer replaces the error by a bare Exception.
        reason = (error.__context__ or error) if type(error) is Exception else error
        if not isinstance(reason, Refusal):
            raise CheckpointError(
                f"{few(sources)} cannot be loaded ({brief(reason)}); {TRACEBACK}=1 shows where it fails."
            ) from reason
        if any(str(Path(source)) in str(reason) for source in sources):
            raise reason from None
        raise type(reason)(f"{few(sources)}: {reason}") from None


def read_safely(load_checkpoint_to_cpu: Any) -> Any:
    """fairseq's own steps, on a checkpoint that was checked and is read only once."""

    @functools.wraps(load_checkpoint_to_cpu)
    def load(path: str, arg_overrides: Any = None, load_on_all_ranks: bool = False) -> dict[str, Any]:
        with explained(str(path)):
            # Not mapped: a training overwrites checkpoint_last.pt in place while it uses tensors of it.
            state = load_checkpoint(_local_copy(path, load_on_all_ranks), mapped=False)
            check_complete(Path(path), state)
            overrides = arg_overrides or {}
            if state.get("args") is not None:
                _forget_embedding_files(vars(state["args"]))
                vars(state["args"]).update(overrides)
            if state.get("cfg") is not None:
                model = state["cfg"].get("model") or {}
                _forget_embedding_files(vars(model) if isinstance(model, Namespace) else model)
                state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
                overwrite_args_by_name(state["cfg"], overrides)
            return _upgrade_state_dict(state)

    return load


def _forget_embedding_files(model: dict[str, Any]) -> None:
    for name in ("encoder_embed_path", "decoder_embed_path"):
        if model.get(name):
            model[name] = None


def read_ema_safely(load_ema_from_checkpoint: Any) -> Any:
    """fairseq's own result: the averaged parameters in place of the model's."""

    @functools.wraps(load_ema_from_checkpoint)
    def load(fpath: str) -> dict[str, Any]:
        ignore_unsafe_switch()
        with explained(str(fpath)):
            if os.path.exists(fpath) and not (load_checkpoint(fpath).get("extra_state") or {}).get("ema"):
                raise CheckpointError("it has no averaged parameters; name one of a training with --store-ema.")
            state: dict[str, Any] = load_ema_from_checkpoint(fpath)
            return state

    return load


def _local_copy(path: str, load_on_all_ranks: bool) -> str:
    """The file itself, or a fresh copy of a remote one."""
    local = PathManager.get_local_path(path)
    if local == path or not PathManager.path_requires_pathmanager(path):
        return local
    with contextlib.suppress(FileNotFoundError):
        os.remove(local)
    if load_on_all_ranks:
        torch.distributed.barrier()
    return PathManager.get_local_path(path)


def explain_models(load_model_ensemble_and_task: Any) -> Any:
    @functools.wraps(load_model_ensemble_and_task)
    def load(filenames: list[str], *args: Any, **kwargs: Any) -> Any:
        with explained(*map(str, filenames)):
            return load_model_ensemble_and_task(filenames, *args, **kwargs)

    return load


def name_unknown(kind: str, known: Container[str]) -> Callable[[Any], Any]:
    """Explains an unknown name of a task or a model; fairseq would print the whole configuration and all names."""

    def wrap(build: Any) -> Any:
        @functools.wraps(build)
        def checked(cfg: Any, *args: Any, **kwargs: Any) -> Any:
            name = getattr(cfg, "_name", None) or getattr(cfg, kind, None)
            if isinstance(name, str) and name not in known:
                raise FlagError(f"there is no {kind} {name!r} here; import what defines it with --user-dir.")
            return build(cfg, *args, **kwargs)

        return checked

    return wrap


def know_the_start(load_checkpoint: Any) -> Any:
    """Refuses to start from a missing checkpoint, and tells models when one is fine-tuned.

    Only the training's own last checkpoint may be missing; any other was named by the user.
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
        with explained(filename), fine_tuning(not resumes and filename == cfg.finetune_from_model):
            return load_checkpoint(trainer, filename, *args, **kwargs)

    return load


def refuse_shell_words(build_index: Any) -> Any:
    @functools.wraps(build_index)
    def build(dataset: Any, path: str) -> Any:
        if shlex.quote(path) != path:
            raise FlagError(f"{path}.fasta would be read by a shell command; give it a name without such characters.")
        return build_index(dataset, path)

    return build
