"""What the jobs of one call run on."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc_experiments.base.errors import RecipeError


@dataclass(frozen=True)
class Hardware:
    """What the jobs of one call run on: this machine, nodes that train together, or SLURM's queue."""

    gpus: int = 0  # of one training, on each node; 0: on the CPU
    cpu_processes: int = 1  # training processes of each node without GPUs
    cpus: int = 1  # of this machine, or of one SLURM job
    #: one job runs in each at a time: its GPUs as CUDA_VISIBLE_DEVICES names them, or a number; with SLURM, none mean
    #: any number of jobs
    slots: tuple[str, ...] = ("0",)
    nodes: int = 1
    node_rank: int = 0
    rendezvous: str = ""  # host:port of node 0, if there are several nodes
    slurm: dict[str, Any] | None = None  # parameters of --slurm; None without SLURM

    @property
    def processes(self) -> int:
        """Training processes on this node: one for each GPU, or `cpu_processes` without GPUs."""
        return self.gpus or self.cpu_processes

    @property
    def workers(self) -> int:
        """Training processes on all nodes."""
        return self.nodes * self.processes

    @property
    def jobs(self) -> int:
        """The number of jobs that share this machine or SLURM's reservation."""
        return 1 if self.slurm is not None else len(self.slots)

    @property
    def job_cpus(self) -> int:
        """CPU threads of one process of one job."""
        return max(1, self.cpus // (self.jobs * (1 if self.gpus else self.processes)))

    def device(self, visible: Mapping[str, str]) -> str:
        """What a training on this machine runs on: `NVIDIA H200`, or `AMD EPYC, AVX512, 2 threads`.

        Args:
            visible: the environment variable that shows the GPUs of its job.
        """
        if self.gpus:
            return gpu(visible)
        return f"{processor()}, {self.job_cpus} thread{'s' * (self.job_cpus > 1)}"


def find_gpus(wanted: int | None, dry_run: bool = False) -> list[str]:
    """GPUs as CUDA_VISIBLE_DEVICES names them: the first `wanted`, or all; RecipeError if there are fewer."""
    # A dry run may be meant for another machine, so it does not look for GPUs.
    if wanted == 0 or (wanted and dry_run):
        return [str(number) for number in range(wanted)]
    # Imported here, because it would slow down --help.
    import torch

    count = torch.cuda.device_count()
    if (wanted or 0) > count:
        raise RecipeError(f"--gpus {wanted}: PyTorch sees {count}; ask for at most {count}, or 0 for the CPU.")
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    names = named if len(named) >= count else [str(number) for number in range(count)]
    return names[: count if wanted is None else wanted]


def processor() -> str:
    """The processor's name, and the widest vector instructions that PyTorch uses there, such as `AMD EPYC, AVX512`."""
    import torch

    cpuinfo = Path("/proc/cpuinfo")  # of Linux, where not every architecture has names
    name = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return f"{name[1] if name else platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"


def gpu(visible: Mapping[str, str]) -> str:
    """The name of the first of these GPUs, as PyTorch has it; `GPU of unknown name` if it cannot be asked."""
    # In another process: asking for it takes memory on the GPU until the process ends, or the whole GPU if it is
    # exclusive.
    words = [sys.executable, "-P", "-c", "import torch; print(torch.cuda.get_device_name())"]
    with suppress(subprocess.SubprocessError, OSError):
        asked = subprocess.run(
            words, env={**os.environ, **visible}, capture_output=True, encoding="utf-8", check=True, timeout=60
        )
        return asked.stdout.strip()
    return "GPU of unknown name"
