"""An encoding at each place, and in each layer."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import MultiheadAttention

from fairseq_posenc.attention import core
from fairseq_posenc.encodings import ENCODINGS, PositionEncoding, build_encoding
from fairseq_posenc.model import PositionMismatch, fine_tuning
from fairseq_posenc.position_record import parse_record
from fairseq_posenc.positions import CrossPositions, Positions
from tests.models import batch, build_model, enlarge_positions, sentences, shift_right, translate

HEADS, WIDTH = 2, 8


def encodings(model: Any, stack: str, attention: str = "self_attn") -> list[Any]:
    return [getattr(layer, attention).position_encoding for layer in getattr(model, stack).layers]


@pytest.mark.parametrize("crossed", [False, True])
@pytest.mark.parametrize("name", ["sinusoidal_qk", "learned_qk"])
def test_query_and_key_vectors_are_those_of_detr(name: str, crossed: bool) -> None:
    """DETR's attention is PyTorch's, of x + p as query, y + p as key, and y as value."""
    torch.manual_seed(1)
    theirs = MultiheadAttention(HEADS * WIDTH, HEADS, batch_first=True).double()
    encoding: Any = build_encoding(name, HEADS, WIDTH).double()
    target, source = (torch.randn(2, length, HEADS * WIDTH, dtype=torch.float64) for length in (5, 7))
    source = source if crossed else target
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)

    def projection(number: int) -> torch.nn.Linear:
        linear = torch.nn.Linear(HEADS * WIDTH, HEADS * WIDTH).double()
        linear.load_state_dict({"weight": weights[number], "bias": biases[number]})
        return linear

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)

    query, key, value = map(projection, range(3))
    p, r = (encoding.vectors(torch.arange(x.size(1)), torch.float64) for x in (target, source))
    expected, _ = theirs(target + p, source + r, source)
    positions = Positions(5, 5)
    if crossed:
        positions = CrossPositions(positions, torch.zeros(2, 7, dtype=torch.bool))
    q, k, v = heads(query(target)), heads(key(source)), heads(value(source))
    output, _ = core.attend(q, k, v, encoding, positions=positions, layer_input=source, projections=(query, key))
    torch.testing.assert_close(theirs.out_proj(output.transpose(1, 2).flatten(2)), expected, rtol=0, atol=1e-10)


def test_each_layer_has_its_encoding_and_shares_with_its_like() -> None:
    flags = "--source-position-encoding", "t5,nopos,t5", "--target-position-encoding", "t5,t5:num_buckets=8,t5"
    model = build_model("transformer_shaw_tiny", *flags, "--encoder-layers", "3", "--decoder-layers", "3")
    first, second, third = encodings(model, "encoder")
    assert [first.name, second.name, third.name] == ["t5", "nopos", "t5"]
    assert first is third
    first, second, third = encodings(model, "decoder")
    assert (first.num_buckets, second.num_buckets) == (32, 8)
    assert first is third


@pytest.mark.parametrize("typed", ["t5,t5:num_buckets=32", "t5:max_distance=128, t5", "t5"])
def test_layers_that_are_alike_are_one_encoding_however_they_are_typed(typed: str) -> None:
    model = build_model("transformer_t5_tiny", "--source-position-encoding", typed)
    first, second = encodings(model, "encoder")
    assert first is second
    assert parse_record(model.position_version) == {"encoding": "t5"}


def test_a_layer_between_source_and_target_can_be_without_positions() -> None:
    model = build_model("transformer_shaw_tiny", "--cross-position-encoding", "t5,nopos")
    names = [encoding.name for encoding in encodings(model, "decoder", "encoder_attn")]
    assert names == ["t5", "nopos"]
    assert parse_record(model.position_version)["cross"] == {"layers": [{"encoding": "t5"}, {"encoding": "nopos"}]}


def test_an_option_of_a_layer_precedes_the_flag() -> None:
    flags = "--clipping-distance", "5", "--source-position-encoding", "shaw,shaw:clipping-distance=2"
    model = build_model("transformer_shaw_tiny", *flags, "--cross-position-encoding", "relative_key:left_clip=3")
    assert [encoding.clipping_distance for encoding in encodings(model, "encoder")] == [5, 2]
    assert [encoding.clipping_distance for encoding in encodings(model, "decoder")] == [5, 5]
    assert [encoding.left_clip for encoding in encodings(model, "decoder", "encoder_attn")] == [3, 3]


CROSS = [name for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention]


@pytest.mark.parametrize("name", CROSS)
def test_positions_between_source_and_target_change_and_are_recorded(name: str) -> None:
    plain = build_model("transformer_shaw_tiny")
    model = enlarge_positions(build_model("transformer_shaw_tiny", "--cross-position-encoding", name))
    recorded = {"cross_attention_positions": True} if name == "shaw" else {"cross": {"encoding": name}}
    assert parse_record(model.position_version) == {"encoding": "shaw", **recorded}
    with pytest.raises(PositionMismatch):
        plain.load_state_dict(model.state_dict())
    same = build_model("transformer_shaw_tiny", "--cross-position-encoding", name, seed=2)
    same.load_state_dict(model.state_dict())
    rows = sentences([7, 3])
    source, target = batch(rows, left_pad=True), batch(shift_right(rows), left_pad=False)
    lengths, real = torch.tensor([8, 4]), target.ne(1)
    with fine_tuning():
        plain.load_state_dict(model.state_dict())  # all but positions in cross-attention
    outputs = [each(source, lengths, target)[0][real] for each in (model, same, plain)]
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


@pytest.mark.parametrize(
    ("start", "recorded"),
    [
        ("zero", {"cross_attention_positions": True}),
        ("after-source", {"cross": {"encoding": "rotary", "cross_start": "after-source"}}),
    ],
)
def test_an_option_of_cross_attention_alone_is_recorded(start: str, recorded: dict[str, Any]) -> None:
    flags = "--cross-attention-positions", "true", "--cross-start", start
    model = build_model("transformer_rotary_tiny", *flags)
    assert parse_record(model.position_version) == {"encoding": "rotary", **recorded}


def test_fine_tuning_keeps_the_position_parameters_of_like_layers() -> None:
    trained = enlarge_positions(build_model("transformer_t5_tiny", "--cross-position-encoding", "t5,diet_rel"))
    model = build_model("transformer_t5_tiny", "--cross-position-encoding", "gated_t5,t5")
    fresh = copy.deepcopy(encodings(model, "decoder", "encoder_attn")[1].state_dict())
    with fine_tuning():
        model.load_state_dict(trained.state_dict())
    old, new = (encodings(each, "decoder", "encoder_attn") for each in (trained, model))
    assert torch.equal(old[0].relative_bias, new[0].relative_bias)  # gated_t5 extends t5
    assert torch.equal(fresh["relative_bias"], new[1].relative_bias)  # diet_rel's table has another meaning


def test_fine_tuning_continues_in_a_deeper_stack() -> None:
    trained = build_model("transformer_t5_tiny", "--cross-position-encoding", "t5,diet_rel")
    model = build_model("transformer_t5_tiny", "--cross-position-encoding", "t5", "--decoder-layers", "3")
    state = {**model.state_dict(), **trained.state_dict()}  # what fairseq would refuse is not this test's
    with fine_tuning():
        model.load_state_dict(state, strict=False)


def test_a_shift_of_the_source_moves_a_target_that_counts_on_from_it() -> None:
    """Rotations depend on differences alone, so that nothing changes."""
    encoding: Any = build_encoding("rotary", HEADS, WIDTH, cross_start="after-source").double()
    q, k, v = (torch.randn(2, HEADS, length, WIDTH, dtype=torch.float64) for length in (5, 7, 7))
    padding = torch.arange(7) < torch.tensor([[0], [3]])
    outputs = [
        core.attend(q, k, v, encoding, positions=CrossPositions(Positions(5, 5), padding, shift=shift))[0]
        for shift in (0, 10)
    ]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-10)


def test_sinusoids_of_an_odd_width_end_in_a_zero() -> None:
    encoding: Any = build_encoding("sinusoidal_qk", 3, 5)
    vectors = encoding.vectors(torch.arange(4), torch.float64)
    assert vectors.shape == (4, 15)
    assert not vectors[:, -1].any()


def test_the_keys_of_the_source_are_transformed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("transformer_rotary_tiny", "--cross-attention-positions", "true")
    transform, keys = ENCODINGS["rotary"].transform, []

    def counted(self: PositionEncoding, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, ...]:
        if positions.is_cross_attention:
            keys.append(k.size(2))
        return transform(self, q, k, v, positions)

    monkeypatch.setattr(ENCODINGS["rotary"], "transform", counted)
    translate(model, batch(sentences([6]), left_pad=True))
    assert len(keys) > 4
    assert sorted(keys)[-3:] == [0, 7, 7]  # in the first step of each of two layers


@pytest.mark.parametrize(("key", "value"), [("src_tokens", []), *(("encoder_padding_mask", v) for v in ([], [None]))])
@pytest.mark.parametrize("flags", [(), ("--cross-position-encoding", "t5")])
def test_the_decoder_takes_the_output_of_another_encoder(flags: tuple[str, ...], key: str, value: list[None]) -> None:
    model = build_model("transformer_shaw_tiny", *flags)
    rows = sentences([5, 5])
    source, target = batch(rows, left_pad=True), batch(shift_right(rows), left_pad=False)
    encoded = model.encoder(source, torch.tensor([6, 6]))
    expected, other = (model.decoder(target, encoder_out=output)[0] for output in (encoded, encoded | {key: value}))
    torch.testing.assert_close(other, expected)


def test_a_cache_of_another_prefix_is_refused() -> None:
    model = build_model("transformer_t5_tiny")
    rows = torch.tensor([[5, 6, 2]])
    encoded, state = model.encoder(rows, torch.tensor([3])), dict[str, Any]()
    model.decoder(rows[:, :1], encoder_out=encoded, incremental_state=state)
    with pytest.raises(ValueError, match=r"positions were made for 1 queries and 1 keys, .* k has 2 keys"):
        model.decoder(rows[:, 1:2], encoder_out=encoded, incremental_state=state)
