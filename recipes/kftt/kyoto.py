"""Makes the text of the Kyoto Free Translation Task from NICT's corpus of Wikipedia's articles about Kyoto.

Each article is a file of XML. Its number decides its split: 00002 is dev, 00003 tune, 00004 test, and the rest train.
The text is raw, sentences only, the English of the last check. `SPLIT.documents` names the article of each line.
"""

import argparse
import gzip
import hashlib
import re
import sys
import tarfile
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

COMMIT = "e5fcb65f2101efa7ab05ade551d97f6c5af6db7b"
URL = f"https://github.com/venali/BilingualCorpus/archive/{COMMIT}.tar.gz"
SPLITS = {"00002": "dev", "00003": "tune", "00004": "test"}  # by the number in the file's name
ARTICLE = re.compile(r"[^/]*/wiki_corpus_2\.01/[A-Z]{3}/(([A-Z]{3})(\d{5}))\.xml")
BARE = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[\da-fA-F]+);)")  # GNM00155.xml has one
SHA256 = {  # of the uncompressed text
    "train.ja": "1bf5b849630a1388a5dab7c1325b1cba4b388b2afcf80b3ec9bbe4afb55c22f3",
    "train.en": "7c24832fa0cd5cc5a9999ccbfb7b1db5a93a0bc453f6cc654ec1d9d6b9f22332",
    "dev.ja": "46bdd6b749e7b00fff2595a87fd0e6d9af073a68b8e0c47735f6214acc65806a",
    "dev.en": "f7d5de9e0b11efa4f000dd4c35343831cd49c6484f8e8be6b2f479f31e8f8e59",
    "tune.ja": "a9e32679963f856e60b0199e06a9e16247b9f47e78dc6a572076e15aca028b0f",
    "tune.en": "b63518f162f7e3c6997541eb6873ce1e1c9726b876801f6ec4e6a6f29bfe0f6e",
    "test.ja": "76d9f8d4f8d2771b3ae3425c4decce18162fd9c87e126cb4b4076fa9c2dd5c32",
    "test.en": "a11176e876f456467a3cd9819b0ccfcc81b39822cee63375bff60f39dd47b4f8",
}
DAMAGE = (tarfile.TarError, EOFError, zlib.error, OSError)
Text = dict[str, list[str]]  # the lines of each file, by its name


def sentences(xml: bytes, name: str) -> Iterator[tuple[str, str]]:
    """The Japanese and English sentences of an article, with each run of white space as a single blank."""
    try:
        article = ElementTree.fromstring(BARE.sub(b"&amp;", xml))
    except ElementTree.ParseError as error:
        sys.exit(f"error: {name} is not whole XML ({error}): get the archive of the commit again, from {URL}")
    for sentence in article.iter("sen"):
        japanese, english = (sentence.findtext(side, "") for side in ("j", "e[@type='check']"))
        yield " ".join(japanese.split()), " ".join(english.split())


def read_archive(archive: Path | None) -> Text:
    """The text of an archive of the commit; None is that of GitHub, which is read as it comes and not stored."""
    text: Text = {}
    where = str(archive or URL)
    try:
        with (
            open(archive, "rb") if archive else urllib.request.urlopen(URL, timeout=60) as file,
            tarfile.open(fileobj=file, mode="r|gz") as members,
        ):
            for member in members:
                found, content = ARTICLE.fullmatch(member.name), members.extractfile(member)
                if found is None or content is None:
                    continue
                if COMMIT not in member.name:
                    sys.exit(f"error: {where} is of another commit ({member.name.split('/')[0]}): get {URL}")
                split = SPLITS.get(found[3], "train")
                for pair in sentences(content.read(), f"{where}, member {member.name}"):
                    for kind, line in zip(("ja", "en", "documents"), (*pair, found[1]), strict=True):
                        text.setdefault(f"{split}.{kind}", []).append(line)
    except DAMAGE as error:
        reason = str(error) or type(error).__name__
        sys.exit(f"error: {where} is damaged, or cannot be read to its end ({reason}): get it again, from {URL}")
    return text


def read_source(folder: Path) -> Text:
    """The text of a directory: an archive of the commit, or the extracted text, whose articles are unknown."""
    if archives := sorted(folder.glob(f"*{COMMIT}.tar.gz")):
        return read_archive(archives[0])
    text: Text = {}
    for name in SHA256:
        path = next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)
        if path is None:
            sys.exit(f"error: --source {folder} has neither {COMMIT}.tar.gz nor {name}.gz: get {URL}, or leave it out")
        try:
            raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        except DAMAGE as error:
            sys.exit(f"error: {path} is not a whole gzip file ({error}): replace it")
        text[name] = raw.decode("utf-8", "replace").removesuffix("\n").split("\n")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, help="a directory of the archive, or of train.ja.gz and the others")
    parser.add_argument("--first", type=int, help="keep only so many pairs of train, for a short try")
    parser.add_argument("output", type=Path, help="an empty directory")
    args = parser.parse_args()
    text = read_source(args.source) if args.source else read_archive(None)
    files = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in text.items()}
    for name, wanted in SHA256.items():
        if (found := hashlib.sha256(files.get(name, b"")).hexdigest()) != wanted:
            sys.exit(f"error: {name} has SHA-256 {found} instead of {wanted}: the source is not whole, or not {URL}")
    for name, content in files.items():
        kept = b"".join(content.splitlines(keepends=True)[: args.first]) if name.startswith("train.") else content
        (args.output / name).write_bytes(kept)


if __name__ == "__main__":
    main()
