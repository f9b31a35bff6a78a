"""`keep-results` packs results of scored experiments, without paths of the machine."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from click.testing import Result

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.subprocesses import write_command
from posenc_experiments.evaluation.results import read_results, seal
from tests.experiments.tiny import run_here

ROOT = Path(__file__).resolve().parents[3]
HERE = "quickstart/xa-xb/transformer_sinusoidal_tiny/seed1"
ARCHIVE = "quickstart/xa-xb/transformer_sinusoidal_tiny.zip"
FILES = ("experiment.json", "training.json", "test.hyp", "test.sacrebleu.json")


def keep(output: Path, results: Path) -> Result:
    return run_here("keep-results", output, results)


def refusal(output: Path, results: Path) -> str:
    """The sentence with which `keep-results` refuses; what was kept is as before."""
    before = files_of(results)
    result = keep(output, results)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert files_of(results) == before
    return result.stderr


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The directory of one scored experiment, that of a result in this repository, and of one without scores."""
    output = tmp_path / "output"
    experiment = output / HERE
    with zipfile.ZipFile(ROOT / "results" / ARCHIVE) as archive:
        archive.extractall(experiment.parent, [name for name in archive.namelist() if name.startswith("seed1/")])
    (experiment / "done.json").touch()
    (output / "quickstart/xa-xb/transformer_unfinished_tiny/seed1").mkdir(parents=True)
    (experiment / "analysis.json").write_text("{}")
    for name in ("averaged.pt", "train.log"):
        (experiment / name).touch()
    (tmp_path / "a link").symlink_to(output)  # as the user named the directory
    words: list[str | Path] = [tmp_path / ".venv/bin/python", "-m", "fairseq_cli.train"]
    words += [tmp_path / "else where/it's/data/quickstart-short/xa-xb/prepared/binarized"]
    words += ["--user-dir", tmp_path / "fairseq_posenc", "--adam-betas", "(0.9, 0.98)"]
    words += ["--finetune-from-model", tmp_path / "a link" / "q/a-b/other/seed1/averaged.pt"]
    words += ["--save-dir", tmp_path / "a link" / HERE / "checkpoints"]
    write_command(experiment / "command.sh", words, {"OMP_NUM_THREADS": "1"})
    return output


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_results_are_packed_with_paths_of_the_repository(tmp_path: Path, output: Path) -> None:
    kept = tmp_path / "results" / ARCHIVE
    assert keep(output, tmp_path / "results").exit_code == 0
    first = kept.read_bytes()
    shutil.copytree(output / HERE, (output / HERE).with_name("seed12"))
    assert keep(output, tmp_path / "results").exit_code == 0  # adds a seed
    with zipfile.ZipFile(kept) as archive:
        names = {f"{seed}/{name}" for seed in ("seed1", "seed12") for name in (*FILES, "command.sh", "analysis.json")}
        assert {name for name in archive.namelist() if name.split("/")[0] in {"seed1", "seed12"}} == names
        assert archive.read("seed1/command.sh").decode() == (
            "#!/usr/bin/env bash\nset -euo pipefail\nexport OMP_NUM_THREADS=1\n"
            "exec python -m fairseq_cli.train data/quickstart-short/xa-xb/prepared/binarized --user-dir fairseq_posenc "
            "--adam-betas '(0.9, 0.98)' --finetune-from-model output/q/a-b/other/seed1/averaged.pt "
            f"--save-dir output/{HERE}/checkpoints\n"
        )
    shutil.rmtree((output / HERE).with_name("seed12"))
    kept.unlink()
    assert keep(output, tmp_path / "results").exit_code == 0
    assert kept.read_bytes() == first  # equal results make equal archives


def test_a_directory_of_seeds_is_no_output_directory(tmp_path: Path, output: Path) -> None:
    result = keep((output / HERE).parent, tmp_path / "results")
    assert result.exit_code == 1
    assert "holds no scored experiment: name a recipe's --output-dir" in result.stderr
    assert not (tmp_path / "results").exists()


def test_messages_name_the_archive_not_its_temporary_copy(tmp_path: Path, output: Path) -> None:
    assert keep(output, tmp_path / "results").exit_code == 0
    result = run_here("compare", tmp_path / "results", "--words", "1-10")
    assert result.exit_code == 1
    assert f"{tmp_path / 'results' / ARCHIVE}" in result.stderr


def test_tables_of_kept_results_have_no_speed(tmp_path: Path, output: Path) -> None:
    """Which machine made them is not known to a reader of the table; the CSV has the numbers."""
    assert keep(output, tmp_path / "results").exit_code == 0
    texts = [run_here("compare", tmp_path / name).stdout for name in ("output", "results")]
    assert ["train words/s" in text for text in texts] == [True, False]
    assert "words_per_second" in run_here("compare", tmp_path / "results", "--format", "csv").stdout


def test_a_damaged_archive_is_refused_and_kept(tmp_path: Path, output: Path) -> None:
    assert keep(output, tmp_path / "results").exit_code == 0
    kept = tmp_path / "results" / ARCHIVE
    kept.write_bytes(kept.read_bytes()[:200])
    with pytest.raises(RecipeError, match=f"{kept} is no archive of kept results"):
        read_results([tmp_path / "results"])


#: bytes that are written over others, at a distance from those that begin an archive's list of files or its first file
DAMAGES = {
    "compression": (b"PK\1\2", 10, b"\x63\0"),
    "encrypted": (b"PK\1\2", 8, b"\1\0"),
    "LZMA": (b"PK\3\4", 48, b"\xff"),  # its properties, after the header, the name and their version and size
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_archive_that_zipfile_cannot_read_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "results" / "sinusoidal.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("seed1/test.hyp", "some text " * 99)
    begin, distance, new = DAMAGES[damage]
    data = bytearray(path.read_bytes())
    at = data.index(begin) + distance
    data[at : at + len(new)] = new
    path.write_bytes(data)
    for given in (path, path.parent):
        result = run_here("compare", given)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert f"Error: {path} is no archive of kept results" in result.stderr


def test_a_broken_archive_of_something_else_is_passed_over(tmp_path: Path, output: Path) -> None:
    assert keep(output, tmp_path / "results").exit_code == 0
    wanted = run_here("compare", tmp_path / "results").stdout
    (tmp_path / "results" / "folder.zip").mkdir()
    broken = tmp_path / "results" / "download.zip"
    broken.write_text("<html>not found</html>")
    result = run_here("compare", tmp_path / "results")
    assert (result.exit_code, result.stdout) == (0, wanted)
    note = f"Note: {broken} is passed over, because it is no archive of kept results (File is not a zip file).\n"
    assert result.stderr == note


@pytest.mark.parametrize("where", ["output/kept", "."])
def test_results_in_the_output_are_refused_and_nothing_is_lost(tmp_path: Path, output: Path, where: str) -> None:
    before = files_of(output)
    refusal(output, tmp_path / where)
    assert files_of(output) == before


def test_other_results_of_a_kept_seed_are_refused_and_new_figures_kept(tmp_path: Path, output: Path) -> None:
    assert keep(output, tmp_path / "results").exit_code == 0
    (output / HERE / "analysis.json").write_text('{"new": 1}')
    assert keep(output, tmp_path / "results").exit_code == 0
    with zipfile.ZipFile(tmp_path / "results" / ARCHIVE) as archive:
        assert archive.read("seed1/analysis.json") == b'{"new": 1}'
    (output / HERE / "training.json").write_text("{}")
    for encoding in ("a", "z"):  # of two more experiments, none is kept
        shutil.copytree(output / HERE, output / HERE.replace("sinusoidal", encoding))
    said = refusal(output, tmp_path / "results")
    assert f"{ARCHIVE} has other results of seed1 than these (training.json differs)" in said


def test_another_search_is_not_kept_beside_the_first(tmp_path: Path, output: Path) -> None:
    assert keep(output, tmp_path / "results").exit_code == 0
    (output / HERE).rename((output / HERE).with_name("seed2"))
    scores = output / HERE.replace("seed1", "seed2") / "test.sacrebleu.json"
    rows = [row | {"translation": {"beam": 1}} for row in json.loads(scores.read_text())]
    scores.write_text(json.dumps([row | {"seal": seal(row)} for row in rows]))
    assert f"{ARCHIVE} has translations by another search than these" in refusal(output, tmp_path / "results")


@pytest.mark.parametrize("kind", ["empty", "pipe"])
def test_an_archive_that_cannot_be_read_is_refused_and_kept(tmp_path: Path, output: Path, kind: str) -> None:
    kept = tmp_path / "results" / ARCHIVE
    kept.parent.mkdir(parents=True)
    kept.touch() if kind == "empty" else os.mkfifo(kept)
    assert f"{kept} is no archive of kept results" in refusal(output, tmp_path / "results")


def test_a_damaged_experiment_replaces_nothing(tmp_path: Path, output: Path) -> None:
    name = "test.sacrebleu.json"
    assert keep(output, tmp_path / "results").exit_code == 0
    (output / HERE / name).write_bytes(b"\xff")
    assert name in refusal(output, tmp_path / "results")


def test_kept_results_name_their_commit_and_no_absolute_path() -> None:
    kept = sorted((ROOT / "results").rglob("*.zip"))
    assert kept
    for path in kept:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith("/experiment.json"):
                    assert json.loads(archive.read(name))["environment"]["commit"]
                    command = archive.read(name.replace("experiment.json", "command.sh")).decode()
                    assert not [word for word in command.split() if word.startswith("/") and word != "/usr/bin/env"]
