"""Attention on the GPU beside attention in double precision on the CPU: every encoding, backend and precision."""

import copy

import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.attention.backends import BACKENDS, check_backend
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.errors import FlagError
from fairseq_posenc.positions import CrossPositions, Positions
from tests.variants import converted

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 24, 16
#: each encoding in an encoder and in a decoder, if it has a causal form
CASES = [
    (name, in_decoder)
    for name, cls in ENCODINGS.items()
    for in_decoder in (False, True)
    if not (in_decoder and cls.facts.projects_length)
]
#: encodings with a score_mod of their own, of each kind: without positions, by distance, by vectors, by the words
COMPILED = ["nopos", "diet_rel", "relative_key", "alibi", "forget"]


def make(name, dtype, in_decoder):
    torch.manual_seed(1)
    known = {"bidirectional": not in_decoder, "max_positions": 2 * LENGTH}
    options = {key: value for key, value in known.items() if key in ENCODINGS[name].options}
    segments = None if ENCODINGS[name].facts.projects_length else 3
    encoding = build_encoding(name, HEADS, WIDTH, num_segments=segments, **options)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_(std=0.5)
    return converted(encoding, dtype)


def computed(encoding, device, dtype, backend, in_decoder=False):
    """The output and the gradients of q, k, v and all parameters, on the CPU in double precision."""
    torch.manual_seed(2)
    encoding = copy.deepcopy(encoding).to(device)
    leaves = [torch.randn(BATCH, HEADS, LENGTH, WIDTH).to(device, dtype).requires_grad_() for _ in range(3)]
    # fairseq pads sources on the left and targets on the right
    columns, lengths = torch.arange(LENGTH, device=device)[None], torch.tensor([[LENGTH], [17]], device=device)
    padding = columns >= lengths if in_decoder else columns < LENGTH - lengths
    causal = torch.full((LENGTH, LENGTH), -torch.inf, device=device, dtype=dtype).triu(1) if in_decoder else None
    positions = Positions(LENGTH, LENGTH, padding, segments=columns.expand(BATCH, -1) // 10)
    output, _ = attend(*leaves, encoding, padding, causal, positions=positions, backend=backend)
    output = output.masked_fill(padding[:, None, :, None], 0)
    direction = torch.randn(output.shape).to(output)
    leaves += encoding.parameters()
    gradients = torch.autograd.grad((output * direction).sum(), leaves, allow_unused=True)
    return [x.detach().double().cpu() for x in (output, *gradients) if x is not None]


def assert_close(ours, exact, bound):
    """Within ``bound`` of the largest value of each tensor."""
    assert len(ours) == len(exact)
    for one, other in zip(ours, exact, strict=True):
        assert one.isfinite().all()
        assert (one - other).abs().max() <= bound * max(1.0, other.abs().max())


def is_refused(backend, encoding):
    try:
        check_backend(backend, encoding)
    except FlagError:
        return True
    return False


@pytest.mark.parametrize(("name", "in_decoder"), CASES)
def test_every_encoding_and_backend_in_every_precision(device, name, in_decoder):
    """A number is rounded by up to eps / 2; about a hundred of them add up to a logit, an output or a gradient."""
    exact_encoding = make(name, torch.float64, in_decoder)
    exact = computed(exact_encoding, "cpu", torch.float64, "eager", in_decoder)
    for backend in sorted(set(BACKENDS) - {"flex"}):
        if not is_refused(backend, exact_encoding):
            encoding = make(name, torch.float32, in_decoder)
            assert_close(computed(encoding, device, torch.float32, backend, in_decoder), exact, 1e-4)
    for dtype in (torch.float16, torch.bfloat16):
        half = computed(make(name, dtype, in_decoder), device, dtype, "auto", in_decoder)
        assert_close(half, exact, 50 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("name", [name for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention])
def test_cross_attention(device, name):
    outputs = []
    for place, dtype in ((device, torch.float32), ("cpu", torch.float64)):
        torch.manual_seed(3)
        encoding = make(name, dtype, in_decoder=False).to(place)
        q, k, v = (torch.randn(BATCH, HEADS, n, WIDTH).to(place, dtype) for n in (9, LENGTH, LENGTH))
        padding = torch.arange(LENGTH, device=place)[None] < torch.tensor([[0], [7]], device=place)
        target = Positions(9, 9, torch.zeros(BATCH, 9, dtype=torch.bool, device=place))
        segments = torch.zeros(BATCH, LENGTH, dtype=torch.long, device=place)
        target.segments = segments[:, :9]
        positions = CrossPositions(target, padding, segments)
        outputs.append([attend(q, k, v, encoding, padding, positions=positions)[0].double().cpu()])
    assert_close(*outputs, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["nopos", "shaw", "diet_rel", "rotary", "alibi", "forget"])
def test_later_tokens_change_nothing_in_a_long_sentence(device, name, dtype):
    length = 4096 if device == "cuda" else 512
    options = {"bidirectional": False} if "bidirectional" in ENCODINGS[name].options else {}
    encoding = converted(build_encoding(name, 2, WIDTH, **options), dtype).to(device)
    mask = torch.full((length, length), -torch.inf, device=device).triu(1)
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 2, length, WIDTH).to(device, dtype) for _ in range(3))
    x = torch.randn(1, length, 2 * WIDTH).to(device, dtype)
    outputs = []
    for later in (1.0, -3.0):
        for tensor in (k, v):
            tensor[:, :, length // 2 :] *= later
        x[:, length // 2 :] *= later
        with torch.no_grad():
            output, _ = attend(q, k, v, encoding, attn_mask=mask, layer_input=x)
        outputs.append(output[:, :, : length // 2])
    assert outputs[0].isfinite().all()
    assert torch.equal(*outputs)


@pytest.mark.parametrize("in_decoder", [False, True])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_flex_attention(device, name, in_decoder):
    encoding = make(name, torch.float32, in_decoder)
    exact = computed(make(name, torch.float64, in_decoder), "cpu", torch.float64, "eager", in_decoder)
    assert_close(computed(encoding, device, torch.float32, "flex", in_decoder), exact, 1e-3)
