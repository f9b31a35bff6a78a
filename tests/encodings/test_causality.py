"""No decoder sees later tokens in half precision, however large its learned parameters are."""

from typing import Any

import pytest
import torch

from fairseq_posenc import attend
from fairseq_posenc.encodings import ENCODINGS
from tests.variants import make_encoding, output_of_first_half

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
    in_decoder: dict[str, Any] = {"bidirectional": False, "max_positions": LENGTH}
    known = {key: value for key, value in in_decoder.items() if key in ENCODINGS[name].options}
    encoding = make_encoding(name, known | options, HEADS, DIM, dtype, std=4)
    for key, parameter in encoding.named_parameters():
        if key in EXTREME:
            torch.nn.init.constant_(parameter, EXTREME[key])
    return encoding


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_later_tokens_change_nothing(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    encoding = make(name, options, dtype)
    for backend in ("auto", "eager"):
        outputs = [output_of_first_half(encoding, LENGTH, dtype, later, backend) for later in (1.0, -3.0)]
        assert torch.equal(*outputs), backend


@pytest.mark.parametrize(("name", "options"), FOUND)
def test_padding_that_sees_only_far_keys_has_finite_outputs(name: str, options: dict[str, Any]) -> None:
    """Otherwise its values, with weights of 0, would make all others NaN in the next layer."""
    encoding = make(name, options, torch.float16)
    q, k, v = torch.randn(3, 1, HEADS, 64, DIM).half()
    for padding in (torch.arange(64)[None] < 40, torch.arange(64)[None] >= 2):
        for backend in ("eager", "sdpa"):
            causal = torch.full((64, 64), -torch.inf).triu(1)
            assert attend(q, k, v, encoding, padding, causal, backend=backend)[0].isfinite().all()
