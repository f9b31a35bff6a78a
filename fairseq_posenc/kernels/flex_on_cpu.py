"""Compiled FlexAttention on a CPU: whether PyTorch can compile it there, and what avoids its errors."""

from __future__ import annotations

import logging
import os
import shutil
from functools import cache
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask

logger = logging.getLogger(__name__)

#: the oldest PyTorch with which compiling was tested
OLDEST = (2, 13)


def why_uncompiled(dtype: torch.dtype, logsumexp: bool = False) -> str | None:
    """Why PyTorch cannot compile FlexAttention for this machine's CPU, as a clause; None if it can."""
    compiler = os.environ.get("CXX", "g++")
    if _version() < OLDEST:
        return f"that takes PyTorch {OLDEST[0]}.{OLDEST[1]} or newer"
    if logsumexp:
        return "on a CPU it returns no logsumexp, which relative values need"
    if dtype == torch.float64:
        return "on a CPU it has no double precision"
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return "it supports no CPU without AVX2"
    if not _is_installed(compiler):
        return f"there is no C++ compiler {compiler} (install g++, or set CXX)"
    return None


def _version() -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


@cache
def _is_installed(program: str) -> bool:
    return shutil.which(program) is not None


@cache
def warn(reason: str) -> None:
    """Says once that the plain form is used."""
    logger.warning(
        f"PyTorch cannot compile FlexAttention here: {reason}. Its plain form computes the same, but keeps all logits; "
        "--attention-backend auto is faster."
    )


@cache
def use_distinct_names() -> None:
    """Avoids an error of PyTorch 2.13 in kernels for CPUs, which confuses sizes of tensors.

    In the code of a score_mod PyTorch calls a block's size ks1, for example. It then replaces this text by another
    name, also at the start of ks17, which is another size: the code does not compile, or reads the wrong numbers. From
    the first call on, the names of such sizes end in an underscore.
    """
    if _version() != (2, 13):
        return
    from torch._inductor.codegen.common import KernelArgs  # slow to import, and needed only here

    name_size = KernelArgs.size

    def size(args: KernelArgs, symbol: Any) -> str:
        if symbol.name.startswith("u"):  # known when the kernel runs, as that of a block is
            return args.sizevars.setdefault(symbol, f"k{symbol}_")
        return name_size(args, symbol)

    KernelArgs.size = size  # type: ignore[assignment,method-assign]


def all_pairs(queries: int, keys: int) -> BlockMask:
    """The block mask that hides nothing. Without one, a kernel for CPUs computes all logits of a head at once."""
    size = 128
    rows, columns = -(-queries // size), -(-keys // size)
    none = torch.zeros(1, 1, rows, dtype=torch.int32)
    indices = torch.arange(columns, dtype=torch.int32).repeat(1, 1, rows, 1)
    # Two tensors of indices: PyTorch 2.13 confuses its arguments if they are the same.
    return BlockMask.from_kv_blocks(none, indices, none + columns, indices.clone(), size, seq_lengths=(queries, keys))
