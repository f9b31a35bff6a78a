"""The versions of code and libraries that made a result, recorded for information, as the device is.

Those of the libraries that make text are part of the identity, too (``TEXT_LIBRARIES`` in data/prepared.py).
"""

import subprocess
from typing import Any

from posenc_experiments.experiment.fairseq_flags import PLUGIN

# The files with the code of a training, as patterns of git.
CODE = (":/fairseq_posenc/*.py", ":/posenc_experiments/*.py", ":/recipes/*.py")


def environment() -> dict[str, Any]:
    """The versions of code and libraries, recorded for information.

    Returns:
        The commit (None outside of a checkout), whether Python files differ from it, and versions of torch and fairseq.
    """
    import fairseq
    import torch

    # Only if git tracks the plugin: it may be installed inside a checkout of something else.
    commit = _git("rev-parse", "HEAD") if _git("ls-files", "effects.py") else ""
    return {
        "commit": commit or None,
        "changed": bool(_git("status", "--porcelain", "--", *CODE)) if commit else None,
        "torch": str(torch.__version__),
        "fairseq": str(fairseq.__version__),
    }


def all_environments(earlier: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The environment of a resumed training; what differs between its processes is a list of all values, in order."""
    if "device" in now:  # older versions did not record it
        earlier = {**earlier, "device": earlier.get("device", "not recorded")}
    merged = {}
    for key in earlier | now:
        values = list(dict.fromkeys([*as_list(earlier.get(key)), now.get(key)]))
        merged[key] = values if len(values) > 1 else values[0]
    return merged


def as_list(value: object) -> list[Any]:
    """The values of an environment's key."""
    return value if isinstance(value, list) else [value]


def _git(*words: str) -> str:
    """The output of git in the plugin's directory; empty if it is in no checkout, or git is not installed."""
    try:
        process = subprocess.run(["git", *words], cwd=PLUGIN, capture_output=True, encoding="utf-8", check=False)
    except OSError:
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""
