"""SacreBLEU's own test sets (`sacrebleu -t wmt14/full -l en-de`), used only if they are on this machine.

SacreBLEU downloads a missing test set without asking. So its directory ($SACREBLEU, or ~/.sacrebleu) is checked first.
"""

from pathlib import Path

from posenc_experiments.base.languages import sacrebleu_dir


def local_reference(name: str, pair: str) -> Path | None:
    """The reference of SacreBLEU's test set for this pair; None unless all files of the set are on this machine."""
    files = _files(name, pair)
    return next((file for file in files if file.suffix == ".ref"), None) if all(map(Path.is_file, files)) else None


def _files(name: str, pair: str) -> list[Path]:
    """All files that SacreBLEU needs for a set; none if the set has no such pair."""
    from sacrebleu.dataset import DATASETS
    from sacrebleu.dataset.wmt_xml import WMTXMLDataset

    dataset = DATASETS[name]
    # SacreBLEU downloads a set since WMT21 to find its fields.
    if pair not in dataset.langpairs or isinstance(dataset, WMTXMLDataset):
        return []
    directory = sacrebleu_dir() / name
    prefix = f"{name.replace('/', '_')}.{pair}"
    return [directory / f"{prefix}.{field.replace(':', '-')}" for field in dataset.fieldnames(pair)]
