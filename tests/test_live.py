"""--log-positions: what it logs is what analyses find, and no training depends on it."""

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

from fairseq_posenc.attention.observing import attentions, observing
from posenc_experiments.analysis.attention import LayerStatistics
from posenc_experiments.analysis.model import add_sentences
from tests.models import PAD, TASK, build_model, enlarge_positions, make_sample, sentences
from tests.toy import PACKAGE, train


def make_model(arch: str, *flags: str, every: int) -> Any:
    return enlarge_positions(build_model(f"transformer_{arch}_tiny", "--log-positions", str(every), *flags))


def random_sample(seed: int) -> dict[str, Any]:
    return make_sample(sentences([7, 3, 5], seed), sentences([5, 3, 7], seed + 100))


def train_in_process(model: Any, updates: int) -> list[dict[str, float]]:
    """Trains as fairseq's task does, with two batches an update; what its loggers show after each update."""
    criterion = LabelSmoothedCrossEntropyCriterion(TASK, sentence_avg=False, label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(7)
    shown = []
    metrics.reset()
    with metrics.aggregate("train"):
        for update in range(updates):
            for part in range(2):
                model.train()
                model.set_num_updates(update)
                criterion(model, random_sample(10 * update + part))[0].backward()
            optimizer.step()
            optimizer.zero_grad()
            shown.append(dict(metrics.get_smoothed_values("train")))
            metrics.reset_meters("train")
    return shown


def analysed(model: Any, sample: dict[str, Any]) -> dict[str, float]:
    """The mean attended distance of each layer as analyses compute it, sentence by sentence."""
    source, target = (sample["net_input"][name].ne(PAD) for name in ("src_tokens", "prev_output_tokens"))
    sides = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    layers = {place: LayerStatistics(2, is_bidirectional=place[0] == "encoder") for place in attentions(model)}
    with observing(attentions(model), lambda place, seen: add_sentences(layers[place], seen, *sides[place[0]])):
        model(**sample["net_input"])
    return {
        f"distance/{stack}.{number + 1}": fmean(head["mean_distance"] for head in layer.attention()["heads"])
        for (stack, number), layer in layers.items()
    }


@pytest.mark.parametrize(
    ("arch", "flags", "norms"),
    [
        ("shaw", (), ["encoder.1", "encoder.2", "decoder.1", "decoder.2"]),
        ("t5", ("--cross-attention-positions", "true"), ["encoder.1", "decoder.1", "cross.1"]),
        ("learned", ("--bias-gain", "4"), ["encoder.input", "decoder.input"]),
        ("sinusoidal", ("--checkpoint-activations",), []),
    ],
)
def test_distances_are_those_of_analyses(arch: str, flags: tuple[str, ...], norms: list[str]) -> None:
    model = make_model(arch, *flags, every=1)
    expected = analysed(model, random_sample(0))
    (shown,) = train_in_process(model, 1)
    distances = {name: value for name, value in shown.items() if name.startswith("distance/")}
    assert distances == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert len(distances) == 6
    assert {name.removeprefix("norm/") for name in shown if name.startswith("norm/")} == set(norms)


@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("shaw", ("--checkpoint-activations", "--attention-dropout", "0.1")),
        ("deberta", ("--share-key-projection", "true", "--quant-noise-pq", "0.1", "--quant-noise-pq-block-size", "4")),
        ("rotary", ("--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5")),
    ],
)
def test_training_is_the_same_to_the_bit(arch: str, flags: tuple[str, ...]) -> None:
    states = []
    for every in (0, 1):
        model = make_model(arch, *flags, every=every)
        shown = train_in_process(model, 3)
        states.append(model.state_dict())
    assert any(name.startswith("distance/decoder") for name in shown[0])
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_fairseqs_log_and_tensorboard_show_it_and_a_training_resumes(toy_data: Path, tmp_path: Path) -> None:
    flags = ("--log-positions", "2", "--tensorboard-logdir", tmp_path / "events", "--log-format", "json")
    rows: dict[str, dict[str, Any]] = {}
    for updates in ("2", "4"):
        files = (toy_data, tmp_path / "model", "transformer_shaw_tiny")
        run = train(*files, *flags, "--max-update", updates, "--update-freq", "2", user_dir=PACKAGE)
        logged = map(json.loads, re.findall(r'\{".*\}', run.stdout + run.stderr))
        rows |= {row["num_updates"]: row for row in logged if "num_updates" in row and "train_num_updates" not in row}
    assert {number: "distance/cross.2" in row for number, row in rows.items()} == {
        **{"1": False, "2": True, "3": False, "4": True}
    }
    assert rows["2"]["norm/encoder.1"] != rows["4"]["norm/encoder.1"]
    events = b"".join(path.read_bytes() for path in (tmp_path / "events").rglob("*events*"))
    assert b"norm/decoder.1" in events
