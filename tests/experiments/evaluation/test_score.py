"""Scores: SacreBLEU's own test sets without a network, and the historical tokenized BLEU."""

import csv
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from posenc_experiments.base.done import is_done, set_done
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash, read_json, write_json
from posenc_experiments.evaluation.scores import score
from posenc_experiments.evaluation.scores.historical import historical_bleu, tokenize
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.workflow.plan import EXPERIMENT_STAGES
from tests.experiments.tiny import CONF, make_recipe, make_run, run_here

TESTSET = CONF + "\nscore:\n  testsets: {test: wmt14/full}\n"


def translated(tmp_path: Path, reference: list[str], hypotheses: list[str], conf: str = TESTSET) -> Experiment:
    """An experiment with the stages up to translate done."""
    path, _ = make_recipe(tmp_path, conf)
    experiment = Experiment(make_run(tmp_path, path, None), "shaw-k2", 1)
    experiment.directory.mkdir(parents=True)
    for kind, lines in (("src", reference), ("ref", reference), ("hyp", hypotheses)):
        experiment.test_file("test", kind).write_bytes("".join(line + "\n" for line in lines).encode())
    write_json(experiment.about, experiment.description())
    inputs = EXPERIMENT_STAGES["translate"].inputs(experiment)
    set_done(experiment.directory, "translate", inputs, [experiment.test_file("test", "hyp")])
    return experiment


def make_cache(directory: Path, reference: list[str]) -> Path:
    """A SacreBLEU cache of wmt14/full en-de."""
    folder = directory / "wmt14" / "full"
    folder.mkdir(parents=True)
    for field in ("src", "ref", "docid", "genre", "origlang"):
        lines = reference if field == "ref" else ["x"] * len(reference)
        (folder / f"wmt14_full.en-de.{field}").write_text("".join(line + "\n" for line in lines))
    return directory


REFERENCE = ["Das ist ein kleiner Satz .", "Der Hund\u00a0schläft auf dem  Sofa .", "Ein rich-text Format ist da ."]
HYPOTHESES = ["Das ist ein kleiner Satz .", "Der Hund schläft auf dem Tisch .", "Ein rich-text Format war da ."]


def test_a_local_test_set_confirms_the_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = [" ".join(line.split()) for line in REFERENCE]  # as SacreBLEU extracts them
    monkeypatch.setenv("SACREBLEU", str(make_cache(tmp_path / "cache", clean)))
    experiment = translated(tmp_path, REFERENCE, HYPOTHESES)
    score.ScoreStage().run(experiment)
    bleu, chrf = read_json(experiment.test_file("test", "sacrebleu.json"))
    assert bleu["reference"] == chrf["reference"] == "sacrebleu -t wmt14/full -l en-de (same scores from both files)"
    assert 0 < bleu["score"] < 100
    before = EXPERIMENT_STAGES["score"].inputs(experiment)
    (tmp_path / "cache/wmt14/full/wmt14_full.en-de.docid").unlink()
    assert EXPERIMENT_STAGES["score"].inputs(experiment) != before  # scored again, because the test set is local now


def test_a_wrong_name_of_sacrebleus_test_set_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU", str(make_cache(tmp_path / "cache", list(reversed(REFERENCE)))))
    experiment = translated(tmp_path, REFERENCE, HYPOTHESES)
    with pytest.raises(RecipeError, match=r"^test is not SacreBLEU's wmt14/full en-de: .* correct score.testsets"):
        score.ScoreStage().run(experiment)
    assert not experiment.test_file("test", "sacrebleu.json").exists()
    assert not is_done(experiment.directory, "score", EXPERIMENT_STAGES["score"].inputs(experiment))


def test_nothing_is_scored_when_counts_differ(tmp_path: Path) -> None:
    experiment = translated(tmp_path, REFERENCE, HYPOTHESES[:2])
    with pytest.raises(RecipeError, match=r"test\.hyp 2 and .*test\.ref 3\): run the stages translate"):
        score.ScoreStage().run(experiment)
    assert not experiment.test_file("test", "sacrebleu.json").exists()


def command_line(experiment: Experiment, *options: str) -> subprocess.CompletedProcess[str]:
    """What SacreBLEU's command does with the files of an experiment."""
    files = [str(experiment.test_file("test", "ref")), "-i", str(experiment.test_file("test", "hyp"))]
    words = [sys.executable, "-m", "sacrebleu", *files, *options, "-f", "json", "-w", "2"]
    return subprocess.run(words, capture_output=True, encoding="utf-8", check=False)


def test_scores_are_those_of_sacrebleus_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it prints, but for a seed of the user's environment."""
    experiment = translated(tmp_path, REFERENCE, HYPOTHESES, CONF + "\nscore:\n  metrics: ter chrf++\n")
    calls = (["-m", "bleu", "chrf", "ter"], ["-m", "chrf", "--chrf-word-order", "2"])
    printed = [json.loads(command_line(experiment, *words, "--confidence").stdout) for words in calls]
    monkeypatch.setenv("SACREBLEU_SEED", "1")
    assert score.sacrebleu(experiment, "test", experiment.test_file("test", "ref")) == [*printed[0], printed[1]]


def test_other_metrics_are_scored_and_tested(tmp_path: Path) -> None:
    """chrF++ and TER by SacreBLEU, COMET from a file; a new translation removes the file of the old one."""
    experiments = [
        translated(tmp_path / name, REFERENCE, hypotheses, CONF + "\nscore:\n  metrics: chrf++ ter\n")
        for name, hypotheses in (("one", HYPOTHESES), ("other", REFERENCE))
    ]
    for experiment in experiments:
        score.ScoreStage().run(experiment)
    names = [row["name"] for row in read_json(experiments[0].test_file("test", "sacrebleu.json"))]
    assert names == ["BLEU", "chrF2", "chrF2++", "TER"]
    about = json.loads(experiments[1].about.read_text())
    experiments[1].about.write_text(json.dumps({**about, "name": "better", "arch": "transformer_better_tiny"}))
    for experiment, values in zip(experiments, ("0.7 0.8 0.6", "0.9 0.95 0.85"), strict=True):
        path = experiment.test_file("test", "COMET.scores")
        path.write_text("# wmt22-comet-da|version:2.2\n" + values.replace(" ", "\n") + "\n")
    directories = [experiment.directory for experiment in experiments]
    for metric, shown in (("COMET", "+0.20"), ("TER", "-"), ("chrF++", "+"), ("chrF", "+")):
        result = run_here("compare", *directories, "--baseline", "shaw-k2", "--metric", metric)
        assert result.exit_code == 0, result.output
        [line] = [line for line in result.stdout.splitlines() if line.startswith("better")]
        assert shown in line
        assert "COMET: wmt22-comet-da|version:2.2" in result.stdout
        assert f"difference: {metric} less that of shaw-k2" in result.stdout
    words = ["compare", *directories, "--baseline", "shaw-k2", "--metric", "COMET", "--format", "csv"]
    rows = list(csv.DictReader(run_here(*words).stdout.splitlines()))
    assert [float(row["metric:COMET"]) for row in rows] == pytest.approx([0.7, 0.9])
    assert rows[0]["metric:COMET signature"] == "wmt22-comet-da|version:2.2"
    assert all(float(row["ter"]) >= 0 and row["chrf++"] for row in rows)


def test_a_test_set_that_is_not_local_is_noted_and_never_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "none"))
    experiment = translated(tmp_path, REFERENCE, HYPOTHESES)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # any use of the network fails at once
    score.ScoreStage().run(experiment)
    [reference] = {row["reference"] for row in read_json(experiment.test_file("test", "sacrebleu.json"))}
    assert reference.startswith("test as downloaded, not compared with `sacrebleu -t wmt14/full -l en-de`")
    assert "sacrebleu --download wmt14/full -l en-de" in reference
    assert not (tmp_path / "none").exists()


def naive_multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """multi-bleu.perl, statement by statement: clipped n-grams of the whole corpus, no smoothing."""
    correct, total, hypothesis_length, reference_length = [0] * 4, [0] * 4, 0, 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words, wanted = hypothesis.split(), reference.split()
        hypothesis_length += len(words)
        reference_length += len(wanted)
        for n in range(1, 5):
            counts = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
            known = Counter(tuple(wanted[i : i + n]) for i in range(len(wanted) - n + 1))
            total[n - 1] += sum(counts.values())
            correct[n - 1] += sum(min(count, known[gram]) for gram, count in counts.items())
    if min(correct) == 0:
        return 0.0
    brevity = min(1.0, math.exp(1 - reference_length / hypothesis_length))
    return 100 * brevity * math.exp(sum(math.log(c / t) for c, t in zip(correct, total, strict=True)) / 4)


def test_the_historical_score_is_multi_bleu_on_moses_tokens_with_split_compounds() -> None:
    references = [
        "„Das Rich-Text-Format“ gilt’s — z. B. für E-Mail…",
        "Er sagte: Ich komme (vielleicht) um 10.30 Uhr.",
        "Die deutsch-französische Grenze ist 451,5 km lang & sicher.",
    ]
    hypotheses = [
        "„Das Rich-Text-Format“ gilt für E-Mail…",
        "Er sagte: Ich komme um 10.30 Uhr.",
        "Die Deutsch-französische Grenze ist 451,5 km lang & sicher.",
    ]
    [record] = historical_bleu(hypotheses, references, "de")
    by_hand = [
        "„ Das Rich ##AT##-##AT## Text ##AT##-##AT## Format &quot; gilt &apos; s — z. B. für E ##AT##-##AT## Mail ...",
        "Er sagte : Ich komme ( vielleicht ) um 10.30 Uhr .",
        "Die deutsch ##AT##-##AT## französische Grenze ist 451,5 km lang &amp; sicher .",
    ]
    assert tokenize(references, "de") == by_hand
    expected = naive_multi_bleu(tokenize(hypotheses, "de"), tokenize(references, "de"))
    assert 20 < expected < 90
    assert record["score"] == round(expected, 2)
    # Cased, unlike the lower-cased variant; and without the splitting another number.
    assert expected != naive_multi_bleu(
        [line.lower() for line in tokenize(hypotheses, "de")], [line.lower() for line in tokenize(references, "de")]
    )
    assert historical_bleu(hypotheses, references, "fr")[0]["score"] != record["score"]
    assert tokenize(["un compte-rendu"], "fr") == ["un compte-rendu"]  # compounds are German's
    assert tokenize(["a-b-c a-ä-c"], "de") == ["a ##AT##-##AT## b-c a ##AT##-##AT## ä ##AT##-##AT## c"]  # perl's bytes
    assert historical_bleu(["a b c x e"], ["a b c d e"], "de")[0]["score"] == 0  # no common words in a row


def test_the_lowercased_score_is_multi_bleu_on_lowercased_normalized_moses_tokens() -> None:
    references = [
        "„Das Rich-Text-Format“ gilt’s — für E-Mail…",
        "Er sagte: Ich komme (vielleicht) um 10.30 Uhr.",
        "Die deutsch-französische Grenze ist 451,5 km lang & sicher.",
    ]
    hypotheses = [
        "„das rich-text-format“ gilt für e-mail...",
        "Er sagte: ich komme um 10.30 Uhr.",
        "die Deutsch-französische grenze ist 451,5 km lang & sicher.",
    ]
    by_hand = {
        "ref": [
            "&quot; das rich-text-format &quot; gilt &apos; s - für e-mail ...",
            "er sagte : ich komme ( vielleicht ) um 10.30 uhr .",
            "die deutsch-französische grenze ist 451,5 km lang &amp; sicher .",
        ],
        "hyp": [
            "&quot; das rich-text-format &quot; gilt für e-mail ...",
            "er sagte : ich komme um 10.30 uhr .",
            "die deutsch-französische grenze ist 451,5 km lang &amp; sicher .",
        ],
    }
    assert tokenize(references, "de", "lowercase") == by_hand["ref"]
    assert tokenize(hypotheses, "de", "lowercase") == by_hand["hyp"]
    [record] = historical_bleu(hypotheses, references, "de", "lowercase")
    assert record["score"] == round(naive_multi_bleu(by_hand["hyp"], by_hand["ref"]), 2)
    # Case does not count, hyphens join: the other kind is another number.
    assert historical_bleu([line.upper() for line in hypotheses], references, "de", "lowercase")[0] == record
    assert 50 < record["score"] < 90
    assert historical_bleu(hypotheses, references, "de")[0]["score"] < record["score"] - 10
    assert record["name"] == "tokenized BLEU (lowercased)"
    words = "nrefs:1|case:lc|punctuation:normalized|tok:moses-de|compounds:whole|smooth:none|like:multi-bleu.perl|"
    assert f"not comparable with SacreBLEU|{words}sacremoses:" in record["signature"]


def test_a_lowercased_models_scores_ignore_case_and_say_so(tmp_path: Path) -> None:
    conf = CONF.replace("subwords: none", "subwords: none\n  lowercase: true")
    hypotheses = [line.lower() for line in HYPOTHESES]
    experiment = translated(tmp_path, REFERENCE, hypotheses, conf + "\nscore:\n  tokenized: lowercase\n")
    score.ScoreStage().run(experiment)
    words = ["-m", "sacrebleu", "test.ref", "-i", "test.hyp", "-lc", "--chrf-lowercase", "-m", "bleu", "chrf"]
    command = [sys.executable, *words, "--confidence", "-f", "json", "-w", "2"]
    process = subprocess.run(command, cwd=experiment.directory, capture_output=True, check=True)
    written = read_json(experiment.test_file("test", "sacrebleu.json"))
    printed = json.loads(process.stdout)
    assert [{key: record[key] for key in row} for record, row in zip(written, printed, strict=True)] == printed
    assert all("|case:lc|" in record["signature"] for record in written)
    [tokenized] = read_json(experiment.test_file("test", "historical.json"))
    assert tokenized.items() >= historical_bleu(hypotheses, REFERENCE, "de", "lowercase")[0].items()


def test_both_kinds_of_scores_are_written_with_what_they_depend_on(tmp_path: Path) -> None:
    experiment = translated(tmp_path, REFERENCE, HYPOTHESES, CONF + "\nscore:\n  tokenized: split\n")
    score.ScoreStage().run(experiment)
    kinds = {"sources": "src", "hypotheses": "hyp", "references": "ref"}
    made_from: dict[str, object] = {name: file_hash(experiment.test_file("test", kind)) for name, kind in kinds.items()}
    made_from["translation"] = {"average": 2, "beam": 2}  # as CONF has it
    for kind in ("sacrebleu", "historical"):
        assert all(row.items() >= made_from.items() for row in read_json(experiment.test_file("test", f"{kind}.json")))
    assert score.ScoreStage().is_done(experiment)
    path = experiment.test_file("test", "hyp")
    path.write_text(path.read_text().replace("Das", "Der"))
    assert not score.ScoreStage().is_done(experiment)
    (tmp_path / "recipe" / "tiny.yaml").write_text(CONF)  # without the setting, it is deleted
    again = Experiment(make_run(tmp_path, tmp_path / "recipe" / "tiny.yaml", None), "shaw-k2", 1)
    score.ScoreStage().run(again)
    assert not again.test_file("test", "historical.json").exists()
