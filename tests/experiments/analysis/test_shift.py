"""The shift test: positions of the source are k higher."""

import pytest
import torch

from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.analysis import shift
from posenc_experiments.analysis.shift import ShiftTest, forced, shifted
from tests.models import build_model, enlarge_positions


def build(name, *flags):
    return enlarge_positions(build_model(f"transformer_{name}_tiny", *flags))


@pytest.fixture
def inputs():
    """Three sources of 4, 12 and 7 tokens, padded on the left, and their targets."""
    torch.manual_seed(2)
    source, target = torch.randint(4, 16, (2, 3, 12))
    for row, length in enumerate((4, 12, 7)):
        source[row, : 12 - length] = 1
        target[row, length:] = 1
    return {"src_tokens": source, "src_lengths": torch.tensor([4, 12, 7]), "prev_output_tokens": target}


@torch.no_grad()
def measure(model, inputs):
    test = ShiftTest(model)
    test.add(inputs, forced(model, inputs), *(inputs[name].ne(1) for name in ("src_tokens", "prev_output_tokens")))
    return test.result()


@pytest.mark.parametrize("name", ENCODINGS)
def test_only_absolute_positions_feel_a_shift(name, inputs):
    results = measure(build(name), inputs)
    assert [result["k"] for result in results] == [1, 10, 100]
    facts = ENCODINGS[name].facts
    feels_shifts = facts.reads in ("integers", "reals") or facts.input_positions != "none"
    for result in results:
        if feels_shifts:
            assert result["cosine"] < 0.9999
        else:
            assert result["changed_outputs"] == 0
            assert result["cosine"] == pytest.approx(1, abs=1e-12)
    assert any(result["changed_outputs"] > 0 for result in results) == feels_shifts


@pytest.mark.parametrize(
    ("name", "flags", "tables"),
    [
        ("learned", (), {"embed_positions.weight": 0}),
        ("diet_abs", (), {"position_encoding.query_positions": 1, "position_encoding.key_positions": 1}),
        ("linformer", ("--input-positions", "none"), {"projection.keys": 1, "projection.values": 1}),
        ("tupe_abs", (), {"position_encoding.position_vectors": 0}),
    ],
)
@torch.no_grad()
def test_a_shift_reads_tables_further_on(name, flags, tables, inputs):
    model = build(name, *flags)
    with shifted(model, 5):
        moved = forced(model, inputs)
    for key, parameter in model.encoder.named_parameters():
        for ending, dimension in tables.items():
            if key.endswith(ending):
                parameter.copy_(parameter.roll(-5, dimension))
    expected = forced(model, inputs)
    real = inputs["src_tokens"].ne(1)
    assert torch.allclose(moved[0][real], expected[0][real], atol=1e-5)


@pytest.mark.parametrize(("name", "table"), [("diet_rel", "relative_bias"), ("diet_abs", "key_positions")])
@torch.no_grad()
def test_a_shift_of_the_source_is_one_in_attention_to_it(name, table, inputs):
    flags = ("--cross-attention-positions", "true", "--source-position-encoding", "nopos", "--position-sharing", "none")
    model = build(name, *flags)
    with shifted(model, 3):
        moved = forced(model, inputs)
    for layer in model.decoder.layers:
        parameter = getattr(layer.encoder_attn.position_encoding, table)
        parameter.copy_(parameter.roll(-3, 1))
    real = inputs["prev_output_tokens"].ne(1)
    assert torch.allclose(moved[1][real], forced(model, inputs)[1][real], atol=1e-5)


@pytest.mark.parametrize("name", ["learned", "diet_abs", "linformer"])
@torch.no_grad()
def test_a_shift_beyond_a_table_in_a_later_batch_is_none(name, inputs, monkeypatch):
    model = build(name, "--max-source-positions", "30")
    monkeypatch.setattr(shift, "SHIFTS", (1, 20))
    test = ShiftTest(model)
    short = {name: value[:1, -4:] if name == "src_tokens" else value[:1] for name, value in inputs.items()}
    for part in (short, inputs, short):
        test.add(part, forced(model, part), *(part[name].ne(1) for name in ("src_tokens", "prev_output_tokens")))
    assert [result["cosine"] is None for result in test.result()] == [False, True]
