"""scripts/run_fairseq_tests.py: how it replaces stock's Transformer, its tables, and its refusals."""

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script():
    return load(SCRIPTS / "run_fairseq_tests.py")


@pytest.fixture(scope="module")
def child():
    return load(SCRIPTS / "fairseq_tests" / "substituted.py")


def run(*arguments):
    command = [sys.executable, SCRIPTS / "run_fairseq_tests.py", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)


def test_stock_architectures_are_replaced_by_the_encodings(child):
    substitution = child.Substitution("shaw")
    given = ["data", "--arch", "transformer", "--lr", "1"]
    assert substitution.arguments(given) == [
        *("data", "--arch", "transformer_shaw_wmt_en_de", "--lr", "1", "--user-dir", str(child.PACKAGE)),
    ]
    assert substitution.happened
    assert given[2] == "transformer"  # the test's own list


def test_other_models_and_another_user_dir_are_kept(child):
    substitution = child.Substitution("shaw")
    given = ["data", "--arch", "lstm", "--user-dir", "examples/laser/laser_src"]
    assert substitution.arguments(given) == given
    assert not substitution.happened


@pytest.mark.parametrize(("what", "added"), [("stock", 0), ("plugin", 2)])
def test_stock_keeps_its_transformer(child, what, added):
    arguments = child.Substitution(what).arguments(["--arch", "fconv_iwslt_de_en"])
    assert arguments[:2] == ["--arch", "transformer_tiny"]
    assert len(arguments) == 2 + added


def rows_of(*outcomes):
    keys = ("group", "test", "with", "outcome", "reason")
    return [{**dict(zip(keys, outcome, strict=True)), "title": "", "substituted": "yes"} for outcome in outcomes]


def test_a_failure_is_a_difference_only_if_stock_passes(script):
    rows = rows_of(
        ("a", "tests.a.one", "stock", "passed", ""),
        ("a", "tests.a.two", "stock", "failed", "Error: too new"),
        ("a", "tests.a.one", "shaw", "failed", "Error: a | b"),
        ("a", "tests.a.two", "shaw", "failed", "Error: too new"),
        ("a", "tests.a.one", "t5", "passed", ""),
    )
    assert script.differences(rows).splitlines()[2:] == ["| `one` | `shaw` | `Error: a \\| b` |"]
    assert script.summary(rows).splitlines()[2:] == ["| `a` | 1/1/0 | 0/2/0 | 1/0/0 |"]


def test_reasons_contain_no_directories_of_this_machine(script):
    said = "OSError: Model file not found: /tmp/x/one/a.pt:/tmp/x/two/b.pt and/or c/d"
    assert script.without_paths(said) == "OSError: Model file not found: a.pt:b.pt and/or c/d"


def test_a_directory_without_fairseqs_tests_is_refused(tmp_path):
    refused = run("--fairseq", tmp_path)
    assert refused.returncode == 2
    assert f"--fairseq {tmp_path} has no tests/test_binaries.py: name a checkout of fairseq." in refused.stderr


def test_an_output_with_other_columns_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_binaries.py").touch()
    output = tmp_path / "rows.csv"
    output.write_text("encoding,bleu\nshaw,30\n")
    refused = run("--fairseq", tmp_path, "--output", output)
    assert refused.returncode == 2
    assert f"--output {output}, row 2, does not have the columns group, test, " in refused.stderr
    assert output.read_text() == "encoding,bleu\nshaw,30\n"


def test_fairseqs_tests_run_with_an_encoding(tmp_path):
    checkout = os.environ.get("FAIRSEQ_CHECKOUT")
    if checkout is None:
        pytest.skip("FAIRSEQ_CHECKOUT names no checkout of facebookresearch/fairseq: its own tests are not run")
    output = tmp_path / "rows.csv"
    command = [
        *("--fairseq", checkout, "--encodings", "shaw", "--output", output),
        *("--tests", "test_inference_dropout.TestInferenceDropout.test_applies_training_mode,test_train"),
    ]
    done = run(*command)
    assert done.returncode == 0, done.stderr
    with output.open(encoding="utf-8", newline="") as file:
        outcomes = {(row["with"], row["outcome"], row["substituted"]) for row in csv.DictReader(file)}
    assert outcomes == {
        *(("stock", "passed", "yes"), ("shaw", "passed", "yes")),
        *(("stock", "passed", ""), ("plugin", "passed", "")),
    }
    assert done.stderr.splitlines() == ["stock: 7/0/0", "plugin: 6/0/0", "shaw: 1/0/0"]
    again = run(*command)
    assert (again.stdout, again.stderr) == (done.stdout, "")
