"""The allow-list: it has all types that fairseq's checkpoints need, no others, and none that is harmful."""

import io
import os
import pickle
import zipfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble
from fairseq.distributed.utils import _put_tensors_in_obj, _split_tensors_from_obj

from fairseq_posenc.checkpoints import load_checkpoint, message_types, safe_loading


def load(source: Any) -> Any:
    """Reads a file, or what a process sent, with the types that the package allows."""
    with safe_loading(message_types()):
        return torch.load(source, weights_only=True)


def sent_between_processes(path: Path) -> bytes:
    """What the first of several processes sends when they resume from `path`, made by fairseq's own functions."""
    buffer = io.BytesIO()
    torch.save(_split_tensors_from_obj(load_checkpoint_to_cpu(str(path)), []), buffer)
    return buffer.getvalue()


def arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from arrays(inner)


FOLDER = Path(__file__).parent
OLD_FAIRSEQ = FOLDER / "fairseq_0_9" / "checkpoint.pt"


def test_fairseq_loads_its_own_checkpoint(trained: Path) -> None:
    state = load_checkpoint_to_cpu(str(trained / "checkpoint2.pt"))
    assert state["cfg"].model.arch == "transformer"
    assert {"ema", "ema_fp32_params"} <= state["extra_state"].keys()
    meters = {key: meter["sum"] for _, key, _, meter in state["extra_state"]["metrics"]["valid"] if "sum" in meter}
    counts, totals = meters["_bleu_counts"], meters["_bleu_totals"]
    assert counts.dtype == totals.dtype == np.int64
    assert counts.shape == totals.shape == (4,)
    assert totals[0] == meters["_bleu_sys_len"] > 0
    assert all(counts <= totals)


def test_several_processes_resume(trained: Path) -> None:
    path = trained / "checkpoint2.pt"
    received = load(io.BytesIO(sent_between_processes(path)))
    tensors: list[torch.Tensor] = []
    expected = load_checkpoint_to_cpu(str(path))
    _split_tensors_from_obj(expected, tensors)
    received = _put_tensors_in_obj(received, tensors)
    assert received["cfg"] == expected["cfg"]
    assert received["model"].keys() == expected["model"].keys()
    assert [a.tolist() for a in arrays(received["extra_state"])] == [
        a.tolist() for a in arrays(expected["extra_state"])
    ]


def test_a_file_written_with_numpy_1(trained: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(trained / "checkpoint2.pt") as archive, zipfile.ZipFile(tmp_path / "old.pt", "w") as copy:
        for record in archive.infolist():
            content = archive.read(record).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
            copy.writestr(record.filename, content)
    state = load(tmp_path / "old.pt")
    assert [a.tolist() for a in arrays(state)] == [a.tolist() for a in arrays(load(trained / "checkpoint2.pt"))]


def test_a_checkpoint_of_fairseq_0_9_has_the_logits_of_that_version() -> None:
    [model], _ = load_model_ensemble([str(OLD_FAIRSEQ)], arg_overrides={"data": str(FOLDER / "at_2a633bd")})
    extra = load_checkpoint(OLD_FAIRSEQ)["extra_state"]
    with torch.no_grad():
        logits = model.eval()(extra["source"], extra["source"].ne(1).sum(1), extra["target"])[0]
    torch.testing.assert_close(logits, extra["logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", ">f8", ">i4"])
def test_arrays_of_numbers_are_loaded_and_saved_unchanged(tmp_path: Path, dtype: str) -> None:
    orders: tuple[Any, ...] = ("C", "F")
    for order in orders:
        for shape in ((), (4,), (2, 3)):
            array = np.asarray(np.arange(np.prod(shape)).reshape(shape), dtype=dtype, order=order)
            torch.save({"sum": array}, tmp_path / "array.pt")
            loaded = load(tmp_path / "array.pt")
            assert loaded["sum"].dtype == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(loaded["sum"], array)
            torch.save(loaded, tmp_path / "again.pt")
            np.testing.assert_array_equal(load(tmp_path / "again.pt")["sum"], array)
    with zipfile.ZipFile(tmp_path / "again.pt") as archive:
        assert b"fairseq_posenc" not in archive.read("again/data.pkl")


RECONSTRUCT = np.arange(1).__reduce__()[0]


class Forged:
    """An object whose pickle calls a function with arguments, and sets a state."""

    def __init__(self, function: Any, arguments: tuple[Any, ...], state: Any) -> None:
        self.reduced = (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.reduced


def forged_array(state: Any) -> Forged:
    return Forged(RECONSTRUCT, (np.ndarray, (0,), b"b"), state)


def forged_dtype(name: str, state: Any) -> Forged:
    return Forged(np.dtype, (name, False, True), state)


NUMBER_STATE = (3, "<", None, None, None, -1, -1, 0)
NUMBER = forged_dtype("i8", NUMBER_STATE)
BYTES = b"A" * 16
HARMFUL = {
    # NumPy's own dtype would accept all of these, and interpret the bytes as addresses of objects.
    "int64 with a subtype of objects": forged_array(
        (
            *(1, (2,)),
            *(forged_dtype("i8", (3, "<", (np.dtype("O"), (5,)), None, None, -1, -1, 0)), False, BYTES),
        )
    ),
    "objects without flags": forged_array(
        (1, (2,), forged_dtype("O", (3, "|", None, None, None, -1, -1, 0)), False, BYTES)
    ),
    "a number's state for objects": forged_array((1, (2,), forged_dtype("O", NUMBER_STATE), False, BYTES)),
    "objects": np.array([1, "a", None], dtype=object),
    "fields": np.zeros(2, dtype=[("a", "i8")]),
    "a dtype that is no dtype": forged_array((1, (2,), "i8", False, BYTES)),
    "a list for bytes": forged_array((1, (2,), NUMBER, False, [1, 2])),
    "more numbers than bytes": forged_array((1, (1000,), NUMBER, False, BYTES)),
    "another class": Forged(RECONSTRUCT, (dict, (0,), b"b"), None),
}


@pytest.mark.parametrize("case", HARMFUL)
def test_harmful_arrays_are_refused(tmp_path: Path, case: str) -> None:
    torch.save({"model": {}, "array": HARMFUL[case]}, tmp_path / "forged.pt")
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        load(tmp_path / "forged.pt")


def test_the_programs_own_types_and_environment_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the program allows a type that checkpoints contain, and if loads are nested."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with torch.serialization.safe_globals([Namespace]):
        before = set(torch.serialization.get_safe_globals())
        with safe_loading():
            load_checkpoint(OLD_FAIRSEQ)
            assert before < set(torch.serialization.get_safe_globals())
        assert set(torch.serialization.get_safe_globals()) == before
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"
