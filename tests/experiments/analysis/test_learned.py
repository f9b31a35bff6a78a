"""The analysis of learned positions reports what is in the parameters."""

import math

import pytest
import torch

from fairseq_posenc.attention.observing import attentions
from posenc_experiments.analysis.learned import learned, learned_at_input
from tests.models import build_model, enlarge_positions


def encodings(name, *flags):
    """Those of a model's self-attention, by stack and layer."""
    model = enlarge_positions(build_model(f"transformer_{name}_tiny", *flags).float())
    return {place: module.position_encoding for place, module in attentions(model).items() if place[0] != "cross"}


def entry(entries, stack, layer, name):
    (reported,) = [e for e in entries if (e["stack"], e["layer"], e["name"]) == (stack, layer, name)]
    return reported


def test_vectors_of_clipped_distances():
    by_place = encodings("shaw", "--clipping-distance", "2")
    entries = learned(by_place)
    assert len(entries) == 8
    assert entry(entries, "decoder", 0, "relative_values")["distances"] == [-2, -1, 0]  # none to the right
    table = by_place["encoder", 1].relative_keys
    reported = entry(entries, "encoder", 1, "relative_keys")
    assert reported["kind"] == "vectors by distance"
    assert reported["distances"] == [-2, -1, 0, 1, 2]
    heads = range(2)
    for row in range(5):
        norms = [math.sqrt(sum(float(x) ** 2 for x in table[head, row])) for head in heads]
        assert reported["norms"][row] == pytest.approx(sum(norms) / 2)
        for column in range(5):
            cosines = [float(torch.cosine_similarity(table[head, row], table[head, column], 0)) for head in heads]
            assert reported["cosine"][row][column] == pytest.approx(sum(cosines) / 2, abs=1e-6)


def test_scalars_are_reported_as_they_act():
    by_place = encodings("huang2", "--clipping-distance", "1", "--bias-gain", "4")
    reported = entry(learned(by_place), "encoder", 0, "relative_factors")
    assert reported["kind"] == "scalar by distance"
    assert reported["distances"] == [-1, 0, 1]
    theta = by_place["encoder", 0].relative_factors
    assert torch.tensor(reported["heads"]).allclose(1 + 4 * (theta - 1))


@pytest.mark.parametrize(("sharing", "layers"), [("none", {0, 1}), ("layer", {None})])
def test_a_matrix_of_positions(sharing, layers):
    by_place = encodings("diet_abs", "--position-sharing", sharing)
    entries = learned(by_place)
    assert {(e["stack"], e["layer"]) for e in entries} == {(s, n) for s in ("encoder", "decoder") for n in layers}
    reported = entry(entries, "encoder", min(layers, key=str), "query_positions, key_positions")
    assert reported["kind"] == "matrix"
    encoding = by_place["encoder", 0]
    expected = encoding.query_positions[:, 7] @ encoding.key_positions[:, 63].T
    assert [head[7][63] for head in reported["heads"]] == pytest.approx(expected.diagonal().tolist(), rel=1e-4)
    assert {(len(head), len(head[0])) for head in reported["heads"]} == {(64, 64)}


def test_what_layers_share_in_part_is_reported_once():
    entries = learned(encodings("transformer_xl"))
    layers = {
        e["name"]: [o["layer"] for o in entries if (o["stack"], o["name"]) == ("encoder", e["name"])] for e in entries
    }
    assert layers == {"relative_projection": [0, 1], "content_bias": [None], "position_bias": [None]}
    assert entry(entries, "encoder", 0, "relative_projection")["distances"] == list(range(-32, 33))


def test_other_parameters_are_reported_as_they_are():
    reported = entry(learned(encodings("xlnet")), "encoder", 0, "content_bias")
    assert reported["kind"] == "scalars"
    assert torch.tensor(reported["values"]).allclose(encodings("xlnet")["encoder", 0].content_bias)
    by_place = encodings("linformer")
    reported = entry(learned(by_place), "encoder", 0, "projection.keys")
    assert (reported["kind"], reported["shape"]) == ("norm", [32, 1024])
    assert reported["norm"] == pytest.approx(float(by_place["encoder", 0].projection.keys.norm()))


def test_vectors_at_the_input_are_reported_by_position():
    model = build_model("transformer_learned_tiny", "--bias-gain", "3", "--max-target-positions", "9")
    torch.nn.init.normal_(model.decoder.embed_positions.weight)
    encoder, decoder = learned_at_input(model)
    assert (encoder["stack"], len(encoder["positions"])) == ("encoder", 64)
    assert (decoder["stack"], decoder["layer"], decoder["kind"]) == ("decoder", None, "vectors by position")
    assert decoder["positions"] == list(range(9))
    vectors = [model.decoder.embed_positions.weight[position + 2] for position in range(9)]  # after <s> and <pad>
    assert decoder["norms"] == pytest.approx([3 * math.hypot(*vector.tolist()) for vector in vectors], rel=1e-5)
    for row, cosines in zip(vectors, decoder["cosine"], strict=True):
        expected = [float(torch.cosine_similarity(row, column, 0)) for column in vectors]
        assert cosines == pytest.approx(expected, abs=1e-5)
