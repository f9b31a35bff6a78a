"""Damaged and malicious settings of a checkpoint: no code in them runs, and each reader refuses in one sentence."""

import io
import os
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, utils

from fairseq_posenc.checkpoints import load_checkpoint
from fairseq_posenc.errors import Refusal
from fairseq_posenc.export import export
from fairseq_posenc.model import PositionTransformer
from fairseq_posenc.position_record import POSITION_RECORD
from tests.checkpoints.changes import Change, model_flag, model_tensor
from tests.checkpoints.kept import FOLDER
from tests.toy import PACKAGE, run_fairseq, train

FAIRSEQ = Path(utils.__file__).parent
SHAW = FOLDER / "shaw.pt"
WEIGHT = "encoder.layers.0.fc1.weight"
CODE = "__import__('os').mkdir('ran') or [10]"


@pytest.fixture(autouse=True)
def nothing_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "ran").exists()


# ---- settings that fairseq evaluates


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[(8, 10, 5)] + [(8, 3, 2)] * 2", [(8, 10, 5), (8, 3, 2), (8, 3, 2)]),  # as in checkpoints of wav2vec 2.0
        ("('a.bin', 2, -1)", ["a.bin", 2, -1]),
        (" [10000,20000]", [10000, 20000]),
        ("1e-3", [0.001]),
    ],
)
def test_literals_are_evaluated(text: str, value: object) -> None:
    assert utils.eval_str_list(text, type=lambda x: x) == value


def test_what_is_no_text_is_taken_as_it_is() -> None:
    assert utils.eval_bool(True, default=True) is True


@pytest.mark.parametrize(
    "text",
    [
        *(CODE, "[mkdir]", "(lambda: 1)()", "[x for x in (1,)]", "[1][0]", "f'{1}'", "[*range(9)]", "9**9**9"),
        *("''.join", "[" * 10000, "-" * 50000 + "1", "", "a b", "\0"),
    ],
    ids=lambda text: text[:20],
)
def test_what_names_or_calls_anything_is_not(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError, MemoryError, RecursionError)):
        utils.eval_str_list(text)


def test_no_module_of_fairseq_evaluates_code() -> None:
    for path in FAIRSEQ.rglob("*.py"):
        if "examples" not in path.parts and re.search(r"(?<![\w.])eval\(", path.read_text()):
            name = ".".join(path.relative_to(FAIRSEQ.parent).with_suffix("").parts)
            assert vars(sys.modules[name])["eval"] is not eval, name


# ---- every reader refuses


def write(change: Change) -> Path:
    state = load_checkpoint(SHAW)
    change(state)
    torch.save(state, "checkpoint.pt")
    return Path("checkpoint.pt")


DAMAGED: dict[str, tuple[Change, str]] = {
    "code": (model_flag("adaptive_softmax_cutoff", CODE), "cannot be loaded .*would run the setting .* as code"),
    "record": (
        model_tensor(POSITION_RECORD, lambda _: torch.tensor([300, -1])),
        "its position_version is not a record of positions",
    ),
    "no extra_state": (lambda state: state.pop("extra_state"), "cannot be loaded .*extra_state"),
    "unknown task": (lambda state: state["cfg"]["task"].update(_name="no\x1b[31mne"), "cannot be loaded"),
    "an option that is a text": (model_flag("clipping_distance", "six"), "--clipping-distance 'six': must be a whole"),
    "another shape": (model_tensor(WEIGHT, lambda x: x[:3].clone()), rf"cannot be .*size mismatch for {WEIGHT}"),
    "no parameter": (lambda state: state["model"].pop(WEIGHT), rf"cannot be loaded .*Missing key.*{WEIGHT}"),
}


READERS: dict[str, Callable[[Path], object]] = {
    "generate": lambda path: checkpoint_utils.load_model_ensemble([str(path)], arg_overrides={"data": str(FOLDER)}),
    "from_pretrained": lambda path: PositionTransformer.from_pretrained(".", path.name, str(FOLDER)),
    "export": lambda path: export(path, Path("served"), data=FOLDER),
}


@pytest.mark.parametrize(("change", "says"), DAMAGED.values(), ids=DAMAGED)
def test_every_reader_refuses(change: Change, says: str) -> None:
    path = write(change)
    for name, read in READERS.items():
        with pytest.raises(Refusal, match=says if name != "export" else path.name) as caught:
            read(path)
        assert str(caught.value).isprintable()
        assert path.name in str(caught.value)
    assert not Path("served").exists()


def test_an_export_of_nan_is_refused() -> None:
    with pytest.raises(Refusal, match=f"NaN or infinite numbers in {WEIGHT}"):
        READERS["export"](write(model_tensor(WEIGHT, lambda x: x * torch.nan)))


def test_an_archive_is_extracted_only_to_its_directory(tmp_path: Path) -> None:
    with tarfile.open("model.tar.gz", "w:gz") as archive:
        for name in ("model/checkpoint.pt", f"../{'../' * 20}{tmp_path}/ran"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            archive.addfile(entry, io.BytesIO(b"a"))
    with pytest.raises(tarfile.OutsideDestinationError):
        PositionTransformer.from_pretrained("model.tar.gz", "checkpoint.pt", str(FOLDER))


@pytest.mark.parametrize("flag", ["encoder_embed_path", "decoder_embed_path", "input_positions_from"])
def test_files_with_vectors_named_in_a_checkpoint_are_not_read(flag: str) -> None:
    path = write(model_flag(flag, "/dev/zero"))
    assert getattr(checkpoint_utils.load_checkpoint_to_cpu(str(path))["cfg"].model, flag) is None


# ---- fairseq's commands, as a user sees them


class Call:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, ("ran",)


def error(stderr: str) -> str:
    """The one line with which a command fails."""
    assert "Traceback" not in stderr
    (line,) = (line for line in stderr.splitlines() if line.startswith("Error: "))
    return line


def test_commands_of_fairseq_refuse_in_one_line(data: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code in the pickle, code in a setting, and a model of another size, which fairseq's trainer alone would hide."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    state = load_checkpoint(trained / "checkpoint1.pt")
    state["extra_state"]["call"] = Call()
    torch.save(state, "pickle.pt")
    del state["extra_state"]["call"]
    state["cfg"]["model"].adaptive_softmax_cutoff = CODE
    torch.save(state, "setting.pt")
    command = ("generate", data, "--path", "setting.pt", "--cpu", "--max-tokens", "200")
    run = run_fairseq(*command, user_dir=PACKAGE, check=False)
    shown = run_fairseq(*command, user_dir=PACKAGE, check=False, environment={"FAIRSEQ_POSENC_TRACEBACK": "1"})
    assert "Traceback" in shown.stderr
    assert re.search("setting.pt cannot be loaded.* as code", error(run.stderr))
    for path, says in (
        ("pickle.pt", "pickle.pt is refused: loading it would call posix.mkdir"),
        (trained / "checkpoint1.pt", "checkpoint1.pt cannot be loaded (RuntimeError: "),
    ):
        flags = ("--restore-file", path, "--encoder-ffn-embed-dim", "64")
        run = train(data, "new", "transformer_sinusoidal_tiny", *flags, user_dir=PACKAGE, check=False)
        assert run.returncode == 1
        assert says in error(run.stderr)
    assert not list(Path("new").glob("*.pt"))
