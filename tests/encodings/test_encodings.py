"""Conformance tests of attention: every registered encoding, in every variant."""

import copy

import numpy as np
import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.benchmark.memory import peak_bytes
from fairseq_posenc.encodings import ENCODINGS, Facts, PositionEncoding, register_encoding
from fairseq_posenc.encodings.contract.options import Option
from fairseq_posenc.positions import CrossPositions, Positions, count_separators
from tests.references import REFERENCES, naive_attention
from tests.variants import ALONE, CAUSAL, IN_ATTENTION, MASKABLE, converted, ignores_order

BATCH, HEADS, LENGTH, DIM = 3, 2, 6, 4
BIDIRECTIONAL_AND_CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def make(name, options, dtype=torch.float64, std=1.0):
    torch.manual_seed(1)
    encoding = build_encoding(name, num_heads=HEADS, head_dim=DIM, **options).to(dtype)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_(std=std)  # large enough that a missing term changes the output
    return converted(encoding, dtype)


def inputs(queries=LENGTH, keys=LENGTH, dtype=torch.float64):
    torch.manual_seed(2)
    q = torch.randn(BATCH, HEADS, queries, DIM, dtype=dtype)
    k, v = torch.randn(2, BATCH, HEADS, keys, DIM, dtype=dtype)
    return q, k, v


def causal_mask(length=LENGTH):
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def padding(left):
    """A mask where the second sentence has 2 pads and the third has 4."""
    columns = torch.arange(LENGTH)[None, :]
    lengths = torch.tensor([[LENGTH], [LENGTH - 2], [LENGTH - 4]])
    return columns < LENGTH - lengths if left else columns >= lengths


def test_every_encoding_has_a_naive_reference():
    assert set(REFERENCES) == set(ENCODINGS)


@BIDIRECTIONAL_AND_CAUSAL
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("pads", [None, "left", "right"])
@pytest.mark.parametrize(("name", "options"), ALONE)
def test_equals_the_naive_reference(name, options, pads, need_weights, causal):
    encoding, (q, k, v) = make(name, options), inputs()
    mask = None if pads is None else padding(left=pads == "left")
    attn_mask = causal_mask() if causal else None
    if causal and encoding.facts.projects_length:
        with pytest.raises(ValueError, match=f"{name} mixes all keys.* it has no causal form"):
            attend(q, k, v, encoding, mask, attn_mask)
        return
    output, weights = attend(q, k, v, encoding, mask, attn_mask, need_weights=need_weights)
    expected, expected_weights = naive_attention(encoding, q, k, v, mask, causal)
    assert_equal_where_defined(output, expected)
    assert output.isfinite().all()
    if need_weights:
        assert_equal_where_defined(weights, expected_weights)
    else:
        assert weights is None


def assert_equal_where_defined(found, expected, atol=1e-10):
    """Compares where the expected array is not NaN; padded queries and fully masked rows are NaN there."""
    defined = ~np.isnan(expected)
    assert defined.any()
    np.testing.assert_allclose(found.detach().numpy()[defined], expected[defined], rtol=0, atol=atol)


@pytest.mark.parametrize("keys", [1, 5])
@pytest.mark.parametrize(("name", "options"), ALONE)
def test_one_query_equals_the_naive_reference(name, options, keys):
    encoding, (q, k, v) = make(name, options), inputs(queries=1, keys=keys)
    expected, _ = naive_attention(encoding, q, k, v)
    np.testing.assert_allclose(attend(q, k, v, encoding)[0].detach().numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("name", "options"), CAUSAL)
def test_full_causal_pass_equals_incremental_decoding(name, options):
    """With and without the cache of a generation, by steps of one query and of two."""
    encoding, (q, k, v) = make(name, options), inputs()
    full, _ = attend(q, k, v, encoding, attn_mask=causal_mask())
    for queries, generation in ((1, {}), (2, {})):
        for t in range(queries, LENGTH + 1, queries):
            step = q[:, :, t - queries : t], k[:, :, :t], v[:, :, :t]
            attn_mask = causal_mask()[t - queries : t, :t] if queries > 1 else None
            for positions in (None, Positions(queries, t, generation=generation)):
                output, _ = attend(*step, encoding, attn_mask=attn_mask, positions=positions)
                torch.testing.assert_close(output, full[:, :, t - queries : t], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), CAUSAL)
def test_a_generation_may_outgrow_its_cache(name, options):
    """Values are first cached for 64 positions."""
    length = min(70, getattr(make(name, options), "max_positions", 70))
    encoding, (q, k, v), generation = make(name, options), inputs(length, length), {}
    full, _ = attend(q, k, v, encoding, attn_mask=causal_mask(length))
    for t in (1, min(60, length), length):
        step = q[:, :, t - 1 : t], k[:, :, :t], v[:, :, :t]
        output, _ = attend(*step, encoding, positions=Positions(1, t, generation=generation))
        torch.testing.assert_close(output, full[:, :, t - 1 : t], rtol=0, atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("name", "options"), ALONE)
def test_sentence_alone_equals_sentence_in_a_padded_batch(name, options, side):
    encoding, (q, k, v) = make(name, options), inputs()
    mask = padding(left=side == "left")
    together, _ = attend(q, k, v, encoding, key_padding_mask=mask)
    for b in range(BATCH):
        real = ~mask[b]
        alone, _ = attend(*(x[b : b + 1, :, real] for x in (q, k, v)), encoding)
        torch.testing.assert_close(alone[0], together[b][:, real], rtol=0, atol=1e-12)
        padded, _ = attend(*(x[b : b + 1] for x in (q, k, v)), encoding, key_padding_mask=mask[b : b + 1])
        torch.testing.assert_close(padded[0, :, real], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(("name", "options"), ALONE)
def test_gradient_reaches_every_parameter_and_input(name, options, need_weights):
    encoding, tensors = make(name, options), [x.requires_grad_() for x in inputs()]
    output, _ = attend(*tensors, encoding, need_weights=need_weights)
    (output * torch.randn_like(output)).sum().backward()
    for tensor in [*tensors, *encoding.parameters()]:
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()
    for parameter_name, parameter in encoding.named_parameters():
        # With K = 0 the key vector or bias adds a constant to the logits of a query; the softmax is invariant to it.
        invisible = options.get("clipping_distance") == 0 and parameter_name in ("relative_keys", "relative_bias")
        invisible |= (name, parameter_name) == ("fire", "output.bias")  # the same constant for all logits
        # A threshold below the sentence's length has no effect in an encoder.
        invisible |= "fire_threshold" in options and parameter_name == "threshold_scale"
        if not invisible:
            assert parameter.grad.abs().max() > 0, parameter_name


@pytest.mark.parametrize("name", ENCODINGS)
def test_gradients_are_finite_under_autocast(name):
    options = {"clipping_distance": 1} if "clipping_distance" in ENCODINGS[name].options else {}
    encoding, tensors = make(name, options, torch.float32), [x.float().requires_grad_() for x in inputs()]
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = attend(*tensors, encoding)
    output.float().square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (*tensors, *encoding.parameters()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("name", "options"), ALONE)
def test_half_precision_is_finite_and_close(name, options, dtype):
    encoding, (q, k, v) = make(name, options, std=0.3), inputs()
    mask = padding(left=True), None if encoding.facts.projects_length else causal_mask()
    exact, _ = attend(q, k, v, encoding, *mask)
    half_encoding = converted(copy.deepcopy(encoding), dtype)
    for parameter in half_encoding.parameters():
        assert parameter.dtype == dtype
    rough, _ = attend(*(x.to(dtype) for x in (q, k, v)), half_encoding, *mask)
    assert rough.dtype == dtype
    assert rough.isfinite().all()
    real = ~padding(left=True)[:, None, :, None].expand_as(exact)
    torch.testing.assert_close(rough.double()[real], exact[real], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_gradients_in_half_precision_are_finite_at_long_distances(name):
    """400 ** 1.95 is more than the largest number of half precision."""
    encoding = make(name, {}, torch.float32)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.fill_(1.95)
    encoding = encoding.half()
    q, k, v = (x.detach().half().requires_grad_() for x in inputs(400, 400, torch.float32))
    attend(q, k, v, encoding)[0].float().square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v, *encoding.parameters()))


@pytest.mark.parametrize(("name", "options"), MASKABLE)
def test_float_masks_are_equivalent_to_bool_masks(name, options):
    encoding, (q, k, v) = make(name, options), inputs()
    as_float = torch.zeros(LENGTH, LENGTH, dtype=torch.float64).masked_fill(causal_mask(), -torch.inf)
    for key_padding_mask in (None, padding(left=False)):
        expected, _ = attend(q, k, v, encoding, key_padding_mask, causal_mask())
        found, _ = attend(q, k, v, encoding, key_padding_mask, as_float)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), ALONE)
def test_long_sequences_work_or_are_refused(name, options):
    encoding, (q, k, v) = make(name, options, torch.float32), inputs(600, 600, torch.float32)
    limit = getattr(encoding, "max_positions", 1000)
    if limit < 600:
        with pytest.raises(ValueError, match=f"{name} .* {limit} positions, not 600"):
            attend(q, k, v, encoding)
    else:
        assert attend(q, k, v, encoding)[0].isfinite().all()


@pytest.mark.parametrize(("name", "options"), IN_ATTENTION)
def test_only_encodings_without_positions_ignore_order(name, options):
    encoding, (q, k, v) = make(name, options), inputs()
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    permuted, _ = attend(q[:, :, order], k[:, :, order], v[:, :, order], encoding)
    same = torch.allclose(permuted, attend(q, k, v, encoding)[0][:, :, order], rtol=0, atol=1e-9)
    assert same == ignores_order(name, options)


# Segments


def with_segments(name, **options):
    torch.manual_seed(1)
    encoding = build_encoding(name, num_heads=HEADS, head_dim=DIM, num_segments=3, **options).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    return encoding


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ENCODINGS),
        ("xlnet", {"segment_vectors": True}),
        ("shaw", {"bias_gain": 3.0}),
        ("diet_rel", {"bias_gain": 3.0}),
    ],
)
def test_segment_attention_combines_with_every_encoding(name, options, need_weights, left):
    if build_encoding(name, HEADS, DIM).facts.projects_length:
        with pytest.raises(ValueError, match=f"{name} does not support segments"):
            build_encoding(name, HEADS, DIM, num_segments=2)
        return
    encoding, (q, k, v), mask = with_segments(name, **options), inputs(), padding(left)
    segments = torch.tensor([[0, 0, 1, 1, 2, 3], [0, 0, 0, 1, 1, 1], [0, 0, 1, 2, 2, 2]])  # 3 is treated as 2
    positions = Positions(LENGTH, LENGTH, mask, segments=segments)
    output, _ = attend(q, k, v, encoding, mask, causal_mask(), need_weights, positions=positions)
    expected, _ = naive_attention(encoding, q, k, v, mask, causal=True, segments=segments)
    assert_equal_where_defined(output, expected)
    t = LENGTH - 1
    step = Positions(1, LENGTH, mask, segments=segments)
    last, _ = attend(q[:, :, t:], k, v, encoding, mask, positions=step)
    rows = ~mask[:, t]
    torch.testing.assert_close(last[rows, :, 0], output[rows, :, t], rtol=0, atol=1e-12)


def test_missing_segments_are_refused():
    q, k, v = inputs()
    with pytest.raises(ValueError, match=r"needs the segment of each token: .*segments="):
        attend(q, k, v, with_segments("shaw"))


def test_a_separator_belongs_to_the_segment_that_it_ends():
    tokens = torch.tensor([[1, 5, 9, 6, 9, 9, 7]])
    assert count_separators(tokens, 9).tolist() == [[0, 0, 0, 1, 1, 2, 3]]


# Cross-attention


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", [name for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention])
def test_cross_attention_equals_the_naive_reference(name, left, need_weights):
    """The distance is the source position minus the target position, without padding, in a full pass and in
    incremental decoding.
    """
    encoding, (q, _, _) = with_segments(name), inputs()
    torch.manual_seed(4)
    source_length = 9
    k, v = torch.randn(2, BATCH, HEADS, source_length, DIM, dtype=torch.float64)
    columns, lengths = torch.arange(source_length)[None, :], torch.tensor([[9], [5], [3]])
    source_mask = columns < source_length - lengths if left else columns >= lengths
    source_segments = torch.randint(3, (BATCH, source_length))
    target_segments = torch.randint(3, (BATCH, LENGTH))
    targets = torch.arange(LENGTH).expand(BATCH, -1)
    expected, _ = naive_attention(
        encoding,
        q,
        k,
        v,
        source_mask,
        segments=source_segments,
        query_positions=targets,
        query_segments=target_segments,
    )
    target = Positions(LENGTH, LENGTH, padding(left=False), segments=target_segments)
    output, _ = attend(
        q, k, v, encoding, source_mask, need_weights=need_weights,
        positions=CrossPositions(target, source_mask, source_segments),
    )  # fmt: skip
    assert_equal_where_defined(output, expected)
    generation = {}
    for t in range(LENGTH):
        target = Positions(1, t + 1, segments=target_segments[:, : t + 1], generation=generation)
        step = CrossPositions(target, source_mask, source_segments)
        output, _ = attend(q[:, :, t : t + 1], k, v, encoding, source_mask, positions=step)
        assert_equal_where_defined(output, expected[:, :, t : t + 1])


# Options of single encodings


def test_shared_projections_must_be_given_and_are_not_registered():
    q, k, v = inputs()
    encoding = build_encoding("deberta", HEADS, DIM, share_key_projection=True).double()
    with pytest.raises(ValueError, match=r"needs attention's projections: .*projections=\(query, key\)"):
        attend(q, k, v, encoding)
    projections = tuple(torch.nn.Linear(HEADS * DIM, HEADS * DIM).double() for _ in range(2))
    output, _ = attend(q, k, v, encoding, projections=projections)
    assert set(encoding.state_dict()) == {"relative_vectors"}
    assert [name for name, _ in encoding.named_modules()] == [""]
    output.square().sum().backward()
    for projection in projections:
        assert projection.weight.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position_buckets": 3}, "--position-buckets .* 4, not 3"),
        ({"position_buckets": "many"}, "--position-buckets 'many': .*number"),
        ({"position_buckets": 8, "max_distance": 5}, "--max-distance .* 5, not 5"),
        ({"max_distance": 64}, "--max-distance .* deberta without --position-buckets"),
        (
            {"position_buckets": 8, "clipping_distance": 128},  # its default
            "--clipping-distance .* deberta with --position-buckets",
        ),
        ({"share_key_projection": "yes"}, "--share-key-projection 'yes': .*true"),
    ],
)
def test_options_of_deberta_without_effect_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build_encoding("deberta", HEADS, DIM, **options)


def test_only_rows_that_occur_are_projected():
    """The table has 32 rows."""
    encoding, projected = build_encoding("deberta", HEADS, DIM, position_buckets=16, max_distance=40), []
    encoding.key_projection.register_forward_hook(lambda module, given, output: projected.append(len(output)))
    for length, rows in ((1, 1), (5, 9), (9, 17), (50, 31)):
        attend(*inputs(length, length, torch.float32), encoding)
        assert projected.pop() == rows


def test_weights_for_interleaved_sinusoids_can_be_converted():
    """ESPnet's and fairseq2's position vector is (sin, cos, sin, cos, ...) of i - j."""
    (q, k, v), width = inputs(), HEADS * DIM
    torch.manual_seed(8)
    linear_pos, (u, w) = torch.randn(width, width).double(), torch.randn(2, HEADS, DIM).double()
    logits = torch.empty(BATCH, HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for i in range(LENGTH):
        for j in range(LENGTH):
            angles = [(i - j) / 10000 ** (2 * m / width) for m in range(width // 2)]
            r = torch.tensor([function(angle) for angle in angles for function in (np.sin, np.cos)])
            vectors = (linear_pos @ r).view(HEADS, DIM)
            logits[:, :, i, j] = ((q[:, :, i] + u) * k[:, :, j] + (q[:, :, i] + w) * vectors).sum(-1) / DIM**0.5
    reordered = torch.cat([linear_pos[:, 0::2], linear_pos[:, 1::2]], dim=1)
    encoding = build_encoding("transformer_xl", HEADS, DIM).double()
    encoding.load_state_dict(
        {"relative_projection": reordered.view(HEADS, DIM, width), "content_bias": u, "position_bias": w}
    )
    _, weights = attend(q, k, v, encoding, need_weights=True)
    torch.testing.assert_close(weights, logits.softmax(-1), rtol=0, atol=1e-10)


# Memory


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


@pytest.mark.parametrize("position_sharing", ["none", "head"])
@pytest.mark.parametrize(("clipping_distance", "queries"), [(1, 6), (1, 3), (0, 6), (3, 6), (9, 6), (9, 3)])
def test_method_3_of_huang_has_the_right_gradients(clipping_distance, queries, position_sharing):
    """Where the clipped distances are matrix products, and where all distances go by diagonals."""
    options = {"clipping_distance": clipping_distance, "position_sharing": position_sharing}
    encoding, (q, k, _) = make("huang3", options), inputs(queries)

    def content(q, k, vectors):
        return torch.func.functional_call(encoding, {"relative_vectors": vectors}, (q, k))

    encoding.forward = lambda q, k: encoding.content(q, k, Positions(queries, LENGTH))
    arguments = [x.detach().requires_grad_() for x in (q, k, encoding.relative_vectors)]
    assert torch.autograd.gradcheck(content, arguments)


def test_pope_caches_keys_of_the_width_of_a_head():
    q, k, v = inputs(queries=1, keys=1)
    _, cached, _ = make("pope", {}).transform(q, k, v, Positions(1, 1, generation={}))
    assert cached.shape == k.shape


def test_method_3_of_huang_takes_no_more_memory_than_method_4():
    """The authors could fit 2 sequences with method 3 and 20 with method 4; here it takes at most 1.5 times as much."""
    length, heads, dim = 512, 2, 64
    peaks = {}
    for name in ("huang3", "huang4"):
        encoding = build_encoding(name, num_heads=heads, head_dim=dim, clipping_distance=length - 1)
        q, k, v = (torch.randn(1, heads, length, dim, requires_grad=True) for _ in range(3))

        def step(q=q, k=k, v=v, encoding=encoding):
            attend(q, k, v, encoding, attn_mask=causal_mask(length))[0].sum().backward()

        peaks[name] = peak_bytes(lambda step=step: step, "cpu")
    logits = heads * length * length * 4
    assert 2 * logits < peaks["huang3"] <= 1.5 * peaks["huang4"]


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


def test_masks_of_any_number_of_dimensions_are_equivalent():
    q, k, v = inputs()
    last = torch.arange(LENGTH) == LENGTH - 1
    for name in ("nopos", "diet_rel", "shaw"):
        encoding = make(name, {})
        expected, _ = attend(q, k, v, encoding, attn_mask=last.expand(BATCH, HEADS, LENGTH, LENGTH))
        for mask in (last, last[None].expand(LENGTH, -1), last[None, None], last * -1e30):
            torch.testing.assert_close(attend(q, k, v, encoding, attn_mask=mask)[0], expected, rtol=0, atol=1e-12)


def test_positions_of_another_pass_are_refused():
    (q, k, v), mask = inputs(), padding(left=True)
    for name in ("alibi", "rotary", "linformer"):
        encoding = build_encoding(name, HEADS, DIM)
        with pytest.raises(ValueError, match=r"6 queries and 6 keys.* q has 1"):
            attend(q[:, :, -1:], k, v, encoding, positions=Positions(LENGTH, LENGTH))
        with pytest.raises(ValueError, match=r"positions .* padding"):
            attend(q, k, v, encoding, mask, positions=Positions(LENGTH, LENGTH))


def test_encodings_without_cross_attention_refuse_cross_positions():
    (q, k, v), mask = inputs(), padding(left=True)
    crossing = CrossPositions(Positions(LENGTH, LENGTH), mask)
    for name in ("shaw", "rotary"):
        with pytest.raises(ValueError, match=f"{name} does not support cross-attention"):
            attend(q, k, v, build_encoding(name, HEADS, DIM), mask, positions=crossing)


@pytest.mark.parametrize(("name", "options"), ALONE)
def test_a_module_in_single_precision_accepts_queries_in_double(name, options):
    encoding, (q, k, v) = make(name, options, torch.float32, std=0.3), inputs()
    output, _ = attend(q, k, v, encoding)
    assert output.dtype == torch.float64
    torch.testing.assert_close(output, attend(q, k, v, converted(encoding, torch.float64))[0], rtol=1e-4, atol=1e-4)


def test_one_positions_object_serves_many_encodings():
    """The cache does not confuse a deleted encoding with a new one at the same address."""
    (q, k, v), positions = inputs(), Positions(LENGTH, LENGTH)
    for seed in range(30):
        torch.manual_seed(seed)
        encoding = build_encoding("t5", HEADS, DIM).double()
        with torch.no_grad():
            encoding.relative_bias.normal_()
        shared, _ = attend(q, k, v, encoding, positions=positions)
        assert torch.equal(shared, attend(q, k, v, encoding)[0])


def test_an_encoding_with_other_heads_is_refused():
    q, k, v = inputs()
    for heads, dim in ((1, DIM), (HEADS, DIM + 1)):
        with pytest.raises(ValueError, match=f"q has {HEADS} heads of width {DIM}, .* {heads} of width {dim}"):
            attend(q, k, v, build_encoding("shaw", heads, dim))


def test_dropout_reaches_both_value_terms():
    """With all weights dropped, neither v nor the relative values contribute."""
    encoding, (q, k, v) = make("shaw", {}), inputs()
    assert attend(q, k, v, encoding, dropout=1.0)[0].abs().max() == 0


def test_shaw_is_initialized_as_in_tensor2tensor():
    torch.manual_seed(1)
    encoding = build_encoding("shaw", num_heads=8, head_dim=64, clipping_distance=16)
    limit = (6 / (33 + 64)) ** 0.5
    for table in encoding.parameters():
        assert table.shape == (8, 33, 64)
        assert 0.95 * limit < table.abs().max() <= limit


def test_learned_slopes_of_alibi_start_at_the_fixed_ones():
    (q, k, v), outputs = inputs(dtype=torch.float32), []
    for slopes in ("fixed", "learned"):
        outputs.append(attend(q, k, v, build_encoding("alibi", HEADS, DIM, alibi_slopes=slopes))[0])
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-6)


def test_a_decoder_has_slopes_to_the_left_only():
    for bidirectional, sides in ((True, 2), (False, 1)):
        encoding = build_encoding("alibi", HEADS, DIM, alibi_slopes="two-sided", bidirectional=bidirectional)
        assert encoding.slope_logits.shape == (sides, HEADS)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shawl", {}, "no position encoding 'shawl'; use one of .*shaw"),
        ("shaw", {"clipping_distance": -1}, "--clipping-distance .* -1"),
        ("shaw", {"clipping_distance": "many"}, "--clipping-distance 'many'"),
        ("shaw", {"position_sharing": "heads"}, "--position-sharing .*none, head, layer, all"),
        ("shaw", {"relative_keys": "perhaps"}, "--relative-keys 'perhaps': .*true"),
        ("nopos", {"clipping_distance": 4}, "nopos has no option --clipping-distance"),
        ("t5", {"buckets": 4}, "t5 .* --buckets .*--num-buckets, .*, bidirectional"),
        ("shaw", {"clipping_distance": 4.5}, "--clipping-distance 4.5: .*number"),
        ("shaw", {"clipping_distance": True}, "--clipping-distance True: .*number"),
        ("fire", {"fire_threshold": 0}, "--fire-threshold .*more than 0"),
        ("rotary", {"rotary_base": "inf"}, "--rotary-base .*finite"),
        ("rotary", {"rotary_fraction": 1.5}, "--rotary-fraction .*at most 1, not 1.5"),
        ("rotary", {"rotary_fraction": 0.75}, "--rotary-fraction 0.75 of a head's 4 dimensions is 3, .*even"),
        ("rotary", {"rotary_fraction": 0.5, "rotary_ntk_scale": 2}, "rotary_ntk_scale .* only one: leave it out"),
        ("t5", {"max_distance": -5}, "--max-distance .*more than 8, not -5"),
        ("t5", {"bidirectional": "perhaps"}, "^bidirectional 'perhaps': .*true"),
        ("diet_abs", {"max_positions": 0}, "^max_positions 0: .*1"),
        ("diet_abs", {"position_rank": 0}, "--position-rank 0: .*1"),
        ("diet_abs_lin", {"projection_length": 0}, "--projection-length 0: .*1"),
        ("shaw", {"num_segments": 0}, "--num-segments 0: .*1"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(name, options, message):
    with pytest.raises(ValueError, match=message):
        build_encoding(name, num_heads=2, head_dim=4, **options)


def test_registry_refuses_duplicate_names_and_other_classes():
    with pytest.raises(ValueError, match="'shaw' is already registered, by Shaw"):
        register_encoding("shaw")(PositionEncoding)
    with pytest.raises(ValueError, match="must derive from PositionEncoding"):
        register_encoding("new")(torch.nn.Linear)

    class Own(PositionEncoding):
        options = {"clipping_distance": Option(str, "something else")}

        def __init__(self, num_heads, head_dim, clipping_distance="far"):
            super().__init__(num_heads, head_dim)

    with pytest.raises(ValueError, match="'clipping_distance' of 'new' is defined differently by 'deberta': use its"):
        register_encoding("new")(Own)

    class Crossing(PositionEncoding):
        facts = Facts(supports_cross_attention=True)

        def transform(self, q, k, v, positions):
            return q, k, v

    with pytest.raises(ValueError, match="Crossing supports cross-attention, so it must not override transform"):
        register_encoding("new")(Crossing)
    assert "new" not in ENCODINGS
