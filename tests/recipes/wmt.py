"""Writes small archives of the real layout: every archive, member and format of a recipe's tables, with little text.

    archives = write_archives(ROOT / "recipes/wmt14", tmp / "www", lines=200)
    with serve(tmp / "www") as (url, _):
        table = write_table(archives, tmp / "archives.tsv", url)
        ...  # run a `write_conf` with `corpus.archives` = <table>, or with `--source <tmp/www>`

`write_archives` writes `directory/<archive>/<file name of the real URL>` for each alternative (tgz, tar and zip), and
returns them. `write_table` writes an archives.tsv that has the same archives in the same order, but these files' URLs,
sizes and hashes. An archive has the members of all pairs, and one that is not needed. The text is generated.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from posenc_experiments.data.sources import Archive, Source, read_archives, read_sources


@dataclass(frozen=True)
class Made:
    """A written file, in place of the one that `row` names."""

    row: Archive
    path: Path

    def url(self, base: str) -> str:
        return f"{base}/{self.path.parent.name}/{self.path.name}"


def generated(pair: str, language: str, lines: int) -> list[bytes]:
    """Sentences of 3 to 12 invented words; the other language has the same in another order and spelling."""
    chance = random.Random(f"{pair} {lines}")
    sentences = [[chance.randrange(300) for _ in range(chance.randint(3, 12))] for _ in range(lines)]
    if language == "en":
        return [" ".join(f"word{word}" for word in words).encode() for words in sentences]
    return [" ".join(f"{language}ü{word}" for word in reversed(words)).encode() for words in sentences]


#: how files of WMT write the start of a document
STARTS = (
    '<doc docid="{}" genre="news" origlang="de">',
    '<doc sysid="ref" docid="{}" genre="news" origlang="de">',
    "<DOC genre='news' origlang='de' docid='{}'>",
)
LINES_OF_DOCUMENT = 7


def document_names(lines: int) -> list[str]:
    """The document of each line of `as_sgm`."""
    return [f"abc.de/{number // LINES_OF_DOCUMENT}" for number in range(lines)]


def as_sgm(lines: list[bytes]) -> bytes:
    """The SGM format of WMT's test sets."""
    sgm = [b'<refset setid="x" srclang="any">']
    for first in range(0, len(lines), LINES_OF_DOCUMENT):
        segments = enumerate(lines[first : first + LINES_OF_DOCUMENT], 1)
        sgm += [STARTS[first % 3].format(document_names(len(lines))[first]).encode(), b"<p>"]
        sgm += [*(b'<seg id="%d">%b</seg>' % segment for segment in segments), b"</p>", b"</doc>"]
    return b"\n".join([*sgm, b"</refset>\n"])


def member_bytes(row: Source, lines: int) -> bytes:
    """The content of the member in a table's row, in the format of its name."""
    pair = row.pairs.split(",")[0] if row.pairs != "*" else f"en-{row.language if row.language != 'en' else 'de'}"
    # Other splits have other text: later lines.
    skip = sum(map(ord, row.split)) % 50
    text = generated("-".join(sorted(pair.split("-"))), row.language, lines + skip)[skip:]
    assert row.member is not None
    if row.member.endswith(".sgm"):
        return as_sgm(text)
    data = b"".join(line + b"\n" for line in text)
    return gzip.compress(data, mtime=0) if row.member.endswith(".gz") else data


def write_archives(
    recipe: Path, directory: Path, lines: int | Mapping[str, int] = 100, archives: Path | None = None
) -> list[Made]:
    """Writes every archive that `recipe`/sources.tsv names, in each alternative; `lines` a split, or for all."""
    rows = read_sources(recipe / "sources.tsv")
    table = read_archives(archives or recipe.parent / "common/wmt/archives.tsv")
    made = []
    for name in dict.fromkeys(row.archive for row in rows):
        members = {"a member/that is not needed.txt": b"no\n"} | {
            str(row.member): member_bytes(row, lines if isinstance(lines, int) else lines[row.split])
            for row in rows
            if row.archive == name
        }
        for alternative in table[name]:
            made.append(Made(alternative, directory / name / alternative.file))
            write_archive(made[-1].path, members)
    return made


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Writes a .tgz, .tar or .zip with these members; the bytes are always the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in members.items():
                zipped.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        return
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tarred:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tarred.addfile(info, io.BytesIO(data))
    path.write_bytes(gzip.compress(held.getvalue(), mtime=0) if path.suffix == ".tgz" else held.getvalue())


def write_conf(path: Path, extended: Path, values: Mapping[str, object]) -> Path:
    """Writes a recipe that extends another, with some values, by `section.key`."""
    sections: dict[str, object] = {"extends": str(extended)}
    for name, value in values.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = str(value)  # type: ignore[index]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(sections))
    return path


def write_table(made: list[Made], table: Path, url: str = "http://localhost:1") -> Path:
    """Writes an archives.tsv of these files at `url`, with hashes and sizes, which are unknown if the real ones are."""
    rows = ["archive\turl\tbytes\tchecksum\n"]
    for file in made:
        data, method = file.path.read_bytes(), file.row.checksum.split(":")[0]
        size = str(len(data)) if file.row.bytes is not None else "-"
        rows.append(f"{file.row.archive}\t{file.url(url)}\t{size}\t{method}:{hashlib.new(method, data).hexdigest()}\n")
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text("".join(rows))
    return table
