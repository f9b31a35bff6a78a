"""Writes the hardware and versions of this machine as JSON to the file that is named, for scripts/check_gpu.sh."""

import platform
import subprocess
import sys
from pathlib import Path

import torch

from posenc_experiments.base.files import write_json
from posenc_experiments.experiment.versions import environment

gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
driver = subprocess.run(query, capture_output=True, encoding="utf-8", check=True).stdout.split() if gpus else []
machine = {
    **environment(),
    "python": platform.python_version(),
    "cuda": torch.version.cuda,
    "gpus": [{"name": gpu.name, "memory": gpu.total_memory} for gpu in gpus],
    "driver": driver,
}
write_json(Path(sys.argv[1]), machine)
