"""The hardware of a call is shared by its jobs."""

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import Hardware
from posenc_experiments.commands.options import choose_seeds, share_hardware


def test_cpus_are_shared() -> None:
    assert share_hardware(0, 1, 6, 3) == Hardware(cpus=6, slots=("0", "1", "2"))
    assert share_hardware(0, 1, 6, 3).job_cpus == 2
    assert share_hardware(0, 1, 6, 0).jobs == 6
    assert share_hardware(0, 1, 6, None).jobs == 1


def test_gpus_are_shared_as_the_user_named_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posenc_experiments.commands.options.count_gpus", lambda: 5)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,GPU-a,2,3,1")
    shared = share_hardware(gpus=None, gpus_per_job=2, cpus=8, jobs=None)
    assert shared == Hardware(gpus=2, cpus=8, slots=("7,GPU-a", "2,3"))
    assert share_hardware(4, None, 8, None) == Hardware(gpus=4, cpus=8, slots=("7,GPU-a,2,3",))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert share_hardware(3, 1, 8, 2).slots == ("0", "1")
    with pytest.raises(RecipeError, match="--gpus-per-job 4: there are 3 GPUs"):
        share_hardware(3, 4, 8, None)
    with pytest.raises(RecipeError, match="--gpus 6: PyTorch sees 5"):
        share_hardware(6, 1, 8, None)


@pytest.mark.parametrize("text", ["1,x", "-1", str(1 << 32)])
def test_other_seeds_than_numbers_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match=r"^--seeds .*: write whole numbers below 4294967296, such as 1,2,3"):
        choose_seeds(text)
