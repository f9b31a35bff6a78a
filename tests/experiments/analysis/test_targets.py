"""Scores of given targets: those of fairseq, in the subwords of the data; what is refused leaves nothing."""

import csv
import json
import math
import shutil
from dataclasses import asdict

import pytest

from posenc_experiments.analysis.targets import find_models
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash
from posenc_experiments.base.recipe import Prepare
from posenc_experiments.data import prepared, subwords
from tests.experiments.analysis.quickstart import kept
from tests.experiments.tiny import run_here
from tests.toy import PACKAGE, generate


def read_test_set(data):
    texts = (data.parent / "text" / f"test.{side}" for side in ("en", "de"))
    return list(zip(*(text.read_text().splitlines() for text in texts), strict=True))


def run(*words, code=0):
    result = run_here(*words)
    assert result.exit_code == code, result.output
    return result


def table(text):
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture
def pairs(data, tmp_path):
    """The test set, with a second target for each source: the target of the next one."""
    lines = read_test_set(data)
    path = tmp_path / "pairs.tsv"
    nexts = [*lines[1:], lines[0]]
    path.write_text(
        "".join(f"{source}\t{first}\t{second}\n" for (source, first), (_, second) in zip(lines, nexts, strict=True))
    )
    return path


def test_equal_to_fairseqs_score_reference(checkpoint, data, pairs, tmp_path):
    path = checkpoint("transformer_shaw_tiny")
    output = tmp_path / "scores.tsv"
    result = run("score-targets", path, pairs, "--data", data, "--output", output)
    assert result.stderr.endswith(f"score-targets: {output} (24 targets)\n")  # after progress, if it is slow
    assert result.stdout == ""
    rows = [row for row in table(output.read_text()) if row["target"] == "1"]
    lines = generate(data, path, "--score-reference", user_dir=PACKAGE).stdout.splitlines()
    # fairseq's are in bits, ours in nats
    tokens = {int(line.split("\t")[0][2:]): line.split("\t")[1].split() for line in lines if line.startswith("P-")}
    assert len(rows) == len(tokens) == 12
    for number, (row, (_, target)) in enumerate(zip(rows, read_test_set(data), strict=True)):
        assert row["tokens"] == f"{target} </s>"
        assert int(row["line"]) == number + 1
        assert int(row["length"]) == len(target.split()) + 1
        positional = [float(value) / math.log(2) for value in row["token_log_probabilities"].split()]
        assert positional == pytest.approx([float(value) for value in tokens[number]], abs=2e-4)
        assert sum(positional) * math.log(2) == pytest.approx(float(row["log_probability"]), abs=2e-4)


def test_words_that_the_dictionary_lacks_are_told(checkpoint, data, tmp_path):
    (tmp_path / "pairs.tsv").write_text("s1 s2\tt2 t1\ns1\tt1 strange\n")
    result = run("score-targets", checkpoint("transformer_nopos_tiny"), tmp_path / "pairs.tsv", "--data", data)
    assert "1 of 2 targets have words that the dictionary lacks" in result.stderr
    assert f"the first is {tmp_path / 'pairs.tsv'}, line 2\n" in result.stderr
    assert "strange" in result.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"s1\tt1\ns1\n", "pairs.tsv, line 2: there is no target; put a tab between the source and each target."),
        (b"\tt1\n", "pairs.tsv, line 1: its source has 1 tokens"),
        (b"s1\tt1\ns1\t\xff\n", "pairs.tsv is not UTF-8"),
        (b"s1\tt1\ns1\t" + 1024 * b"t1 ", "pairs.tsv, line 2: its target has 1025 tokens with </s>, and "),
        (b"", "pairs.tsv, line 1: there is no target"),
    ],
)
def test_bad_lines_are_named_and_leave_nothing(content, message, checkpoint, data, tmp_path):
    (tmp_path / "pairs.tsv").write_bytes(content)
    path = checkpoint("transformer_nopos_tiny")
    result = run("score-targets", path, tmp_path / "pairs.tsv", "--data", data, "--output", tmp_path / "out", code=1)
    assert message in result.output
    assert sorted(file.name for file in tmp_path.iterdir()) == ["pairs.tsv", "untrained.pt"]


def test_an_output_that_would_destroy_the_pairs_is_refused(data, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("s1\tt1\n")
    result = run("score-targets", pairs, pairs, "--data", data, "--output", pairs, code=1)
    assert f"--output {pairs} is the file of the pairs: name another." in result.output
    assert pairs.read_text() == "s1\tt1\n"


def make_experiment(root, seed, data, checkpoint):
    directory = root / "xa-xb" / "transformer_nopos_tiny" / f"seed{seed}"
    shutil.copytree(kept() / "transformer_sinusoidal_tiny" / "seed1", directory)
    for name in ("test.hyp", "test.ref"):
        (directory / name).unlink(missing_ok=True)
    about = json.loads((directory / "experiment.json").read_text())
    (directory / "experiment.json").write_text(json.dumps({**about, "pair": "en-de", "seed": seed}))
    (directory / "test.generate.sh").write_text(f"exec python -m fairseq_cli.generate {data} --gen-subset test\n")
    if checkpoint:
        shutil.copy(checkpoint, directory / "averaged.pt")
    return directory


def test_experiments_know_their_checkpoint_and_data(checkpoint, data, pairs, tmp_path):
    path = checkpoint("transformer_nopos_tiny")
    first, second = (make_experiment(tmp_path / "output", seed, data, path) for seed in (1, 2))
    assert [(model.name, model.checkpoint, model.data) for model in find_models([tmp_path / "output"])] == [
        ("sinusoidal seed 1", first / "averaged.pt", data),
        ("sinusoidal seed 2", second / "averaged.pt", data),
    ]
    assert [model.name for model in find_models([second])] == ["sinusoidal"]
    assert run("score-targets", first, pairs).stdout == run("score-targets", path, pairs, "--data", data).stdout
    result = run("score-targets", tmp_path / "output", pairs, code=1)
    assert f"{tmp_path / 'output'} holds 2 experiments: name one of them (seedN)." in result.output


def test_dictionaries_of_another_training_are_refused(checkpoint, data, pairs, tmp_path):
    directory = make_experiment(tmp_path / "output", 1, data, checkpoint("transformer_nopos_tiny"))
    reordered = shutil.copytree(data, tmp_path / "other")
    first, second, *rest = (reordered / "dict.en.txt").read_text().splitlines(keepends=True)
    (reordered / "dict.en.txt").write_text("".join([second, first, *rest]))  # as many words
    summary = directory / "training.json"
    vocabulary = [file_hash(data / f"dict.{side}.txt") for side in ("en", "de")]
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "vocabulary": vocabulary}))
    assert find_models([directory])[0].data == data
    message = f"--data {reordered}, for {directory}: these are not the dictionaries of the training"
    assert message in run("score-targets", directory, pairs, "--data", reordered, code=1).output
    (directory / "test.generate.sh").write_text(f"exec python -m fairseq_cli.generate {reordered} --gen-subset test\n")
    assert f"{directory}: averaged.pt, or the binarized data" in run("score-targets", directory, pairs, code=1).output


def test_a_checkpoint_needs_data(pairs):
    result = run("score-targets", pairs, pairs, code=1)
    assert f"{pairs} is a checkpoint: name the directory of fairseq-preprocess with --data" in result.output


def test_text_is_split_as_the_prepared_data_says(tmp_path):
    settings = Prepare(subwords="subword-nmt", vocabulary=2, lowercase=True)
    subwords.learn(tmp_path, [("en", "low lower low")] * 3, settings)
    binarized = tmp_path / "binarized"
    assert list(prepared.subwords_of(binarized, "en").encode(["Low slow"])) == [["Low", "slow"]]
    (tmp_path / "prepare.json").write_text(json.dumps({"settings": asdict(settings)}))
    assert list(prepared.subwords_of(binarized, "en").encode(["Low slow"])) == [["low", "s@@", "low"]]
    (tmp_path / "bpe.codes").unlink()
    with pytest.raises(RecipeError, match=r"The subwords of .*prepare\.json cannot be loaded"):
        prepared.subwords_of(binarized, "en")
