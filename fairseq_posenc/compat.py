"""What depends on the fairseq that is installed. Imported first: refuses one that cannot work, in one sentence."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = (
    "fairseq_posenc needs Python 3.10 or later, torch 2.5 or later, and fairseq 0.12.2 (Python 3.10), ve-fairseq "
    "0.12.3 (3.11, 3.12) or a fork of fairseq's main; pip install 'fairseq_posenc[fairseq]' brings one that fits"
)

if sys.version_info < (3, 10):  # noqa: UP036 - a checkout is not installed by pip, which would refuse
    raise ImportError(f"{NEEDED}: this is Python {sys.version.split()[0]}.")

HAS_FAIRSEQ = find_spec("fairseq") is not None
try:
    from torch.serialization import safe_globals  # noqa: F401 - since torch 2.5

    if HAS_FAIRSEQ:
        from fairseq.models.transformer import TransformerDecoderBase  # noqa: F401 - since fairseq 0.12
except Exception as error:  # on Python 3.11 fairseq 0.12.2 raises a ValueError
    raise ImportError(f"{NEEDED}: here {type(error).__name__}: {error}.") from error

#: parameters of fairseq 0.12.2's encoder layers that repeat others, also in its checkpoints
COPIES = {
    *("in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias"),
    *("fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"),
}
