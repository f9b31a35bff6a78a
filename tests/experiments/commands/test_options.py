"""The hardware of a call is shared by its jobs."""

from typing import Any

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.hardware import Hardware
from posenc_experiments.commands.options import choose_seeds, find_hardware


def local(**options: Any) -> Hardware:
    names = ("gpus", "gpus_per_job", "cpus", "jobs", "processes")
    return find_hardware({**dict.fromkeys(names), "executor": "local", "slurm_words": (), "dry_run": False, **options})


def test_cpus_are_shared() -> None:
    assert local(gpus=0, cpus=6, jobs=3) == Hardware(cpus=6, slots=("0", "1", "2"))
    assert local(gpus=0, cpus=6, jobs=3).job_cpus == 2
    assert local(gpus=0, cpus=6, jobs=0).jobs == 6
    assert local(gpus=0, cpus=6).jobs == 1


def test_gpus_are_shared_as_the_user_named_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 5)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,GPU-a,2,3,1")
    assert local(gpus_per_job=2, cpus=8) == Hardware(gpus=2, cpus=8, slots=("7,GPU-a", "2,3"))
    assert local(gpus=4, cpus=8) == Hardware(gpus=4, cpus=8, slots=("7,GPU-a,2,3",))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert local(gpus=3, gpus_per_job=1, jobs=2).slots == ("0", "1")
    with pytest.raises(RecipeError, match="--gpus-per-job 4: there are 3 GPUs"):
        local(gpus=3, gpus_per_job=4)
    with pytest.raises(RecipeError, match="--gpus-per-job 2: there are 0 GPUs"):
        local(gpus=0, gpus_per_job=2)
    with pytest.raises(RecipeError, match="--gpus 6: PyTorch sees 5"):
        local(gpus=6)


def test_a_seed_that_is_given_twice_runs_once() -> None:
    assert choose_seeds("1,20 1") == [1, 20]


@pytest.mark.parametrize("text", ["1,x", "-1", str(1 << 32)])
def test_other_seeds_than_numbers_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match=r"^--seeds .*: write whole numbers below 4294967296, such as 1,2,3"):
        choose_seeds(text)
