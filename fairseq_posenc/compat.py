"""What depends on the fairseq that is installed. Imported first: refuses what cannot work, in one sentence."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import packages_distributions
from importlib.util import find_spec

NEEDED = (
    "fairseq_posenc needs Python 3.10 or later, torch 2.5 or later, and fairseq 0.12.2 (Python 3.10), ve-fairseq "
    "0.12.3 (3.11, 3.12) or a fork of fairseq's main"
)
logger = logging.getLogger(__name__)

if sys.version_info < (3, 10):  # noqa: UP036 - a checkout is not installed by pip, which would refuse
    raise ImportError(f"{NEEDED}: this is Python {sys.version.split()[0]}.")
try:
    from torch.serialization import safe_globals  # noqa: F401 - since torch 2.5
except ImportError as error:
    raise ImportError(f"{NEEDED}; here {type(error).__name__}: {error}.") from error

HAS_FAIRSEQ = find_spec("fairseq") is not None
if HAS_FAIRSEQ:
    try:
        from fairseq.models.transformer import TransformerDecoderBase  # noqa: F401 - since fairseq 0.12
    except Exception as error:  # on Python 3.11 fairseq 0.12.2 raises a ValueError
        # All that install files there: pip would keep what is left of one, and its files would go with the other.
        packages = " ".join(sorted({*packages_distributions().get("fairseq", ["fairseq"])}))
        refusal = (
            f"{NEEDED}; the fairseq here cannot be used ({type(error).__name__}: {error}): first pip uninstall "
            f"{packages}, then pip install 'fairseq_posenc[fairseq]', which brings one that fits"
        )
        if "fairseq" in sys.modules:  # it is too old, but its commands run, and would not find our architectures
            raise ImportError(f"{refusal}.") from error
        HAS_FAIRSEQ = False
        logger.warning("%s; build_encoding and attend work all the same.", refusal)

#: parameters of fairseq 0.12.2's encoder layers that repeat others, also in its checkpoints
COPIES = {
    *("in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias"),
    *("fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"),
}
