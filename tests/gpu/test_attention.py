"""Attention on the GPU beside attention in double precision on the CPU: every encoding, backend and precision."""

import copy

import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.attention.backends import BACKENDS, check_backend
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.errors import FlagError
from fairseq_posenc.positions import CrossPositions, Positions
from tests.variants import converted, make_encoding, make_qkv, output_of_first_half, padding_mask

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


def make(name, in_decoder):
    known = {"bidirectional": not in_decoder, "max_positions": 2 * LENGTH}
    options = {key: value for key, value in known.items() if key in ENCODINGS[name].options}
    options["num_segments"] = None if ENCODINGS[name].facts.projects_length else 3
    torch.manual_seed(1)
    encoding = build_encoding(name, HEADS, WIDTH, **options)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return encoding


def computed(encoding, device, dtype, backend, in_decoder=False):
    """The output and the gradients of q, k, v and all parameters, on the CPU in double precision."""
    encoding = converted(copy.deepcopy(encoding), dtype, device)
    qkv = make_qkv(BATCH, LENGTH, heads=HEADS, dim=WIDTH, dtype=torch.float32)
    leaves = [x.to(device, dtype).requires_grad_() for x in qkv]
    # fairseq pads sources on the left and targets on the right
    padding = padding_mask([LENGTH, 17], left=not in_decoder).to(device)
    causal = torch.full((LENGTH, LENGTH), -torch.inf, device=device, dtype=dtype).triu(1) if in_decoder else None
    segments = torch.arange(LENGTH, device=device).expand(BATCH, -1) // 10
    positions = Positions(LENGTH, LENGTH, padding, segments=segments)
    output, _ = attend(*leaves, encoding, padding, causal, positions=positions, backend=backend)
    output = output.masked_fill(padding[:, None, :, None], 0)
    direction = torch.randn(output.shape).to(output)
    leaves += encoding.parameters()
    gradients = torch.autograd.grad((output * direction).sum(), leaves, allow_unused=True)
    return [x.detach().double().cpu() for x in (output, *gradients) if x is not None]


def assert_close(ours, exact, bound):
    """Within ``bound`` of the largest value of each tensor."""
    for tensor, expected in zip(ours, exact, strict=True):
        torch.testing.assert_close(tensor, expected, rtol=0, atol=bound * max(1.0, float(expected.abs().max())))


@pytest.mark.parametrize(("name", "in_decoder"), CASES)
def test_every_encoding_and_backend_in_every_precision(device, name, in_decoder):
    """A number is rounded by up to eps / 2; about a hundred of them add up to a logit, an output or a gradient."""
    encoding = make(name, in_decoder)
    exact = computed(encoding, "cpu", torch.float64, "eager", in_decoder)
    for backend in sorted(set(BACKENDS) - {"flex"}):
        try:
            check_backend(backend, encoding)
        except FlagError:
            continue
        assert_close(computed(encoding, device, torch.float32, backend, in_decoder), exact, 1e-4)
    for dtype in (torch.float16, torch.bfloat16):
        half = computed(encoding, device, dtype, "auto", in_decoder)
        assert_close(half, exact, 50 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("name", [name for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention])
def test_cross_attention_is_that_of_the_cpu(device, name):
    outputs = []
    for place, dtype in ((device, torch.float32), ("cpu", torch.float64)):
        encoding = converted(make(name, in_decoder=False), dtype, place)
        qkv = [x.to(place, dtype) for x in make_qkv(BATCH, LENGTH, 9, heads=HEADS, dim=WIDTH)]
        padding = padding_mask([LENGTH, LENGTH - 7], left=True).to(place)
        segments = torch.zeros(BATCH, LENGTH, dtype=torch.long, device=place)
        target = Positions(9, 9, torch.zeros_like(padding[:, :9]), segments=segments[:, :9])
        positions = CrossPositions(target, padding, segments)
        outputs.append([attend(*qkv, encoding, padding, positions=positions)[0].double().cpu()])
    assert_close(*outputs, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["nopos", "shaw", "diet_rel", "rotary", "alibi", "forget"])
def test_later_tokens_change_nothing_in_a_long_sentence(device, name, dtype):
    length = 4096 if device == "cuda" else 512
    options = {"bidirectional": False} if "bidirectional" in ENCODINGS[name].options else {}
    encoding = converted(make_encoding(name, options, 2, WIDTH, std=0.5), dtype, device)
    outputs = [output_of_first_half(encoding, length, dtype, later, device=device) for later in (1.0, -3.0)]
    assert torch.equal(*outputs)


@pytest.mark.parametrize("in_decoder", [False, True])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_flex_attention(gpu, name, in_decoder):
    encoding = make(name, in_decoder)
    exact = computed(encoding, "cpu", torch.float64, "eager", in_decoder)
    assert_close(computed(encoding, gpu, torch.float32, "flex", in_decoder), exact, 1e-3)
