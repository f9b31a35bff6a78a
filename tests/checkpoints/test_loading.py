"""Files that cannot be loaded are refused in one sentence, and all others are loaded."""

import builtins
import os
import pickle
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_posenc.checkpoints import CheckpointError, load_checkpoint


def refusal(path: Path) -> str:
    """The message with which `path` is refused, after checks that hold for every such message."""
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert message.endswith(".")
    assert not re.search(r"[.!?] [A-Z]", message.replace(str(path), "")), "more than one sentence"
    assert "weights_only" not in message
    error = caught.value
    # Otherwise Python would also print torch's message, which advises weights_only=False.
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    return message


def test_a_real_checkpoint(trained: Path) -> None:
    state = load_checkpoint(str(trained / "checkpoint1.pt"))
    expected = torch.load(trained / "checkpoint1.pt", weights_only=False)
    assert state.keys() == expected.keys()
    assert list(state["model"]) == list(expected["model"])
    assert all(torch.equal(tensor, expected["model"][name]) for name, tensor in state["model"].items())


def test_the_file_of_an_old_torch(altered: Callable[..., Path], trained: Path) -> None:
    path = altered("old.pt", lambda state: None, _use_new_zipfile_serialization=False)
    expected = load_checkpoint(trained / "checkpoint1.pt")["model"]
    assert all(torch.equal(tensor, expected[name]) for name, tensor in load_checkpoint(path)["model"].items())
    whole = path.read_bytes()
    for share in (0.02, 0.5, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        assert "truncated" in refusal(path)


def test_truncated_anywhere(trained: Path, tmp_path: Path) -> None:
    whole = (trained / "checkpoint1.pt").read_bytes()
    for size in [*range(32, len(whole), len(whole) // 20), len(whole) - 1]:
        (tmp_path / "cut.pt").write_bytes(whole[:size])
        assert f"truncated (it has {size:,} bytes" in refusal(tmp_path / "cut.pt")


def test_a_pickle_damaged_anywhere(trained: Path, tmp_path: Path) -> None:
    """With any damaged byte the file loads (a digit may be wrong) or is refused."""
    source = trained / "checkpoint1.pt"
    whole = bytearray(source.read_bytes())
    with zipfile.ZipFile(source) as archive:
        pickled = next(archive.read(name) for name in archive.namelist() if name.endswith("data.pkl"))
    start = bytes(whole).index(pickled)
    rng = random.Random(1)
    refused = 0
    for _ in range(100):
        damaged = whole.copy()
        damaged[start + rng.randrange(len(pickled))] = rng.randrange(256)
        (tmp_path / "damaged.pt").write_bytes(damaged)
        try:
            load_checkpoint(tmp_path / "damaged.pt")
        except CheckpointError:
            refused += 1
    assert refused > 10


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    assert "does not exist" in refusal(path)
    assert "Is a directory" in refusal(tmp_path)
    for content, says in (
        (b"", "is empty"),
        (b"This is a text.\n", "no checkpoint"),
        (bytes(random.Random(1).randbytes(5000)), "no checkpoint"),
        (pickle.dumps({"model": {}}, protocol=2), "no checkpoint"),
    ):
        path.write_bytes(content)
        assert says in refusal(path)
    for state, says in (({"weight": torch.ones(2)}, "keys weight"), (torch.ones(2), "a Tensor")):
        torch.save(state, path)
        assert says in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("text.txt", "text")
    assert "zip file but not a checkpoint" in refusal(path)


class Call:
    """An object whose pickle calls a function, as an attacker would put it into a file."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


ATTACKS: dict[str, Callable[[str], Call]] = {
    "posix.system": lambda mark: Call(os.system, f"touch {mark}"),
    "shutil.copyfile": lambda mark: Call(shutil.copyfile, __file__, mark),
    "eval": lambda mark: Call(builtins.eval, f"open({mark!r}, 'w')"),
    "getattr": lambda mark: Call(getattr, [], "append"),
}


@pytest.mark.parametrize("kind", ["torch", "old torch", "torch with protocol 4", 2, 4])
@pytest.mark.parametrize("attack", ATTACKS)
def test_code_is_refused_and_does_not_run(tmp_path: Path, attack: str, kind: str | int) -> None:
    mark, path = tmp_path / "ran", tmp_path / "attack.pt"
    state = {"model": {"weight": torch.ones(3)}, "extra_state": ATTACKS[attack](str(mark))}
    if isinstance(kind, int):
        path.write_bytes(pickle.dumps(ATTACKS[attack](str(mark)), protocol=kind))
    else:
        torch.save(
            *(state, path),
            pickle_protocol=4 if kind.endswith("4") else 2,
            _use_new_zipfile_serialization=kind != "old torch",
        )
    message = refusal(path)
    # torch's unpickler does not read as far as the name in newer protocols.
    assert attack in message or kind in ("torch with protocol 4", 4)
    assert not mark.exists()


def test_the_attacks_would_work(tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing."""
    for attack in list(ATTACKS)[:3]:
        pickle.loads(pickle.dumps(ATTACKS[attack](str(tmp_path / attack))))
        assert (tmp_path / attack).exists()
