"""Compares encodings with outputs of other implementations, see golden/README.md."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fairseq.modules import PositionalEmbedding

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.encodings.contract.urpe import FURTHEST
from fairseq_posenc.encodings.shared.buckets import by_clamped_distance, log_buckets, signed_log_buckets
from fairseq_posenc.input_positions import PaperSinusoids
from fairseq_posenc.positions import Positions

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


def load(path):
    facts = json.loads(path.with_suffix(".json").read_text())
    return facts, {name: torch.from_numpy(value) for name, value in np.load(path).items()}


def build(name, arrays, parameters, **options):
    """Builds the encoding with these parameters, and the number and width of heads in the arrays."""
    _, heads, _, dim = arrays["q"].shape
    encoding = build_encoding(name, num_heads=heads, head_dim=dim, **options).to(arrays["q"].dtype)
    own = dict(encoding.named_parameters())
    assert set(own) == set(parameters)
    with torch.no_grad():
        for key, value in parameters.items():
            own[key].copy_(value.reshape(own[key].shape))
    return encoding


def sharing(table):
    return "none" if len(table) > 1 and table.dim() == 3 else "head"


def weights_and_biases(names, arrays, pattern):
    """The parameters of modules, from arrays that other code calls by this pattern."""
    return {
        f"{own}.{kind}": arrays[pattern.format(theirs, kind)]
        for own, theirs in names.items()
        for kind in ("weight", "bias")
    }


def shaw(facts, arrays):
    tables = {"relative_keys": arrays["rel_k"]} | ({"relative_values": arrays["rel_v"]} if "rel_v" in arrays else {})
    options = {"clipping_distance": facts["clip_k"], "position_sharing": sharing(arrays["rel_k"])}
    return build("shaw", arrays, tables, relative_values="rel_v" in arrays, **options)


def relative_key(facts, arrays):
    clip = facts["clip_k"]
    return build("relative_key", arrays, {"relative_keys": arrays["rel_k"]}, left_clip=clip, right_clip=clip)


def diet_rel(facts, arrays):
    table = arrays["R"].flip(1)  # theirs is by i - j
    options = {"clipping_distance": table.size(1) // 2, "position_sharing": "none" if len(table) > 1 else "head"}
    parameters = {"relative_bias": table}
    if "seg_table" in arrays:
        options["num_segments"] = arrays["seg_table"].size(1)
        parameters["segments.segment_bias"] = arrays["seg_table"]
    return build("diet_rel", arrays, parameters, **options)


def urpe(facts, arrays):
    """Their tables are as long as the sentence; here that of factors is longer."""
    heads, distance = len(arrays["C"]), arrays["C"].size(1) // 2
    factors = torch.ones(heads, 2 * FURTHEST + 1, dtype=torch.float64)
    factors[:, FURTHEST - distance : FURTHEST + distance + 1] = arrays["C"]
    parameters = {"relative_bias": arrays["B"], "urpe.factors": factors}
    return build("diet_rel", arrays, parameters, clipping_distance=distance, urpe=True)


def forget(facts, arrays):
    parameters = {"gates.weight": arrays["weight"], "gates.bias": arrays["bias"]}
    initial = build_encoding("forget", arrays["q"].size(1), 4, bidirectional=facts["bidirectional"]).gates.bias
    assert torch.equal(initial.double(), arrays["initial_bias"])
    return build("forget", arrays, parameters, bidirectional=facts["bidirectional"])


def diet_abs(facts, arrays):
    _, length, rank = arrays["PQ"].shape
    parameters = {"query_positions": arrays["PQ"], "key_positions": arrays["PK"]}
    options = {"position_rank": rank, "max_positions": length}
    if "E" in arrays:
        parameters |= {"projection.keys": arrays["E"], "projection.values": arrays["F"]}
        return build("diet_abs_lin", arrays, parameters, projection_length=len(arrays["E"]), **options)
    return build("diet_abs", arrays, parameters, position_sharing=sharing(arrays["PQ"]), **options)


def t5(facts, arrays):
    # T5 does not scale queries and this package does, so the queries of the test are scaled up.
    arrays["q"] = arrays["q"] * math.sqrt(arrays["q"].size(3))
    options = {key: facts[key] for key in ("num_buckets", "max_distance", "bidirectional")}
    return build("t5", arrays, {"relative_bias": arrays["table"].T}, **options)


def gated_t5(facts, arrays):
    parameters = weights_and_biases({"gate_projection": "grep_linear"}, arrays, "{}.{}")
    parameters |= {"relative_bias": arrays["relative_attention_bias.weight"].T, "gate_scale": arrays["grep_a"]}
    return build("gated_t5", arrays, parameters, num_buckets=facts["num_buckets"], max_distance=facts["max_distance"])


def named(encoding, names, **options):
    """For an encoding whose parameters are those of the arrays, under other names."""
    return lambda facts, arrays: build(
        encoding, arrays, {own: arrays[theirs] for own, theirs in names.items()}, **options
    )


def fire(facts, arrays):
    parameters = weights_and_biases({"hidden": 0, "output": 2}, arrays, "mlp.{}.{}")
    parameters |= {"rate": arrays["c"], "threshold_scale": arrays["L_multiplier"]}
    return build("fire", arrays, parameters, fire_threshold=facts["init_L"], bidirectional=False)


def rotary(facts, arrays):
    return build("rotary", arrays, {}, **facts.get("options", {"rotary_layout": facts.get("layout")}))


def sinusoidal_relative(facts, arrays):
    names = {"relative_projection": "W_kR", "content_bias": "u", "position_bias": "v_bias"}
    if facts.get("segments"):
        names |= {"segment_query_bias": "s_bias", "segment_vectors": "seg_embed"}
    options = {"segment_vectors": True} if facts.get("segments") else {}
    return named(facts["encoding"], names, **options)(facts, arrays)


def tupe(facts, arrays):
    names = {"norm": "ln", "query_projection": "q", "key_projection": "k"}
    parameters = {"position_vectors": arrays["pos_table"], **weights_and_biases(names, arrays, "pos_{}_{}")}
    options = {"untie_first_token": True, "max_positions": len(arrays["pos_table"]) - 1}
    if facts["encoding"] == "tupe_a":
        return build("tupe_abs", arrays, parameters, **options)
    buckets, table = facts["num_buckets"], arrays["relative_table"].T
    parameters |= {"relative_bias": table[:, :buckets], "first_token_bias": table[:, [buckets // 2, buckets]]}
    options |= {"num_buckets": buckets, "max_distance": facts["max_distance"]}
    return build("tupe_rel", arrays, parameters, **options)


def huang4(facts, arrays):
    table = arrays["distance_embedding"].flip(0)  # theirs is by i - j
    options = {"clipping_distance": len(table) // 2, "position_sharing": "head"}
    return build("huang4", arrays, {"relative_vectors": table}, **options)


def deberta(facts, arrays):
    """Outputs of DeBERTa-v2 are in single precision, this package's in double."""
    arrays |= {name: value.double() for name, value in arrays.items() if value.is_floating_point()}
    table = arrays["rel_embeddings"]
    if "norm_weight" in arrays:  # their model normalizes the table; here the table is normalized in advance
        table = F.layer_norm(table, table.shape[-1:], arrays["norm_weight"], arrays["norm_bias"], eps=1e-7)
    parameters = {"relative_vectors": table.flip(0)}  # theirs is by i - j
    shares = facts.get("share_att_key", False)
    options = {"content_to_position": "c2p" in facts["terms"], "position_to_content": "p2c" in facts["terms"]}
    if "clip_k" in facts:
        options["clipping_distance"] = facts["clip_k"]
    else:
        options |= {"position_buckets": facts["position_buckets"], "max_distance": facts["max_relative_positions"]}
    if not shares:
        parameters["key_projection.weight"] = arrays["W_pos_key"]
        if "p2c" in facts["terms"]:
            weight = parameters["query_projection.weight"] = arrays["W_pos_query"]
            parameters["query_projection.bias"] = arrays.get("b_pos_query", torch.zeros(len(weight)))
    encoding = build("deberta", arrays, parameters, share_key_projection=shares, **options)
    if shares:
        projections = [partial(F.linear, weight=arrays[f"W_{x}"], bias=arrays[f"b_{x}"]) for x in ("query", "key")]
        encoding.read_layer(torch.zeros(()), projections)
    return encoding


#: how to build the encoding of a file, by the beginning of its name
FAMILIES = {
    **dict.fromkeys(("shaw__", "shaw_per_head__", "shaw_keys_only__", "shaw_step__"), shaw),
    "shaw_keys_only__hf": relative_key,
    **{"diet_rel_": diet_rel, "diet_abs_": diet_abs, "urpe__": urpe, "t5_bias_": t5, "fire__": fire},
    **{"gated_t5__": gated_t5, "forget__": forget, "tupe_": tupe, "huang_method4__": huang4},
    **{"rope_": rotary, "rotary_options__": rotary, "deberta__": deberta, "deberta_v2__": deberta},
    **{"transformer_xl__": sinusoidal_relative, "xlnet__": sinusoidal_relative},
    "alibi__": named("alibi", {}),
    "alibi_learned__": named("alibi", {"log_slopes": "learned_logslopes"}, alibi_slopes="learned"),
    "kerple_log__": named("kerple_log", {"magnitude": "bias_p", "rate": "bias_a"}),
    "kerple_power__": named("kerple_power", {"magnitude": "bias_a", "exponent": "bias_p"}),
    "pope__": named("pope", {"phases": "phases"}),
}
#: tested in other ways, here and in test_augmentation.py
OTHERS = (
    *("t5_bucket_table__", "deberta_bucket_table__", "sinusoidal__", "learned_absolute__"),
    *("shape__", "cape__", "paper_sinusoids__", "segment_shift__", "length_sinusoids__"),
)


def test_every_golden_file_is_used():
    for path in GOLDEN.glob("*.npz"):
        assert path.name.startswith((*FAMILIES, *OTHERS)), path.name


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_equals_golden_outputs(family):
    paths = sorted(GOLDEN.glob(f"{family}*.npz"))
    assert paths
    for path in paths:
        facts, arrays = load(path)
        encoding = FAMILIES[family](facts, arrays)
        q, k, v = arrays["q"], arrays["k"], arrays["v"]
        forbidden = arrays.get("attn_forbidden", torch.zeros(1, 1, q.size(2), k.size(2), dtype=torch.bool))
        defined = (~forbidden.all(-1)).expand(q.shape[:3])
        tolerance = TOLERANCE["float32" if "float32" in facts["dtype"] else "float64"]
        positions = Positions(q.size(2), k.size(2), arrays.get("key_padding_mask"), segments=arrays.get("segments"))
        mask = None if encoding.facts.projects_length else forbidden
        for need_weights in (False, True):
            output, weights = attend(
                *(q, k, v, encoding, arrays.get("key_padding_mask"), mask),
                need_weights=need_weights,
                positions=positions,
                layer_input=arrays.get("x"),
            )
            torch.testing.assert_close(output[defined], arrays["expected_out"][defined], rtol=0, atol=tolerance)
        if "expected_probs" in arrays:
            torch.testing.assert_close(weights[defined], arrays["expected_probs"][defined], rtol=0, atol=tolerance)


def test_buckets_equal_golden_ones():
    for path in GOLDEN.glob("t5_bucket_table__*.npz"):
        facts, arrays = load(path)
        table = log_buckets(facts["num_buckets"], facts["max_distance"], facts["bidirectional"])
        assert torch.equal(by_clamped_distance(table, arrays["distance_j_minus_i"]), arrays["expected_bucket"])
    for name, theirs in load(GOLDEN / "deberta_bucket_table__microsoft.npz")[1].items():
        buckets, furthest = (int(number) for number in name.split("_")[1:])
        table = torch.tensor(signed_log_buckets(buckets, furthest))
        distances = torch.arange(furthest + 5, -furthest - 6, -1)  # theirs are i - j, ascending
        assert torch.equal(-by_clamped_distance(table, distances), theirs.long()), name


def test_the_sinusoids_of_the_paper():
    """Those of the Annotated Transformer and of plain loops, padded on the left; the table grows with the sentence."""
    (path,) = GOLDEN.glob("paper_sinusoids__*.npz")
    expected = load(path)[1]["vectors"]
    length, width = expected.shape
    module = PaperSinusoids(PositionalEmbedding(20, width, 1, learned=False))
    assert len(module.weights) < length
    tokens = torch.full((2, length), 9)
    tokens[1, :3] = 1
    vectors = module(tokens)
    torch.testing.assert_close(vectors[0], expected, rtol=0, atol=2e-5)  # their frequencies are in single precision
    torch.testing.assert_close(vectors[1, 3:], expected[:-3], rtol=0, atol=2e-5)
    assert not vectors[1, :3].any()
    step = module(tokens[:, :7], incremental_state={})
    torch.testing.assert_close(step[:, 0], expected[6].expand(2, -1), rtol=0, atol=2e-5)
    for place in (0, 1, 6, 399, 2.5):
        angles = [place / 10000 ** (2 * i / width) for i in range(width // 2)]
        exact = [function(angle) for angle in angles for function in (math.sin, math.cos)]
        assert module.of_rows(torch.tensor(place + 2)).tolist() == pytest.approx(exact, abs=1e-10)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned_absolute"])
def test_input_positions_equal_golden_outputs(kind):
    """The architectures of `sinusoidal` and `learned` use fairseq's own modules."""
    for path in GOLDEN.glob(f"{kind}__fairseq__*.npz"):
        facts, arrays = load(path)
        expected, table = arrays["expected_encoding"], arrays.get("table")
        rows = 64 if table is None else len(table) - 2
        module = PositionalEmbedding(rows, expected.size(-1), facts.get("padding_idx", 1), learned=table is not None)
        if table is not None:
            module.load_state_dict({"weight": table})
        torch.testing.assert_close(module(arrays["tokens"]).double(), expected.double(), rtol=0, atol=1e-6)
