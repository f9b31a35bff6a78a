"""The benchmark: models do the same work, and the figures are right. No test depends on speed."""

import json

import pytest
import torch
from fairseq.tasks.translation import TranslationTask

from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.commands.benchmark import table
from posenc_experiments.evaluation.measurements import benchmark
from posenc_experiments.evaluation.measurements.benchmark import STOCK, Result, Settings, compare
from tests import toy
from tests.experiments.tiny import run_here


@pytest.fixture(autouse=True)
def small_corpus(monkeypatch):
    monkeypatch.setattr(benchmark, "SENTENCES", 2000)
    monkeypatch.setattr(benchmark, "VOCABULARY", 40)


def cli(*arguments):
    return run_here("benchmark", *arguments)


def results(*names):
    return [Result("training", "text", name, "words/s") for name in (STOCK, *names)]


def test_ratios_are_of_the_same_work_in_each_round():
    """Computed by hand, without the warm-up: the ratio of the sums would be 40 / 35."""
    log = []
    figures = {STOCK: {1: 9, 2: 15, 3: 10, 4: 10}, "a": {1: 100, 2: 10, 3: 20, 4: 10}, "b": dict.fromkeys(range(5), 5)}

    def build(name):
        def step(work):
            log.append((name, work))
            return figures[name][work]

        return step

    stock, a, b = measured = results("a", "b")
    compare(measured, build, [1, 2, 3, 4])
    assert log[:8] == [(STOCK, 1), ("a", 1), (STOCK, 2), ("a", 2), (STOCK, 3), ("a", 3), (STOCK, 4), ("a", 4)]
    assert (a.own, a.stock, stock.own) == ([10, 20, 10], [15, 10, 10], [15, 10, 10] * 2)
    assert a.ratios == pytest.approx([2 / 3, 2, 1])
    assert a.ratio() == "1.000 (0.833 to 1.500)"
    assert b.ratio() == "0.500 (0.417 to 0.500)"


def test_what_is_measured_is_kept_after_each_model():
    kept, rows = [], results("a", "b")
    compare(rows, lambda name: lambda work: 1.0, [1, 2], lambda: kept.append([len(row.own) for row in rows]))
    assert kept == [[1, 1, 0], [2, 1, 1]]


def test_models_that_cannot_be_built_or_run_are_listed_with_the_reason():
    def build(name):
        if name == "never":
            raise ValueError("no such thing")

        def step(work):
            if (name, work) == ("large", 2):
                raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate much")
            return 1.0

        return step

    measured = results("never", "large", "a")
    compare(measured, build, [0, 1, 2])
    refused = [None, "ValueError: no such thing", "OutOfMemoryError: CUDA out of memory. Tried to allocate much", None]
    assert [(result.refused, len(result.own)) for result in measured] == list(zip(refused, [2, 0, 0, 2], strict=True))
    assert "- never, text, refused: ValueError: no such thing" in table(measured)
    with pytest.raises(RecipeError, match=r"^stock fairseq itself cannot be measured: ValueError: no such thing"):
        compare(results("a"), lambda name: build("never"), [0, 1])


def test_peak_of_known_allocations():
    """Kept: 1 MiB. Then 3 MiB, 2 MiB more, then all but 1 MiB is released and 4 MiB are allocated: 6 MiB at most."""
    quarter = 2**18

    def run():
        kept = torch.empty(quarter)
        a, b = torch.empty(3 * quarter), torch.empty(2 * quarter)
        del a, b
        return kept, torch.empty(4 * quarter)

    assert benchmark.peak_bytes(run, "cpu") == 6 * 2**20


def test_every_model_generates_as_many_tokens(monkeypatch):
    """The number of tokens does not depend on the log-probability of </s>, which is fixed here for each model."""
    build, search, ends, lengths = TranslationTask.build_model, TranslationTask.inference_step, [-30.0, 0.0], []

    def opinionated(task, cfg):
        model, end = build(task, cfg), ends.pop()
        normalize = model.get_normalized_probs

        def fixed(*outputs, **options):
            normalized = normalize(*outputs, **options)
            normalized[..., task.target_dictionary.eos()] = end
            return normalized

        model.get_normalized_probs = fixed
        return model

    def recorded(task, generator, models, batch):
        hypotheses = search(task, generator, models, batch)
        assert [len(beam) for beam in hypotheses] == [5] * 3
        lengths.append((batch["target"].size(1), {len(hyp["tokens"]) for beam in hypotheses for hyp in beam}))
        return hypotheses

    monkeypatch.setattr(TranslationTask, "build_model", opinionated)
    monkeypatch.setattr(TranslationTask, "inference_step", recorded)
    settings = Settings(size="tiny", flags=toy.TINY, rounds=1, sentences=3)
    stock, own = benchmark.measure("generation", settings, ["shaw"])
    assert (own.refused, own.unit, len(own.own), own.stock) == (None, "sentences/s", 1, stock.own)
    assert len(lengths) == 4
    assert all(sizes == {longest} for longest, sizes in lengths)


def test_command_prints_tables_and_writes_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = toy.binarize(toy.make_corpus(tmp_path / "text"), tmp_path / "data-bin", joined=True)
    units = {"training": "words/s", "time": "s", "memory": "MiB"}
    flags = (*toy.TINY, "--max-source-positions", "40")
    options = ("--size", "tiny", "--device", "cpu", "--rounds", 2, "--tokens", 64, "--clock", "cpu")
    words = [",".join(units), "shaw:position_sharing=head", "diet_abs", "--data", data, *options, "--lengths", 48]
    result = cli(*words, "--json", "a.json", "--", *flags)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "data-bin", "text"]  # no crash.pt
    saved = json.loads((tmp_path / "a.json").read_text())
    assert (saved["clock"], saved["rounds"], saved["size"], saved["lengths"]) == ("cpu", 2, "tiny", [48])
    assert (saved["data"], saved["flags"], saved["versions"]["torch"]) == (str(data), list(flags), torch.__version__)
    for name, unit in units.items():
        assert f"**{name}**" in result.stdout
        stock, own, too_short = (result for result in saved["results"] if result["measure"] == name)
        assert {result["unit"] for result in (stock, own, too_short)} == {unit}
        assert {result["setting"] for result in (stock, own)} == {"data-bin" if name == "training" else "n = 48"}
        assert len(own["own"]) == len(own["stock"]) == (1 if name == "memory" else 2)
        assert min(*own["own"], *own["stock"]) > 0
        ratios = sorted(value / base for value, base in zip(own["own"], own["stock"], strict=True))
        assert f"{sum(ratios) / len(ratios):.3f}" in result.stdout  # the median of one or two rounds
        if name != "training":
            assert "at most 40 positions" in too_short["refused"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["training", "rope"], "encoding 'rope' (did you mean pope?); use one of alibi"),
        (["training", "shaw", "--data", "."], "give a directory that fairseq-preprocess wrote"),
        (["training,speed", "shaw"], "'speed' is not one of"),
        (["memory", "shaw", "--lengths", "8;16"], "'8;16' is not a valid"),
        (["kernels", "shaw", "--device", "cpu"], "kernels are counted on a GPU only: leave the measure out"),
        (["training", "shaw", "--json", "/proc/a.json"], "--json /proc/a.json cannot be written ("),
        (["training", "shaw", "--size", "tiny", "--", "--nonsense", "9"], "unrecognized arguments: --nonsense"),
    ],
)
def test_refusals(arguments, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli(*arguments)
    assert result.exit_code == 1
    assert expected in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_all_encodings_are_measured_by_default(monkeypatch):
    named = []
    monkeypatch.setattr("posenc_experiments.commands.benchmark.measure", lambda *given: named.extend(given[2]))
    cli("training")
    assert named == list(ENCODINGS)
