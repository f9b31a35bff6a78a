"""Lengths of the prepared sentences, read from fairseq's index files without importing fairseq."""

import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import Run
from posenc_experiments.data.prepared import binarized_dir

# The index of fairseq's MMapIndexedDataset: magic, version, code of the data type, number of sentences; then the
# sentences' sizes as int32.
HEADER, MAGIC = struct.Struct("<9sQBQ"), b"MMIDIDX\0\0"
Sizes = NDArray[Any]


def read_sizes(path: Path) -> Sizes:
    """The number of tokens of each sentence of a binarized file, </s> included; RecipeError if the file is damaged."""
    with open(path, "rb") as index:
        head = index.read(HEADER.size)
        magic, _, _, sentences = HEADER.unpack(head) if len(head) == HEADER.size else (b"", 0, 0, 0)
        sizes = np.fromfile(index, dtype="<i4", count=sentences)
    if magic != MAGIC or len(sizes) != sentences:
        raise RecipeError(f"{path} is damaged: delete it, and run the stage prepare again.")
    return sizes


def index_file(binarized: Path, split: str, pair: str, side: str) -> Path:
    """fairseq's index file of a split (train, valid, test, test1...) in one of the pair's languages."""
    return binarized / f"{split}.{pair}.{side}.idx"


def index_files(run: Run, split: str) -> tuple[Path, Path]:
    """The index files of a split in the source's and the target's language."""
    source, target = (index_file(binarized_dir(run), split, run.pair, side) for side in (run.source, run.target))
    return source, target


def longest(run: Run, split: str) -> tuple[int, int]:
    """The numbers of tokens of the longest source and of the longest target sentence, </s> included."""
    source, target = (_extremes(path, path.stat().st_mtime_ns)[1] for path in index_files(run, split))
    return source, target


def shortest_source(run: Run, split: str) -> int:
    """The number of tokens of the shortest source sentence, </s> included."""
    path = index_files(run, split)[0]
    return _extremes(path, path.stat().st_mtime_ns)[0]


@lru_cache
def _extremes(path: Path, changed: int) -> tuple[int, int]:
    sizes = read_sizes(path)
    return (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)
