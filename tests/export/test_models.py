"""Compares fairseq and CTranslate2 on tiny models of every exportable kind."""

from pathlib import Path

import pytest
import torch

from fairseq_posenc.export import ExportError
from fairseq_posenc.export.specification import ACTIVATIONS, make_specification
from fairseq_posenc.export.verification import Engine, verify
from fairseq_posenc.trained import Trained
from tests.models import build_model, enlarge_positions, make_task, sentences

EXACT = 3e-5
SHAW = ("transformer_shaw_tiny", "--position-sharing", "head", "--clipping-distance", "3")
PRE_NORM = ("--encoder-normalize-before", "--decoder-normalize-before")

POSITIONS = [
    ("transformer_nopos_tiny",),
    ("transformer_nopos_tiny", "--input-positions", "learned"),
    ("transformer_sinusoidal_tiny",),
    ("transformer_sinusoidal_tiny", "--input-positions", "none"),
    ("transformer_sinusoidal_tiny", "--sinusoids", "paper"),
    ("transformer_learned_tiny",),
    SHAW,
    (*SHAW, "--clipping-distance", "0"),
    (*SHAW, "--relative-values", "false"),
    (*SHAW, "--relative-keys", "false"),
    (*SHAW, "--position-sharing", "all"),
    (*SHAW, "--position-sharing", "none", "--encoder-attention-heads", "1", "--decoder-attention-heads", "1"),
    ("transformer_relative_key_tiny",),
    ("transformer_relative_key_tiny", "--left-clip", "0", "--right-clip", "2", "--position-sharing", "all"),
    *(
        ("transformer_diet_rel_tiny", "--clipping-distance", distance, "--position-sharing", sharing)
        for distance, sharing in [("0", "none"), ("3", "layer"), ("128", "none")]
    ),
    ("transformer_t5_tiny", "--position-sharing", "all"),
    ("transformer_t5_tiny", "--num-buckets", "8", "--max-distance", "17"),
    ("transformer_learned_tiny", "--bias-gain", "auto"),
    ("transformer_t5_tiny", "--target-position-encoding", "learned", "--bias-gain", "3"),
    ("transformer_rotary_tiny",),
    ("transformer_rotary_tiny", "--rotary-base", "100"),
    ("transformer_rotary_tiny", "--rotary-fraction", "0.5", "--rotary-layout", "half"),
    ("transformer_rotary_tiny", "--source-position-encoding", "learned"),
    ("transformer_diet_rel_tiny", "--target-position-encoding", "rotary"),
    ("transformer_t5_tiny", "--source-position-encoding", "shaw", "--position-sharing", "head"),
    ("transformer_alibi_tiny", "--source-position-encoding", "sinusoidal"),
]
OTHERS = [
    (*SHAW, *PRE_NORM),
    (*SHAW, *PRE_NORM, "--no-decoder-final-norm"),
    (*SHAW, "--layernorm-embedding"),
    (*SHAW, "--no-scale-embedding"),
    (*SHAW, "--share-all-embeddings"),
    (*SHAW, "--share-decoder-input-output-embed"),
    (*SHAW, "--encoder-layers", "1", "--decoder-layers", "3"),
    (*SHAW, "--encoder-embed-dim", "24", "--encoder-attention-heads", "4", "--decoder-output-dim", "12"),
    *((*SHAW, "--activation-fn", name) for name in ACTIVATIONS),
]


@pytest.fixture(autouse=True)
def short_outputs(monkeypatch):
    """Untrained models translate until the maximum length."""
    monkeypatch.setattr("fairseq_posenc.export.verification.LONGEST_OUTPUT", 30)


def make(directory: Path, arch, *flags, tamper=None):
    """A model, and CTranslate2 with the exported model."""
    task = make_task()
    model = enlarge_positions(build_model(arch, *flags)).float()
    with torch.no_grad():
        for parameter in (*model.encoder.parameters(), *model.decoder.parameters()):
            if parameter.dim() == 1:  # a missing bias of zero or norm of one would not be noticed
                parameter.add_(0.1 * torch.randn_like(parameter))
    trained = Trained(model, task, Path("none"), Path("none"))
    specification = make_specification(model, task.source_dictionary, task.target_dictionary)
    if tamper:
        tamper(specification)
    specification.validate()
    specification.optimize()
    specification.save(str(directory))
    return trained, Engine(directory, trained)


def identify(flags):
    return "-".join(flag.removeprefix("--").removeprefix("transformer_") for flag in flags)


@pytest.mark.parametrize("flags", POSITIONS + OTHERS, ids=identify)
def test_both_give_the_same_probabilities_and_outputs(flags, tmp_path):
    trained, engine = make(tmp_path, *flags)
    found = verify(trained, engine, sentences(trained.task, [1, 9, 3, 6]))
    assert found.sentences == 4
    assert found.tokens > 450  # includes the long sentences
    assert max(found.token, found.search) < EXACT, found


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_sentences_longer_than_input_positions_are_an_error(name, tmp_path):
    """CTranslate2 does not truncate them silently. Encodings in attention have no maximum length."""
    limits = ("--max-source-positions", "20", "--max-target-positions", "20")
    trained, engine = make(tmp_path, f"transformer_{name}_tiny", *limits)
    fits, longer = sentences(trained.task, [19, 20])
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
    trained, engine = make(tmp_path, *SHAW, *PRE_NORM, tamper=tamper)
    with pytest.raises(ExportError, match="CTranslate2 and fairseq differ"):
        verify(trained, engine, sentences(trained.task, [4, 9]))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("transformer_shaw_tiny",), "shaw with a table for each head"),
        (("transformer_alibi_tiny",), "alibi in an encoder"),
        (("transformer_shaw_tiny", "--source-position-encoding", "diet_abs"), "diet_abs"),
        ((*SHAW, "--segment-separator", "w3"), "segments"),
        (("transformer_t5_tiny", "--cross-attention-positions", "true"), "--cross-attention-positions"),
        ((*SHAW, "--no-cross-attention"), "--no-cross-attention"),
        ((*SHAW, "--activation-fn", "linear"), "--activation-fn linear"),
        ((*SHAW, "--adaptive-softmax-cutoff", "6,9"), "--adaptive-softmax-cutoff"),
        ((*SHAW, "--decoder-layers", "0"), "a stack without layers"),
        (("transformer_sinusoidal_tiny", "--position-augmentation", "random"), "--position-augmentation random"),
    ],
)
def test_unsupported_parts_are_refused_by_name(flags, words):
    task = make_task()
    model = build_model(*flags)
    with pytest.raises(ExportError, match=rf"^CTranslate2 does not support {words}.*: .*\.$"):
        make_specification(model, task.source_dictionary, task.target_dictionary)
