"""Prints the hardware and versions of this machine as JSON, for scripts/check_gpu.sh."""

import json
import platform
import subprocess

import torch

from posenc_experiments.experiment.versions import environment

print(
    json.dumps(
        {
            **environment(),
            "python": platform.python_version(),
            "cuda": torch.version.cuda,
            "gpus": [
                {"name": gpu.name, "memory": gpu.total_memory}
                for gpu in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
            ],
            "driver": torch.cuda.is_available()
            and subprocess.run(
                ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                capture_output=True,
                encoding="utf-8",
                check=False,
            ).stdout.split(),
        },
        indent=2,
    )
)
