"""The gates of `forget`: what they read, in a layer and alone; and how precisely they are summed."""

import math

import pytest
import torch
import torch.nn.functional as F

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.attention.observing import attentions, observing
from tests.models import PAD, batch, build_model, enlarge_positions, sentences
from tests.references import naive_attention
from tests.variants import causal_mask, make_encoding, make_qkv

HEADS, DIM, LENGTH = 2, 4, 6


def test_gates_read_the_layers_input_and_without_one_the_keys():
    encoding, qkv = build_encoding("forget", HEADS, DIM).double(), make_qkv(2, LENGTH)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    side_by_side = qkv[1].transpose(1, 2).flatten(2)
    by_keys, _ = attend(*qkv, encoding)
    assert torch.equal(attend(*qkv, encoding, layer_input=side_by_side)[0], by_keys)
    assert not torch.allclose(attend(*qkv, encoding, layer_input=side_by_side.flip(1))[0], by_keys)
    with pytest.raises(ValueError, match=r"layer_input has the shape \(2, 5, 8\), .*: give it the shape \(2, 6, 8\)\."):
        attend(*qkv, encoding, layer_input=side_by_side[:, 1:])


def test_a_model_gives_its_layers_input_and_analyses_see_the_gates():
    """The logits of the encoder's first layer, against the reference with the identity as projections."""
    model, seen = enlarge_positions(build_model("transformer_forget_tiny")), []
    attention = model.encoder.layers[0].self_attn
    for projection in (attention.q_proj, attention.k_proj):
        torch.nn.init.eye_(projection.weight)
        torch.nn.init.zeros_(projection.bias)
    source, read = batch(sentences([7, 4]), left_pad=True), []
    padding = source.eq(PAD)
    attention.register_forward_pre_hook(lambda _, args, kwargs: read.append(kwargs["query"]), with_kwargs=True)
    place = "encoder", 0
    with observing({place: attentions(model)[place]}, lambda _, observed: seen.append(observed)), torch.no_grad():
        model.encoder(source, (~padding).sum(1))
    x = read[0].transpose(0, 1).view(*source.shape, attention.num_heads, -1).transpose(1, 2)
    _, expected = naive_attention(attention.position_encoding, x, x, x, padding)
    real = ~padding[:, None, :, None].expand_as(seen[0].weights)
    torch.testing.assert_close(seen[0].weights[real], torch.from_numpy(expected)[real], rtol=0, atol=1e-10)
    assert not torch.allclose(seen[0].logits[real], seen[0].content[real])


def test_gates_are_summed_in_single_precision():
    """Sums reach -20 here, where bfloat16 has steps of 0.125."""
    encoding, x = build_encoding("forget", HEADS, DIM).bfloat16(), torch.zeros(1, HEADS, 3000, DIM).bfloat16()
    _, weights = attend(x[:, :, -1:], x, x, encoding, need_weights=True)
    expected = 30 * math.log(1 / (1 + math.exp(-5)))
    assert float((weights[0, 0, 0, -31] / weights[0, 0, 0, -1]).log().detach()) == pytest.approx(expected, abs=0.02)


def test_cable_is_forget_with_negated_gates():
    """Veisi et al. (2025) add the sum of -softplus(W x + b) over the tokens from key to query."""
    encoding, (q, k, v) = make_encoding("forget", {"bidirectional": False}), make_qkv(2, LENGTH)
    x, future = torch.randn(2, LENGTH, HEADS * DIM, dtype=torch.float64), causal_mask(LENGTH)
    sums = -F.softplus(F.linear(x, -encoding.gates.weight, -encoding.gates.bias)).cumsum(1).transpose(1, 2)
    logits = q @ k.mT / math.sqrt(DIM) + sums[..., None] - sums[..., None, :]
    expected = logits.masked_fill(future, -math.inf).softmax(-1) @ v
    torch.testing.assert_close(attend(q, k, v, encoding, attn_mask=future, layer_input=x)[0], expected)
