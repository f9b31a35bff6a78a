"""The data of recipes/wmt14 and wmt18: their tables, and the whole way from archives of the real layout to binarized
data, killed and resumed.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS

from posenc_experiments.base.files import file_hash, read_json
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.data import prepare
from posenc_experiments.data.prepared import download_dir, is_prepared, prepared_dir
from posenc_experiments.data.sources import read_archives, read_sources
from tests.experiments.data.server import serve
from tests.experiments.tiny import make_run, prepare_data
from tests.recipes.wmt import Made, document_names, generated, write_archives, write_conf, write_table

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ROOT / "recipes"
WMT14, WMT18 = RECIPES / "wmt14", RECIPES / "wmt18"
# SacreBLEU's names of the test sets.
TESTS = {
    WMT14: {"newstest2014": ("wmt14-test-full", "wmt14/full")},
    WMT18: {"newstest2017": ("wmt17-test", "wmt17"), "newstest2018": ("wmt18-test", "wmt18")},
}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[Made]]:
    """The archives of both recipes; as in the real ones, Europarl and Common Crawl have all pairs."""
    root = tmp_path_factory.mktemp("archives")
    return {recipe: write_archives(recipe, root / recipe.name, lines=300) for recipe in (WMT14, WMT18)}


def small_conf(recipe: Path, table: Path, directory: Path) -> Path:
    """The recipe's data with other archives, and few subwords."""
    values = {"corpus.archives": table, "prepare.vocabulary": 300}
    values |= {"model.size": "tiny", "experiments.sinusoidal": "sinusoidal"}
    return write_conf(directory / f"{recipe.name}.yaml", recipe / "corpus.yaml", values)


@pytest.mark.parametrize("recipe", [WMT14, WMT18])
def test_the_tables_have_the_files_of_every_pair_and_tests_are_those_of_sacrebleu(recipe: Path, tmp_path: Path) -> None:
    table = RECIPES / "common/wmt/archives.tsv"
    corpus = read_recipe(small_conf(recipe, table, tmp_path)).corpus
    sources, archives = read_sources(recipe / "sources.tsv"), read_archives(table)
    for pair in corpus.pairs:
        for split in (*corpus.train_splits(pair), corpus.valid, *corpus.tests):
            rows = [row for row in sources if row.split == split and row.is_of(pair)]
            assert sorted(row.language for row in rows) == sorted(pair.split("-")), (pair, split)
            assert len({row.lines for row in rows}) == 1
            assert all(row.archive in archives and row.member for row in rows)
            if split in TESTS[recipe]:
                archive, name = TESTS[recipe][split]
                members = {row.language: row.member for row in rows}
                assert [members[side] for side in pair.split("-")] == DATASETS[name].langpairs[pair]
                assert {f"md5:{md5}" for md5 in DATASETS[name].md5 or []} == {row.checksum for row in archives[archive]}
                assert archives[archive][0].url == (DATASETS[name].data or [""])[0]
    # Every alternative of an archive has its own path.
    paths = [row.path for rows in archives.values() for row in rows]
    assert len(set(paths)) == len({(row.archive, row.file) for rows in archives.values() for row in rows})


@pytest.mark.parametrize(("recipe", "pair"), [(WMT14, "en-fr"), (WMT18, "cs-en")])
def test_from_archives_to_binarized_data(
    tmp_path: Path, archives: dict[Path, list[Made]], recipe: Path, pair: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = archives[recipe]
    with serve(made[0].path.parents[1]) as (url, asked):
        conf = small_conf(recipe, write_table(made, tmp_path / "archives.tsv", url), tmp_path)
        run = prepare_data(make_run(tmp_path, conf, None, pair=pair))
    corpus = run.recipe.corpus
    train = corpus.train_splits(pair)
    assert len(asked) == len({*train, *corpus.tests, corpus.valid})  # each archive once, from its first URL
    report = read_json(prepared_dir(run) / "prepare.json")
    assert report["train"]["read"] == 300 * len(train)
    assert report["train"]["kept"] > 250 * len(train)
    said = (prepared_dir(run) / "prepare.txt").read_text()
    assert "warning: europarl-v7: 300 pairs here, but " in said  # these archives are small
    assert said in capsys.readouterr().out.replace("prepare: ", "")
    for test in corpus.tests:
        skip = sum(map(ord, test)) % 50
        for side in (run.source, run.target):
            lines = (prepared_dir(run) / f"{test}.{side}").read_bytes().split(b"\n")
            name = pair if test != "newstest2013" else f"en-{side if side != 'en' else 'de'}"
            assert lines[:-1] == generated("-".join(sorted(name.split("-"))), side, 300 + skip)[skip:]
        documents = prepared_dir(run) / f"{test}.documents"
        if test == "newstest2013":  # no SGM
            assert not documents.exists()
        else:
            assert documents.read_text().splitlines() == document_names(300)


def test_text_that_was_prepared_without_documents_gets_them(
    tmp_path: Path, archives: dict[Path, list[Made]], capsys: pytest.CaptureFixture[str]
) -> None:
    made = archives[WMT18]
    conf = small_conf(WMT18, write_table(made, tmp_path / "archives.tsv"), tmp_path)
    run = prepare_data(make_run(tmp_path, conf, made[0].path.parents[1], pair="cs-en"))
    (documents,) = prepared_dir(run).glob("*.documents")
    assert documents.name == "newstest2018.documents"  # newstest2017 is the validation set
    documents.unlink()
    capsys.readouterr()
    prepare.prepare(run)
    assert documents.read_text().splitlines() == document_names(300)
    assert capsys.readouterr().out.startswith("prepare: done before")
    documents.unlink()
    shutil.rmtree(download_dir(run))  # the archives may be deleted after the preparation
    prepare.prepare(run)
    assert is_prepared(run)
    assert not documents.exists()


def contents(directory: Path) -> dict[str, str]:
    """The hash of every file except fairseq's log, which has its command, and the record of its size."""
    besides = ("preprocess.log", "done.json")
    files = [path for path in directory.rglob("*") if path.is_file() and path.name not in besides]
    return {str(path.relative_to(directory)): file_hash(path) for path in files}


# Downloads and prepares; kills itself in the middle of a step, if one is named.
DRIVER = """
import os, signal, sys
from pathlib import Path
from posenc_experiments.data import prepare
from tests.experiments.tiny import make_run, prepare_data
conf, directory, source, cpus, step = sys.argv[1:]
whole = prepare.STEPS.get(step)

def write_half(run, work, directory):
    whole(run, work, directory)
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    for path in files:
        os.truncate(path, path.stat().st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)

prepare.STEPS |= {step: write_half} if step else {}
prepare_data(make_run(Path(directory), Path(conf), Path(source), pair="en-cs", cpus=int(cpus)))
"""
STEPS = ("extract", "evaluation", "clean", "learn", "encode", "binarize")


@pytest.mark.slow
def test_killed_in_any_step_and_resumed_it_writes_the_same_bytes(
    tmp_path: Path, archives: dict[Path, list[Made]]
) -> None:
    made = archives[WMT18]
    conf = small_conf(WMT18, write_table(made, tmp_path / "archives.tsv"), tmp_path)
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"

    def run(directory: Path, cpus: int, step: str = "") -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", DRIVER, conf, directory, made[0].path.parents[1], cpus, step]
        return subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, check=False)

    whole = run(unbroken, 1)
    assert whole.returncode == 0, whole.stderr
    (whole_data,) = (unbroken / "data/wmt18/en-cs").glob("prepared-*")
    work = broken / f"data/wmt18/en-cs/{whole_data.name}.work"
    for number, step in enumerate(STEPS):
        killed = run(broken, 2, step)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert not (work / f"{step}.json").exists()
        # Steps that the earlier run finished are not repeated.
        begun = [line.removesuffix("...") for line in killed.stdout.splitlines() if line.endswith("...")]
        assert begun == [f"prepare: {name}" for name in STEPS[max(0, number - 1) : number + 1]]
    resumed = run(broken, 2)
    assert resumed.returncode == 0, resumed.stderr
    assert [line for line in resumed.stdout.splitlines() if line.endswith("...")] == ["prepare: binarize..."]
    assert contents(whole_data) == contents(work.with_name(whole_data.name))
    assert not work.exists()
