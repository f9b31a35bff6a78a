"""Conformance tests of attention: every registered encoding, in every variant."""

import copy
from functools import partial
from itertools import permutations, product

import numpy as np
import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.caches import Cache
from fairseq_posenc.encodings import ENCODINGS, PositionEncoding, register_encoding
from fairseq_posenc.encodings.contract.options import option
from fairseq_posenc.positions import CrossPositions, Positions, count_separators
from tests.references import REFERENCES, naive_attention
from tests.variants import ALONE, VARIANTS, causal_mask, converted, make_encoding, make_qkv, padding_mask

BATCH, HEADS, LENGTH, DIM = 3, 2, 6, 4
inputs = partial(make_qkv, BATCH, LENGTH)
CAUSAL = causal_mask(LENGTH)
LEFT, RIGHT = (padding_mask([LENGTH, LENGTH - 2, LENGTH - 4], left) for left in (True, False))


def assert_equal_where_defined(output: torch.Tensor, expected: np.ndarray) -> None:
    """Compares where the expected array is not NaN; padded queries and fully masked rows are NaN there."""
    defined = ~np.isnan(expected)
    assert defined.any()
    np.testing.assert_allclose(output.detach().numpy()[defined], expected[defined], rtol=0, atol=1e-10)


def test_every_encoding_has_a_naive_reference_and_every_option_a_variant():
    assert set(REFERENCES) == set(ENCODINGS)
    for name, cls in ENCODINGS.items():
        tested = {option for options in VARIANTS.get(name, ()) for option in options}
        assert cls.options.keys() - tested <= {"segment_vectors"}, f"say in tests/variants.py how to test {name}"


@pytest.mark.parametrize(("name", "options"), ALONE)
def test_equals_the_naive_reference(name, options):
    """With padding on either side, causal or not, with and without weights."""
    encoding, qkv = make_encoding(name, options), inputs()
    for mask, causal in ((None, False), (LEFT, False), (LEFT, True), (RIGHT, True)):
        attn_mask = CAUSAL if causal else None
        if causal and encoding.facts.projects_length:
            with pytest.raises(ValueError, match=f"{name} mixes all keys.* it has no causal form"):
                attend(*qkv, encoding, mask, attn_mask)
            continue
        expected, expected_weights = naive_attention(encoding, *qkv, mask, causal)
        output, weights = attend(*qkv, encoding, mask, attn_mask, need_weights=True)
        assert_equal_where_defined(output, expected)
        assert_equal_where_defined(weights, expected_weights)
        output, weights = attend(*qkv, encoding, mask, attn_mask)
        assert weights is None
        assert output.isfinite().all()
        assert_equal_where_defined(output, expected)


@pytest.mark.parametrize(
    ("name", "options"), [case for case in ALONE if not ENCODINGS[case.values[0]].facts.projects_length]
)
def test_incremental_decoding_equals_the_full_causal_pass(name, options):
    """With and without the cache of a generation, which begins with 64 positions, by steps of one query and of two.

    Far beyond the default clipping distance and the exact buckets.
    """
    causal = {"bidirectional": False} if "bidirectional" in ENCODINGS[name].options else {}
    encoding = make_encoding(name, options | causal)
    length = min(150, getattr(encoding, "max_positions", 150))
    (q, k, v), mask = make_qkv(BATCH, length), causal_mask(length)
    full, _ = attend(q, k, v, encoding, attn_mask=mask)
    for queries, generation in ((1, {}), (2, {})):
        for t in (queries, 3, 6, length // 2, length):
            step = q[:, :, t - queries : t], k[:, :, :t], v[:, :, :t]
            attn_mask = mask[t - queries : t, :t] if queries > 1 else None
            for positions in (None, Positions(queries, t, cache=Cache(generation=generation))):
                output, _ = attend(*step, encoding, attn_mask=attn_mask, positions=positions)
                torch.testing.assert_close(output, full[:, :, t - queries : t], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), ALONE)
def test_gradient_reaches_every_parameter_and_input(name, options):
    encoding, tensors = make_encoding(name, options), [x.requires_grad_() for x in inputs()]
    output, _ = attend(*tensors, encoding)
    (output * torch.randn_like(output)).sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in (*tensors, *encoding.parameters()))
    for parameter_name, parameter in encoding.named_parameters():
        # With K = 0 the key vector or bias adds a constant to the logits of a query; the softmax is invariant to it.
        invisible = options.get("clipping_distance") == 0 and parameter_name in ("relative_keys", "relative_bias")
        invisible |= (name, parameter_name) == ("fire", "output.bias")  # the same constant for all logits
        # A threshold below the sentence's length has no effect in an encoder.
        invisible |= "fire_threshold" in options and parameter_name == "threshold_scale"
        if not invisible:
            assert parameter.grad.abs().max() > 0, parameter_name


@pytest.mark.parametrize("name", ENCODINGS)
def test_half_single_and_mixed_precision(name):
    """Half precision is close, gradients under autocast are finite, and a module in single takes queries in double."""
    options = {"clipping_distance": 2} if "clipping_distance" in ENCODINGS[name].options else {}
    encoding, qkv = make_encoding(name, options, std=0.3), inputs()
    masks = LEFT, None if encoding.facts.projects_length else CAUSAL
    exact, _ = attend(*qkv, encoding, *masks)
    real = ~LEFT[:, None, :, None].expand_as(exact)
    for dtype in (torch.float16, torch.bfloat16):
        half = converted(copy.deepcopy(encoding), dtype)
        assert {parameter.dtype for parameter in half.parameters()} <= {dtype}
        rough, _ = attend(*(x.to(dtype) for x in qkv), half, *masks)
        assert rough.dtype == dtype
        assert rough.isfinite().all()
        torch.testing.assert_close(rough.double()[real], exact[real], rtol=0.1, atol=0.1)
    single = converted(encoding, torch.float32)
    output, _ = attend(*qkv, single, *masks)
    torch.testing.assert_close(output[real], exact[real], rtol=1e-4, atol=1e-4)  # in double precision, as queries are
    tensors = [x.float().requires_grad_() for x in qkv]
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = attend(*tensors, single)
    output.float().square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (*tensors, *single.parameters()))


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_gradients_in_half_precision_are_finite_at_long_distances(name):
    """400 ** 1.95 is more than the largest number of half precision."""
    encoding, qkv = build_encoding(name, HEADS, DIM).half(), [x.half().requires_grad_() for x in make_qkv(BATCH, 400)]
    for parameter in encoding.parameters():
        torch.nn.init.constant_(parameter, 1.95)
    attend(*qkv, encoding)[0].float().square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (*qkv, *encoding.parameters()))


@pytest.mark.parametrize("name", ["nopos", "diet_rel", "shaw"])
def test_forms_of_a_mask_are_equivalent(name):
    """Masks of numbers or bools, and of any number of dimensions, with padding or without."""
    encoding, qkv = make_encoding(name, {}), inputs()
    last = torch.arange(LENGTH) == LENGTH - 1
    for whole, forms in (
        (last.expand(BATCH, HEADS, LENGTH, LENGTH), (last, last[None].expand(LENGTH, -1), last[None, None])),
        (CAUSAL, (torch.zeros(LENGTH, LENGTH).masked_fill(CAUSAL, -torch.inf), CAUSAL * -1e30)),
    ):
        for key_padding_mask in (None, RIGHT):
            expected, _ = attend(*qkv, encoding, key_padding_mask, whole)
            for mask in forms:
                output, _ = attend(*qkv, encoding, key_padding_mask, mask)
                torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


# Segments and cross-attention


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in ENCODINGS), ("xlnet", {"segment_vectors": True}), ("diet_rel", {"bias_gain": 3.0})],
)
def test_segment_attention_combines_with_every_encoding(name, options):
    if ENCODINGS[name].facts.projects_length:
        with pytest.raises(ValueError, match=f"{name} does not support segments"):
            build_encoding(name, HEADS, DIM, num_segments=2)
        return
    encoding, (q, k, v) = make_encoding(name, {"num_segments": 3, **options}), inputs()
    segments = torch.tensor([[0, 0, 1, 1, 2, 3], [0, 0, 0, 1, 1, 1], [0, 0, 1, 2, 2, 2]])  # 3 is treated as 2
    for mask in (LEFT, RIGHT):
        positions = Positions(LENGTH, LENGTH, mask, segments=segments)
        output, _ = attend(q, k, v, encoding, mask, CAUSAL, positions=positions)
        expected, _ = naive_attention(encoding, q, k, v, mask, causal=True, segments=segments)
        assert_equal_where_defined(output, expected)
        step = Positions(1, LENGTH, mask, segments=segments)
        last, _ = attend(q[:, :, -1:], k, v, encoding, mask, positions=step)
        rows = ~mask[:, -1]
        torch.testing.assert_close(last[rows, :, 0], output[rows, :, -1], rtol=0, atol=1e-12)


def test_a_separator_belongs_to_the_segment_that_it_ends():
    tokens = torch.tensor([[1, 5, 9, 6, 9, 9, 7]])
    assert count_separators(tokens, 9).tolist() == [[0, 0, 0, 1, 1, 2, 3]]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention),
        ("t5", {"urpe": True}),
        ("rotary", {"cross_start": "after-source"}),
        ("alibi", {"alibi_slopes": "two-sided"}),
        ("shaw", {"clipping_distance": 2}),
        ("fire", {"fire_threshold": 3.0}),
    ],
)
def test_cross_attention_equals_the_naive_reference(name, options, left):
    """The distance is the source position minus the target position, without padding, in a full pass and in
    incremental decoding.
    """
    encoding, (q, k, v) = make_encoding(name, {"num_segments": 3, **options}), make_qkv(BATCH, 9, LENGTH)
    lengths = [9, 5, 3]
    source_mask = padding_mask(lengths, left)
    source_segments, target_segments = (torch.randint(3, (BATCH, length)) for length in (9, LENGTH))
    starts = torch.tensor(lengths if "cross_start" in options else [0, 0, 0])[:, None]
    expected, _ = naive_attention(
        *(encoding, q, k, v, source_mask),
        segments=source_segments,
        query_positions=starts + torch.arange(LENGTH),
        query_segments=target_segments,
    )
    target = Positions(LENGTH, LENGTH, RIGHT, segments=target_segments)
    positions = CrossPositions(target, source_mask, source_segments)
    assert_equal_where_defined(attend(q, k, v, encoding, source_mask, positions=positions)[0], expected)
    generation = {}
    for t in range(LENGTH):
        target = Positions(1, t + 1, segments=target_segments[:, : t + 1], cache=Cache(generation=generation))
        step = CrossPositions(target, source_mask, source_segments)
        output, _ = attend(q[:, :, t : t + 1], k, v, encoding, source_mask, positions=step)
        assert_equal_where_defined(output, expected[:, :, t : t + 1])


@pytest.mark.parametrize("name", ENCODINGS)
def test_layers_of_other_options_share_positions(name):
    """The layers of a stack share the positions of a pass; what is cached for one must not serve another."""
    sides = {True: [{}], False: [{"bidirectional": False}]}
    for options in VARIANTS.get(name, ()):
        sides[options.get("bidirectional", True)].append(options)
    target, source_mask = Positions(LENGTH, LENGTH, RIGHT), padding_mask([9, 5, 3], left=True)
    (q, *own), (_, *source) = inputs(), make_qkv(BATCH, 9, LENGTH)
    kinds = [(partial(Positions, LENGTH, LENGTH, RIGHT), own)]
    if ENCODINGS[name].facts.supports_cross_attention:
        kinds.append((partial(CrossPositions, target, source_mask), source))
    for (make, (k, v)), alternatives in product(kinds, sides.values()):
        encodings = [make_encoding(name, options) for options in alternatives if len(alternatives) > 1]
        for pair in permutations(encodings, 2):
            shared = make()
            for encoding in pair:
                output, expected = (attend(q, k, v, encoding, positions=p)[0] for p in (shared, make()))
                torch.testing.assert_close(output, expected, rtol=0, atol=0)


# Single encodings


@pytest.mark.parametrize(
    ("clipping_distance", "sharing", "queries"),
    [(1, "none", 6), (0, "none", 6), (0, "none", 3), (9, "none", 6), (9, "none", 3), (2, "head", 6), (2, "head", 3)],
)
def test_method_3_of_huang_by_diagonals_equals_that_at_once_and_has_its_gradients(
    monkeypatch, clipping_distance, sharing, queries
):
    """Where the clipped distances are matrix products, and where all distances go by diagonals."""
    options = {"clipping_distance": clipping_distance, "position_sharing": sharing}
    encoding, (q, k, _), positions = make_encoding("huang3", options), inputs(queries), Positions(queries, LENGTH)
    at_once = encoding.content(q, k, positions)
    monkeypatch.setattr("fairseq_posenc.encodings.huang.MOST_AT_ONCE", 0)
    torch.testing.assert_close(encoding.content(q, k, positions), at_once)

    def content(q, k, vectors):
        return torch.func.functional_call(encoding, {"relative_vectors": vectors}, (q, k))

    encoding.forward = lambda q, k: encoding.content(q, k, positions)
    arguments = [x.detach().requires_grad_() for x in (q, k, encoding.relative_vectors)]
    assert torch.autograd.gradcheck(content, arguments, fast_mode=True)


def test_rotary_may_be_compiled():
    encoding, (q, k, v) = make_encoding("rotary", {}), inputs()

    def attended(q, k, v):
        return attend(q, k, v, encoding)[0]

    compiled = torch.compile(attended, backend="eager")
    torch.testing.assert_close(compiled(q, k, v), attended(q, k, v))


@pytest.mark.parametrize("layout", ["odd offset", "odd stride", "transposed"])
def test_rotary_takes_queries_of_any_memory_layout(layout):
    encoding, (q, k, v) = make_encoding("rotary", {}), inputs()
    expected, _ = attend(q, k, v, encoding)
    if layout == "odd offset":
        q = torch.cat([q.new_zeros(1), q.flatten()])[1:].view(q.shape)
    elif layout == "odd stride":
        q = torch.cat([q, q[..., :1]], dim=-1)[..., :-1]
    else:
        q = q.mT.contiguous().mT
    torch.testing.assert_close(attend(q, k, v, encoding)[0], expected)


def test_shaw_sums_small_weights_of_a_clipped_distance_in_single_precision():
    """2,000 keys share the last rows of the table; adding one weight to their sum has no effect in bfloat16."""
    encoding = build_encoding("shaw", num_heads=1, head_dim=4, clipping_distance=1).bfloat16()
    with torch.no_grad():
        encoding.relative_values.fill_(1.0)
    for queries in (1, 2):
        q = torch.zeros(1, 1, queries, 4, dtype=torch.bfloat16)
        v = torch.zeros(1, 1, 2000, 4, dtype=torch.bfloat16)
        output, _ = attend(q, v, v, encoding)
        torch.testing.assert_close(output.float(), torch.ones(1, 1, queries, 4), rtol=0, atol=0.01)


def test_dropout_reaches_both_value_terms():
    """With all weights dropped, neither v nor the relative values contribute."""
    assert not attend(*inputs(), make_encoding("shaw", {}), dropout=1.0)[0].any()


def test_shaw_is_initialized_as_in_tensor2tensor():
    torch.manual_seed(1)
    encoding = build_encoding("shaw", num_heads=8, head_dim=64, clipping_distance=16)
    limit = (6 / (33 + 64)) ** 0.5
    for table in encoding.parameters():
        assert table.shape == (8, 33, 64)
        assert 0.95 * limit < table.abs().max() <= limit


def test_learned_slopes_of_alibi_start_at_the_fixed_ones():
    fixed, learned = (build_encoding("alibi", HEADS, DIM, alibi_slopes=slopes) for slopes in ("fixed", "learned"))
    torch.testing.assert_close(attend(*inputs(), fixed)[0], attend(*inputs(), learned)[0], rtol=0, atol=1e-6)


# Memory and caches


@pytest.mark.parametrize("name", ENCODINGS)
def test_no_tensor_is_as_large_as_length_squared_times_width(name):
    """The largest allocation, forward or backward, is a few times the size of the logits, not d = 64 times."""
    length, dim = 256, 64
    encoding = build_encoding(name, num_heads=1, head_dim=dim)
    q, k, v = (torch.randn(1, 1, length, dim, requires_grad=True) for _ in range(3))
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for tensor in torch.utils._pytree.tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes() // tensor.element_size())
            return result

    with Watch():
        attend(q, k, v, encoding)[0].sum().backward()
    assert length * dim <= largest < 3 * length * length


# Refusals


def test_inputs_that_do_not_fit_are_refused():
    (q, k, v), whole = inputs(), Positions(LENGTH, LENGTH)
    for name in ("alibi", "rotary", "linformer"):
        encoding = build_encoding(name, HEADS, DIM)
        with pytest.raises(ValueError, match=r"6 queries and 6 keys.* q has 1"):
            attend(q[:, :, -1:], k, v, encoding, positions=whole)
        with pytest.raises(ValueError, match=r"padding of 3 sentences, but q has 2: make new positions"):
            attend(q[:2], k[:2], v[:2], encoding, positions=Positions(LENGTH, LENGTH, LEFT))
        with pytest.raises(ValueError, match="key_padding_mask is not the padding mask of the positions"):
            attend(q, k, v, encoding, LEFT, positions=whole)
    with pytest.raises(ValueError, match="pope does not support cross-attention"):
        attend(q, k, v, build_encoding("pope", HEADS, DIM), LEFT, positions=CrossPositions(whole, LEFT))
    for encoding, message in (
        (build_encoding("shaw", HEADS, DIM + 1), f"q has {HEADS} heads of width {DIM}, .* of width {DIM + 1}"),
        (build_encoding("diet_abs", HEADS, DIM, max_positions=5), "diet_abs .* 5 positions, not 6"),
        (
            build_encoding("deberta", HEADS, DIM, share_key_projection=True),
            r"needs attention's projections: .*projections=\(query, key\)",
        ),
        (build_encoding("shaw", HEADS, DIM, num_segments=3), "needs the segment of each token: .*segments="),
    ):
        with pytest.raises(ValueError, match=message):
            attend(q, k, v, encoding)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shawl", {}, r"no position encoding 'shawl' \(did you mean shaw\?\); use one of .*shaw"),
        ("shaw", {"clipping_distance": -1}, "--clipping-distance .* -1"),
        ("shaw", {"clipping_distance": 4.5}, "--clipping-distance 4.5: .*number"),
        ("shaw", {"position_sharing": "heads"}, "--position-sharing .*none, head, layer, all"),
        ("shaw", {"relative_keys": "perhaps"}, "--relative-keys 'perhaps': .*true"),
        ("nopos", {"clipping_distance": 4}, "nopos has no option --clipping-distance"),
        ("fire", {"fire_threshold": 0}, "--fire-threshold .*more than 0"),
        ("rotary", {"rotary_base": "inf"}, "--rotary-base .*finite"),
        ("rotary", {"rotary_fraction": 0.75}, "--rotary-fraction 0.75 of a head's 4 dimensions is 3, .*even"),
        ("rotary", {"rotary_fraction": 0.5, "rotary_ntk_scale": 2}, "rotary_ntk_scale .* only one"),
        ("t5", {"max_distance": -5}, "--max-distance .*more than 8, not -5"),
        ("t5", {"num_buckets": 7}, "--num-buckets .*even"),
        ("diet_abs", {"max_positions": 0}, "^max_positions 0: .*1"),
        ("deberta", {"position_buckets": 3}, "--position-buckets .* 4, not 3"),
        ("deberta", {"max_distance": 64}, "--max-distance .* deberta without --position-buckets"),
        ("deberta", {"content_to_position": False, "position_to_content": False}, "--position-to-content .*nopos"),
        ("deberta", {"position_buckets": 8, "clipping_distance": 4}, "--clipping-distance .* with --position-buckets"),
        ("linformer", {"projection_length": 99999999999}, "--projection-length 99999999999: must be at most 16777216"),
        ("t5", {"bias_gain": "nan"}, "--bias-gain 'nan': must be auto or a positive number"),
        ("shaw", {"bias_gain": 2}, "--bias-gain has no meaning for shaw"),
        ("rotary", {"urpe": True}, "--urpe has no meaning for rotary"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(name, options, message):
    with pytest.raises(ValueError, match=message):
        build_encoding(name, num_heads=2, head_dim=4, **options)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_no_number_of_any_encoding_is_infinite_or_nan(value):
    numbers = [
        (name, key)
        for name, cls in ENCODINGS.items()
        for key, kind in cls.options.items()
        if isinstance(kind.default, (int, float)) and not isinstance(kind.default, bool)
    ]
    assert {"rotary_fraction", "rotary_ntk_scale", "fire_threshold", "clipping_distance"} <= {key for _, key in numbers}
    for name, key in [*numbers, ("t5", "bias_gain")]:
        with pytest.raises(ValueError, match=key.replace("_", "[-_]")):
            build_encoding(name, num_heads=2, head_dim=4, **{key: value})


def test_the_former_hook_attend_is_refused():
    with pytest.raises(TypeError, match="Old defines attend, which attention does not call: define context or"):
        type("Old", (PositionEncoding,), {"attend": lambda self, *args: None})


def test_registry_refuses_duplicate_names_and_other_classes():
    class Own(PositionEncoding):
        clipping_distance: str = option("far", str, "something else")

    for name, cls, message in (
        ("shaw", PositionEncoding, "'shaw' is already registered, by Shaw"),
        ("new", torch.nn.Linear, "must derive from PositionEncoding"),
        ("new", Own, "'clipping_distance' of 'new' is defined differently by 'deberta'"),
    ):
        with pytest.raises(ValueError, match=message):
            register_encoding(name)(cls)
    assert "new" not in ENCODINGS
