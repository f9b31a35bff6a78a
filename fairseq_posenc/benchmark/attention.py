"""Benchmarks attention alone, with 8 heads of width 64, without projections and masks.

:func:`attend` with an encoding is compared with torch's scaled_dot_product_attention without positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..attention.backends import check_backend
from ..attention.core import attend
from ..encodings import build_encoding, find_encoding
from ..encodings.contract.registry import known_options
from .memory import compare_peaks
from .models import DTYPES, Candidate, Setup, split_flags
from .results import Result
from .rounds import Clock, race

HEADS, HEAD_DIM = 8, 64


def make_inputs(length: int, tokens: int, setup: Setup) -> list[Tensor]:
    """q, k, v and the gradient of the output, each (max(1, tokens // length), 8, length, 64)."""
    torch.manual_seed(setup.seed)
    shape = (max(1, tokens // length), HEADS, length, HEAD_DIM)
    made = [torch.randn(shape, device=setup.device, dtype=DTYPES[setup.precision]) for _ in range(4)]
    return [*(tensor.requires_grad_() for tensor in made[:3]), made[3]]


def attention_step(
    candidate: Candidate, setup: Setup, length: int, backward: bool = True
) -> Callable[[list[Tensor]], Any]:
    """Makes a function that runs one attention.

    Args:
        backward: whether it also computes all gradients.

    Raises:
        ValueError: the encoding cannot be used without a model with these options.
    """
    if candidate.encoding is None:

        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        parameters: list[Tensor] = []
    else:
        options = _options(candidate, setup, length)
        backend = options.pop("attention_backend", "auto")
        encoding = build_encoding(candidate.encoding, HEADS, HEAD_DIM, **options)
        check_backend(backend, encoding)
        if encoding.needs_segments:
            raise ValueError(f"{candidate.name} needs segments, which this benchmark does not have.")
        encoding.to(device=setup.device, dtype=DTYPES[setup.precision])
        projections = torch.nn.ModuleList(torch.nn.Linear(HEADS * HEAD_DIM, HEADS * HEAD_DIM) for _ in range(2))
        query, key = projections.to(device=setup.device, dtype=DTYPES[setup.precision])
        parameters = list(encoding.parameters())

        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attend(q, k, v, encoding, backend=backend, projections=(query, key))[0]

    def step(inputs: list[Tensor]) -> None:
        *qkv, gradient = inputs
        if not backward:
            with torch.no_grad():
                run(*qkv)
            return
        torch.autograd.grad(run(*qkv), [*qkv, *parameters], gradient, allow_unused=True)

    return step


def _options(candidate: Candidate, setup: Setup, length: int) -> dict[str, Any]:
    """The encoding's options from the flags, without flags of the model; tables are as long as the sequences."""
    assert candidate.encoding is not None
    flags, _ = split_flags([*setup.flags, *candidate.flags])
    of_attention = {*known_options(), "attention_backend", "num_segments", "bias_gain", "urpe"}
    options = {name: value for name, value in flags.items() if name in of_attention}
    if "max_positions" in find_encoding(candidate.encoding).options:
        options["max_positions"] = length
    return options


def measure_attention(
    measure: str,
    setup: Setup,
    candidates: Sequence[Candidate],
    lengths: Sequence[int],
    tokens: int,
    rounds: int,
    clock: Clock,
    backward: bool,
) -> list[Result]:
    """Measures milliseconds, and MiB of inputs, outputs and gradients, at each length."""
    time, memory = f"{measure}: time", f"{measure}: memory"
    times: list[Result] = []
    memories: list[Result] = []
    for length in lengths:
        setting = f"n = {length}"
        build = partial(attention_step, setup=setup, length=length, backward=backward)
        builders = {candidate.name: partial(build, candidate) for candidate in candidates}
        inputs = make_inputs(length, tokens, setup)
        for name, timing in race(builders, [inputs] * (rounds + 1), clock, group=len(candidates)).items():
            own, stock = ([1000 * taken for taken in seconds] for seconds in (timing.own, timing.stock))
            times.append(Result(time, setting, name, "ms", own, stock, timing.refused))
        del inputs
        prepares = {name: partial(_alone, made, setup, length, tokens) for name, made in builders.items()}
        memories += compare_peaks(memory, setting, prepares, setup.device)
    return times + memories


def _alone(
    build: Callable[[], Callable[[list[Tensor]], Any]], setup: Setup, length: int, tokens: int
) -> Callable[[], Any]:
    step = build()
    return partial(step, make_inputs(length, tokens, setup))
