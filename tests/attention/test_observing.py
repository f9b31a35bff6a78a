"""What is observed of attention is what attention computes."""

import pytest
import torch

from fairseq_posenc.attention.observing import attentions, observing
from fairseq_posenc.encodings import ENCODINGS
from tests.models import build_model, enlarge_positions, logits, model_inputs, sentences

#: with padding on either side, and long enough for the band of near distances to end
ROWS = sentences([9, 1, 6])
INPUTS = model_inputs(ROWS, ROWS)


def ask_for_weights(module, args, kwargs):
    return args, {**kwargs, "need_weights": True, "need_head_weights": True}


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        *((name, ()) for name in ENCODINGS),
        ("diet_abs", ("--cross-attention-positions", "true")),
        ("xlnet", ("--segment-separator", "w3")),
        ("deberta", ("--share-key-projection", "true")),
    ],
)
def test_weights_are_those_of_attention(name, flags):
    model = enlarge_positions(build_model(f"transformer_{name}_tiny", *flags))
    modules = attentions(model)
    computed, seen = {}, {}
    for place, module in modules.items():
        module.register_forward_pre_hook(ask_for_weights, with_kwargs=True)
        module.register_forward_hook(lambda _, args, output, place=place: computed.update({place: output[1]}))
    with observing(modules, lambda place, observed: seen.update({place: observed})), torch.no_grad():
        observed = logits(model, *INPUTS)
    assert torch.equal(observed, logits(model, *INPUTS))
    assert seen.keys() == computed.keys() == modules.keys()
    for place, weights in computed.items():
        precision = 1e-12 if weights.dtype == torch.float64 else 1e-6  # stock fairseq's softmax is single
        assert torch.allclose(seen[place].weights, weights.transpose(0, 1).double(), atol=precision), place
        if place[0] == "decoder":
            assert seen[place].forbidden.squeeze().equal(torch.ones(weights.shape[-2:]).triu(1).bool())
        adds = not seen[place].logits.equal(seen[place].content)
        stock_cross = place[0] == "cross" and "--cross-attention-positions" not in flags
        assert adds == (not stock_cross and knows_positions(modules[place].position_encoding)), place


def knows_positions(encoding):
    """Whether an encoding adds something to logits; a projection of the length alone does not."""
    hooks = ("bias", "content") if encoding.facts.projects_length else ("bias", "content", "transform")
    return encoding.segments is not None or any(hook in encoding.hooks for hook in hooks)


def test_steps_of_a_generation_are_not_seen():
    model, seen = build_model("transformer_shaw_tiny"), []
    with torch.no_grad(), observing(attentions(model), lambda place, _: seen.append(place)):
        encoded = model.encoder(torch.tensor([[5, 6, 2]]), torch.tensor([3]))
        model.decoder(torch.tensor([[2]]), encoder_out=encoded, incremental_state={})
    assert seen == [("encoder", 0), ("encoder", 1)]
