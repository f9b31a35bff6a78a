"""Averages are correct, load in fairseq, take little memory and are written atomically; other models are refused."""

import os
import re
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from fairseq_posenc.checkpoints import CheckpointError, average_checkpoints, load_checkpoint
from fairseq_posenc.position_record import canonical_record, encode_record
from fairseq_posenc.trained import load_trained
from tests.checkpoints.changes import Altered, Change, model_flag, model_tensor
from tests.toy import PACKAGE, train

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


def storages(model: dict[str, torch.Tensor]) -> dict[str, int]:
    return {name: tensor.untyped_storage().data_ptr() for name, tensor in model.items()}


NAMES = ("1_1", "1_2", "2_4", "2_5")


@pytest.fixture(scope="module")
def averaged(trained: Path) -> Path:
    output = trained.parent / "averaged.pt"
    paths = [trained / f"checkpoint_{name}.pt" for name in NAMES]
    assert average_checkpoints(paths, output) == output
    return output


def test_the_average_is_the_mean_of_every_tensor(trained: Path, averaged: Path) -> None:
    models = [load_checkpoint(trained / f"checkpoint_{name}.pt")["model"] for name in NAMES]
    mean = load_checkpoint(averaged)["model"]
    assert list(mean) == list(models[0])
    for name, tensor in mean.items():
        exact = torch.stack([model[name].double() for model in models]).mean(0)
        torch.testing.assert_close(tensor.double(), exact, rtol=3e-7, atol=1e-9)
    moved = [name for name in mean if not torch.equal(mean[name], models[0][name])]
    assert len(moved) > 30, "training should have changed the parameters"
    assert mean._metadata == models[0]._metadata


def test_only_parts_that_loading_needs_are_kept(trained: Path, averaged: Path) -> None:
    state, newest = load_checkpoint(averaged), load_checkpoint(trained / "checkpoint_2_5.pt")
    assert state.keys() == newest.keys() - {"last_optimizer_state"}
    assert (state["cfg"], state["optimizer_history"]) == (newest["cfg"], newest["optimizer_history"])
    assert state["extra_state"] == {
        "train_iterator": newest["extra_state"]["train_iterator"],
        "averaged_from": [str(trained / f"checkpoint_{name}.pt") for name in NAMES],
    }


def test_tied_tensors_stay_tied(averaged: Path) -> None:
    model = load_checkpoint(averaged)["model"]
    places = storages(model)
    assert len({places[name] for name in TIED}) == 1
    assert len(set(places.values())) == len(places) - 2
    sizes = {places[name]: tensor.nbytes for name, tensor in model.items()}
    # The rest of the file is torch's padding and the configuration.
    assert averaged.stat().st_size < sum(sizes.values()) + 256 * len(places) + 30_000


def test_untied_copies_are_averaged_if_they_are_equal(trained: Path, altered: Altered, tmp_path: Path) -> None:
    """fairseq unties tensors when it copies a model from the GPU. Equal copies are accepted, unequal ones are not."""
    first, output = trained / "checkpoint2.pt", tmp_path / "mean.pt"
    average_checkpoints([first, altered("untied.pt", model_tensor(TIED[1], torch.clone))], output)
    assert len({storages(load_checkpoint(output)["model"])[name] for name in TIED}) == 1
    message = refusal([first, altered("different.pt", model_tensor(TIED[1], lambda x: x + 1))], output)
    assert "different.pt" in message
    assert TIED[1] in message


STATE = {"cfg": {"model": {"_name": "a"}}, "optimizer_history": [{"num_updates": 1}]}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_precision_is_summed_in_float32_and_double_precision_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    weights = {tmp_path / f"{i}.pt": (torch.rand(500, dtype=torch.float64) + i).to(dtype) for i in range(9)}
    for path, weight in weights.items():
        torch.save({**STATE, "model": {"weight": weight}}, path)
    mean = load_checkpoint(average_checkpoints([*weights], tmp_path / "mean.pt"))["model"]["weight"]
    exact = torch.stack([*weights.values()]).double().mean(0)
    if dtype == torch.float64:
        torch.testing.assert_close(mean, exact, rtol=0, atol=1e-14)
    else:
        torch.testing.assert_close(mean, exact.float().to(dtype), rtol=0, atol=0)


def record(distance: int) -> dict[str, torch.Tensor]:
    return {"position_version": encode_record({"encoding": "shaw", "clipping_distance": distance})}


def test_integers_are_kept_and_must_be_equal(altered: Altered, tmp_path: Path) -> None:
    def write(number: int, distance: int) -> Path:
        added = {**record(distance), "flag": torch.tensor([True, False])}
        return altered(f"{number}.pt", lambda state: state["model"].update(added))

    paths = [write(1, 8), write(2, 8), write(3, 9)]
    model = load_checkpoint(average_checkpoints(paths[:2], tmp_path / "mean.pt"))["model"]
    assert canonical_record(model["position_version"]) == '{"clipping_distance": 8, "encoding": "shaw"}'
    assert model["flag"].tolist() == [True, False]
    message = refusal(paths, tmp_path / "other.pt")
    assert "3.pt" in message
    assert "position_version" in message


# ---- other models are refused


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (model_flag("arch", "transformer_tiny"), "arch is transformer_tiny and transformer"),
        (lambda state: state["cfg"]["task"].update(_name="language_modeling"), "task is language_modeling"),
        (lambda state: state["model"].update(other=torch.zeros(3)), "other is float32 .* and .not set"),
        (lambda state: state["model"].pop(LAYER), rf"{re.escape(LAYER)} is \(not set\) and float32"),
        (model_tensor(LAYER, torch.Tensor.half), rf"{re.escape(LAYER)} is float16 \(32, 16\)"),
        (model_tensor(LAYER, lambda x: x * torch.nan), f"NaN or infinite numbers in {re.escape(LAYER)}"),
    ],
)
def test_another_model_is_refused(trained: Path, altered: Altered, tmp_path: Path, change: Change, says: str) -> None:
    """The message names the file and the difference in any order of the files."""
    changed, output = altered("changed.pt", change), tmp_path / "mean.pt"
    message = refusal([trained / "checkpoint1.pt", trained / "checkpoint2.pt", changed], output)
    assert str(changed) in message
    assert re.search(says, message), message
    assert str(changed) in refusal([changed, trained / "checkpoint2.pt"], output)


def setting(**values: object) -> Callable[[dict[str, Any]], None]:
    """Changes settings in all groups of a configuration that have them."""

    def change(state: dict[str, Any]) -> None:
        vars(state["cfg"]["model"]).update(values)
        for group in state["cfg"].values():
            if isinstance(group, dict):
                group.update({key: value for key, value in values.items() if key in group})

    return change


RESUMED = {
    **{"save_dir": "/elsewhere", "max_update": 9, "patience": 4, "save_interval": 5, "num_workers": 3},
    **{"distributed_world_size": 4, "update_freq": [2], "max_tokens": 25},  # 1 x 1 x 200
    **{"checkpoint_activations": True, "attention_backend": "blocks", "restore_file": "checkpoint2.pt"},
    **{"min_loss_scale": 1e-3, "validate_interval": 2, "nprocs_per_node": 4, "all_gather_list_size": 32768},
    "some_flag_of_tomorrow": None,
}


def schedule(updates: int, total: int) -> Change:
    def change(state: dict[str, Any]) -> None:
        state["cfg"]["lr_scheduler"] = {"_name": "polynomial_decay", "total_num_update": total}
        state["cfg"]["optimization"]["max_update"] = updates

    return change


def old(**settings: object) -> Change:
    """fairseq before 0.10 wrote all settings to one namespace, `args`."""

    def change(state: dict[str, Any]) -> None:
        state["args"] = Namespace(**{**vars(state["cfg"]["model"]), "task": "translation", **settings})
        del state["cfg"]

    return change


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (setting(), setting(**RESUMED)),
        (schedule(6, 6), schedule(9, 9)),  # as long as the training
        (setting(finetune_from_model="a"), setting()),  # a resumed training need not name what it began with
        (old(), old(save_dir="/elsewhere", max_update=9)),
    ],
)
def test_a_resumed_training_is_the_same(altered: Altered, tmp_path: Path, first: Change, second: Change) -> None:
    """On other hardware, with differently split batches of the same total size, and another number of updates."""
    mean = average_checkpoints([altered("1.pt", first), altered("2.pt", second)], tmp_path / "mean.pt")
    state = load_checkpoint(mean)
    assert (state["args"] if state.get("cfg") is None else state["cfg"]["model"]).arch == "transformer"


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (setting(), setting(seed=7, lr=[0.5]), "lr is [0.5] and [0.01]; seed is 7 and 1"),
        (setting(), setting(distributed_world_size=2), "max_tokens x update_freq x processes is [400] and [200]"),
        (setting(), setting(bf16=True), "bf16 is True and False"),
        (setting(), setting(fp16_init_scale=4), "fp16_init_scale is 4 and 128"),
        (setting(), setting(grouped_shuffling=True), "grouped_shuffling is True and False"),
        (setting(), setting(adam_betas=[0.9, 0.98]), "adam_betas is [0.9, 0.98] and [0.9, 0.999]"),
        (setting(), setting(train_subset="train1"), "train_subset is train1 and train"),
        (setting(), setting(data="/elsewhere"), "data is /elsewhere and "),
        (setting(), lambda state: state["cfg"].update(optimizer={"_name": "sgd"}), "optimizer is sgd and adam"),
        (schedule(9, 100), schedule(9, 200), "total_num_update is 200 and 100"),
        (setting(finetune_from_model="a"), setting(finetune_from_model="b"), "finetune_from_model is b and a"),
        (old(), old(seed=3, adam_eps=1e-6), "(adam_eps is 1e-06 and 1e-08; seed is 3 and 1)"),
    ],
)
def test_another_training_is_refused_unless_allowed(
    altered: Altered, tmp_path: Path, first: Change, second: Change, says: str
) -> None:
    paths, output = [altered("1.pt", first), altered("2.pt", second)], tmp_path / "mean.pt"
    message = refusal(paths, output)
    assert f"{paths[1]} and {paths[0]} are of different trainings (" in message
    assert says in message
    assert "--allow-different-runs" in message
    average_checkpoints(paths, output, allow_different_runs=True)
    assert output.exists()


def test_a_relative_path_of_the_data_is_the_same_data(
    trained: Path, data: Path, altered: Altered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    relative = altered("relative.pt", setting(data=data.name))
    average_checkpoints([trained / "checkpoint1.pt", relative], tmp_path / "mean.pt")


# ---- damage


def test_files_that_cannot_be_averaged_or_written_are_refused(trained: Path, tmp_path: Path) -> None:
    first, second, output = trained / "checkpoint1.pt", trained / "checkpoint2.pt", tmp_path / "mean.pt"
    link, pipe, broken = (tmp_path / name for name in ("link.pt", "pipe", "broken"))
    link.symlink_to(first)
    broken.symlink_to("nothing")
    os.mkfifo(pipe)
    for paths, to, says in (
        ([], output, "no checkpoints to average"),
        ([first, second], link, "one of the checkpoints to average"),
        ([first, tmp_path / "none.pt"], output, "none.pt cannot be read"),
        *(([first], to, "is a directory, a device, a pipe or a broken link") for to in (tmp_path, pipe, broken)),
        ([first], Path("/dev/full"), "/dev/full is a directory, a device, a pipe or a broken link: name a file"),
        ([first], tmp_path / "none" / "mean.pt", f"{tmp_path / 'none'} is not a directory: make it first"),
        ([first], Path("/proc/mean.pt"), "/proc/mean.pt cannot be written"),
    ):
        assert says in refusal(paths, to)
    assert pipe.is_fifo()
    assert Path("/dev/full").is_char_device()


def test_a_disk_that_cannot_be_written_is_refused(trained: Path, tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may make such a disk here")
    try:
        assert "mean.pt cannot be written (" in refusal([trained / "checkpoint1.pt"], tmp_path / "mean.pt")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_file_counts_once(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, link, hard = trained / "checkpoint1.pt", tmp_path / "link.pt", tmp_path / "hard.pt"
    link.symlink_to(first)
    os.link(first, hard)
    monkeypatch.chdir(trained)
    for again in (first, Path("checkpoint1.pt"), trained / ".." / trained.name / "checkpoint1.pt", link, hard):
        message = refusal([first, trained / "checkpoint2.pt", again], tmp_path / "mean.pt")
        assert f"{again} and {first} are one file: name each checkpoint once" in message


@pytest.mark.parametrize("change", [lambda state: state.update(model={}), lambda state: state.update(model=record(8))])
def test_a_checkpoint_without_parameters_is_refused(altered: Altered, tmp_path: Path, change: Change) -> None:
    path = altered("empty.pt", change)
    assert f"{path} has no parameters to average: name a checkpoint of a model" in refusal([path], tmp_path / "mean.pt")


# ---- memory and interruption

MEGABYTE = 1 << 20
MODEL, REST = 100, 75
"""Megabytes of parameters, and of optimizer state, in each file of `large`."""


def write_large(path: Path, number: int) -> Path:
    """A checkpoint of a large model of twenty tensors."""
    model = {f"{j}": torch.full((MODEL // 20, MEGABYTE // 4), number + j / 8) for j in range(20)}
    rest = {"last_optimizer_state": {"state": torch.zeros(REST, MEGABYTE // 4)}}
    torch.save({**STATE, "model": model, **rest}, path)
    return path


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


def test_memory_of_two_models_and_death_while_writing(trained: Path, tmp_path: Path) -> None:
    small, complete, killed = trained / "checkpoint1.pt", tmp_path / "complete.pt", tmp_path / "killed.pt"
    large = [write_large(tmp_path / f"checkpoint{number}.pt", number) for number in range(2)]
    command = [sys.executable, "-c", AVERAGE, *map(str, [small, complete, killed, *large])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE.parent)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    grown = int(run.stdout)

    model = load_checkpoint(complete)["model"]
    assert all(torch.equal(model[f"{j}"], torch.full_like(model[f"{j}"], 0.5 + j / 8)) for j in range(20))
    # The sums and the parameters of one file; less would mean that the measure is wrong.
    assert MODEL <= grown <= 2 * MODEL + 40, f"{grown} MB"
    # What had the output's name before is still there, whole.
    (temporary,) = tmp_path.glob(".killed.pt.*.tmp")
    assert load_checkpoint(killed)["model"].keys() == load_checkpoint(small)["model"].keys()
    for path in (*large, complete, temporary):
        path.unlink()  # pytest keeps the folders of its last runs


# ---- fairseq takes it


def test_fairseq_generates_with_the_average(averaged: Path, data: Path) -> None:
    (model,), _ = load_model_ensemble([str(averaged)], arg_overrides={"data": str(data)})
    expected = load_checkpoint(averaged)["model"]
    assert all(torch.equal(parameter, expected[name]) for name, parameter in model.named_parameters())
    assert model.encoder.embed_tokens.weight is model.decoder.output_projection.weight


def test_a_stock_model_is_no_model_of_this_package(averaged: Path, data: Path) -> None:
    with pytest.raises(CheckpointError, match=r"averaged.pt is a TransformerModel, no model of this package"):
        load_trained(averaged, data)


def test_fairseq_trains_from_the_average(averaged: Path, data: Path, tmp_path: Path) -> None:
    still = ["--share-all-embeddings", "--lr", "1e-12", "--max-update", "1"]
    run = train(data, tmp_path, "transformer", *still, "--finetune-from-model", averaged, user_dir=PACKAGE)
    assert f"Loaded checkpoint {averaged}" in run.stderr + run.stdout
    before, after = (load_checkpoint(path)["model"] for path in (averaged, tmp_path / "checkpoint_last.pt"))
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)
