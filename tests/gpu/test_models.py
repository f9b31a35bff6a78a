"""Whole models on the GPU beside those on the CPU: outputs, translations, trainings and analyses."""

import os
import subprocess
import sys

import pytest
import torch

from fairseq_posenc.augmentation.choice import MODES
from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.analysis.targets import Model, Pair, score_targets
from tests import toy
from tests.models import (
    build_model,
    enlarge_positions,
    log_probabilities,
    logits,
    model_inputs,
    sentences,
    token_lists,
    translate,
)

UPDATES = 20
#: every architecture, and flags with code of their own
MODELS = [
    *ENCODINGS,
    *(f"shaw --cross-position-encoding {name}" for name in ("t5", "diet_abs", "sinusoidal_qk")),
    "rotary --cross-position-encoding rotary:cross_start=after-source",
    "shaw --source-position-encoding t5,nopos --target-position-encoding rotary,shaw",
    *(f"sinusoidal --position-augmentation {mode}" for mode in MODES),
    "diet_abs --position-augmentation random",
    "learned --input-positions-from sinusoidal",
    "sinusoidal --sinusoids paper",
    *(f"sinusoidal --length-encoding {kind}" for kind in ("difference", "ratio")),
    "sinusoidal --segment-separator w3 --segment-shift 5",
    "shaw --segment-separator w3",
    "t5 --urpe true --bias-gain auto",
    "shaw --checkpoint-activations",
]


@pytest.mark.parametrize("words", MODELS)
def test_models_compute_train_and_translate_as_on_the_cpu(device, words):
    """Beam search reorders the cache; the scores of its steps are those of a full pass."""
    name, *flags = words.split()
    model = enlarge_positions(build_model(f"transformer_{name}_tiny", *flags)).float()
    outputs, translations = [], []
    for place in ("cpu", device):
        inputs = [x.to(place) for x in model_inputs(sentences([7, 4, 2]), sentences([5, 6, 3], seed=6))]
        outputs.append(logits(model.to(place), *inputs).cpu())
        beams = translate(model, inputs[0])
        translations.append([token_lists(beam) for beam in beams])
        best = beams[0][0]
        full = log_probabilities(model, inputs[0][0], best["tokens"])
        if "--length-encoding" not in flags:  # a full pass knows the length, a translation guesses it
            torch.testing.assert_close(best["positional_scores"], full, rtol=0, atol=1e-4)
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-4)
    assert translations[0] == translations[1]
    logits(model.train(), *inputs).square().sum().backward()  # augmentations draw other positions on each device
    assert all(bool(x.grad.isfinite().all()) for x in model.parameters() if x.grad is not None)


@pytest.fixture(scope="module")
def trained(gpu, toy_data, tmp_path_factory):
    """The directories of trainings that ran at the same time, by their name."""
    folder = tmp_path_factory.mktemp("trainings")
    train = [sys.executable, "-m", "fairseq_cli.train"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "-m", train[-1]]
    settings = {"cpu": [*train, "--cpu"]}
    if gpu == "cpu":
        settings |= {"fp32": [*train, "--cpu"], "bf16": [*train, "--cpu", "--bf16"]}  # fairseq has no fp16 on a CPU
    else:
        settings |= {"fp32": train, "fp16": [*train, "--fp16"], "bf16": [*train, "--bf16"], "torchrun": torchrun}
    if torch.cuda.device_count() > 1:
        settings["two GPUs"] = [*train, "--distributed-world-size", "2"]
    flags = ("--user-dir", toy.PACKAGE, "--lr", "1e-3", "--dropout", "0", "--max-update", UPDATES)
    running = {}
    for name, command in settings.items():
        words = [*command, *toy.train_flags(toy_data, folder / name, "transformer_shaw_tiny"), *flags]
        visible = {"CUDA_VISIBLE_DEVICES": "0"} if name not in ("cpu", "two GPUs") else {}
        with (folder / f"{name}.log").open("w") as log:
            running[name] = subprocess.Popen(
                list(map(str, words)), stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **visible}
            )
    for name, process in running.items():
        assert process.wait() == 0, (folder / f"{name}.log").read_text()[-3000:]
    return {name: folder / name for name in running}


def losses(directory):
    """The loss of each update, from the log."""
    return [*toy.losses(directory.with_name(f"{directory.name}.log").read_text()).values()]


def test_losses_are_those_of_the_cpu(trained):
    exact = losses(trained["cpu"])
    assert len(exact) >= UPDATES - 1
    assert exact[-1] < exact[0]
    # fairseq prints three decimals; two GPUs have other batches.
    bounds = {"fp32": 1.1e-3, "torchrun": 1.1e-3, "fp16": 0.1, "bf16": 0.1}
    for name in bounds.keys() & trained.keys():
        assert losses(trained[name]) == pytest.approx(exact, abs=bounds[name]), name
    for name, directory in trained.items():
        assert losses(directory)[-1] < losses(directory)[0], name


def test_a_checkpoint_of_the_gpu_translates_on_the_cpu(gpu, trained, toy_data):
    command = (sys.executable, "-m", "fairseq_cli.generate", toy_data, "--user-dir", toy.PACKAGE)
    files = ("--path", trained["fp32"] / "checkpoint_last.pt", "--required-batch-size-multiple", "1")
    ours, expected = (
        toy.hypotheses(subprocess.run([*command, *files, *flags], stdout=-1, text=True, check=True).stdout)
        for flags in (["--cpu"] if gpu == "cpu" else [], ["--cpu"])
    )
    assert ours == expected
    assert len(ours) == 20


def test_targets_are_scored_as_on_the_cpu(gpu, trained, toy_data):
    path = trained["fp32"] / "checkpoint_last.pt"
    model, pairs = Model("shaw", path, toy_data), [Pair(f"s{n} s3", f"t{n} t5", "") for n in range(9)]
    scored = [score_targets(model, pairs, print, cpu) for cpu in (gpu == "cpu", True)]
    for on_gpu, on_cpu in zip(*scored, strict=True):
        assert on_gpu.log_probabilities == pytest.approx(on_cpu.log_probabilities, abs=1e-3)
