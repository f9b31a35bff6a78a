"""The text of IWSLT'14: kept, dropped and split as fairseq's script does, and refused with one sentence."""

import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.base.recipe import Generate
from posenc_experiments.base.run import Run
from posenc_experiments.data import download
from posenc_experiments.data.prepared import download_dir
from recipes.iwslt14 import ted
from tests.experiments.tiny import make_run

CONF = Path(ted.__file__).with_name("iwslt14.yaml")
TALK = """<url>http://www.ted.com/{side}</url>
<keywords>{side}</keywords>
<speaker>{side} Speaker</speaker>
<talkid>69</talkid>
<title>{side} Title</title>
<description>{side} about <b> R&amp;D</description>
"""
#: of TALK
TITLES = ["<speaker>{side} Speaker</speaker>", "{side} Title", "{side} about <b> R&amp;D"]
XML = """<?xml version="1.0" encoding="UTF-8"?>
<mteval><srcset setid="{name}" srclang="german">
<doc docid="69" genre="lectures">
<title>no sentence</title>
<seg id="1"> {side} {name} one. </seg>
<seg id="2"> It’s R&amp;D\r &lt;2&gt;\u2028now. </seg>
</doc>
<doc docid="70" genre="lectures">
<seg id="1"></seg>
</doc></srcset></mteval>
"""
Members = dict[str, str]
#: numbered pairs that the script keeps, which are 45 pairs together with the three of TALK
SENTENCES = [f"{{side}} number {n}." for n in range(42)]


def members(de: list[str], en: list[str]) -> Members:
    """The files of an archive whose training text is a talk's titles and these lines."""
    sides = {"de": de, "en": en}
    text = {f"train.tags.de-en.{side}": TALK + "".join(f"{line}\n" for line in lines) for side, lines in sides.items()}
    text |= {f"IWSLT14.{name}.de-en.{side}.xml": XML.replace("{name}", name) for name in ted.TESTS for side in sides}
    text |= {"README": "IWSLT", "train.en": "more text\n"}
    return {name: content.replace("{side}", name.removesuffix(".xml")[-2:]) for name, content in text.items()}


def run_of(tmp_path: Path, text: Members, size: int | None = None, root: str = "de-en") -> Run:
    """A run with an archive of this text; `size` is that of the archive, which is cut."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, content in sorted(text.items()):
            info = tarfile.TarInfo(f"{root}/{name}")
            data = content.encode("utf-8", "surrogateescape")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    source = tmp_path / "source"
    source.mkdir()
    (source / "de-en.tgz").write_bytes(raw.getvalue()[:size])
    return make_run(tmp_path, CONF, source, pair="de-en")


def made(run: Run, name: str) -> list[str]:
    return (download_dir(run) / name).read_bytes().decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")


def test_each_23rd_of_the_kept_pairs_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dropped = {
        "only one side": ("", "Empty."),
        "blanks": ("\u2028 \u3000", "Empty."),
        "ratio": ("eins zwei", "one two three four"),
        "its full stop is a token": ("Das sind vier U.S.", "a b c d e f g h"),
        "length": ("wort " * 176, "word " * 176),
    }
    kept = [("eins zwei", "one two three"), ("wort " * 175, "word " * 175), ("a\u2028b\rc  d", "a b c d")]
    kept += [("Sind es vier U.S.", "a b c d e f g"), ("<title>Tag</title>", "<description>Tag</description>")]
    kept += [("nicht UTF-8: \udce9", "not UTF-8: \udce9")]
    pairs = [*dropped.values(), *kept[:2], *[(line, line) for line in SENTENCES[6:]], *kept[2:]]
    run = run_of(tmp_path, members(*map(list, zip(*pairs, strict=True))), root="./de-en")
    download.download(run)
    for n, side in enumerate(("de", "en")):
        lines = [*TITLES, *[pair[n] for pair in kept[:2]], *SENTENCES[6:], *[pair[n] for pair in kept[2:]]]
        lines = [" ".join(ted.TITLES.sub("", line).format(side=side).split()) for line in lines]
        assert len(lines) == 45
        assert made(run, f"train.{side}") == lines[:22] + lines[23:]
        assert made(run, f"valid.{side}") == lines[22:23]
    said = capsys.readouterr().out
    assert "download: dropped for an empty side: 2\n" in said
    assert "download: dropped for one side having more than 1.5 times the other's tokens: 2\n" in said
    assert "download: dropped as longer than 175 tokens: 1\n" in said
    assert "download: warning: read: 50 pairs here, but 174,443 are published\n" in said
    assert "download: warning: train: 44 pairs here, but 160,239 are published\n" in said


def test_test_sets_are_in_the_order_of_the_script_with_entities_resolved(tmp_path: Path) -> None:
    run = run_of(tmp_path, members(SENTENCES, SENTENCES))
    download.download(run)
    names = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]
    for side in ("de", "en"):
        sets = [[f"{side} {name} one.", "It's R&D <2> now.", ""] for name in names]
        assert made(run, f"test.{side}") == [line for lines in sets for line in lines]
    assert made(run, "test.documents") == [f"{name}/{talk}" for name in names for talk in (69, 69, 70)]


def without(name: str) -> Callable[[Members], Members]:
    return lambda text: {key: content for key, content in text.items() if key != name}


def shorter(name: str) -> Callable[[Members], Members]:
    """Cuts the last line with text."""
    return lambda text: text | {name: re.sub(r"(?m)^.*(number 41|<seg id=.2.).*\n", "", text[name])}


TEST_FILE = "IWSLT14.TED.tst2011.de-en.en.xml"


@pytest.mark.parametrize(
    ("change", "size", "message"),
    [
        (dict, 900, r"is damaged, or cannot be read to its end \(.+\): get {url} again, and name"),
        (dict, 5, r"is damaged, or cannot be read to its end \(.+\): get {url} again, and name"),
        (without("train.tags.de-en.en"), None, r"has no de-en/train\.tags\.de-en\.en: get {url} again"),
        (without(TEST_FILE), None, rf"has no de-en/{re.escape(TEST_FILE)}: get {{url}} again"),
        (shorter("train.tags.de-en.de"), None, r"has lines without a translation \(44 in .*\.de, 45 in .*\.en\): get"),
        (shorter(TEST_FILE), None, r"has lines without a translation \(3 in .*, 2 in IWSLT14\.TED\.tst2011.*\): get"),
    ],
)
def test_a_damaged_archive_is_refused_and_nothing_is_written(
    tmp_path: Path, change: Callable[[Members], Members], size: int | None, message: str
) -> None:
    run = run_of(tmp_path, change(members(SENTENCES, SENTENCES)), size)
    said = f"{re.escape(str(run.source_dir))}/de-en.tgz {message.replace('{url}', re.escape(ted.URL))}"
    with pytest.raises(RecipeError, match=rf"ted\.py failed \(exit status 1\): {said}[^\n]*; the whole log is [^\n]*$"):
        download.download(run)
    assert [path.name for path in download_dir(run).parent.iterdir() if path.is_dir()] == []


def test_a_directory_without_the_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=rf"--source {tmp_path} has no de-en\.tgz: get {re.escape(ted.URL)}, or leave"
    ):
        download.download(make_run(tmp_path, CONF, tmp_path, pair="de-en"))


def test_the_settings_are_those_of_fairseqs_example() -> None:
    recipe = read_recipe(CONF)
    assert recipe.pairs == ["de-en", "en-de"]
    wanted = {"max-tokens": "4096", "lr": "5e-4", "warmup-updates": "4000", "lr-scheduler": "inverse_sqrt"}
    wanted |= {"adam-betas": "(0.9, 0.98)", "clip-norm": "0.0", "weight-decay": "0.0001", "label-smoothing": "0.1"}
    assert {key: recipe.train.flags[key] for key in wanted} == wanted
    assert recipe.train.batch_tokens == 4096
    assert (recipe.model.size, recipe.model.flags["dropout"]) == ("iwslt_de_en", "0.3")
    assert recipe.generate == Generate(average=10, flags={"beam": "5", "lenpen": "1.0"})
    prepare = recipe.prepare
    assert (prepare.subwords, prepare.vocabulary, prepare.lowercase) == ("subword-nmt", 10000, True)
    assert not prepare.joined_dictionary
    small = read_recipe(CONF.with_name("small.yaml"))
    assert small.corpus.name != recipe.corpus.name
    assert small.corpus.downloads == recipe.corpus.downloads
