"""Makes the text of IWSLT'14, TED talks in German and English, from the archive of fairseq's prepare-iwslt14.sh.

That script decides what is text, which training pairs are dropped, and which pairs are valid. The text is raw and
cased: the stage `prepare` lowercases and tokenizes it. `test.documents` names the talk of each line.
"""

import argparse
import gzip
import io
import re
import sys
import tarfile
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable
from http.client import HTTPException
from itertools import chain
from pathlib import Path
from xml.sax.saxutils import unescape

from sacremoses import MosesTokenizer

URL = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
SIDES = ("de", "en")
TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
# Pairs, by others' logs of the script. No SHA-256 is verified, because we could get no copy of the archive.
PUBLISHED = {"read": 174_443, "kept": 167_522, "train": 160_239, "valid": 7_283, "test": 6_750}
METADATA, TITLES = re.compile("<url>|<talkid>|<keywords>"), re.compile("</?(?:title|description)>")
TALK, SEGMENT = re.compile('<doc docid="([^"]*)"'), re.compile('<seg id="[0-9]*">|</seg>')
DAMAGE = (tarfile.TarError, EOFError, zlib.error, OSError, HTTPException)
Lines = list[str]


def read_archive(archive: Path | None) -> dict[str, Lines]:
    """The lines of each file of an archive; None is fairseq's, which is not stored. Only a newline ends a line."""
    text = {}
    try:
        packed = archive.read_bytes() if archive else urllib.request.urlopen(URL, timeout=60).read()
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as members:
            for member in members:
                if member.isfile() and (file := members.extractfile(member)) is not None:
                    # Bytes that are not UTF-8 stay as they are: `prepare` has rules for them.
                    content = file.read().decode("utf-8", "surrogateescape").removesuffix("\n")
                    text[Path(member.name).name] = content.split("\n")
    except DAMAGE as error:
        problem = f"is damaged, or cannot be read to its end ({str(error) or type(error).__name__})"
        sys.exit(f"error: {archive or URL} {problem}: get {URL} again, and name its directory by --source")
    return text


def train_lines(lines: Lines) -> Lines:
    """The sentences, titles and descriptions of talks."""
    return [TITLES.sub("", line) for line in lines if not METADATA.search(line)]


def test_lines(lines: Lines) -> Lines:
    """The sentences of a test set, with straight apostrophes as in the script.

    Entities are resolved, though the script leaves them: a reference is text, which has & and not &amp;.
    """
    return [unescape(SEGMENT.sub("", line)).replace("’", "'") for line in lines if "<seg id" in line]


def talks(lines: Lines) -> Lines:
    """The talk of each sentence of a test set."""
    names, name = [], ""
    for line in lines:
        name = found[1] if (found := TALK.search(line)) else name
        names += [name] * ("<seg id" in line)
    return names


def tokens(moses: MosesTokenizer, line: str) -> int:
    """The number of Moses' tokens. Moses splits off each full stop at the end, and sacremoses not that of `U.S.`."""
    words = moses.tokenize(line)
    return len(words) + bool(words and re.search(r"[^.]\.$", words[-1]))


def why_dropped(one: int, other: int) -> str:
    """Why clean-corpus-n.perl, with the script's limits, drops a pair of so many tokens; empty if it does not."""
    short, long = sorted((one, other))
    if not short:
        return "for an empty side"
    if long > 175:
        return "as longer than 175 tokens"
    return "for one side having more than 1.5 times the other's tokens" if long > 1.5 * short else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, help="a directory with de-en.tgz")
    parser.add_argument("output", type=Path, help="an empty directory")
    args = parser.parse_args()
    archive = args.source and args.source / "de-en.tgz"
    if archive and not archive.is_file():
        sys.exit(f"error: --source {args.source} has no de-en.tgz: get {URL}, or leave it out")
    text = read_archive(archive)

    def pairs(name: str, lines: Callable[[Lines], Lines] = test_lines) -> list[tuple[str, ...]]:
        """The pairs of a German and an English file, with each run of white space as a single blank."""
        sides = {}
        for file in (name.format(side) for side in SIDES):
            if file not in text:
                sys.exit(f"error: {archive or URL} has no de-en/{file}: get {URL} again")
            sides[file] = [" ".join(line.split()) for line in lines(text[file])]
        if len({*map(len, sides.values())}) > 1:
            counts = ", ".join(f"{len(side):,} in {file}" for file, side in sides.items())
            sys.exit(f"error: {archive or URL} has lines without a translation ({counts}): get {URL} again")
        return [*zip(*sides.values(), strict=True)]

    files = {name: f"IWSLT14.{name}.de-en.{{}}.xml" for name in TESTS}
    tests = {name: pairs(file) for name, file in files.items()}
    read, moses = pairs("train.tags.de-en.{}", train_lines), [*map(MosesTokenizer, SIDES)]
    reasons = [why_dropped(*map(tokens, moses, pair)) for pair in read]
    kept = [pair for pair, reason in zip(read, reasons, strict=True) if not reason]
    train = [pair for number, pair in enumerate(kept, 1) if number % 23]
    splits = {"train": train, "valid": kept[22::23], "test": [*chain(*tests.values())]}
    for reason, count in Counter(filter(None, reasons)).items():
        print(f"dropped {reason}: {count:,}")
    for name, made in {"read": read, "kept": kept, **tests, **splits}.items():
        known = PUBLISHED.get(name, len(made))
        here = f"{name}: {len(made):,} pairs"
        print(here if len(made) == known else f"warning: {here} here, but {known:,} are published")
    output = {
        f"{split}.{side}": [pair[n] for pair in made] for split, made in splits.items() for n, side in enumerate(SIDES)
    }
    output["test.documents"] = [f"{name}/{talk}" for name in TESTS for talk in talks(text[files[name].format("de")])]
    for name, lines in output.items():
        (args.output / name).write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main()
