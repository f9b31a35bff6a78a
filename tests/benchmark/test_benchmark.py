"""The benchmark: models do the same work, and the figures are right. No test depends on speed."""

import gc
import json
import weakref

import pytest
import torch
from click.testing import CliRunner

from fairseq_posenc.benchmark import data, measures, memory, models, rounds
from fairseq_posenc.benchmark.measures import MEASURES, measure
from fairseq_posenc.benchmark.models import Candidate, Settings, candidates
from fairseq_posenc.benchmark.rounds import STOCK, BenchmarkError
from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.cli import group
from posenc_experiments.commands.benchmark import tables
from tests import toy

TINY = Settings(size="tiny", flags=toy.TINY)


@pytest.fixture(autouse=True)
def small_corpus(monkeypatch):
    monkeypatch.setattr(data, "SENTENCES", 2000)
    monkeypatch.setattr(data, "VOCABULARY", 40)


@pytest.fixture(scope="module")
def binarized(tmp_path_factory):
    directory = tmp_path_factory.mktemp("benchmark")
    return toy.binarize(toy.make_corpus(directory / "text"), directory / "data-bin", joined=True)


def tiny(**changes):
    shared = {"size": "tiny", "flags": toy.TINY, "rounds": 1, "updates": 1, "tokens": 64, "sentences": 2}
    return Settings(**{**shared, **changes})


def cli(*arguments):
    return CliRunner().invoke(group, ["benchmark", *map(str, arguments)])


def refusal(*arguments):
    """The message of a refused command line, without the usage."""
    result = cli(*arguments)
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    return " ".join(result.output.partition("Error: ")[2].split())


# --- rounds ---------------------------------------------------------------------------------------------------------


def race(builders, works, figure=lambda seconds, work: seconds, **options):
    return rounds.race(builders, works, figure, measure="training", setting="text", unit="s", **options)


class FakeClock:
    """A clock that stands still but for what a step adds to it."""

    now = 0.0

    def __call__(self):
        return self.now

    def model(self, *seconds):
        left = iter(seconds)

        def step(work):
            self.now += next(left)

        return lambda: step


def test_each_model_does_the_same_work_in_rotating_order():
    log = []
    works = ["warm-up", "first", "second", "third"]
    race({name: lambda name=name: lambda work: log.append((name, work)) for name in (STOCK, "a", "b")}, works)
    order = [STOCK, "a", "b", "a", "b", STOCK, "b", STOCK, "a", STOCK, "a", "b"]
    assert log == list(zip(order, [work for work in works for _ in range(3)], strict=True))


def test_ratios_are_computed_for_each_round():
    """Computed by hand, without the warm-up: 30 words in 3 s and 2 s, 40 in 2 s and 4 s, 60 in 6 s and 6 s.
    The ratio of the medians would be 10 / 10 = 1 as well, that of the sums 12 / 11.
    """
    clock = FakeClock()
    builders = {STOCK: clock.model(9, 2, 4, 6), "a": clock.model(100, 3, 2, 6)}
    stock, own = race(builders, [1, 30, 40, 60], lambda seconds, words: words / seconds, clock=clock)
    assert stock.own == pytest.approx([15, 10, 10])
    assert own.own == pytest.approx([10, 20, 10])
    assert own.ratios == pytest.approx([2 / 3, 2, 1])
    found = own.as_dict()
    assert (found["median"], found["ratio"]) == pytest.approx((10, 1))
    assert found["ratio_quartiles"] == pytest.approx([(2 / 3 + 1) / 2, 1.5])


def test_groups_have_their_own_rounds_of_stock_and_are_not_in_memory_together():
    clock, alive, most = FakeClock(), weakref.WeakSet(), []
    seconds = {STOCK: [[0, 2, 3], [0, 4, 6]], "a": [[0, 2, 3]], "b": [[0, 1, 12]]}

    class Model:
        def __init__(self, name):
            self.trainer = self  # a cycle, as fairseq's trainers are
            self.step = clock.model(*seconds[name].pop(0))()
            alive.add(self)
            most.append(len(alive))

        def __call__(self, work):
            assert not gc.isenabled()  # a collection would be attributed to an arbitrary model
            self.step(work)

    stock, a, b = race({name: lambda name=name: Model(name) for name in seconds}, range(3), clock=clock, group=1)
    assert most == [1, 2] * 2
    assert not alive
    assert gc.isenabled()
    assert (a.ratios, b.ratios) == (pytest.approx([1, 1]), pytest.approx([1 / 4, 2]))
    assert stock.own == pytest.approx([2, 3, 4, 6])


def test_models_that_cannot_be_built_or_run_are_listed_with_the_reason():
    def unbuildable():
        raise ValueError("no such thing")

    def out_of_memory(work):
        if work == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate much")

    steps = {STOCK: str, "never": None, "large": out_of_memory, "a": str}
    builders = {name: (lambda step=step: step) if step else unbuildable for name, step in steps.items()}
    stock, never, large, a = race(builders, range(4))
    assert (never.refused, large.refused) == ("no such thing", "OutOfMemoryError: CUDA out of memory.")
    assert large.own == []
    assert len(a.own) == len(stock.own) == 3
    table = tables([stock, never, large, a])
    assert "* never, text, refused: no such thing" in table
    assert "* large, text, refused: OutOfMemoryError" in table
    with pytest.raises(BenchmarkError, match=r"^stock .* cannot be measured: no such thing"):
        race({STOCK: unbuildable}, range(2))


# --- memory ---------------------------------------------------------------------------------------------------------


def test_peak_of_known_allocations():
    """Kept: 1 MiB. In the step: 3 MiB, then 2 MiB more, then all but 1 MiB is released and 4 MiB are allocated:
    1 + 3 + 2 = 6 MiB at once against 1 + 4 = 5.
    """
    quarter = 2**18

    def prepare():
        kept = torch.empty(quarter)
        calls = []

        def step():
            calls.append(kept)
            if len(calls) == 1:
                torch.empty(20 * quarter)  # the first call is the warm-up
                return
            a = torch.empty(3 * quarter)
            b = torch.empty(2 * quarter)
            del a, b
            torch.empty(4 * quarter)

        return step

    assert memory.peak_bytes(prepare, "cpu") == 6 * 2**20


def test_memory_holds_parameters_gradients_and_both_moments():
    """At least the lower bound computed by hand, and reproducible."""
    settings = tiny(lengths=(8,))
    stock, own, again = measure("memory", settings, candidates(["shaw", "shaw:position_sharing=none"]))
    trainer = models.build_trainer(Candidate("shaw", "shaw"), settings, data.synthetic_task())
    parameters = sum(tensor.numel() for tensor in trainer.model.parameters())
    assert own.own[0] * 2**20 > 4 * 4 * parameters
    assert own.own == again.own
    assert own.stock == stock.own


# --- data -----------------------------------------------------------------------------------------------------------


def test_random_sentences_have_realistic_lengths():
    corpus = data.load_corpus(None)
    lengths = torch.tensor([len(corpus.train[number]["source"]) for number in range(2000)], dtype=torch.float)
    assert 24 < lengths.mean() < 29
    assert 20 <= lengths.median() <= 24
    batches = corpus.batches(corpus.train, 20, longest=16, max_tokens=16)
    assert max(batch["target"].size(1) for batch in batches) <= 16
    again = data.load_corpus(None)
    repeated = again.batches(again.train, 20, longest=16, max_tokens=16)
    assert [batch["target"].tolist() for batch in repeated] == [batch["target"].tolist() for batch in batches]


# --- measures -------------------------------------------------------------------------------------------------------


def test_a_step_that_raises_an_error_writes_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = data.synthetic_task()
    step = measures.trainer_step(
        Candidate("diet_abs", "diet_abs"), tiny(flags=(*toy.TINY, "--max-source-positions", "6")), task
    )
    with pytest.raises(ValueError, match="at most"):
        step([data.fixed_batch(task, 30, 60, 1)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("encoding", "ends"), [(None, 0.0), ("shaw", -30.0)])
def test_every_model_generates_as_many_tokens(encoding, ends, monkeypatch):
    """The number of tokens does not depend on the log-probability of </s>, which is fixed here."""
    corpus = data.load_corpus(None)

    def build(*arguments):
        model = models.build_inference_model(*arguments)
        normalize = model.get_normalized_probs

        def opinionated(*outputs, **options):
            found = normalize(*outputs, **options)
            found[..., corpus.task.target_dictionary.eos()] = ends
            return found

        model.get_normalized_probs = opinionated
        return model

    monkeypatch.setattr(measures, "build_inference_model", build)
    step = measures.translator(Candidate("model", encoding), TINY, corpus.task)
    for batch in corpus.batches(corpus.test, 2, max_sentences=3):
        hypotheses = step(batch)
        assert len(hypotheses) == batch["nsentences"] == 3
        assert {len(one["tokens"]) for beam in hypotheses for one in beam} == {batch["target"].size(1)}
        assert {len(beam) for beam in hypotheses} == {5}


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_of_two_encodings(name, binarized):
    units = {"training": ["words/s"], "generation": ["sentences/s"], "memory": ["MiB"], "growth": ["s", "MiB"]}
    settings = tiny(lengths=(8,), data=binarized)
    found = measure(name, settings, candidates(["shaw", "alibi:clipping_distance=3"]))
    assert [one.unit for one in found[::3]] == units.get(name, ["ms", "MiB"])
    for one in found:
        assert one.setting == ("data-bin" if name in ("training", "generation") else "n = 8")
        if one.encoding.startswith("alibi"):
            assert "clipping" in one.refused
            assert one.own == one.stock == []
        else:
            assert len(one.own) == len(one.stock) == 1
            assert min(*one.own, *one.stock) > 0


def test_position_tables_are_long_enough_for_the_lengths():
    found = measure("memory", tiny(lengths=(1030,), tokens=1030), candidates(["diet_abs", "learned"]))
    assert [one.refused for one in found] == [None] * 3


# --- the command ----------------------------------------------------------------------------------------------------


def test_options_of_an_encoding_are_its_own():
    assert [one.name for one in candidates([])] == [STOCK, *ENCODINGS]
    task, settings = data.synthetic_task(), tiny(flags=(*toy.TINY, "--dropout", "0.5"))
    stock, own = candidates(["shaw:position_sharing=head,clipping_distance=4"])
    stock, own = (models.configure(one, settings, task).model for one in (stock, own))
    assert (stock.arch, own.arch) == ("transformer_tiny", "transformer_shaw_tiny")
    assert (own.position_sharing, own.clipping_distance) == ("head", 4)
    assert not hasattr(stock, "clipping_distance")
    assert stock.dropout == own.dropout == 0.5


def test_command_prints_tables_and_writes_json(tmp_path):
    file = tmp_path / "figures.json"
    options = ("--size", "tiny", "--device", "cpu", "--rounds", 3, "--tokens", 64, "--lengths", 8, "--clock", "cpu")
    result = cli("training,memory", "shaw", "nopos", *options, "--json", file, "--", *toy.TINY)
    assert result.exit_code == 0, result.output
    assert "**training**" in result.stdout
    assert "**memory**" in result.stdout
    found = json.loads(file.read_text())
    assert set(found["versions"]) == {"fairseq_posenc", "fairseq", "torch", "python"}
    assert found["device"]
    assert found["date"][:2] == "20"
    assert (found["clock"], found["rounds"], found["precision"], found["size"]) == ("cpu", 3, "fp32", "tiny")
    assert (found["data"], found["lengths"], found["flags"]) == (None, [8], list(toy.TINY))
    assert {(row["measure"], row["encoding"]) for row in found["results"]} == {
        (name, encoding) for name in ("training", "memory") for encoding in (STOCK, "shaw", "nopos")
    }
    for row in found["results"]:
        assert len(row["own"]) == len(row["stock"]) == len(row["ratios"]) == (3 if row["measure"] == "training" else 1)
        assert f"{row['ratio']:.3f}" in result.stdout or row["encoding"] == STOCK


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["training", "rope"], "encoding 'rope'; use one of alibi"),
        (["training", "shaw:k=3"], "shaw:k=3: unrecognized arguments: --k=3"),
        (["training", "shaw", "--data", "no-such-place"], "'--data': Directory 'no-such-place' does not exist."),
        (["training", "shaw", "--data", "."], "give a directory that fairseq-preprocess wrote"),
        (["training", "shaw", "--device", "cpu", "--precision", "fp16"], "--precision fp16: "),
        (["speed", "shaw"], "'speed' is not a measure"),
        (["memory", "shaw", "--lengths", "8;16"], "'8;16': give numbers of tokens"),
        (["memory", "shaw", "--lengths", "512", "--tokens", "64"], "--tokens 64: "),
        (["training", "shaw", "--json", "/proc/a.json"], "--json /proc/a.json cannot be written ("),
        (["training", "shaw", "--json", "a.json", "--", "--max-tokens", "9"], "--max-tokens after -- "),
        (["training", "shaw", "--size", "tiny", "--", "--nonsense", "9"], "unrecognized arguments: --nonsense 9"),
    ],
)
def test_refusals(arguments, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert expected in refusal(*arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu():
    assert refusal("training", "shaw", "--device", "cuda").startswith("--device cuda: ")
