"""Whole models on the GPU beside those on the CPU: outputs, translations, trainings and analyses."""

import json
import os
import subprocess
import sys

import pytest
import torch

from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.analysis.targets import Model, Pair, score_targets
from tests import toy
from tests.models import batch, build_model, enlarge_positions, make_task, sentences, shift_right, translate

UPDATES = 20


@pytest.mark.parametrize("name", ENCODINGS)
def test_models_compute_and_translate_as_on_the_cpu(device, name):
    """Beam search reorders the cache; the scores of its steps are those of a full pass."""
    task, model = make_task(), enlarge_positions(build_model(f"transformer_{name}_tiny")).float()
    sources, targets = sentences(task, [7, 4, 2]), sentences(task, [5, 6, 3], seed=6)
    inputs = batch(task, sources, True), batch(task, shift_right(targets), False)
    found = {}
    for place in ("cpu", device):
        moved = model.to(place)
        source, previous = (tensor.to(place) for tensor in inputs)
        logits = moved(source, source.ne(1).sum(1), previous)[0]
        beams = translate(moved, task, source)
        hypotheses = [hypothesis for beam in beams for hypothesis in beam]
        best = beams[0][0]
        full = moved(source[:1], source[:1].ne(1).sum(1), shift_right([best["tokens"]])[0][None])[0]
        scores = full.log_softmax(-1)[0].gather(1, best["tokens"][:, None])[:, 0]
        torch.testing.assert_close(best["positional_scores"], scores, rtol=0, atol=1e-4)
        found[place] = logits.cpu(), [hypothesis["tokens"].tolist() for hypothesis in hypotheses]
    torch.testing.assert_close(found[device][0], found["cpu"][0], rtol=1e-4, atol=1e-4)
    assert found[device][1] == found["cpu"][1]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return toy.binarize(toy.make_corpus(folder / "text"), folder / "data-bin")


@pytest.fixture(scope="module")
def trained(device, data, tmp_path_factory):
    """The directories of trainings that ran at the same time, by their name."""
    folder = tmp_path_factory.mktemp("trainings")
    train = [sys.executable, "-m", "fairseq_cli.train"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "-m", train[-1]]
    settings = {"cpu": [*train, "--cpu"]}
    if device == "cpu":
        settings |= {"fp32": [*train, "--cpu"], "bf16": [*train, "--cpu", "--bf16"]}  # fairseq has no fp16 on a CPU
    else:
        settings |= {"fp32": train, "fp16": [*train, "--fp16"], "bf16": [*train, "--bf16"], "torchrun": torchrun}
    if torch.cuda.device_count() > 1:
        settings["two GPUs"] = [*train, "--distributed-world-size", "2"]
    flags = [
        *(data, "--user-dir", toy.PACKAGE, "--arch", "transformer_shaw_tiny", *toy.TINY, "--task", "translation"),
        *("--optimizer", "adam", "--lr", "1e-3", "--dropout", "0", "--max-tokens", "200", "--max-update", UPDATES),
        *("--log-format", "json", "--log-interval", "1", "--disable-validation", "--num-workers", "0", "--seed", "1"),
        *("--no-epoch-checkpoints", "--source-lang", toy.SOURCE, "--target-lang", toy.TARGET),
    ]
    running = {}
    for name, command in settings.items():
        words = [*command, *flags, "--save-dir", folder / name]
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
    lines = directory.with_name(f"{directory.name}.log").read_text().splitlines()
    records = [json.loads(line[line.index("{") :]) for line in lines if "train_inner" in line and "{" in line]
    return [float(record["loss"]) for record in records]


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


def test_a_checkpoint_of_the_gpu_translates_on_the_cpu(device, trained, data, tmp_path):
    hypotheses = []
    for place, flags in ((device, ["--cpu"] if device == "cpu" else []), ("cpu", ["--cpu"])):
        run = subprocess.run(
            [
                *(sys.executable, "-m", "fairseq_cli.generate", data, "--user-dir", toy.PACKAGE, *flags),
                *("--path", trained["fp32"] / "checkpoint_last.pt", "--required-batch-size-multiple", "1"),
            ],
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert run.returncode == 0, (place, run.stderr[-3000:])
        hypotheses.append(toy.hypotheses(run.stdout))
    assert hypotheses[0] == hypotheses[1]
    assert len(hypotheses[0]) == 20


def test_targets_are_scored_as_on_the_cpu(device, trained, data):
    path = trained["fp32"] / "checkpoint_last.pt"
    model, pairs = Model("shaw", path, data), [Pair(f"s{n} s3", f"t{n} t5", "") for n in range(9)]
    scored = [score_targets(model, pairs, print, cpu) for cpu in (device == "cpu", True)]
    for one, other in zip(*scored, strict=True):
        assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-3)
