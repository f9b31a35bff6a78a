"""Splits cleaned training pairs into tokens, in batches, and drops pairs by their numbers of tokens."""

from pathlib import Path

from posenc_experiments.base.recipe import Prepare
from posenc_experiments.data import context
from posenc_experiments.data.clean import Batch, Cleaned, as_lines
from posenc_experiments.data.counts import TrainCounts
from posenc_experiments.data.subwords import Subwords, load

_sides: tuple[Subwords, Subwords]
_settings: Prepare


def start(directory: Path, source: str, target: str, settings: Prepare) -> None:
    """Loads the learnt subwords; called once in each process."""
    global _sides, _settings
    _sides = load(directory, source, settings), load(directory, target, settings)
    _settings = settings


def encode_batch(batch: Batch) -> Cleaned:
    """The pairs to train on as lines of tokens of each side, and the counts of those kept and dropped."""
    counts = TrainCounts()
    kept: tuple[list[str], list[str]] = ([], [])
    encoded = [
        context.encode(side, (line.decode("utf-8") for line in lines))
        for side, lines in zip(_sides, batch, strict=True)
    ]
    for pair in zip(*encoded, strict=True):
        short, long = sorted(len(sentence) for _, sentence in pair)
        if short < _settings.min_tokens:  # may be 0: subwords drop some characters, such as zero-width spaces
            counts.too_short += 1
        elif long > _settings.max_tokens:
            counts.too_long += 1
        elif _settings.max_ratio and long > _settings.max_ratio * short:
            counts.odd_ratio += 1
        else:
            counts.kept += 1
            joined = context.join(pair, _settings.max_tokens)
            counts.joined += joined[0] is not pair[0][1]
            for side, tokens in zip(kept, joined, strict=True):
                side.append(" ".join(tokens))
    return as_lines(kept[0]), as_lines(kept[1]), counts
