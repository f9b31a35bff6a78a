"""Writes a parallel corpus of reversed words to the directory named last; same bytes on every machine."""

import sys
from pathlib import Path

SIZES = {"train": 60, "valid": 6, "test": 6, "other": 6}
VOCABULARY = 8


def main(directory: Path) -> None:
    number = 1
    for split, size in SIZES.items():
        source, target = [], []
        for _ in range(size):
            words = []
            for _ in range(2 + number // 256 % 4):
                number = (1103515245 * number + 12345) % (1 << 31)
                words.append(number // 65536 % VOCABULARY)
            source.append(" ".join(f"s{word}" for word in words))
            target.append(" ".join(f"t{word}" for word in reversed(words)))
        for language, lines in (("en", source), ("de", target)):
            (directory / f"{split}.{language}").write_text("\n".join(lines) + "\n")


main(Path(sys.argv[-1]))
