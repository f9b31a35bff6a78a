"""Averages are correct, load in fairseq, take little memory and are written atomically; other models are refused."""

import contextlib
import os
import re
import resource
import shutil
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


def test_one_checkpoint_is_its_own_mean(trained: Path, tmp_path: Path) -> None:
    average_checkpoints([trained / "checkpoint2.pt"], tmp_path / "one.pt")
    expected = load_checkpoint(trained / "checkpoint2.pt")["model"]
    actual = load_checkpoint(tmp_path / "one.pt")["model"]
    assert all(torch.equal(tensor, expected[name]) for name, tensor in actual.items())


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


def test_the_newest_does_not_depend_on_the_order(trained: Path, tmp_path: Path) -> None:
    average_checkpoints([trained / "checkpoint2.pt", trained / "checkpoint1.pt"], tmp_path / "mean.pt")
    assert load_checkpoint(tmp_path / "mean.pt")["optimizer_history"][-1]["num_updates"] == 6


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    weights = [(torch.rand(500) + i).to(dtype) for i in range(9)]
    for i, weight in enumerate(weights):
        torch.save({"cfg": {"model": {"_name": "a"}}, "model": {"weight": weight}}, tmp_path / f"{i}.pt")
    average_checkpoints([tmp_path / f"{i}.pt" for i in range(9)], tmp_path / "mean.pt")
    mean = load_checkpoint(tmp_path / "mean.pt")["model"]["weight"]
    exact = torch.from_numpy(np.mean([weight.double().numpy() for weight in weights], axis=0))
    assert mean.dtype == dtype
    assert torch.equal(mean, exact.float().to(dtype))
    naive = weights[0].clone()
    for weight in weights[1:]:
        naive += weight
    assert not torch.equal(naive / 9, mean), "the numbers should tell the two ways apart"


def test_doubles_stay_doubles(tmp_path: Path) -> None:
    for i in range(2):
        model = {"weight": torch.tensor([1 + i * 1e-12], dtype=torch.float64)}
        torch.save({"cfg": {"model": {"_name": "a"}}, "model": model}, tmp_path / f"{i}.pt")
    average_checkpoints([tmp_path / "0.pt", tmp_path / "1.pt"], tmp_path / "mean.pt")
    mean = load_checkpoint(tmp_path / "mean.pt")["model"]["weight"]
    assert mean.dtype == torch.float64
    assert abs(mean.item() - (1 + 5e-13)) < 1e-15


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


def rename(state: dict[str, Any]) -> None:
    state["model"]["encoder.other"] = state["model"].pop(LAYER)


def reshape(state: dict[str, Any]) -> None:
    state["model"][LAYER] = state["model"][LAYER].T.contiguous()


def halve(state: dict[str, Any]) -> None:
    state["model"][LAYER] = state["model"][LAYER].half()


def extend(state: dict[str, Any]) -> None:
    state["model"]["encoder.relative_keys"] = torch.zeros(3)


def spoil(value: float) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        state["model"][LAYER].view(-1)[7] = value

    return change


def task(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda state: state["cfg"]["task"].update({name: value})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (model_flag("arch", "transformer_tiny"), "arch is transformer_tiny and transformer"),
        (model_flag("encoder_layers", 3), "encoder_layers is 3 and"),
        (model_flag("dropout", 0.3), "dropout is 0.3 and"),
        (model_flag("clipping_distance", 4), "clipping_distance is 4 and"),
        (task("_name", "language_modeling"), "task is language_modeling and translation"),
        (rename, "encoder.other"),
        (reshape, rf"{re.escape(LAYER)} as float32 \(16, 32\)"),
        (halve, rf"{re.escape(LAYER)} as float16 \(32, 16\)"),
        (extend, r"has parameters that .* does not have \(encoder.relative_keys\)"),
        (spoil(float("nan")), f"NaN or infinite numbers in {re.escape(LAYER)}"),
        (spoil(float("-inf")), f"NaN or infinite numbers in {re.escape(LAYER)}"),
        (lambda state: state.update(cfg=None), "neither 'cfg' nor 'args'"),
    ],
)
def test_another_model(
    trained: Path, altered: Callable[..., Path], tmp_path: Path, change: Callable[..., None], says: str
) -> None:
    other, output = altered("other.pt", change), tmp_path / "mean.pt"
    message = refusal([trained / "checkpoint1.pt", trained / "checkpoint2.pt", other], output)
    assert str(other) in message
    assert re.search(says, message), message
    # The message names the file and the difference in any order of the files.
    message = refusal([other, trained / "checkpoint2.pt"], output)
    assert str(other) in message


def test_a_missing_parameter(trained: Path, altered: Callable[..., Path], tmp_path: Path) -> None:
    other = altered("other.pt", lambda state: state["model"].pop(LAYER))
    message = refusal([trained / "checkpoint1.pt", other], tmp_path / "mean.pt")
    assert f"checkpoint1.pt has parameters that {other} does not have ({LAYER})" in message


def test_another_language(altered: Callable[..., Path], tmp_path: Path) -> None:
    german, french, unknown = (
        altered(f"{language}.pt", task("target_lang", language)) for language in ("de", "fr", None)
    )
    average_checkpoints([german, unknown], tmp_path / "mean.pt")
    assert "target_lang is fr and de" in refusal([german, french], tmp_path / "other.pt")


def setting(**values: object) -> Callable[[dict[str, Any]], None]:
    """Changes settings in all groups of a configuration that have them."""

    def change(state: dict[str, Any]) -> None:
        vars(state["cfg"]["model"]).update(values)
        for group in state["cfg"].values():
            if isinstance(group, dict):
                group.update({key: value for key, value in values.items() if key in group})

    return change


def another_optimizer(state: dict[str, Any]) -> None:
    for key in state["cfg"]["optimizer"].keys() - {"lr", "tpu", "_name"}:
        delattr(state["cfg"]["model"], key)
    state["cfg"]["optimizer"] = {"_name": "sgd", "lr": [0.01], "momentum": 0.0}
    state["cfg"]["model"].momentum = 0.0


RESUMED = {
    **{"save_dir": "/elsewhere", "max_update": 9, "max_epoch": 3, "patience": 4, "stop_min_lr": 1e-9},
    **{"save_interval": 5, "keep_last_epochs": 2, "log_interval": 7, "no_progress_bar": False, "num_workers": 3},
    **{"fp16": True, "cpu": False, "distributed_world_size": 4, "update_freq": [2], "max_tokens": 25},  # 1 x 1 x 200
    **{"encoder_embed_path": "/vectors", "checkpoint_activations": True, "attention_backend": "blocks"},
    **{"use_old_adam": True, "report_accuracy": True},
    **{"restore_file": "checkpoint2.pt", "finetune_from_model": "/elsewhere/start.pt", "valid_subset": "valid,test"},
}


def test_a_resumed_training_is_the_same(trained: Path, altered: Callable[..., Path], tmp_path: Path) -> None:
    """On other hardware, with differently split batches of the same total size, and another number of updates."""
    other = altered("other.pt", setting(**RESUMED))
    assert load_checkpoint(other)["cfg"]["checkpoint"]["save_dir"] == "/elsewhere"
    average_checkpoints([trained / "checkpoint2.pt", other], tmp_path / "mean.pt")


def test_a_setting_that_another_version_did_not_write_is_unset(
    trained: Path, altered: Callable[..., Path], tmp_path: Path
) -> None:
    other = altered("other.pt", setting(some_flag_of_tomorrow=None))
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
        (setting(seed=7), "seed is 7 and 1"),
        (setting(lr=[0.5]), "lr is [0.5] and [0.01]"),
        (setting(max_tokens=100), "max_tokens x update_freq x processes is [100] and [200]"),
        (setting(update_freq=[4]), "max_tokens x update_freq x processes is [800] and [200]"),
        (setting(distributed_world_size=2), "max_tokens x update_freq x processes is [400] and [200]"),
        (setting(clip_norm=1.0), "clip_norm is 1.0 and 0.0"),
        (setting(adam_betas=[0.9, 0.98]), "adam_betas is [0.9, 0.98] and [0.9, 0.999]"),
        (setting(warmup_updates=8), "warmup_updates is 8 and 0"),
        (setting(train_subset="train1"), "train_subset is train1 and train"),
        (setting(seed=7, lr=[0.5]), "lr is [0.5] and [0.01]; seed is 7 and 1"),
        (another_optimizer, "optimizer is sgd and adam"),
        (
            lambda state: state["cfg"].update(criterion={"_name": "label_smoothed_cross_entropy"}),
            "criterion is label_smoothed_cross_entropy and cross_entropy",
        ),
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
    for name, content in (("a", b"1"), ("b", b"2"), ("c", b"1")):
        (tmp_path / name).write_bytes(content)
    a, b, c = (altered(f"{name}.pt", setting(finetune_from_model=str(tmp_path / name))) for name in "abc")
    average_checkpoints([a, c], tmp_path / "mean.pt")
    assert f"finetune_from_model is {tmp_path / 'b'} and {tmp_path / 'a'}" in refusal([a, b], tmp_path / "other.pt")


def test_other_data_by_content(
    trained: Path, data: Path, altered: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, copy, output = trained / "checkpoint1.pt", tmp_path / "copy", tmp_path / "mean.pt"
    moved = altered("moved.pt", setting(data=str(copy)))
    says = f"data is {copy} and {data}, which differ"
    assert says in refusal([first, moved], output)
    shutil.copytree(data, copy)
    (copy / "valid.en-de.en.bin").unlink()  # not training data
    average_checkpoints([first, moved], output)
    monkeypatch.chdir(data.parent)
    average_checkpoints([first, altered("relative.pt", setting(data=data.name))], tmp_path / "2.pt")
    for name in ("train.en-de.de.bin", "train.en-de.en.idx", "dict.en.txt"):
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(bytes([content[0] ^ 1]) + content[1:])
        assert says in refusal([first, moved], tmp_path / "other.pt")
        (copy / name).unlink()
        assert says in refusal([first, moved], tmp_path / "other.pt")
        (copy / name).write_bytes(content)
    sharded = altered("sharded.pt", setting(data=f"{data}:{copy}"))
    assert f"data is {data}:{copy} and {data};" not in refusal([first, sharded], tmp_path / "other.pt")
    average_checkpoints([sharded, altered("swapped.pt", setting(data=f"{copy}:{data}"))], tmp_path / "3.pt")
    average_checkpoints([first, sharded], tmp_path / "4.pt", allow_different_runs=True)


def test_the_configuration_of_hydra(altered: Callable[..., Path], tmp_path: Path) -> None:
    """In it the model's settings are nested dictionaries."""

    def hydra(layers: int) -> Callable[[dict[str, Any]], None]:
        def change(state: dict[str, Any]) -> None:
            state["cfg"]["model"] = {"_name": "transformer", "encoder": {"layers": layers, "embed_dim": 16}}

        return change

    first, second, third = (altered(f"{i}.pt", hydra(layers)) for i, layers in enumerate((2, 2, 3)))
    average_checkpoints([first, second], tmp_path / "mean.pt")
    assert "encoder.layers is 3 and 2" in refusal([first, third], tmp_path / "other.pt")


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


def test_tensors_that_do_not_match_their_checksum(trained: Path, tmp_path: Path) -> None:
    """A file with zeros in the middle, which torch itself would load."""
    whole = bytearray((trained / "checkpoint2.pt").read_bytes())
    start = bytes(whole).index(load_checkpoint(trained / "checkpoint2.pt")["model"][LAYER].numpy().tobytes())
    whole[start + 100 : start + 300] = bytes(200)
    (tmp_path / "hole.pt").write_bytes(whole)
    message = refusal([trained / "checkpoint1.pt", tmp_path / "hole.pt"], tmp_path / "mean.pt")
    assert "hole.pt is damaged" in message
    assert LAYER in message
    with pytest.raises(CheckpointError, match=f"hole.pt is damaged: model.{re.escape(LAYER)} does not match"):
        load_model_ensemble([str(tmp_path / "hole.pt")])


def test_a_damaged_or_missing_input(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.pt").write_bytes((trained / "checkpoint2.pt").read_bytes()[:-100])
    assert "cut.pt is damaged" in refusal([trained / "checkpoint1.pt", tmp_path / "cut.pt"], tmp_path / "mean.pt")
    assert "none.pt does not exist" in refusal([tmp_path / "none.pt"], tmp_path / "mean.pt")


def test_nothing_to_average(tmp_path: Path) -> None:
    assert "no checkpoints to average" in refusal([], tmp_path / "mean.pt")


def test_the_same_file_twice(trained: Path, tmp_path: Path) -> None:
    path, link = trained / "checkpoint1.pt", tmp_path / "link.pt"
    link.symlink_to(path)
    for other in (path, trained / ".." / trained.name / path.name, link):
        assert "twice" in refusal([path, trained / "checkpoint2.pt", other], tmp_path / "mean.pt")


def test_the_output_among_the_inputs(trained: Path, tmp_path: Path) -> None:
    path, link = trained / "checkpoint1.pt", tmp_path / "link.pt"
    link.symlink_to(path)
    for output in (path, link):
        assert "one of the checkpoints to average" in refusal([path, trained / "checkpoint2.pt"], output)


def test_an_output_that_cannot_be_written(trained: Path, tmp_path: Path) -> None:
    path = trained / "checkpoint1.pt"
    assert f"{tmp_path} cannot be written (Is a directory)" in refusal([path], tmp_path)
    assert "mean.pt cannot be written" in refusal([path], tmp_path / "none" / "mean.pt")


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


def test_fairseq_loads_the_average(averaged: Path, data: Path) -> None:
    (model,), _ = load_model_ensemble([str(averaged)], arg_overrides={"data": str(data)})
    expected = load_checkpoint(averaged)["model"]
    parameters = dict(model.named_parameters())
    assert len(parameters) > 30
    assert all(torch.equal(parameter, expected[name]) for name, parameter in parameters.items())
    assert model.encoder.embed_tokens.weight is model.decoder.output_projection.weight


def test_fairseq_generates_with_the_average(averaged: Path, data: Path) -> None:
    run = generate(data, averaged, user_dir=PACKAGE)
    assert sorted(hypotheses(run.stdout)) == list(range(20))


@pytest.mark.parametrize(
    "flags",
    [
        ["--finetune-from-model"],
        # Much the same path in fairseq, so that it need not be run each time.
        pytest.param(["--reset-optimizer", "--reset-lr-scheduler", "--restore-file"], marks=pytest.mark.slow),
    ],
    ids=["finetune", "restore"],
)
def test_fairseq_trains_from_the_average(averaged: Path, data: Path, tmp_path: Path, flags: list[str]) -> None:
    still = ["--share-all-embeddings", "--lr", "1e-12", "--max-update", "1"]
    run = train(data, tmp_path, "transformer", *still, *flags, averaged, user_dir=PACKAGE)
    assert f"Loaded checkpoint {averaged}" in run.stderr + run.stdout
    after = load_checkpoint(tmp_path / "checkpoint_last.pt")["model"]
    before = load_checkpoint(averaged)["model"]
    assert all(torch.allclose(after[name], tensor, atol=1e-6) for name, tensor in before.items())
