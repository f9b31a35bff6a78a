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
from fairseq_posenc.encodings.transformer_xl import relative_sinusoids
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
            own[key].copy_(value)
    return encoding


def sharing(table, heads):
    return "none" if table.dim() == 3 and len(table) == heads else "head"


def shaw(facts, arrays, heads):
    tables = {"relative_keys": arrays["rel_k"]}
    if "rel_v" in arrays:
        tables["relative_values"] = arrays["rel_v"]
    options = {"clipping_distance": facts["clip_k"], "position_sharing": sharing(arrays["rel_k"], heads)}
    return build("shaw", arrays, tables, relative_values="rel_v" in arrays, **options)


def relative_key(facts, arrays, heads):
    clip = facts["clip_k"]
    return build("relative_key", arrays, {"relative_keys": arrays["rel_k"]}, left_clip=clip, right_clip=clip)


def diet_rel(facts, arrays, heads):
    table = arrays["R"].flip(1)  # theirs is by i - j
    options = {
        "clipping_distance": table.size(1) // 2,
        "position_sharing": "none" if len(table) == heads else "head",
    }
    parameters = {"relative_bias": table}
    if "seg_table" in arrays:
        options["num_segments"] = arrays["seg_table"].size(1)
        parameters["segments.segment_bias"] = arrays["seg_table"]
    return build("diet_rel", arrays, parameters, **options)


def urpe(facts, arrays, heads):
    """Their tables are as long as the sentence; here that of factors is longer."""
    distance = arrays["C"].size(1) // 2
    factors = torch.ones(heads, 2 * FURTHEST + 1, dtype=torch.float64)
    factors[:, FURTHEST - distance : FURTHEST + distance + 1] = arrays["C"]
    parameters = {"relative_bias": arrays["B"], "urpe.factors": factors}
    return build("diet_rel", arrays, parameters, clipping_distance=distance, urpe=True)


def forget(facts, arrays, heads):
    parameters = {"gates.weight": arrays["weight"], "gates.bias": arrays["bias"]}
    encoding = build("forget", arrays, parameters, bidirectional=facts["bidirectional"])
    initial = build_encoding("forget", heads, 4, bidirectional=facts["bidirectional"]).gates.bias.double()
    assert torch.equal(initial, arrays["initial_bias"])
    return encoding


def diet_abs(facts, arrays, heads):
    _, length, rank = arrays["PQ"].shape
    options = {"position_rank": rank, "position_sharing": sharing(arrays["PQ"], heads), "max_positions": length}
    return build("diet_abs", arrays, {"query_positions": arrays["PQ"], "key_positions": arrays["PK"]}, **options)


def diet_abs_lin(facts, arrays, heads):
    _, length, rank = arrays["PQ"].shape
    parameters = {
        "query_positions": arrays["PQ"],
        "key_positions": arrays["PK"],
        "projection.keys": arrays["E"],
        "projection.values": arrays["F"],
    }
    options = {"position_rank": rank, "projection_length": len(arrays["E"]), "max_positions": length}
    return build("diet_abs_lin", arrays, parameters, **options)


def t5(facts, arrays, heads):
    # T5 does not scale queries and this package does, so the queries of the test are scaled up.
    arrays["q"] = arrays["q"] * math.sqrt(arrays["q"].size(3))
    options = {key: facts[key] for key in ("num_buckets", "max_distance", "bidirectional")}
    return build("t5", arrays, {"relative_bias": arrays["table"].T}, **options)


def alibi(facts, arrays, heads):
    return build("alibi", arrays, {})


def fire(facts, arrays, heads):
    parameters = {
        "rate": arrays["c"],
        "threshold_scale": arrays["L_multiplier"],
        "hidden.weight": arrays["mlp.0.weight"],
        "hidden.bias": arrays["mlp.0.bias"],
        "output.weight": arrays["mlp.2.weight"],
        "output.bias": arrays["mlp.2.bias"],
    }
    return build("fire", arrays, parameters, fire_threshold=facts["init_L"], bidirectional=False)


def gated_t5(facts, arrays, heads):
    parameters = {
        "relative_bias": arrays["relative_attention_bias.weight"].T,
        "gate_projection.weight": arrays["grep_linear.weight"],
        "gate_projection.bias": arrays["grep_linear.bias"],
        "gate_scale": arrays["grep_a"].flatten(),
    }
    return build("gated_t5", arrays, parameters, num_buckets=facts["num_buckets"], max_distance=facts["max_distance"])


def learned_alibi(facts, arrays, heads):
    return build("alibi", arrays, {"log_slopes": arrays["learned_logslopes"].flatten()}, alibi_slopes="learned")


def kerple(facts, arrays, heads):
    names = {
        "kerple_log": {"magnitude": "bias_p", "rate": "bias_a"},
        "kerple_power": {"magnitude": "bias_a", "exponent": "bias_p"},
    }[facts["encoding"]]
    return build(facts["encoding"], arrays, {own: arrays[theirs].flatten() for own, theirs in names.items()})


def rotary(facts, arrays, heads):
    return build("rotary", arrays, {}, rotary_layout=facts["layout"])


def rotary_options(facts, arrays, heads):
    return build("rotary", arrays, {}, **facts["options"])


def pope(facts, arrays, heads):
    return build("pope", arrays, {"phases": arrays["phases"]})


def sinusoidal_relative(facts, arrays, heads):
    parameters = {
        "relative_projection": arrays["W_kR"],
        "content_bias": arrays["u"],
        "position_bias": arrays["v_bias"],
    }
    options = {}
    if facts.get("segments"):
        options["segment_vectors"] = True
        parameters |= {"segment_query_bias": arrays["s_bias"], "segment_vectors": arrays["seg_embed"]}
    return build(facts["encoding"], arrays, parameters, **options)


def tupe(facts, arrays, heads):
    parameters = {
        "position_vectors": arrays["pos_table"],
        "norm.weight": arrays["pos_ln_weight"],
        "norm.bias": arrays["pos_ln_bias"],
        "query_projection.weight": arrays["pos_q_weight"],
        "query_projection.bias": arrays["pos_q_bias"],
        "key_projection.weight": arrays["pos_k_weight"],
        "key_projection.bias": arrays["pos_k_bias"],
    }
    options = {"untie_first_token": True, "max_positions": len(arrays["pos_table"]) - 1}
    if facts["encoding"] == "tupe_a":
        return build("tupe_abs", arrays, parameters, **options)
    buckets, table = facts["num_buckets"], arrays["relative_table"].T
    parameters["relative_bias"] = table[:, :buckets]
    parameters["first_token_bias"] = table[:, [buckets // 2, buckets]]
    options |= {"num_buckets": buckets, "max_distance": facts["max_distance"]}
    return build("tupe_rel", arrays, parameters, **options)


def huang4(facts, arrays, heads):
    table = arrays["distance_embedding"].flip(0)  # theirs is by i - j
    options = {"clipping_distance": len(table) // 2, "position_sharing": "head"}
    return build("huang4", arrays, {"relative_vectors": table}, **options)


def deberta(facts, arrays, heads):
    parameters = {
        "relative_vectors": arrays["rel_embeddings"].flip(0),  # theirs is by i - j
        "key_projection.weight": arrays["W_pos_key"],
    }
    with_positions = "p2c" in facts["terms"]
    if with_positions:
        weight = arrays["W_pos_query"]
        parameters |= {"query_projection.weight": weight, "query_projection.bias": torch.zeros(len(weight))}
    return build("deberta", arrays, parameters, clipping_distance=facts["clip_k"], position_to_content=with_positions)


def deberta_v2(facts, arrays, heads):
    """The golden outputs are in single precision, this package's in double."""
    arrays |= {name: value.double() for name, value in arrays.items() if value.is_floating_point()}
    table = arrays["rel_embeddings"]
    if "norm_weight" in arrays:  # their model normalizes the table; here the table is normalized in advance
        table = F.layer_norm(table, table.shape[-1:], arrays["norm_weight"], arrays["norm_bias"], eps=1e-7)
    parameters = {"relative_vectors": table.flip(0)}  # theirs is by i - j
    options = {
        "content_to_position": "c2p" in facts["terms"],
        "position_to_content": "p2c" in facts["terms"],
        "share_key_projection": facts["share_att_key"],
    }
    if "clip_k" in facts:
        options["clipping_distance"] = facts["clip_k"]
    else:
        options |= {"position_buckets": facts["position_buckets"], "max_distance": facts["max_relative_positions"]}
    if not facts["share_att_key"]:
        parameters |= {
            "key_projection.weight": arrays["W_pos_key"],
            "query_projection.weight": arrays["W_pos_query"],
            "query_projection.bias": arrays["b_pos_query"],
        }
        return build("deberta", arrays, parameters, **options)
    encoding = build("deberta", arrays, parameters, **options)
    query, key = (partial(F.linear, weight=arrays[f"W_{of}"], bias=arrays[f"b_{of}"]) for of in ("query", "key"))
    encoding.read_layer(torch.zeros(()), (query, key))
    return encoding


#: by beginning of the file name: how to build the encoding, and the minimum number of files
FAMILIES = {
    "shaw__t2t": (shaw, 6),
    "shaw_per_head__t2t": (shaw, 6),
    "shaw_keys_only__": (shaw, 6),
    "shaw_keys_only__hf": (relative_key, 6),
    "shaw_step__": (shaw, 3),
    "diet_rel_per_head__": (diet_rel, 3),
    "diet_rel_headwise_shared__": (diet_rel, 3),
    "diet_rel_plus_segment__": (diet_rel, 2),
    "diet_abs_per_head__": (diet_abs, 3),
    "diet_abs_lin__": (diet_abs_lin, 2),
    "urpe__": (urpe, 1),
    "t5_bias__": (t5, 4),
    "t5_bias_step__": (t5, 2),
    "alibi__": (alibi, 3),
    "alibi_learned__": (learned_alibi, 1),
    "fire__": (fire, 2),
    "gated_t5__": (gated_t5, 2),
    "kerple_log__": (kerple, 2),
    "kerple_power__": (kerple, 2),
    "forget__": (forget, 2),
    "rope_half__": (rotary, 2),
    "rope_interleaved__": (rotary, 2),
    "rotary_options__": (rotary_options, 4),
    "pope__": (pope, 2),
    "transformer_xl__": (sinusoidal_relative, 3),
    "xlnet__": (sinusoidal_relative, 4),
    "tupe_a__": (tupe, 2),
    "tupe_r__": (tupe, 2),
    "huang_method4__": (huang4, 6),
    "deberta__": (deberta, 5),
    "deberta_v2__microsoft": (deberta_v2, 6),
    "deberta_v2__hf": (deberta_v2, 2),
}
#: tested in other ways, here, in test_model.py and in test_augmentation.py
OTHERS = (
    *("t5_bucket_table__", "deberta_bucket_table__", "sinusoidal__", "learned_absolute__", "ct2_model__"),
    *("shape__", "cape__", "paper_sinusoids__"),
)


def test_every_golden_file_is_used():
    for path in GOLDEN.glob("*.npz"):
        assert path.name.startswith((*FAMILIES, *OTHERS)), path.name


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_equals_golden_outputs(family):
    make, count = FAMILIES[family]
    paths = sorted(GOLDEN.glob(f"{family}*.npz"))
    assert len(paths) >= count
    for path in paths:
        facts, arrays = load(path)
        encoding = make(facts, arrays, arrays["q"].size(1))
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


def test_buckets_equal_those_of_t5():
    paths = sorted(GOLDEN.glob("t5_bucket_table__*.npz"))
    assert len(paths) >= 6
    for path in paths:
        facts, arrays = load(path)
        table = log_buckets(facts["num_buckets"], facts["max_distance"], facts["bidirectional"])
        assert torch.equal(by_clamped_distance(table, arrays["distance_j_minus_i"]), arrays["expected_bucket"])


def test_buckets_equal_those_of_deberta():
    tables = np.load(GOLDEN / "deberta_bucket_table__microsoft.npz")
    assert len(tables) >= 10
    for name, theirs in tables.items():
        buckets, furthest = (int(number) for number in name.split("_")[1:])
        found = torch.tensor(signed_log_buckets(buckets, furthest))
        distances = torch.arange(furthest + 5, -furthest - 6, -1)  # theirs are i - j, ascending
        assert torch.equal(-by_clamped_distance(found, distances), torch.from_numpy(theirs).long()), name


def test_sinusoids_of_transformer_xl_equal_golden_ones():
    paths = sorted(GOLDEN.glob("transformer_xl__*.npz"))
    assert len(paths) >= 3
    for path in paths:
        _, arrays = load(path)
        positions = Positions(1, arrays["k"].size(2))
        distances = -positions.span
        found = relative_sinusoids(positions, arrays["pos_emb"].size(1))
        theirs = {int(t): row for t, row in zip(arrays["pos_emb_distance"], arrays["pos_emb"], strict=True)}
        assert set(distances.tolist()) == set(theirs)
        for distance, row in zip(distances.tolist(), found, strict=True):
            torch.testing.assert_close(row, theirs[distance].double(), rtol=0, atol=1e-6)


def test_the_sinusoids_of_the_paper():
    """Those of the Annotated Transformer and of plain loops, padded on the left; the table grows with the sentence."""
    (path,) = GOLDEN.glob("paper_sinusoids__*.npz")
    expected = load(path)[1]["vectors"]
    length, width = expected.shape
    module = PaperSinusoids(PositionalEmbedding(20, width, 1, learned=False))
    assert len(module.weights) < length
    tokens = torch.full((2, length), 9)
    tokens[1, :3] = 1
    found = module(tokens)
    torch.testing.assert_close(found[0], expected, rtol=0, atol=2e-5)  # their frequencies are in single precision
    torch.testing.assert_close(found[1, 3:], expected[:-3], rtol=0, atol=2e-5)
    assert not found[1, :3].any()
    step = module(tokens[:, :7], incremental_state={})
    torch.testing.assert_close(step[:, 0], expected[6].expand(2, -1), rtol=0, atol=2e-5)
    for place in (0, 1, 6, 399, 2.5):
        exact = module.of_rows(torch.tensor(place + 2))
        for i in range(width // 2):
            angle = place / 10000 ** (2 * i / width)
            assert float(exact[2 * i]) == pytest.approx(math.sin(angle), abs=1e-10)
            assert float(exact[2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-10)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned_absolute"])
def test_input_positions_equal_golden_outputs(kind):
    """The architectures of `sinusoidal` and `learned` use fairseq's own modules."""
    paths = sorted(GOLDEN.glob(f"{kind}__fairseq__*.npz"))
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
