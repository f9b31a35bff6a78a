"""Damaged and malicious checkpoints: no code in them runs, and each reader refuses them in one sentence."""

import io
import os
import re
import tarfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from fairseq_posenc.checkpoints import average_checkpoints, load_checkpoint
from fairseq_posenc.errors import Refusal
from fairseq_posenc.export import export
from fairseq_posenc.model import PositionTransformer
from fairseq_posenc.signature import SIGNATURE
from tests.checkpoints.changes import Change, model_flag
from tests.checkpoints.kept import FOLDER
from tests.toy import PACKAGE, binarize, make_corpus, run_fairseq, train

SHAW = FOLDER / "shaw.pt"
WEIGHT = "encoder.layers.0.fc1.weight"
CODE = "__import__('os').mkdir('ran') or [10]"
#: the same code in a setting of fconv, which fairseq evaluates itself
FCONV = f"[(8, 3)] * len({CODE})"


@pytest.fixture(autouse=True)
def nothing_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "ran").exists()


def write(change: Change, name: str = "checkpoint.pt") -> Path:
    state = load_checkpoint(SHAW)
    change(state)
    torch.save(state, name)
    return Path(name)


def weight(change: Callable[[torch.Tensor], object]) -> Change:
    return lambda state: state["model"].update({WEIGHT: change(state["model"][WEIGHT])})


def record(value: object) -> Change:
    content = torch.tensor(list(value)) if isinstance(value, bytes) else value
    return lambda state: state["model"].update({SIGNATURE: content})


DAMAGED: dict[str, tuple[Change, str]] = {
    "code in a setting": (model_flag("adaptive_softmax_cutoff", CODE), "would run its setting cfg.model.adaptive"),
    "code for fconv": (model_flag("decoder_attention", FCONV), "would run its setting cfg.model.decoder_attention"),
    "code for adam": (lambda state: state["cfg"].update(optimizer={"adam_betas": CODE}), "cfg.optimizer.adam_betas"),
    "code below": (
        model_flag("w2v_args", {"model": Namespace(conv_feature_layers=CODE)}),
        r"w2v_args\.model\.conv_",
    ),
    "code in args": (lambda state: state.update(args=Namespace(lamb_betas=CODE)), r"its setting args\.lamb_betas"),
    "environment": (model_flag("label", "${oc.env:HOME}"), "would call a function of omegaconf"),
    "escaped": (model_flag("label", "$\\{oc.env:HOME\\}"), "would call a function of omegaconf"),
    "code in bytes": (model_flag("conv_feature_layers", CODE.encode()), r"cfg\.model\.conv_feature_layers is a bytes"),
    "tensor": (model_flag("dropout", torch.ones(2)), r"cfg\.model\.dropout is a Tensor"),
    "text": (lambda state: state.update(cfg="shaw"), "'cfg' is a str, not a dict"),
    "args": (lambda state: state.update(args={"arch": "shaw"}), "'args' is a dict, not a Namespace"),
    "record out of range": (record(torch.tensor([300, -1])), "position_version is not a record of positions"),
    "record of no encoding": (record(b'{"encoding": [1]}'), "position_version is not a record of positions"),
}
#: refused only by readers that build a model
UNLOADABLE: dict[str, tuple[Change, str]] = {
    "no extra_state": (lambda state: state.pop("extra_state"), "cannot be loaded .*extra_state"),
    "unknown task": (lambda state: state["cfg"]["task"].update(_name="no\x1b[31mne"), "cannot be loaded"),
    "an option that is a text": (model_flag("clipping_distance", "six"), "--clipping-distance 'six': must be a whole"),
    "another shape": (weight(lambda value: value[:3].clone()), rf"cannot be loaded .*size mismatch for {WEIGHT}"),
    "no parameter": (lambda state: state["model"].pop(WEIGHT), rf"cannot be loaded .*Missing key.*{WEIGHT}"),
    "a record of bytes for the terminal": (record(b'{"encoding": "\\u001b[31m"}'), r"other positions .*\\u001b\[31m"),
}


def generate(path: Path) -> None:
    """Loads it as fairseq-generate, -interactive and -validate do."""
    checkpoint_utils.load_model_ensemble([str(path)], arg_overrides={"data": str(FOLDER)})


def pretrained(path: Path) -> None:
    PositionTransformer.from_pretrained(str(path.parent), path.name, str(FOLDER))


def average(path: Path) -> None:
    average_checkpoints([path], "mean.pt")


READERS: dict[str, Callable[[Path], object]] = {
    "generate": generate,
    "from_pretrained": pretrained,
    "average": average,
    "export": lambda path: export(path, Path("served"), data=FOLDER),
}


def refusal(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(Refusal) as caught:
        read(path)
    message = str(caught.value)
    assert message.count(path.name) == 1
    assert message.isprintable()
    assert not any(Path().glob("*mean.pt*"))
    assert not Path("served").exists()
    return message


@pytest.mark.parametrize("case", DAMAGED)
def test_every_reader_refuses(case: str) -> None:
    change, says = DAMAGED[case]
    path = write(change)
    for read in READERS.values():
        assert re.search(says, refusal(read, path))


@pytest.mark.parametrize("case", UNLOADABLE)
def test_every_reader_that_builds_refuses(case: str) -> None:
    change, says = UNLOADABLE[case]
    path = write(change)
    for name in ("generate", "from_pretrained"):
        assert re.search(says, refusal(READERS[name], path))
    with pytest.raises(Refusal):
        READERS["export"](path)


def test_an_export_of_nan() -> None:
    path = write(weight(lambda tensor: tensor.fill_(float("nan"))))
    assert f"NaN or infinite numbers in {WEIGHT}" in refusal(READERS["export"], path)


def test_allowed_settings() -> None:
    """References in omegaconf, lists, words of other models, and every literal."""
    values = {"encoder_layerdrop": "${model.dropout}", "pretrained": "mbart50", "label": [1, {"a": None}, ("b",)]}
    path = write(lambda state: vars(state["cfg"]["model"]).update(values, unknown="$5 {a} __import__"))
    assert vars(load_checkpoint(path)["cfg"]["model"]).items() >= values.items()
    generate(write(model_flag("adaptive_softmax_cutoff", None)))


def test_a_training_keeps_the_checkpoint_that_it_reads() -> None:
    """fairseq overwrites checkpoint_last.pt in place, which must not change the parameters that it has loaded."""
    path = write(lambda state: None)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    before = state["model"][WEIGHT].clone()
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(state["model"][WEIGHT], before)
    assert OmegaConf.is_config(state["cfg"])


def test_an_archive_is_extracted_only_to_its_directory(tmp_path: Path) -> None:
    with tarfile.open("model.tar.gz", "w:gz") as archive:
        for name in ("model/checkpoint.pt", f"../{'../' * 20}{tmp_path}/ran"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            archive.addfile(entry, io.BytesIO(b"a"))
    with pytest.raises(tarfile.OutsideDestinationError):
        PositionTransformer.from_pretrained("model.tar.gz", "checkpoint.pt", str(FOLDER))


# ---- fairseq's commands, as a user sees them


class Call:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Binarized data, and a checkpoint of a model trained on it."""
    folder = tmp_path_factory.mktemp("toy")
    binarized = binarize(make_corpus(folder / "text"), folder / "data")
    train(binarized, folder / "model", "transformer_shaw_tiny", user_dir=PACKAGE)
    return binarized, folder / "model" / "checkpoint_last.pt"


@pytest.fixture
def bad(toy: tuple[Path, Path], tmp_path: Path) -> dict[str, Path]:
    """Copies of the checkpoint with code in a setting, and with code in the pickle."""
    state = load_checkpoint(toy[1])
    state["extra_state"]["call"] = Call()
    torch.save(state, tmp_path / "pickle.pt")
    del state["extra_state"]["call"]
    state["cfg"]["model"].adaptive_softmax_cutoff = CODE
    torch.save(state, tmp_path / "setting.pt")
    return {"pickle": tmp_path / "pickle.pt", "setting": tmp_path / "setting.pt"}


SAYS = {"pickle": "loading it would call posix.mkdir", "setting": "would run its setting cfg.model.adaptive"}
UNSAFE = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}


def errors(stderr: str) -> list[str]:
    assert "Traceback" not in stderr
    return [line for line in stderr.splitlines() if line.startswith("Error: ")]


@pytest.mark.parametrize(("command", "kind"), [("generate", "pickle"), ("validate", "setting")])
def test_commands(toy: tuple[Path, Path], bad: dict[str, Path], command: str, kind: str) -> None:
    run = run_fairseq(
        *(command, toy[0], "--path", bad[kind], "--cpu", "--max-tokens", "200", "--task", "translation"),
        user_dir=PACKAGE,
        check=False,
        environment=UNSAFE,
    )
    assert run.returncode == 1
    (error,) = errors(run.stderr)
    assert f"{bad[kind]} is refused" in error
    assert SAYS[kind] in error


@pytest.mark.parametrize(("flag", "kind"), [("--restore-file", "pickle"), ("--finetune-from-model", "setting")])
def test_trainings(
    toy: tuple[Path, Path], bad: dict[str, Path], flag: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in UNSAFE.items():
        monkeypatch.setenv(name, value)
    run = train(toy[0], "new", "transformer_shaw_tiny", flag, bad[kind], user_dir=PACKAGE, check=False)
    assert run.returncode == 1
    (error,) = errors(run.stderr)
    assert SAYS[kind] in error
    assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is ignored" in run.stdout + run.stderr
    assert not list(Path("new").glob("*.pt"))


def test_a_checkpoint_of_another_model_is_refused_in_one_sentence(
    toy: tuple[Path, Path],
) -> None:
    """fairseq's trainer alone would hide the reason."""
    wider = ("--restore-file", toy[1], "--encoder-ffn-embed-dim", "64")
    run = train(toy[0], "new", "transformer_shaw_tiny", *wider, user_dir=PACKAGE, check=False)
    (error,) = errors(run.stderr)
    assert f"{toy[1]} cannot be loaded (RuntimeError: " in error
    assert "size mismatch for encoder.layers.0.fc1.weight" in error
    shown = run_fairseq(
        *("generate", toy[0], "--path", toy[1], "--cpu", "--model-overrides", "{'clipping_distance': 5}"),
        user_dir=PACKAGE,
        check=False,
        environment={"FAIRSEQ_POSENC_TRACEBACK": "1"},
    )
    assert shown.returncode == 1
    assert "Traceback" in shown.stderr
    assert "was trained with other positions" in shown.stderr.splitlines()[-1]


def test_embedding_files_named_in_a_checkpoint_are_not_read() -> None:
    path = write(model_flag("encoder_embed_path", "/dev/zero"))
    assert checkpoint_utils.load_checkpoint_to_cpu(str(path))["cfg"].model.encoder_embed_path is None


@pytest.mark.parametrize("safe", [{}, {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}], ids=["unsafe", "both"])
def test_switches_of_torch(safe: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch alone would run code in a pickle with the unsafe switch, and load no file with both."""
    for name, value in {**UNSAFE, **safe}.items():
        monkeypatch.setenv(name, value)
    load_checkpoint(SHAW)
    checkpoint_utils.load_checkpoint_to_cpu(str(SHAW))
    assert os.environ.items() >= UNSAFE.items()  # the program's own
    torch.save({"extra_state": {"ema": Call()}}, "pickle.pt")
    with pytest.raises(Refusal):
        checkpoint_utils.load_ema_from_checkpoint("pickle.pt")
