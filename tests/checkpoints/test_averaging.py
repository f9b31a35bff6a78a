"""Averages are correct, load in fairseq, take little memory and are written atomically; other models are refused."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from fairseq_posenc.checkpoints import CheckpointError, average_checkpoints, load_checkpoint
from fairseq_posenc.signature import encode_signature, parse_signature
from tests.checkpoints.changes import model_flag
from tests.toy import PACKAGE, generate, hypotheses, train

LAYER = "encoder.layers.0.fc1.weight"
EMBEDDING = "encoder.embed_tokens.weight"
TIED = [EMBEDDING, "decoder.embed_tokens.weight", "decoder.output_projection.weight"]


def refusal(paths: list[Path], output: Path) -> str:
    """The message with which averaging is refused, in one sentence. Nothing may be written."""
    before = output.read_bytes() if output.is_file() else None
    with pytest.raises(CheckpointError) as caught:
        average_checkpoints(paths, output)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert (output.read_bytes() if output.is_file() else None) == before
    assert not list(output.parent.glob("*.tmp")) + list(output.parent.glob(".*.tmp"))
    return message


def storages(model: dict[str, Any]) -> dict[str, int]:
    return {name: tensor.untyped_storage().data_ptr() for name, tensor in model.items()}


@pytest.fixture(scope="module")
def averaged(trained: Path) -> Path:
    output = trained.parent / "averaged.pt"
    paths = [trained / f"checkpoint_{name}.pt" for name in ("1_1", "1_2", "2_4", "2_5")]
    assert average_checkpoints(paths, output) == output
    return output


def test_it_is_the_mean(trained: Path, averaged: Path) -> None:
    models = [load_checkpoint(trained / f"checkpoint_{name}.pt")["model"] for name in ("1_1", "1_2", "2_4", "2_5")]
    mean = load_checkpoint(averaged)["model"]
    assert list(mean) == list(models[0])
    moved = 0
    for name, tensor in mean.items():
        total = np.zeros(tuple(tensor.shape))
        for model in models:
            total += model[name].numpy().astype(np.float64)
        np.testing.assert_allclose(tensor.numpy(), total / 4, rtol=3e-7, atol=1e-9)
        moved += not torch.equal(tensor, models[0][name])
    assert moved > 30, "training should have changed the parameters"
    assert mean._metadata == models[0]._metadata


def test_only_parts_that_loading_needs_are_kept(trained: Path, averaged: Path) -> None:
    state = load_checkpoint(averaged)
    newest = load_checkpoint(trained / "checkpoint_2_5.pt")
    assert state["cfg"] == newest["cfg"]
    assert state["optimizer_history"] == newest["optimizer_history"][-1:]
    assert state["extra_state"]["train_iterator"] == newest["extra_state"]["train_iterator"]
    assert [Path(path).name for path in state["extra_state"]["averaged_from"]] == [
        *("checkpoint_1_1.pt", "checkpoint_1_2.pt", "checkpoint_2_4.pt", "checkpoint_2_5.pt"),
    ]
    assert state["extra_state"].keys() == {"train_iterator", "averaged_from"}
    assert "last_optimizer_state" not in state


def test_tied_tensors_stay_tied(averaged: Path) -> None:
    model = load_checkpoint(averaged)["model"]
    places = storages(model)
    assert len({places[name] for name in TIED}) == 1
    assert len(set(places.values())) == len(places) - 2
    sizes = {places[name]: tensor.nbytes for name, tensor in model.items()}
    # The rest of the file is torch's padding and the configuration.
    assert averaged.stat().st_size < sum(sizes.values()) + 256 * len(places) + 30_000


def test_a_file_with_untied_copies(trained: Path, altered: Callable[..., Path], tmp_path: Path) -> None:
    """fairseq unties tensors when it copies a model from the GPU. Equal copies are accepted, unequal ones are not."""

    def untie(state: dict[str, Any]) -> None:
        state["model"][TIED[1]] = state["model"][TIED[1]].clone()

    def differ(state: dict[str, Any]) -> None:
        state["model"][TIED[1]] = state["model"][TIED[1]] + 1

    first, output = trained / "checkpoint2.pt", tmp_path / "mean.pt"
    average_checkpoints([first, altered("untied.pt", untie)], output)
    assert len({storages(load_checkpoint(output)["model"])[name] for name in TIED}) == 1
    message = refusal([first, altered("different.pt", differ)], output)
    assert "different.pt" in message
    assert TIED[1] in message


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_precision_is_summed_in_float32_and_double_precision_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    weights = [(torch.rand(500, dtype=torch.float64) + i).to(dtype) for i in range(9)]
    paths = [tmp_path / f"{i}.pt" for i in range(9)]
    for path, weight in zip(paths, weights, strict=True):
        torch.save({"cfg": {"model": {"_name": "a"}}, "model": {"weight": weight}}, path)
    mean = load_checkpoint(average_checkpoints(paths, tmp_path / "mean.pt"))["model"]["weight"]
    exact = torch.from_numpy(np.mean([weight.double().numpy() for weight in weights], axis=0))
    assert mean.dtype == dtype
    if dtype == torch.float64:
        torch.testing.assert_close(mean, exact, rtol=0, atol=1e-14)
        return
    assert torch.equal(mean, exact.float().to(dtype))
    naive = sum(weights[1:], weights[0].clone())
    assert not torch.equal(naive / 9, mean), "the numbers should tell the two ways apart"


def signed(distance: int) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        record = {"encoding": "shaw", "clipping_distance": distance}
        state["model"]["position_version"] = encode_signature(record)
        state["model"]["flag"] = torch.tensor([True, False])

    return change


def test_integers_are_kept_and_must_be_equal(altered: Callable[..., Path], tmp_path: Path) -> None:
    first, second = altered("1.pt", signed(8)), altered("2.pt", signed(8))
    average_checkpoints([first, second], tmp_path / "mean.pt")
    model = load_checkpoint(tmp_path / "mean.pt")["model"]
    assert model["position_version"].dtype == torch.int64
    assert parse_signature(model["position_version"]) == {"encoding": "shaw", "clipping_distance": 8}
    assert model["flag"].tolist() == [True, False]
    message = refusal([first, second, altered("3.pt", signed(9))], tmp_path / "other.pt")
    assert "3.pt" in message
    assert "position_version" in message


# ---- other models are refused


def layer(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, Any]], None]:
    return lambda state: state["model"].update({LAYER: change(state["model"][LAYER].clone())})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (model_flag("arch", "transformer_tiny"), "arch is transformer_tiny and transformer"),
        (model_flag("clipping_distance", 4), "clipping_distance is 4 and"),
        (lambda state: state["cfg"]["task"].update(_name="language_modeling"), "task is language_modeling"),
        (
            lambda state: state["model"].update(other=torch.zeros(3)),
            r"differ in other \(.*missing",
        ),
        (lambda state: state["model"].pop(LAYER), rf"differ in {re.escape(LAYER)} \("),
        (layer(lambda tensor: tensor.T.contiguous()), rf"{re.escape(LAYER)} \(float32 \(16, 32\)"),
        (layer(torch.Tensor.half), rf"{re.escape(LAYER)} \(float16 \(32, 16\)"),
        (layer(lambda tensor: tensor.fill_(float("nan"))), f"NaN or infinite numbers in {re.escape(LAYER)}"),
        (lambda state: state.update(cfg=None), "neither 'cfg' nor 'args'"),
    ],
)
def test_another_model(
    trained: Path, altered: Callable[..., Path], tmp_path: Path, change: Callable[..., None], says: str
) -> None:
    """The message names the file and the difference in any order of the files."""
    other, output = altered("other.pt", change), tmp_path / "mean.pt"
    message = refusal([trained / "checkpoint1.pt", trained / "checkpoint2.pt", other], output)
    assert str(other) in message
    assert re.search(says, message), message
    assert str(other) in refusal([other, trained / "checkpoint2.pt"], output)


def setting(**values: object) -> Callable[[dict[str, Any]], None]:
    """Changes settings in all groups of a configuration that have them."""

    def change(state: dict[str, Any]) -> None:
        vars(state["cfg"]["model"]).update(values)
        for group in state["cfg"].values():
            if isinstance(group, dict):
                group.update({key: value for key, value in values.items() if key in group})

    return change


RESUMED = {
    **{"save_dir": "/elsewhere", "max_update": 9, "patience": 4, "save_interval": 5, "num_workers": 3, "fp16": True},
    **{"distributed_world_size": 4, "update_freq": [2], "max_tokens": 25},  # 1 x 1 x 200
    **{"checkpoint_activations": True, "attention_backend": "blocks", "restore_file": "checkpoint2.pt"},
    "some_flag_of_tomorrow": None,
}


def test_a_resumed_training_is_the_same(trained: Path, altered: Callable[..., Path], tmp_path: Path) -> None:
    """On other hardware, with differently split batches of the same total size, and another number of updates."""
    other = altered("other.pt", setting(**RESUMED))
    assert load_checkpoint(other)["cfg"]["checkpoint"]["save_dir"] == "/elsewhere"
    average_checkpoints([trained / "checkpoint2.pt", other], tmp_path / "mean.pt")


def test_a_schedule_as_long_as_the_training(altered: Callable[..., Path], tmp_path: Path) -> None:
    def schedule(updates: int, total: int) -> Callable[[dict[str, Any]], None]:
        def change(state: dict[str, Any]) -> None:
            state["cfg"]["lr_scheduler"] = {"_name": "polynomial_decay", "total_num_update": total}
            state["cfg"]["optimization"]["max_update"] = updates

        return change

    first, longer, other = (
        altered(f"{i}.pt", schedule(*numbers)) for i, numbers in enumerate([(6, 6), (9, 9), (9, 100)])
    )
    average_checkpoints([first, longer], tmp_path / "mean.pt")
    third = altered("3.pt", schedule(9, 200))
    message = refusal([other, third], tmp_path / "other.pt")
    assert "total_num_update is 200 and 100" in message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (setting(seed=7, lr=[0.5]), "lr is [0.5] and [0.01]; seed is 7 and 1"),
        (setting(distributed_world_size=2), "max_tokens x update_freq x processes is [400] and [200]"),
        (setting(adam_betas=[0.9, 0.98]), "adam_betas is [0.9, 0.98] and [0.9, 0.999]"),
        (setting(train_subset="train1"), "train_subset is train1 and train"),
        (lambda state: state["cfg"].update(optimizer={"_name": "sgd"}), "optimizer is sgd and adam"),
    ],
)
def test_another_training(
    trained: Path, altered: Callable[..., Path], tmp_path: Path, change: Callable[..., None], says: str
) -> None:
    first, other, output = trained / "checkpoint1.pt", altered("other.pt", change), tmp_path / "mean.pt"
    message = refusal([first, other], output)
    assert f"{other} and {first} are of different trainings (" in message
    assert says in message
    assert "--allow-different-runs" in message
    average_checkpoints([first, other], output, allow_different_runs=True)
    assert output.exists()


def test_another_start(altered: Callable[..., Path], tmp_path: Path) -> None:
    """A resumed training need not name the model that it began with."""
    a, b, resumed = (altered(f"{name}.pt", setting(finetune_from_model=name)) for name in ("a", "b", None))
    average_checkpoints([a, resumed], tmp_path / "mean.pt")
    assert "finetune_from_model is b and a" in refusal([a, b], tmp_path / "other.pt")


def test_other_data(
    trained: Path, data: Path, altered: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = trained / "checkpoint1.pt", altered("other.pt", setting(data="/elsewhere"))
    assert f"data is /elsewhere and {data}" in refusal([first, other], tmp_path / "mean.pt")
    monkeypatch.chdir(data.parent)
    average_checkpoints([first, altered("relative.pt", setting(data=data.name))], tmp_path / "mean.pt")


def test_files_of_old_versions(altered: Callable[..., Path], tmp_path: Path) -> None:
    """fairseq before 0.10 wrote all settings to one namespace, `args`."""

    def old(**settings: object) -> Callable[[dict[str, Any]], None]:
        def change(state: dict[str, Any]) -> None:
            state["args"] = Namespace(**{**vars(state["cfg"]["model"]), "task": "translation", **settings})
            del state["cfg"]

        return change

    first, second = altered("1.pt", old()), altered("2.pt", old(save_dir="/elsewhere", max_update=9))
    average_checkpoints([first, second], tmp_path / "mean.pt")
    assert load_checkpoint(tmp_path / "mean.pt")["args"].arch == "transformer"
    third = altered("3.pt", old(encoder_attention_heads=4))
    assert "encoder_attention_heads is 4 and" in refusal([first, third], tmp_path / "other.pt")
    fourth = altered("4.pt", old(seed=3, adam_eps=1e-6))
    assert "(adam_eps is 1e-06 and 1e-08; seed is 3 and 1)" in refusal([first, fourth], tmp_path / "other.pt")


# ---- damage


def test_files_that_cannot_be_averaged_or_written(trained: Path, tmp_path: Path) -> None:
    first, second, output = trained / "checkpoint1.pt", trained / "checkpoint2.pt", tmp_path / "mean.pt"
    link, cut, hole = (tmp_path / f"{name}.pt" for name in ("link", "cut", "hole"))
    link.symlink_to(first)
    whole = bytearray(second.read_bytes())
    cut.write_bytes(whole[:-100])
    start = bytes(whole).index(load_checkpoint(second)["model"][LAYER].numpy().tobytes())
    whole[start + 100 : start + 300] = bytes(200)  # torch itself would load these zeros
    hole.write_bytes(whole)
    for paths, to, says in (
        ([], output, "no checkpoints to average"),
        ([first, second, link], output, "twice"),
        ([first, second], link, "one of the checkpoints to average"),
        ([first, tmp_path / "none.pt"], output, "none.pt does not exist"),
        ([first, cut], output, "cut.pt is damaged"),
        ([first, hole], output, "hole.pt is damaged: "),
        ([first], tmp_path, f"{tmp_path} cannot be written (Is a directory)"),
        ([first], tmp_path / "none" / "mean.pt", "mean.pt cannot be written"),
    ):
        assert says in refusal(paths, to)
    with pytest.raises(CheckpointError, match=r"hole.pt is damaged: .* does not match"):
        load_model_ensemble([str(hole)])


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limits the size of files, to simulate a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_output(trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "mean.pt"
    output.write_bytes(b"the average of yesterday")
    with largest_file(30_000):
        message = refusal([trained / "checkpoint1.pt"], output)
    assert "mean.pt cannot be written" in message
    assert "free space" in message
    average_checkpoints([trained / "checkpoint1.pt"], output)
    assert load_checkpoint(output)["model"].keys() == load_checkpoint(trained / "checkpoint1.pt")["model"].keys()


# ---- memory and interruption

MEGABYTE = 1 << 20
MODEL, REST = 200, 150
"""Megabytes of parameters, and of optimizer state, in each file of `large`."""


@pytest.fixture
def large(tmp_path: Path) -> Iterator[list[Path]]:
    """Two checkpoints of a large model of twenty tensors."""
    paths = []
    for i in range(2):
        state = {
            "cfg": {"model": {"_name": "large"}},
            "model": {f"{j}": torch.full((MODEL // 20, MEGABYTE // 4), i + j / 8) for j in range(20)},
            "optimizer_history": [{"num_updates": i}],
            "last_optimizer_state": {"state": torch.zeros(REST, MEGABYTE // 4)},
        }
        paths.append(tmp_path / f"checkpoint{i + 1}.pt")
        torch.save(state, paths[-1])
    yield paths
    for path in tmp_path.iterdir():
        path.unlink()  # pytest keeps the folders of its last runs


AVERAGE = """
import os, signal, sys
from pathlib import Path
from fairseq_posenc.checkpoints import average_checkpoints

def peak():  # of this process; getrusage counts that of the process which started it, too
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024

small, first, second, *large = sys.argv[1:]
average_checkpoints([small], second)
before = peak()
average_checkpoints(large, first)
print(peak() - before, flush=True)
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
average_checkpoints(large, second)
"""


def test_memory_of_two_models_and_death_while_writing(trained: Path, large: list[Path], tmp_path: Path) -> None:
    small, complete, killed = trained / "checkpoint1.pt", tmp_path / "complete.pt", tmp_path / "killed.pt"
    run = subprocess.run(
        [sys.executable, "-c", AVERAGE, *map(str, [small, complete, killed, *large])],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE.parent)},
        check=False,
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    grown = int(run.stdout)

    model = load_checkpoint(complete)["model"]
    assert all(torch.equal(model[f"{j}"], torch.full_like(model[f"{j}"], 0.5 + j / 8)) for j in range(20))
    # The sums and the parameters of one file; less would mean that the measure is wrong.
    assert MODEL <= grown <= 2 * MODEL + 40, f"{grown} MB"
    # What had the output's name before is still there, whole.
    assert len(list(tmp_path.glob(".killed.pt.*.tmp"))) == 1
    assert load_checkpoint(killed)["model"].keys() == load_checkpoint(small)["model"].keys()


# ---- fairseq takes it


def test_fairseq_generates_with_the_average(averaged: Path, data: Path) -> None:
    (model,), _ = load_model_ensemble([str(averaged)], arg_overrides={"data": str(data)})
    expected = load_checkpoint(averaged)["model"]
    assert all(torch.equal(parameter, expected[name]) for name, parameter in model.named_parameters())
    assert model.encoder.embed_tokens.weight is model.decoder.output_projection.weight
    run = generate(data, averaged, user_dir=PACKAGE)
    assert sorted(hypotheses(run.stdout)) == list(range(20))


def test_fairseq_trains_from_the_average(averaged: Path, data: Path, tmp_path: Path) -> None:
    still = ["--share-all-embeddings", "--lr", "1e-12", "--max-update", "1"]
    run = train(data, tmp_path, "transformer", *still, "--finetune-from-model", averaged, user_dir=PACKAGE)
    assert f"Loaded checkpoint {averaged}" in run.stderr + run.stdout
    after = load_checkpoint(tmp_path / "checkpoint_last.pt")["model"]
    before = load_checkpoint(averaged)["model"]
    assert all(torch.allclose(after[name], tensor, atol=1e-6) for name, tensor in before.items())
