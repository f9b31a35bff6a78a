"""A recipe for a user's own text, and the forms that its files may have."""

import gzip
from pathlib import Path

from tests.experiments.tiny import CONF

FIELDS = ["  sources: sources.tsv\n", "  name: tiny\n", "  pairs: en-de de-en\n", "  tests: test\n"]


def own_conf(directory: Path) -> Path:
    """A recipe without what `own` adds to it."""
    text = CONF
    for field in FIELDS:
        text = text.replace(field, "")
    (directory / "own.yaml").write_text(text)
    return directory / "own.yaml"


def as_gzip(text: Path, copy: Path) -> Path:
    copy.mkdir()
    for path in text.iterdir():
        (copy / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    return copy


def as_tsv(text: Path, copy: Path, sides: tuple[str, str] = ("en", "de")) -> Path:
    copy.mkdir()
    for split in {path.stem for path in text.iterdir()}:
        columns = [(text / f"{split}.{side}").read_bytes().split(b"\n")[:-1] for side in sides]
        (copy / f"{split}.tsv").write_bytes(b"".join(b"\t".join(pair) + b"\n" for pair in zip(*columns, strict=True)))
    return copy
