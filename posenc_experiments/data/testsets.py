"""SacreBLEU's own test sets (`sacrebleu -t wmt14/full -l en-de`), used only where they lie on this machine.

SacreBLEU fetches a test set that it lacks without asking. So its directory ($SACREBLEU, or ~/.sacrebleu) is looked
into first, and `-t` is never called for what is not there in full.
"""

import os
from pathlib import Path


def at_hand(name: str, pair: str) -> bool:
    """Whether SacreBLEU has this test set in this direction, so that it needs no network."""
    files = _files(name, pair)
    return bool(files) and all(file.is_file() for file in files)


def _files(name: str, pair: str) -> list[Path]:
    """All files that SacreBLEU wants before it scores; none if the set has no such pair."""
    from sacrebleu.dataset import DATASETS
    from sacrebleu.dataset.wmt_xml import WMTXMLDataset

    dataset = DATASETS[name]
    # Those since WMT21 are fetched to answer which fields they have.
    if pair not in dataset.langpairs or isinstance(dataset, WMTXMLDataset):
        return []
    directory = Path(os.environ.get("SACREBLEU", Path.home() / ".sacrebleu")) / name
    prefix = f"{name.replace('/', '_')}.{pair}"
    return [directory / f"{prefix}.{field.replace(':', '-')}" for field in dataset.fieldnames(pair)]
