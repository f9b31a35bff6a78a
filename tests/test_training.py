"""Trains and averages with every encoding on real text. Takes minutes each, so only with -m slow."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq import checkpoint_utils

from fairseq_posenc.architectures import architecture_name
from fairseq_posenc.encodings import ENCODINGS
from tests.toy import PACKAGE, train

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"embed-dim": "128", "ffn-embed-dim": "256", "attention-heads": "4"}
SMALL = (
    *(word for side in ("encoder", "decoder") for key, size in SIZES.items() for word in (f"--{side}-{key}", size)),
    *("--encoder-normalize-before", "--decoder-normalize-before", "--share-all-embeddings"),
    *("--max-source-positions", "256", "--max-target-positions", "256"),
    *("--adam-betas", "(0.9, 0.98)", "--lr", "0.003", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "100"),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--max-tokens", "1000"),
    *("--max-update", "300", "--save-interval-updates", "100", "--validate-interval-updates", "100"),
    *("--log-format", "json", "--log-interval", "20"),
)
CROSS = ("--cross-attention-positions", "true")
MODELS = [
    *((name, ()) for name in ENCODINGS),
    *((name, CROSS) for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention),
    ("t5", ("--source-position-encoding", "shaw", "--input-positions", "sinusoidal")),
    ("xlnet", ("--query-biases", "false")),
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def multi30k(shared, tmp_path_factory):
    """Multi30k en-de, prepared as in the recipe."""
    data = tmp_path_factory.mktemp("data")
    conf = ROOT / "recipes/multi30k/multi30k.yaml"
    words = ["--conf", conf, "--pair", "en-de", "--source", shared / "data/multi30k", "--data-dir", data]
    command = [sys.executable, "-m", "posenc_experiments", "run", *words, "--stages", "download,prepare", "--cpus", "1"]
    subprocess.run(command, check=True, cwd=ROOT)
    (binarized,) = data.glob("multi30k/en-de/prepared-*/binarized")
    return binarized


@pytest.mark.parametrize(
    ("name", "flags"), MODELS, ids=lambda value: value if isinstance(value, str) else "".join(value)
)
def test_it_trains_and_averages(multi30k, tmp_path, name, flags):
    arch = architecture_name(name, "iwslt_de_en")
    run = train(multi30k, tmp_path, arch, *SMALL, *flags, validate=True, user_dir=PACKAGE)
    rows = [*map(json.loads, re.findall(r'\{".*\}', run.stderr + run.stdout))]
    losses = [float(row["loss"]) for row in rows if "loss" in row]
    valid = [float(row["valid_loss"]) for row in rows if "valid_loss" in row]
    assert losses[-1] < losses[0] - 1
    assert valid[0] > valid[1] > valid[2]
    average = tmp_path / "average.pt"
    command = [sys.executable, "-m", "posenc_experiments", "average", "--last-updates", "2"]
    subprocess.run([*command, "--output", average, tmp_path], check=True)
    print(f"{name} {' '.join(flags)}: training loss {losses[0]} to {losses[-1]}, validation {valid}")
    loaded, _ = checkpoint_utils.load_model_ensemble([str(average)], arg_overrides={"data": str(multi30k)})
    assert all(parameter.isfinite().all() for parameter in loaded[0].parameters())
