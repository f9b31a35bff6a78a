"""Compares fairseq and CTranslate2 on tiny models of every exportable kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_posenc.export import ExportError
from fairseq_posenc.export.specification import ACTIVATIONS, make_specification
from fairseq_posenc.export.verification import Engine, verify
from fairseq_posenc.trained import Trained
from tests.models import TASK, build_model, enlarge_positions, sentences

EXACT = 3e-5
SHAW = "shaw_tiny --position-sharing head --clipping-distance 3"
PRE_NORM = "--encoder-normalize-before --decoder-normalize-before"
NARROW = "--encoder-embed-dim 24 --encoder-attention-heads 4 --decoder-output-dim 12"

POSITIONS = [
    *(f"nopos_tiny{flags}" for flags in ("", " --input-positions learned")),
    *(f"sinusoidal_tiny{flags}" for flags in ("", " --input-positions none", " --sinusoids paper")),
    *(f"learned_tiny{flags}" for flags in ("", " --bias-gain auto")),
    *(SHAW, f"{SHAW} --clipping-distance 0", f"{SHAW} --relative-values false", f"{SHAW} --relative-keys false"),
    f"{SHAW} --position-sharing all",
    f"{SHAW} --position-sharing none --encoder-attention-heads 1 --decoder-attention-heads 1",
    *("relative_key_tiny", "relative_key_tiny --left-clip 0 --right-clip 2 --position-sharing all"),
    *(
        f"diet_rel_tiny --clipping-distance {distance} --position-sharing {sharing}"
        for distance, sharing in ((0, "none"), (3, "layer"), (128, "none"))
    ),
    *("t5_tiny --position-sharing all", "t5_tiny --num-buckets 8 --max-distance 17"),
    "t5_tiny --target-position-encoding learned --bias-gain 3",
    *("rotary_tiny", "rotary_tiny --rotary-base 100", "rotary_tiny --rotary-fraction 0.5 --rotary-layout half"),
    "rotary_tiny --source-position-encoding learned",
    "diet_rel_tiny --target-position-encoding rotary",
    "t5_tiny --source-position-encoding shaw --position-sharing head",
    "alibi_tiny --source-position-encoding sinusoidal",
]
OTHERS = [
    *(f"{SHAW} {PRE_NORM}", f"{SHAW} {PRE_NORM} --no-decoder-final-norm", f"{SHAW} --layernorm-embedding"),
    *(f"{SHAW} --no-scale-embedding", f"{SHAW} --share-all-embeddings", f"{SHAW} --share-decoder-input-output-embed"),
    *(f"{SHAW} --encoder-layers 1 --decoder-layers 3", f"{SHAW} {NARROW}"),
    *(f"{SHAW} --activation-fn {name}" for name in ACTIVATIONS),
]


@pytest.fixture(autouse=True)
def short_outputs(monkeypatch):
    """Untrained models translate until the maximum length."""
    monkeypatch.setattr("fairseq_posenc.export.verification.LONGEST_OUTPUT", 30)


def build(flags: str) -> Any:
    return build_model(*f"transformer_{flags}".split())


def make(directory: Path, flags: str, tamper: Callable[..., object] | None = None) -> tuple[Trained, Engine]:
    """A model, and CTranslate2 with the exported model."""
    model = enlarge_positions(build(flags)).float()
    with torch.no_grad():
        for parameter in (*model.encoder.parameters(), *model.decoder.parameters()):
            if parameter.dim() == 1:  # a missing bias of zero or norm of one would not be noticed
                parameter.add_(0.1 * torch.randn_like(parameter))
    trained = Trained(model, TASK, Path("none"), Path("none"))
    specification = make_specification(model, TASK.source_dictionary, TASK.target_dictionary)
    if tamper:
        tamper(specification)
    specification.validate()
    specification.optimize()
    specification.save(str(directory))
    return trained, Engine(directory, trained)


@pytest.mark.parametrize("flags", POSITIONS + OTHERS)
def test_both_give_the_same_probabilities_and_outputs(flags, tmp_path):
    trained, engine = make(tmp_path, flags)
    verification = verify(trained, engine, sentences([1, 9, 3, 6]))
    assert verification.sentences == 4
    assert verification.tokens > 450  # includes the long sentences
    assert max(verification.token, verification.search) < EXACT, verification


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_sentences_longer_than_input_positions_are_an_error(name, tmp_path):
    """CTranslate2 does not truncate them silently. Encodings in attention have no maximum length."""
    trained, engine = make(tmp_path, f"{name}_tiny --max-source-positions 20 --max-target-positions 20")
    fits, longer = sentences([19, 20])
    assert verify(trained, engine, [fits]).token < EXACT
    with pytest.raises(RuntimeError, match="No position encodings are defined for positions >= 20"):
        engine.translate([longer])


@pytest.mark.parametrize(
    "tamper",
    [
        lambda spec: spec.encoder.layer[1].self_attention.relative_position_keys[-1:].__iadd__(1),
        lambda spec: spec.decoder.layer[0].self_attention.relative_position_values[:1].__iadd__(1),
        lambda spec: setattr(spec.config, "decoder_start_token", "<s>"),
    ],
)
def test_altered_parameters_are_detected(tamper, tmp_path):
    trained, engine = make(tmp_path, f"{SHAW} {PRE_NORM}", tamper)
    with pytest.raises(ExportError, match="CTranslate2 and fairseq differ"):
        verify(trained, engine, sentences([4, 9]))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("shaw_tiny", "shaw with a table for each head"),
        ("alibi_tiny", "alibi in an encoder"),
        ("shaw_tiny --source-position-encoding diet_abs", "diet_abs"),
        (f"{SHAW} --segment-separator w3", "segments"),
        ("t5_tiny --cross-attention-positions true", "positions between source and target"),
        (f"{SHAW} --source-position-encoding shaw,nopos", "layers with different encodings"),
        (f"{SHAW} --no-cross-attention", "--no-cross-attention"),
        (f"{SHAW} --activation-fn linear", "--activation-fn linear"),
        (f"{SHAW} --adaptive-softmax-cutoff 6,9", "--adaptive-softmax-cutoff"),
        (f"{SHAW} --decoder-layers 0", "a stack without layers"),
        (
            "sinusoidal_tiny --position-augmentation random",
            "--position-augmentation random, --segment-shift or --length-encoding",
        ),
        (
            "sinusoidal_tiny --length-encoding ratio",
            "--position-augmentation random, --segment-shift or --length-encoding",
        ),
    ],
)
def test_unsupported_parts_are_refused_by_name(flags, words):
    model = build(flags)
    with pytest.raises(ExportError, match=rf"^CTranslate2 does not support {words}.*: .*\.$"):
        make_specification(model, TASK.source_dictionary, TASK.target_dictionary)
