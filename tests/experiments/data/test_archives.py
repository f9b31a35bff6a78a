"""Members of archives: the right bytes at the given paths, or one sentence that names archive and member."""

import gzip
from pathlib import Path

import pytest
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.data.documents import documents_of_segments
from posenc_experiments.data.raw import extract
from tests.recipes.wmt import as_sgm, write_archive

KINDS = ["x.tgz", "x.tar", "x.zip"]
MEMBERS = {
    "./training/a.en": b"one\ntwo\n" * 5000,
    "../../outside": b"no\n",
    "training/b.en.gz": gzip.compress(b"three\n", mtime=0),
    "training/c.en": bytes(range(256)) * 3000,
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_wanted_members_are_written_to_the_given_paths(tmp_path: Path, kind: str) -> None:
    write_archive(tmp_path / "here" / "deep" / kind, MEMBERS)
    wanted = {"training/b.en.gz": tmp_path / "out" / "b", "training/a.en": tmp_path / "out" / "a"}
    extract(tmp_path / "here" / "deep" / kind, wanted, Path("sources.tsv"))
    assert (tmp_path / "out" / "a").read_bytes() == MEMBERS["./training/a.en"]
    assert (tmp_path / "out" / "b").read_bytes() == MEMBERS["training/b.en.gz"]
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"a", "b", kind}


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_member_is_named(tmp_path: Path, kind: str) -> None:
    write_archive(tmp_path / kind, MEMBERS)
    with pytest.raises(RecipeError, match=rf"{kind} has no member 'training/d.en': check .*sources\.tsv\.$"):
        extract(tmp_path / kind, {"training/d.en": tmp_path / "d"}, Path("sources.tsv"))


@pytest.mark.parametrize("name", ["x.gz", "x.zip"])
def test_a_text_that_is_no_archive_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"one\ntwo\n"))
    with pytest.raises(RecipeError, match=rf"{name} cannot be read as an archive .*write - as its member"):
        extract(tmp_path / name, {"training/d.en": tmp_path / "d"}, Path("sources.tsv"))


TRICKY = ["a  b", "&amp; &quot;c&quot; <d>", "e\u00a0f", " g ", "h</seg> i", "<seg id='1'>"]


def test_segments_are_those_of_sacrebleu(tmp_path: Path) -> None:
    sgm = as_sgm([line.encode() for line in TRICKY])
    write_archive(tmp_path / "x.tgz", {"test/x.sgm": sgm})
    extract(tmp_path / "x.tgz", {"test/x.sgm": tmp_path / "x"}, Path("sources.tsv"))
    lines = (tmp_path / "x").read_text(encoding="utf-8").split("\n")
    (tmp_path / "x.sgm").write_bytes(sgm)
    FakeSGMLDataset("x", [], "", "")._convert_format(str(tmp_path / "x.sgm"), str(tmp_path / "theirs"))
    theirs = (tmp_path / "theirs").read_text(encoding="utf-8").split("\n")
    # SacreBLEU collapses white space, which does not change its scores; nothing else differs.
    assert [" ".join(line.split()) for line in lines] == theirs
    assert lines[:4] == TRICKY[:4]


def test_a_segment_over_several_lines_is_named(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.tgz", {"test/x.sgm": b'<doc>\n<seg id="1">a\nb</seg>\n</doc>\n'})
    with pytest.raises(RecipeError, match=r"x\.tgz, member test/x\.sgm, line 2: this <seg> does not end on its line"):
        extract(tmp_path / "x.tgz", {"test/x.sgm": tmp_path / "x"}, Path("sources.tsv"))


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ('<doc docid="abcnews.178782" genre="news" origlang="de">', "abcnews.178782"),
        ('<doc sysid="ref" docid="cyberpresse/12/01/15" genre="news" origlang="fr">', "cyberpresse/12/01/15"),
        ("<doc genre='news' docid='x \"y\"'>", 'x "y"'),
        ('<DOC DocID="a>b\'c">', "a>b'c"),
        ('  <doc\tdocid = "a" >', "a"),
        ('<doc olddocid="b" genre="news">', ""),
        ("<document docid='a'>", ""),
        ("<doc docid=''>", ""),
        ("", ""),
    ],
)
def test_the_documents_of_segments(start: str, name: str) -> None:
    sgm = f'<refset>\n{start}\n<hl>\n<seg id="1">a</seg>\n</hl>\n<seg id="2"><doc docid="no"></seg>\n</doc>\n'
    assert documents_of_segments(sgm.encode().splitlines(keepends=True)) == ([name.encode()] * 2 if name else [])


@pytest.mark.parametrize("outside", ["{seg}{doc}", "{doc}{seg}"])
def test_without_the_document_of_each_segment_none_is_known(outside: str) -> None:
    doc = '<doc docid="a">\n<seg id="1">a</seg>\n</doc>\n'
    assert documents_of_segments(doc.encode().splitlines()) == [b"a"]
    sgm = outside.format(doc=doc, seg='<seg id="1">a</seg>\n')
    assert documents_of_segments(sgm.encode().splitlines()) == []
