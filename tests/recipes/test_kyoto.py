"""The text of KFTT: split by the articles' numbers, verified, and refused with one sentence if it is not whole."""

import gzip
import io
import re
import tarfile
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash
from posenc_experiments.base.run import Run
from posenc_experiments.data import download
from posenc_experiments.data.prepared import download_dir
from recipes.kftt import kyoto
from tests.experiments.tiny import make_run

CONF = Path(kyoto.__file__).with_name("kftt.yaml")
ARTICLE = """<?xml version="1.0" encoding="UTF-8"?>
<art><tit><j>題</j><e type="check" ver="1">Title</e></tit>
<par id="1"><sen id="1"><j>京都\u3000{0}。</j>
<e type="trans" ver="1">no</e><e type="check" ver="1">Kyoto\t{0}.</e></sen></par>
<sec><par id="2"><sen id="2"><j>二</j><e type="check" ver="1">&lt;2&gt;</e></sen></par></sec>
<copyright>A & B</copyright></art>"""


def archive(folder: Path, *, commit: str = kyoto.COMMIT, broken: str = "", size: int | None = None) -> Path:
    """An archive of five articles; `broken` is one that ends early, and `size` the bytes to keep of the archive."""
    folder.mkdir()
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name in ("README.md", "BDS/BDS00001.xml", *(f"SAT/SAT0000{n}.xml" for n in range(2, 6))):
            text = ARTICLE.format(name[4:12]).encode()[: 200 if name == broken else None]
            info = tarfile.TarInfo(f"BilingualCorpus-{commit}/wiki_corpus_2.01/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    path = folder / f"{kyoto.COMMIT}.tar.gz"
    path.write_bytes(raw.getvalue()[:size])
    return path


def run_of(tmp_path: Path, source: Path) -> Run:
    return make_run(tmp_path, CONF, source, pair="ja-en")


def test_the_number_of_an_article_decides_its_split(tmp_path: Path) -> None:
    text = kyoto.read_archive(archive(tmp_path / "a"))
    assert text["train.ja"] == ["京都 BDS00001。", "二", "京都 SAT00005。", "二"]
    assert text["train.en"] == ["Kyoto BDS00001.", "<2>", "Kyoto SAT00005.", "<2>"]
    assert text["train.documents"] == ["BDS00001", "BDS00001", "SAT00005", "SAT00005"]
    first = {split: text[f"{split}.documents"][0] for split in ("dev", "tune", "test")}
    assert first == {"dev": "SAT00002", "tune": "SAT00003", "test": "SAT00004"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 300}, r"{archive} is damaged, or cannot be read to its end \(.+\): get it again, from {url}"),
        ({"commit": "0" * 40}, r"{archive} is of another commit \(BilingualCorpus-0+\): get {url}"),
        ({"broken": "SAT/SAT00004.xml"}, r"{archive}, member .*/SAT00004\.xml is not whole XML \(.+\): get .* {url}"),
        ({}, r"train\.ja has SHA-256 \w+ instead of 1bf5b8\w+: the source is not whole, or not {url}"),
    ],
)
def test_an_archive_that_is_not_whole_is_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    path = archive(tmp_path / "a", **options)  # type: ignore[arg-type]
    said = message.replace("{archive}", re.escape(str(path))).replace("{url}", re.escape(kyoto.URL))
    run = run_of(tmp_path, tmp_path / "a")
    with pytest.raises(RecipeError, match=rf"kyoto\.py failed \(exit status 1\): {said}; the whole log is [^\n]*$"):
        download.download(run)
    assert not download_dir(run).exists()


def test_a_directory_without_the_text_or_with_half_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=rf"--source {tmp_path} has neither .*\.tar\.gz nor train\.ja\.gz"):
        download.download(run_of(tmp_path, tmp_path))
    (tmp_path / "train.ja.gz").write_bytes(gzip.compress(b"text")[:-9])
    with pytest.raises(RecipeError, match=r"train\.ja\.gz is not a whole gzip file \(.+\): replace it"):
        download.download(run_of(tmp_path, tmp_path))


def test_the_extracted_text_is_taken_and_its_first_pairs_kept(tmp_path: Path, kyoto_text: Path) -> None:
    conf = tmp_path / "few.yaml"
    conf.write_text(f"extends: {CONF}\ncorpus:\n  generator-options: --first 3\n")
    run = make_run(tmp_path, conf, kyoto_text, pair="ja-en")
    download.download(run)
    assert len((download_dir(run) / "train.ja").read_text(encoding="utf-8").split("\n")) == 4
    for name, wanted in kyoto.SHA256.items():
        assert "train" in name or file_hash(download_dir(run) / name) == wanted
