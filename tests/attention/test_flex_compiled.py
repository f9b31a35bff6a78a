"""FlexAttention compiled for the CPU computes the same as the eager backend. Without a C++ compiler it is skipped."""

import logging

import pytest
import torch
from torch._dynamo.utils import counters

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.attention.backends import check_backend
from fairseq_posenc.benchmark.memory import peak_bytes
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.kernels import flex_on_cpu
from tests.variants import converted

#: PyTorch compiles sizes that are equal at first as one, so these differ
SENTENCES, HEADS, DIM, LONGEST = 5, 6, 16, 400
WHY_NOT = flex_on_cpu.why_uncompiled(torch.float32)
compiles = pytest.mark.skipif(WHY_NOT is not None, reason=f"PyTorch cannot compile FlexAttention here: {WHY_NOT}")
#: where padding is, whether future keys are hidden, number of keys without a query
CASES = [(None, False, 130), (None, False, 0), ("left", False, 0), ("right", True, 0), ("left", True, 0)]


@pytest.fixture(autouse=True)
def forgets_compiled_kernels():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def make(name, dtype=torch.float32, **options):
    torch.manual_seed(1)
    if "max_positions" in ENCODINGS[name].options:
        options["max_positions"] = LONGEST
    encoding = build_encoding(name, HEADS, DIM, **options)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    return converted(encoding, dtype)


def inputs(length, dtype=torch.float32, **options):
    torch.manual_seed(2)
    return [torch.randn(SENTENCES, HEADS, length, DIM, dtype=dtype, **options) for _ in range(3)]


def compare(encoding, length, pads=None, causal=False, fewer=0, dtype=torch.float32):
    """Compares flex with eager; the output of padded queries is ignored."""
    columns, real = torch.arange(length), length - torch.tensor([[0], [19], [5], [150], [0]])
    mask = None if pads is None else columns < length - real if pads == "left" else columns >= real
    future = torch.full((length, length), float("-inf"), dtype=dtype).triu(1) if causal else None
    q, k, v = inputs(length, dtype)
    with torch.no_grad():
        found, expected = (
            attend(q[:, :, fewer:], k, v, encoding, mask, future, backend=backend)[0] for backend in ("flex", "eager")
        )
    if mask is not None:
        found, expected = (x.masked_fill(mask[:, None, fewer:, None], 0) for x in (found, expected))
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


def graphs():
    return counters["stats"]["unique_graphs"]


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name == flex_on_cpu.logger.name]


def supported():
    """Every encoding with its defaults that flex supports, and Shaw's keys without values, which need a logsumexp."""
    for name in ENCODINGS:
        options = {"relative_values": False} if "relative_values" in ENCODINGS[name].options else {}
        try:
            check_backend("flex", make(name, **options))
        except ValueError:
            continue
        yield pytest.param(name, options, id=name)


@compiles
@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), list(supported()))
def test_every_encoding_compiles_and_equals_eager(name, options, caplog):
    encoding = make(name, **options)
    cases = [case for case in CASES if not (encoding.facts.projects_length and case[1])]
    compiled = []
    for length in (300, 390, 345):
        for case in cases:
            compare(encoding, length, *case)
        compiled.append(graphs())
    assert compiled[2] == compiled[1] > 0  # the second length may compile block masks of any length
    assert said(caplog) == []


@compiles
@pytest.mark.slow
def test_one_kernel_computes_all_lengths_without_keeping_the_logits():
    encoding = make("t5")
    compare(encoding, 300)
    compiled = graphs()
    for length in (390, 345):
        compare(encoding, length)
    assert graphs() == compiled > 0

    q, k, v = inputs(384, requires_grad=True)  # leaves, as a user may pass without a need for gradients

    def step():
        with torch.no_grad():
            attend(q, k, v, encoding, backend="flex")

    logits = SENTENCES * HEADS * 384 * 384 * 4
    assert peak_bytes(lambda: step, "cpu") < logits
    assert graphs() == compiled


@pytest.mark.parametrize(
    ("name", "dtype", "compiler", "reason"),
    [
        ("shaw", torch.float32, None, "on a CPU it returns no logsumexp, which relative values need"),
        ("t5", torch.float64, None, "on a CPU it has no double precision"),
        ("t5", torch.float32, "no-such-compiler", "there is no C++ compiler no-such-compiler (install g++"),
    ],
)
def test_what_cannot_be_compiled_takes_the_plain_form_and_says_why(name, dtype, compiler, reason, caplog, monkeypatch):
    flex_on_cpu.warn.cache_clear()
    if compiler is not None:
        monkeypatch.setenv("CXX", compiler)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    with caplog.at_level(logging.WARNING, flex_on_cpu.logger.name):
        for length in (30, 40):
            compare(make(name, dtype), length, "left", True, dtype=dtype)
    (warning,) = said(caplog)
    assert f"PyTorch cannot compile FlexAttention here: {reason}" in warning


@pytest.mark.parametrize("learned", ["q", "parameters"])
def test_gradients_on_a_cpu_are_refused(learned):
    encoding, (q, k, v) = make("t5").requires_grad_(learned == "parameters"), inputs(30)
    {"q": q, "parameters": v.clone()}[learned].requires_grad_()
    with pytest.raises(ValueError, match=r"--attention-backend flex trains on a GPU only: .* or call .*no_grad\(\)"):
        attend(q, k, v, encoding, backend="flex")
