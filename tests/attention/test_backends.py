"""Every backend computes the same result as the eager one, for every encoding in every variant."""

import copy
from functools import partial

import pytest
import torch
from fairseq.modules import MultiheadAttention
from packaging.version import Version
from torch.nn.attention import flex_attention as torch_flex

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.attention import backends
from fairseq_posenc.attention.backends import check_backend
from fairseq_posenc.attention.module import PositionAttention, StackPositions, use_positions
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.kernels import flex as flex_kernel
from fairseq_posenc.positions import Positions
from tests.models import PAD, build_model, enlarge_positions, logits, model_inputs, sentences
from tests.variants import ALONE, causal_mask, make_encoding, make_qkv, padding_mask

BATCH, HEADS, LENGTH, DIM = 2, 2, 40, 4
inputs = partial(make_qkv, BATCH, LENGTH)
padding = partial(padding_mask, [LENGTH, LENGTH - 19])
CAUSAL = torch.zeros(LENGTH, LENGTH).double().masked_fill(causal_mask(LENGTH), float("-inf"))  # as fairseq's


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Shrinks blocks: 40 queries make three blocks."""
    monkeypatch.setattr(backends, "BLOCK_LOGITS", 1)


@pytest.fixture(autouse=True)
def flex_has_gradients_on_a_cpu(monkeypatch):
    """Takes uncompiled FlexAttention, and allows its gradients on a CPU, which PyTorch supports but refuses."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(flex_kernel, "COMPILED", False)


def make(name, options):
    return make_encoding(name, options | ({"max_positions": LENGTH} if "max_positions" in options else {}))


def attention_and_gradients(encoding, backend, mask, attn_mask, queries, segments):
    """The output, and the gradients of q, k, v and all parameters; padded queries are ignored."""
    encoding, qkv = copy.deepcopy(encoding), [x.requires_grad_() for x in inputs(queries)]
    positions = Positions(queries, LENGTH, mask, segments=segments)
    output, _ = attend(*qkv, encoding, mask, attn_mask, backend=backend, positions=positions)
    if mask is not None:
        output = output.masked_fill(mask[:, None, LENGTH - queries :, None], 0)
    torch.manual_seed(3)
    leaves = [*qkv, *encoding.parameters()]
    return output, *torch.autograd.grad(
        (output * torch.randn_like(output)).sum(), leaves, allow_unused=True, materialize_grads=True
    )


def assert_equals_eager(encoding, backend, mask=None, attn_mask=None, queries=LENGTH, segments=None):
    ours, eager = (
        attention_and_gradients(encoding, name, mask, attn_mask, queries, segments) for name in (backend, "eager")
    )
    torch.testing.assert_close(ours, eager, rtol=0, atol=1e-10)


def assert_equals_eager_under_masks(encoding, backend):
    for left, attn_mask in ((True, None), (False, CAUSAL), (True, CAUSAL)):
        if attn_mask is None or not encoding.facts.projects_length:
            assert_equals_eager(encoding, backend, padding(left), attn_mask)


#: encodings that a backend does not support; sdpa supports shaw without relative values
UNSUPPORTED = {
    "sdpa": {"shaw", "huang1", "huang2", "huang3"},
    "blocks": {"linformer", "diet_abs_lin"},
    "flex": {"huang1", "huang2", "huang3"},
}
#: an encoding for each way in which FlexAttention adds something to the logits
IN_FLEX = {cls.score_mod: name for name, cls in ENCODINGS.items()}.values()


def supports(backend, name, options):
    if options.get("urpe") and backend != "blocks":
        return False
    return name not in UNSUPPORTED[backend] or not options.get("relative_values", True)


@pytest.mark.parametrize(("name", "options"), ALONE)
def test_equals_eager_with_all_gradients_or_is_refused(name, options):
    encoding = make(name, options)
    for backend in UNSUPPORTED:
        if not supports(backend, name, options):
            with pytest.raises(ValueError, match=f"--attention-backend {backend} cannot be used: {name} "):
                check_backend(backend, encoding)
        elif backend != "flex":
            assert_equals_eager_under_masks(encoding, backend)


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in IN_FLEX if name != "shaw"), ("shaw", {"relative_values": False}), ("linformer", {})],
)
def test_flex_equals_eager(name, options):
    assert_equals_eager_under_masks(make(name, options), "flex")


@pytest.mark.skipif(Version(torch.__version__) < Version("2.13"), reason="the oldest PyTorch tried is 2.13")
@pytest.mark.parametrize("name", IN_FLEX)
def test_flex_compiles_what_an_encoding_adds(name, monkeypatch):
    """Traced as for a GPU, and run by a backend of the compiler that needs none."""
    torch._dynamo.reset()
    compiled = torch.compile(torch_flex.flex_attention, backend="aot_eager", dynamic=True, fullgraph=True)
    monkeypatch.setattr(flex_kernel, "flex_attention", compiled)
    encoding = make(name, {"relative_values": False} if name == "shaw" else {})
    masks = padding(left=True), None if encoding.facts.projects_length else CAUSAL
    with torch.no_grad():
        eager, flex = (
            attend(*inputs(), encoding, *masks, backend=backend)[0].transpose(1, 2)[~masks[0]]
            for backend in ("eager", "flex")
        )
    torch.testing.assert_close(flex, eager, rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", UNSUPPORTED)
@pytest.mark.parametrize("name", ["nopos", "tupe_rel", "shaw"])
def test_segments_masks_of_numbers_and_fewer_queries(name, backend):
    encoding = make(name, {"num_segments": 3, **({"relative_values": backend != "sdpa"} if name == "shaw" else {})})
    segments = torch.arange(LENGTH).expand(BATCH, -1) // 15
    torch.manual_seed(4)
    numbers = torch.randn(HEADS, LENGTH, LENGTH, dtype=torch.float64)
    numbers[:, :, 3] = float("-inf")
    assert_equals_eager(encoding, backend, attn_mask=numbers, segments=segments)
    assert_equals_eager(encoding, backend, queries=21, segments=segments)


@pytest.mark.parametrize("backend", ["sdpa", "blocks", "eager"])
def test_dropout_is_the_same_in_the_backward_pass(backend):
    (q, k, v), encoding = inputs(), make("diet_rel", {})
    ones = torch.ones_like(v, requires_grad=True)
    output, _ = attend(q, k, ones, encoding, dropout=0.5, backend=backend)
    assert 0.1 < output.std() < 0.5
    assert abs(output.mean() - 1) < 0.1
    # With values of 1, output and gradient both sum the weights that were not dropped.
    (gradient,) = torch.autograd.grad(output.sum(), ones)
    torch.testing.assert_close(gradient.sum(), output.sum())


def peak(name, backend, length, tokens=512):
    encoding = build_encoding(name, 2, 16)
    q, k, v = (torch.randn(tokens // length, 2, length, 16, requires_grad=True) for _ in range(3))
    padding_mask = torch.zeros(len(q), length, dtype=torch.bool)
    padding_mask[:, -3:] = True
    future = torch.full((length, length), float("-inf")).triu(1)

    def step():
        attend(q, k, v, encoding, padding_mask, future, backend=backend)[0].sum().backward()

    # It needs the packages of the recipes, which the tests of the core with another fairseq do without.
    benchmark = pytest.importorskip("posenc_experiments.evaluation.measurements.benchmark", exc_type=ImportError)
    return benchmark.peak_bytes(step, "cpu")


def test_memory_of_blocks_does_not_grow_at_constant_tokens():
    assert peak("shaw", "eager", 512) > 2.5 * peak("shaw", "eager", 128)
    assert peak("shaw", "blocks", 512) < 2.5 * peak("shaw", "blocks", 128)


@pytest.mark.parametrize("name", ["diet_rel", "shaw"])
def test_blocks_have_gradients_under_autocast(name):
    encoding, qkv = make(name, {}).float(), [x.float().requires_grad_() for x in inputs()]
    with torch.autocast("cpu", torch.bfloat16):
        loss = attend(*qkv, encoding, backend="blocks")[0].float().sum()
    loss.backward()
    assert all(x.grad.isfinite().all() for x in (*qkv, *encoding.parameters()))


@pytest.mark.parametrize("name", ["shaw", "xlnet", "alibi"])
def test_masks_that_pad_all_sentences_hide_the_own_key_or_are_broadcast(name):
    encoding = make(name, {"num_segments": 2} | ({"clipping_distance": 2} if name == "shaw" else {}))
    columns = torch.arange(LENGTH)
    all_padded, far_past = (columns >= 9).expand(BATCH, -1), columns[None, :] > (columns[:, None] - 20).clamp(min=0)
    segments = (columns > 12).long().expand(BATCH, -1)
    for masks in ((all_padded, CAUSAL), (None, far_past)):
        assert_equals_eager(encoding, "blocks", *masks, segments=segments)
    for shape in ((LENGTH, 1), (1, 1, LENGTH, 1), (1,)):
        assert_equals_eager(encoding, "blocks", None, torch.zeros(shape, dtype=torch.bool), segments=segments)


@pytest.mark.parametrize(
    ("name", "backend"), [("tupe_rel", "sdpa"), ("shaw", "blocks"), ("rotary", "flex"), ("diet_rel", "auto")]
)
def test_a_model_computes_the_same_with_every_backend_and_in_incremental_decoding(name, backend):
    rows = sentences([3, 30, 17])
    source, previous = model_inputs(rows, rows)
    eager, model = (
        enlarge_positions(build_model(f"transformer_{name}_tiny", "--attention-backend", choice))
        for choice in ("eager", backend)
    )
    real = previous != PAD
    expected = logits(eager, source, previous)[real]
    torch.testing.assert_close(logits(model, source, previous)[real], expected, rtol=0, atol=1e-8)
    with torch.no_grad():
        encoded, state = model.encoder(source, source.ne(PAD).sum(1)), {}
        steps = [model.decoder(previous[:, : t + 1], encoded, state)[0][:, -1] for t in range(previous.size(1))]
    torch.testing.assert_close(torch.stack(steps, 1)[real], expected, rtol=0, atol=1e-8)


def test_decoding_without_positions_in_attention_equals_stock_bitwise():
    torch.manual_seed(0)
    stock = MultiheadAttention(32, 4, self_attention=True).eval()
    own = PositionAttention(32, 4, build_encoding("sinusoidal", 4, 8), dropout=0.0, self_attention=True).eval()
    own.load_state_dict(stock.state_dict())
    states: list[dict] = [{}, {}]
    for step in range(15):  # with few keys, other encodings' softmax rounds in another way
        x = torch.randn(1, 6, 32)
        with use_positions(StackPositions(Positions(1, step + 1))):
            outputs = [m(x, x, x, incremental_state=s)[0] for m, s in zip((stock, own), states, strict=True)]
        assert torch.equal(*outputs), step
