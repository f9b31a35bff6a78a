"""Outputs of other people's implementations, see golden/README.md in the shared folder."""

import json

import numpy as np
import pytest
import torch
from fairseq.modules import PositionalEmbedding

from fairseq_posenc import attend, build_encoding

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


def load(path):
    facts = json.loads(path.with_suffix(".json").read_text())
    return facts, {name: torch.from_numpy(value) for name, value in np.load(path).items()}


def shaw_encoding(facts, arrays, heads, dim):
    per_head = arrays["rel_k"].dim() == 3
    encoding = build_encoding(
        "shaw",
        num_heads=heads,
        head_dim=dim,
        clipping_distance=facts["clip_k"],
        position_sharing="none" if per_head else "head",
        relative_values="rel_v" in arrays,
    ).to(arrays["q"].dtype)
    with torch.no_grad():
        encoding.relative_keys.copy_(arrays["rel_k"])
        if "rel_v" in arrays:
            encoding.relative_values.copy_(arrays["rel_v"])
    return encoding


def diet_rel_encoding(facts, arrays, heads, dim):
    table = arrays["R"].flip(1)  # theirs is by i - j
    encoding = build_encoding(
        "diet_rel",
        num_heads=heads,
        head_dim=dim,
        clipping_distance=table.size(1) // 2,
        position_sharing="none" if table.size(0) == heads else "head",
    ).to(arrays["q"].dtype)
    with torch.no_grad():
        encoding.relative_bias.copy_(table)
    return encoding


FAMILIES = {
    "shaw__t2t": (shaw_encoding, 6),
    "shaw_per_head__t2t": (shaw_encoding, 6),
    "shaw_keys_only__": (shaw_encoding, 6),
    "shaw_step__": (shaw_encoding, 3),
    "diet_rel_per_head__": (diet_rel_encoding, 3),
    "diet_rel_headwise_shared__": (diet_rel_encoding, 3),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_equals_golden_outputs(shared, family):
    make, count = FAMILIES[family]
    paths = sorted((shared / "golden").glob(f"{family}*.npz"))
    assert len(paths) >= count
    for path in paths:
        facts, arrays = load(path)
        q, k, v = arrays["q"], arrays["k"], arrays["v"]
        encoding = make(facts, arrays, q.size(1), q.size(3))
        forbidden = arrays.get("attn_forbidden", torch.zeros(1, 1, q.size(2), k.size(2), dtype=torch.bool))
        defined = (~forbidden.all(-1)).expand(q.shape[:3])
        tolerance = TOLERANCE[facts["dtype"].split()[0]]
        for need_weights in (False, True):
            output, weights = attend(q, k, v, encoding, attn_mask=forbidden, need_weights=need_weights)
            torch.testing.assert_close(output[defined], arrays["expected_out"][defined], rtol=0, atol=tolerance)
        torch.testing.assert_close(weights[defined], arrays["expected_probs"][defined], rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned_absolute"])
def test_input_positions_equal_golden_outputs(shared, kind):
    """They are fairseq's own modules, as the architectures of `sinusoidal` and `learned` build them."""
    paths = sorted((shared / "golden").glob(f"{kind}__fairseq__*.npz"))
    assert len(paths) >= 3
    for path in paths:
        facts, arrays = load(path)
        tokens, expected = arrays["tokens"], arrays["expected_encoding"]
        learned = "table" in arrays
        module = PositionalEmbedding(64, expected.size(-1), facts.get("padding_idx", 1), learned=learned)
        if learned:
            module = PositionalEmbedding(len(arrays["table"]) - 2, expected.size(-1), 1, learned=True).double()
            with torch.no_grad():
                module.weight.copy_(arrays["table"])
        found = module(tokens)
        torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=1e-6)
