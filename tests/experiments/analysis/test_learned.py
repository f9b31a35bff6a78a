"""The analysis of learned positions reports what is in the parameters."""

import math

import pytest
import torch

from fairseq_posenc import build_encoding
from posenc_experiments.analysis.figures import learned_figures
from posenc_experiments.analysis.learned import learned, learned_at_input


@pytest.fixture
def encodings(build):
    """``encodings(name, *flags)``: those of a model's self-attention, by stack and layer."""

    def make(name, *flags):
        model, _ = build(f"transformer_{name}_tiny", *flags)
        stacks = {"encoder": model.encoder.layers, "decoder": model.decoder.layers}
        return {
            (stack, number): layer.self_attn.position_encoding
            for stack, layers in stacks.items()
            for number, layer in enumerate(layers)
        }

    return make


def entry(found, stack, layer, name):
    (one,) = [e for e in found if (e["stack"], e["layer"], e["name"]) == (stack, layer, name)]
    return one


def test_vectors_of_clipped_distances(encodings):
    of = encodings("shaw", "--clipping-distance", "2")
    found = learned(of)
    assert len(found) == 8
    table = of["encoder", 1].relative_keys
    reported = entry(found, "encoder", 1, "relative_keys")
    assert reported["kind"] == "vectors by distance"
    assert reported["distances"] == [-2, -1, 0, 1, 2]
    heads = range(2)
    for row in range(5):
        norms = [math.sqrt(sum(float(x) ** 2 for x in table[head, row])) for head in heads]
        assert reported["norms"][row] == pytest.approx(sum(norms) / 2)
        for other in range(5):
            cosines = [float(torch.cosine_similarity(table[head, row], table[head, other], 0)) for head in heads]
            assert reported["cosine"][row][other] == pytest.approx(sum(cosines) / 2, abs=1e-6)


def test_a_decoder_has_no_distances_to_the_right(encodings):
    found = learned(encodings("shaw", "--clipping-distance", "2"))
    assert entry(found, "decoder", 0, "relative_values")["distances"] == [-2, -1, 0]


def test_scalars_are_reported_as_they_act(encodings):
    of = encodings("huang2", "--clipping-distance", "1", "--bias-gain", "4")
    reported = entry(learned(of), "encoder", 0, "relative_factors")
    assert reported["kind"] == "scalar by distance"
    assert reported["distances"] == [-1, 0, 1]
    theta = of["encoder", 0].relative_factors
    assert torch.tensor(reported["heads"]).allclose(1 + 4 * (theta - 1))


def test_buckets_are_reported_by_distance(encodings):
    of = encodings("t5", "--position-sharing", "none", "--num-buckets", "4", "--max-distance", "3")
    reported = entry(learned(of), "encoder", 0, "relative_bias")
    # four buckets: 0, 1 and more to the left, then 1 and more to the right, of which the first is for no distance
    bias = of["encoder", 0].relative_bias
    assert reported["distances"] == [-1, 0, 1]
    assert torch.tensor(reported["heads"]).allclose(bias[:, [1, 0, 3]])


def test_several_scalars_make_one_curve(encodings):
    reported = entry(learned(encodings("kerple_log")), "encoder", 0, "magnitude, rate")
    assert reported["kind"] == "scalar by distance"
    assert reported["distances"] == list(range(-63, 64))


@pytest.mark.parametrize(("sharing", "layers"), [("none", {0, 1}), ("layer", {None})])
def test_a_matrix_of_positions(sharing, layers, encodings):
    of = encodings("diet_abs", "--position-sharing", sharing)
    found = learned(of)
    assert {(e["stack"], e["layer"]) for e in found} == {(s, n) for s in ("encoder", "decoder") for n in layers}
    reported = entry(found, "encoder", min(layers, key=str), "query_positions, key_positions")
    assert reported["kind"] == "matrix"
    encoding = of["encoder", 0]
    expected = encoding.query_positions[:, 7] @ encoding.key_positions[:, 63].T
    assert [head[7][63] for head in reported["heads"]] == pytest.approx(expected.diagonal().tolist(), rel=1e-4)
    assert {(len(head), len(head[0])) for head in reported["heads"]} == {(64, 64)}


def test_what_layers_share_in_part_is_reported_once(encodings):
    found = learned(encodings("transformer_xl"))
    layers = {
        e["name"]: [o["layer"] for o in found if (o["stack"], o["name"]) == ("encoder", e["name"])] for e in found
    }
    assert layers == {"relative_projection": [0, 1], "content_bias": [None], "position_bias": [None]}
    assert entry(found, "encoder", 0, "relative_projection")["distances"] == list(range(-32, 33))


def test_rows_of_tables_in_a_vector_of_both_heads(encodings):
    of = encodings("deberta", "--clipping-distance", "3")
    reported = entry(learned(of), "encoder", None, "relative_vectors")
    assert reported["distances"] == [-2, -1, 0, 1, 2, 3]
    assert reported["norms"] == pytest.approx(of["encoder", 0].relative_vectors.norm(dim=1).tolist())


def test_buckets_of_vectors_are_reported_by_distance(encodings):
    of = encodings("deberta", "--position-buckets", "8", "--max-distance", "500")["encoder", 0]
    reported = entry(learned({("encoder", 0): of}), "encoder", 0, "relative_vectors")
    rows = [int(of.bucket_rows[distance + 499]) for distance in reported["distances"]]
    assert reported["distances"][0] < -8
    assert rows[0] > 0
    assert reported["norms"] == pytest.approx([float(of.relative_vectors[row].norm()) for row in rows])


def test_other_parameters_are_reported_as_they_are(encodings):
    reported = entry(learned(encodings("xlnet")), "encoder", 0, "content_bias")
    assert reported["kind"] == "scalars"
    assert torch.tensor(reported["values"]).allclose(encodings("xlnet")["encoder", 0].content_bias)
    of = encodings("linformer")
    reported = entry(learned(of), "encoder", 0, "projection.keys")
    assert (reported["kind"], reported["shape"]) == ("norm", [32, 1024])
    assert reported["norm"] == pytest.approx(float(of["encoder", 0].projection.keys.norm()))


def test_segments_are_reported_with_their_gain():
    encoding = build_encoding("shaw", 2, 8, num_segments=3, bias_gain=2)
    reported = entry(learned({("encoder", 0): encoding}), "encoder", 0, "segments.segment_bias")
    assert torch.tensor(reported["values"]).allclose(2 * encoding.segments.segment_bias)


def test_factors_on_the_weights_are_apart_from_the_bias(encodings):
    names = {one["name"] for one in learned(encodings("fire", "--urpe", "true"))}
    assert "urpe.factors" in names
    assert any(name.startswith("rate, ") and "urpe" not in name for name in names)


def test_what_layers_share_is_named_so_in_the_legend(encodings):
    for flags, legend in (((), ["layer 1", "layer 2"]), (("--position-sharing", "layer"), ["all layers"])):
        model = {"learned": learned(encodings("shaw", "--clipping-distance", "2", *flags))}
        (figure,) = learned_figures({"shaw": model})
        norms = next(drawing for name, drawing in figure.drawings.items() if "norm" in name)
        assert [text.get_text() for text in norms.legends[0].get_texts()] == legend


def test_vectors_at_the_input_are_reported_by_position(build):
    model, _ = build("transformer_learned_tiny", "--bias-gain", "3", "--max-target-positions", "9")
    torch.nn.init.normal_(model.decoder.embed_positions.weight)
    encoder, decoder = learned_at_input(model)
    assert (encoder["stack"], len(encoder["positions"])) == ("encoder", 64)
    assert (decoder["stack"], decoder["layer"], decoder["kind"]) == ("decoder", None, "vectors by position")
    assert decoder["positions"] == list(range(9))
    vectors = [model.decoder.embed_positions.weight[position + 2] for position in range(9)]  # after <s> and <pad>
    assert decoder["norms"] == pytest.approx([3 * math.hypot(*vector.tolist()) for vector in vectors], rel=1e-5)
    for one, cosines in zip(vectors, decoder["cosine"], strict=True):
        assert cosines == pytest.approx([float(torch.cosine_similarity(one, other, 0)) for other in vectors], abs=1e-5)


def test_sinusoids_at_the_input_are_not_learned(build):
    assert learned_at_input(build("transformer_sinusoidal_tiny")[0]) == []
