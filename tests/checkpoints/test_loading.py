"""Checkpoints are loaded without running code; files that cannot be loaded are refused in one sentence."""

import builtins
import io
import os
import pickle
import random
import re
import shutil
import zipfile
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_ema_from_checkpoint, load_model_ensemble

from fairseq_posenc.checkpoints import CheckpointError, load_checkpoint, loading
from tests.checkpoints.kept import logits

FOLDER = Path(__file__).parent
OLD_FAIRSEQ = FOLDER / "fairseq_0_9" / "checkpoint.pt"


def refusal(path: Path) -> str:
    """The message with which `path` is refused, in one sentence, without torch's advice to set weights_only=False."""
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert message.endswith(".")
    assert "weights_only" not in message
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message


# ---- what fairseq writes is loaded


def arrays(state: dict[str, Any]) -> list[Any]:
    """The numbers of each array in a checkpoint's extra state."""
    leaves = torch.utils._pytree.tree_leaves(state["extra_state"])
    return [leaf.tolist() for leaf in leaves if isinstance(leaf, np.ndarray)]


def test_a_checkpoint_is_loaded_as_torch_loads_it_and_saved_again(trained: Path, tmp_path: Path) -> None:
    """With BLEU counts, which stay arrays when it is saved again, and with the names of NumPy 1."""
    path = trained / "checkpoint2.pt"
    state, expected = load_checkpoint(path), torch.load(path, weights_only=False)
    assert state.keys() == expected.keys()
    assert list(state["model"]) == list(expected["model"])
    torch.testing.assert_close(state["model"], expected["model"], rtol=0, atol=0)
    torch.save(state, tmp_path / "again.pt")
    with zipfile.ZipFile(tmp_path / "again.pt") as archive, zipfile.ZipFile(tmp_path / "old.pt", "w") as copy:
        assert b"fairseq_posenc" not in archive.read("again/data.pkl")
        for record in archive.infolist():
            content = archive.read(record).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
            copy.writestr(record.filename, content)
    assert len(arrays(expected)) >= 2
    for again in (state, load_checkpoint(tmp_path / "again.pt"), load_checkpoint(tmp_path / "old.pt")):
        assert arrays(again) == arrays(expected)


def test_a_file_of_an_old_torch_is_loaded_and_refused_if_cut(altered: Callable[..., Path], trained: Path) -> None:
    path = altered("old.pt", lambda state: None, _use_new_zipfile_serialization=False)
    expected = load_checkpoint(trained / "checkpoint1.pt")["model"]
    torch.testing.assert_close(load_checkpoint(path)["model"], expected, rtol=0, atol=0)
    path.write_bytes(path.read_bytes()[:-100])
    assert "damaged" in refusal(path)


def test_a_checkpoint_of_fairseq_0_9_has_the_logits_of_that_version() -> None:
    [model], _ = load_model_ensemble([str(OLD_FAIRSEQ)], arg_overrides={"data": str(FOLDER / "at_2a633bd")})
    torch.testing.assert_close(*logits(model.eval(), OLD_FAIRSEQ), rtol=0, atol=1e-5)


def test_the_moving_average_is_loaded(trained: Path) -> None:
    state = load_ema_from_checkpoint(str(trained / "checkpoint2.pt"))
    expected = load_checkpoint(trained / "checkpoint2.pt")
    assert state["model"].keys() == expected["extra_state"]["ema"].keys()
    assert any(not torch.equal(value, expected["model"][name]) for name, value in state["model"].items())
    with pytest.raises(CheckpointError, match=r"checkpoint.pt cannot be loaded \(KeyError: 'ema'\)"):
        load_ema_from_checkpoint(str(OLD_FAIRSEQ))


def test_a_training_keeps_the_checkpoint_that_it_reads(trained: Path, tmp_path: Path) -> None:
    """fairseq overwrites checkpoint_last.pt in place, which must not change the parameters that it has loaded."""
    path = Path(shutil.copy(trained / "checkpoint1.pt", tmp_path))
    parameter = next(iter(load_checkpoint_to_cpu(str(path))["model"].values()))
    before = parameter.clone()
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(parameter, before)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", ">f8", ">i4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numbers_are_loaded(tmp_path: Path, dtype: str, order: Any) -> None:
    for shape in ((), (4,), (2, 3)):
        array = np.asarray(np.arange(np.prod(shape)).reshape(shape), dtype=dtype, order=order)
        torch.save({"model": {}, "sum": array}, tmp_path / "array.pt")
        loaded = load_checkpoint(tmp_path / "array.pt")["sum"]
        assert loaded.dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(loaded, array)


def test_the_programs_own_types_are_kept() -> None:
    with torch.serialization.safe_globals([Namespace]):
        before = set(torch.serialization.get_safe_globals())
        load_checkpoint(OLD_FAIRSEQ)
        assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize(("version", "warned"), [("2.9.1+cu124", True), ("2.10.0+cpu", False)])
def test_a_torch_whose_unpickler_is_unsafe_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, warned: bool
) -> None:
    """CVE-2026-24747. The warning comes once in a process, from whatever loads a checkpoint."""
    monkeypatch.setattr(torch, "__version__", version)
    loading._warn_of_old_torch.cache_clear()
    for read in (load_checkpoint, load_checkpoint_to_cpu, load_checkpoint):
        read(str(OLD_FAIRSEQ))
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("fairseq_posenc")]
    assert [f"torch {version}," in message and "torch 2.10" in message for message in messages] == [True] * warned


# ---- all else is refused


def test_damaged_and_other_files_are_refused(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    assert "No such file" in refusal(path)
    assert "Is a directory" in refusal(tmp_path)
    whole = (trained / "checkpoint1.pt").read_bytes()
    for content in (
        *(b"", b"This is a text.\n", random.Random(1).randbytes(5000), pickle.dumps({"model": {}}, protocol=2)),
        *(whole[:size] for size in (32, len(whole) // 2, len(whole) - 1)),
    ):
        path.write_bytes(content)
        assert f"damaged or no checkpoint (it has {len(content):,} bytes)" in refusal(path)
    for state in ({"weight": torch.ones(2)}, torch.ones(2)):
        torch.save(state, path)
        assert "no dict 'model'" in refusal(path)


def test_damaged_bytes_are_refused(trained: Path, tmp_path: Path) -> None:
    """torch itself would load zeros in place of parameters. A damaged pickle raises no other error."""
    path, source = tmp_path / "damaged.pt", trained / "checkpoint1.pt"
    whole = bytearray(source.read_bytes())
    start = bytes(whole).index(load_checkpoint(source)["model"]["encoder.layers.0.fc1.weight"].numpy().tobytes())
    path.write_bytes(whole[: start + 100] + bytes(200) + whole[start + 300 :])
    assert "is damaged or no checkpoint" in refusal(path)
    with pytest.raises(CheckpointError, match=r"damaged.pt is damaged or no checkpoint"):
        load_model_ensemble([str(path)])
    old = io.BytesIO()  # without checksums
    torch.save(torch.load(source, weights_only=False), old, _use_new_zipfile_serialization=False)
    rng = random.Random(1)
    for _ in range(30):
        damaged = bytearray(old.getvalue())
        damaged[rng.randrange(3000)] = rng.randrange(256)
        path.write_bytes(damaged)
        with suppress(CheckpointError):
            load_checkpoint(path)


class Forged:
    """An object whose pickle calls a function, as an attacker would put it into a file, and sets a state."""

    def __init__(self, function: Any, arguments: tuple[Any, ...], state: Any = None) -> None:
        self.reduced = (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.reduced


ATTACKS: dict[str, Callable[[str], Forged]] = {
    "posix.system": lambda mark: Forged(os.system, (f"touch {mark}",)),
    "shutil.copyfile": lambda mark: Forged(shutil.copyfile, (__file__, mark)),
    "eval": lambda mark: Forged(builtins.eval, (f"open({mark!r}, 'w')",)),
    "getattr": lambda mark: Forged(getattr, ([], "append")),
}


@pytest.mark.parametrize("kind", ["torch", "old torch", "torch with protocol 4", 2, 4])
@pytest.mark.parametrize("attack", ATTACKS)
def test_code_is_refused_and_does_not_run(tmp_path: Path, attack: str, kind: str | int) -> None:
    mark, path = tmp_path / "ran", tmp_path / "attack.pt"
    forged = ATTACKS[attack](str(mark))
    if isinstance(kind, int):
        path.write_bytes(pickle.dumps(forged, protocol=kind))
    else:
        torch.save(
            *({"model": {"weight": torch.ones(3)}, "extra_state": forged}, path),
            pickle_protocol=4 if kind.endswith("4") else 2,
            _use_new_zipfile_serialization=kind != "old torch",
        )
    # torch's unpickler does not read as far as the name in newer protocols.
    assert re.search(attack, refusal(path)) or kind in ("torch with protocol 4", 4)
    assert not mark.exists()
    if attack != "getattr":
        pickle.loads(pickle.dumps(forged))
        assert mark.exists(), "an attack that does not work proves nothing"


def test_no_switch_of_torch_lets_code_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With this one, torch alone would run code in a pickle."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save({"model": {}, "extra_state": {"ema": Forged(os.mkdir, (str(tmp_path / "ran"),))}}, tmp_path / "c.pt")
    for read in (load_checkpoint, load_checkpoint_to_cpu, load_ema_from_checkpoint):
        with pytest.raises(CheckpointError, match=r"loading it would call posix.mkdir"):
            read(str(tmp_path / "c.pt"))
    assert not (tmp_path / "ran").exists()


RECONSTRUCT = np.arange(1).__reduce__()[0]
NUMBER_STATE = (3, "<", None, None, None, -1, -1, 0)
NUMBER = Forged(np.dtype, ("i8", False, True), NUMBER_STATE)
OBJECTS = (3, "<", (np.dtype("O"), (5,)), None, None, -1, -1, 0)
BYTES = b"A" * 16


def forged_array(dtype: Any, content: Any = BYTES, size: int = 2) -> Forged:
    return Forged(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (size,), dtype, False, content))


HARMFUL = {
    # NumPy's own dtype would accept these, and interpret the bytes as addresses of objects.
    "objects without flags": forged_array(Forged(np.dtype, ("O", False, True), (3, "|", None, None, None, -1, -1, 0))),
    "a number's state for objects": forged_array(Forged(np.dtype, ("O", False, True), NUMBER_STATE)),
    "objects": np.array([1, "a", None], dtype=object),
    "fields": np.zeros(2, dtype=[("a", "i8")]),
    "a dtype that is no dtype": forged_array("i8"),
    "a list for bytes": forged_array(NUMBER, [1, 2]),
    "more numbers than bytes": forged_array(NUMBER, size=1000),
}


@pytest.mark.parametrize("array", HARMFUL.values(), ids=HARMFUL)
def test_harmful_arrays_are_refused(tmp_path: Path, array: object) -> None:
    torch.save({"model": {}, "array": array}, tmp_path / "forged.pt")
    refusal(tmp_path / "forged.pt")


def test_a_sub_type_of_objects_is_ignored(tmp_path: Path) -> None:
    forged = forged_array(Forged(np.dtype, ("i8", False, True), OBJECTS))
    torch.save({"model": {}, "array": forged}, tmp_path / "forged.pt")
    assert load_checkpoint(tmp_path / "forged.pt")["array"].tolist() == [0x4141414141414141] * 2
