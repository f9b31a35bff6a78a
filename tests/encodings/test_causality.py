"""No decoder sees later tokens in half precision, however large its learned parameters are."""

from typing import Any

import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.encodings import ENCODINGS
from tests.variants import converted

HEADS, DIM, LENGTH = 1, 8, 1024
#: they saw later tokens, or gave NaN, when a mask was a finite number that is added to the logits
FOUND: list[tuple[str, dict[str, Any]]] = [
    ("forget", {}),
    ("rotary", {"xpos": True}),
    ("alibi", {"alibi_slopes": "learned"}),
]
CASES = [*((name, {}) for name, cls in ENCODINGS.items() if not cls.facts.projects_length), *FOUND[1:]]
#: values of parameters that are not drawn
EXTREME = {"gates.bias": -20.0, "log_slopes": 12.0}


def make(name: str, options: dict[str, Any], dtype: torch.dtype) -> Any:
    torch.manual_seed(1)
    of_decoder: dict[str, Any] = {"bidirectional": False, "max_positions": LENGTH}
    known = {key: value for key, value in of_decoder.items() if key in ENCODINGS[name].options}
    encoding = build_encoding(name, HEADS, DIM, **known, **options)
    with torch.no_grad():
        for key, parameter in encoding.named_parameters():
            parameter.fill_(EXTREME[key]) if key in EXTREME else parameter.normal_(std=4.0)
    return converted(encoding, dtype)


def output_of_first_half(encoding: Any, dtype: torch.dtype, backend: str, later: float) -> torch.Tensor:
    """The output of the first half of the tokens; all others are multiplied by `later`."""
    torch.manual_seed(2)
    q, k, v = (2 * torch.randn(3, 1, HEADS, LENGTH, DIM)).to(dtype)
    x = torch.randn(1, LENGTH, HEADS * DIM).to(dtype)
    for tensor in (k[0].transpose(0, 1), v[0].transpose(0, 1), x[0]):
        tensor[LENGTH // 2 :] *= later
    mask = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)  # as fairseq's
    with torch.no_grad():
        output, _ = attend(q, k, v, encoding, attn_mask=mask, backend=backend, layer_input=x)
    assert output.isfinite().all()
    return output[:, :, : LENGTH // 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_later_tokens_change_nothing(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    encoding = make(name, options, dtype)
    for backend in ("auto", "eager"):
        one, other = (output_of_first_half(encoding, dtype, backend, later) for later in (1.0, -3.0))
        assert torch.equal(one, other), backend


@pytest.mark.parametrize(("name", "options"), FOUND)
def test_padding_that_sees_only_far_keys_has_finite_outputs(name: str, options: dict[str, Any]) -> None:
    """Otherwise its values, with weights of 0, would make all others NaN in the next layer."""
    encoding = make(name, options, torch.float16)
    q, k, v = torch.randn(3, 1, HEADS, 64, DIM).half()
    for padding in (torch.arange(64)[None] < 40, torch.arange(64)[None] >= 2):
        for backend in ("eager", "sdpa"):
            causal = torch.full((64, 64), -torch.inf).triu(1)
            assert attend(q, k, v, encoding, padding, causal, backend=backend)[0].isfinite().all()
