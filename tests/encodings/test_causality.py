"""No decoder sees later tokens in half precision, however large its learned parameters are."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.attention.backends import check_backend
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.errors import FlagError
from fairseq_posenc.kernels import flex as flex_kernel
from tests.variants import converted

HEADS, DIM = 2, 8
#: they saw later tokens, or gave NaN, when a mask was a finite number that is added to the logits
FOUND: list[tuple[str, dict[str, Any]]] = [
    ("forget", {}),
    ("rotary", {"xpos": True}),
    ("alibi", {"alibi_slopes": "learned"}),
]
PLAIN: list[tuple[str, dict[str, Any]]] = [
    (name, {}) for name in ENCODINGS if not build_encoding(name, HEADS, DIM).facts.projects_length
]
#: values of parameters that are not drawn
EXTREME = {"gates.bias": -20.0, "log_slopes": 12.0}


def make(name: str, options: dict[str, Any], length: int, dtype: torch.dtype) -> Any:
    torch.manual_seed(1)
    of_decoder: dict[str, Any] = {"bidirectional": False, "max_positions": length}
    known = {key: value for key, value in of_decoder.items() if key in ENCODINGS[name].options}
    encoding = build_encoding(name, HEADS, DIM, **known, **options)
    with torch.no_grad():
        for key, parameter in encoding.named_parameters():
            parameter.fill_(EXTREME[key]) if key in EXTREME else parameter.normal_(std=4.0)
    return converted(encoding, dtype)


def output_of_first_half(encoding: Any, length: int, dtype: torch.dtype, backend: str, later: float) -> torch.Tensor:
    """The output of the first half of the tokens; all others are multiplied by `later`."""
    torch.manual_seed(2)
    q, k, v = (2 * torch.randn(3, 1, HEADS, length, DIM)).to(dtype)
    x = torch.randn(1, length, HEADS * DIM).to(dtype)
    for tensor in (k[0].transpose(0, 1), v[0].transpose(0, 1), x[0]):
        tensor[length // 2 :] *= later
    mask = torch.full((length, length), -torch.inf).triu(1)  # as fairseq's
    with torch.no_grad():
        output, _ = attend(q, k, v, encoding, attn_mask=mask, backend=backend, layer_input=x)
    assert output.isfinite().all()
    return output[:, :, : length // 2]


def cases() -> Iterator[Any]:
    for length in (64, 1024, 4096):
        for name, options in [*PLAIN, *FOUND[1:]]:
            for backend in ("eager", "sdpa", "blocks", "flex"):
                if backend == "flex" and length == 4096:
                    continue  # its uncompiled form keeps several copies of all logits
                try:
                    check_backend(backend, build_encoding(name, HEADS, DIM, **options))
                except FlagError:
                    continue
                slow = [pytest.mark.slow] if length > 1024 or (length > 64 and (name, options) not in FOUND) else []
                label = "-".join([str(length), name, *map(str, options.values()), backend])
                yield pytest.param(length, name, options, backend, marks=slow, id=label)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(("length", "name", "options", "backend"), list(cases()))
def test_later_tokens_change_nothing(
    length: int, name: str, options: dict[str, Any], backend: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flex_kernel, "COMPILED", False)
    encoding = make(name, options, length, dtype)
    one, other = (output_of_first_half(encoding, length, dtype, backend, later) for later in (1.0, -3.0))
    assert torch.equal(one, other)


@pytest.mark.parametrize(("name", "options"), FOUND)
def test_padding_that_sees_only_far_keys_has_finite_outputs(name: str, options: dict[str, Any]) -> None:
    """Otherwise its values, with weights of 0, would make all others NaN in the next layer."""
    encoding = make(name, options, 64, torch.float16)
    q, k, v = torch.randn(3, 1, HEADS, 64, DIM).half()
    for padding in (torch.arange(64)[None] < 40, torch.arange(64)[None] >= 2):
        for backend in ("eager", "sdpa"):
            causal = torch.full((64, 64), -torch.inf).triu(1)
            assert attend(q, k, v, encoding, padding, causal, backend=backend)[0].isfinite().all()
