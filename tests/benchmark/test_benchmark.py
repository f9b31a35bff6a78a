"""The benchmark: models do the same work, and the figures are right. No test depends on speed."""

import gc
import json
import weakref
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner

from fairseq_posenc.benchmark import attention, data, generation, memory, models, report, rounds, run, training
from fairseq_posenc.benchmark.models import Candidate, Setup, candidates
from fairseq_posenc.benchmark.results import BenchmarkError, Result, exponent, quartiles
from fairseq_posenc.benchmark.rounds import STOCK, Clock
from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.cli import group
from tests import toy

SETUP = Setup(size="tiny", flags=toy.TINY)
VOCABULARY = 40


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch):
    monkeypatch.setattr(data, "SENTENCES", 2000)


def cli(*arguments):
    return CliRunner().invoke(group, ["benchmark", *map(str, arguments)])


def refusal(*arguments):
    """The message of a refused command line, without the usage."""
    result = cli(*arguments)
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    return " ".join(result.output.partition("Error: ")[2].split())


def plan(*names, **changes):
    tiny = {"setup": SETUP, "rounds": 1, "updates": 1, "tokens": 64, "sentences": 2, "vocabulary": VOCABULARY}
    return run.Plan(**{**tiny, "candidates": candidates(names), "clock": Clock(), **changes})


class FakeClock:
    """A clock with fixed times: each call takes the time of the model in ``durations``."""

    def __init__(self, durations):
        self.durations = {name: iter(seconds) for name, seconds in durations.items()}

    def seconds(self, work):
        return next(self.durations[work()])


# --- rounds ---------------------------------------------------------------------------------------------------------


def recorder(name, log):
    """A model that records its input."""

    def build():
        def step(work):
            log.append((name, work))
            return name

        return step

    return build


def test_each_model_does_the_same_work_in_rotating_order():
    log = []
    works = ["warm-up", "first", "second", "third"]
    rounds.race({name: recorder(name, log) for name in (STOCK, "a", "b")}, works, Clock())
    order = [STOCK, "a", "b", "a", "b", STOCK, "b", STOCK, "a", STOCK, "a", "b"]
    assert log == list(zip(order, [work for work in works for _ in range(3)], strict=True))


def test_ratios_are_computed_for_each_round():
    """Computed by hand, without the warm-up: 30 words in 3 s and 2 s, 40 in 2 s and 4 s, 60 in 6 s and 6 s.
    The ratio of the medians would be 10 / 10 = 1 as well, that of the sums 12 / 11.
    """
    clock = FakeClock({STOCK: [9, 2, 4, 6], "a": [100, 3, 2, 6]})
    timings = rounds.race({name: recorder(name, []) for name in (STOCK, "a")}, range(4), clock)
    stock, own = rounds.rates("training", "text", "words/s", [30, 40, 60], timings)
    assert stock.own == [15, 10, 10]
    assert own.own == [10, 20, 10]
    assert own.ratios == pytest.approx([2 / 3, 2, 1])
    found = own.as_dict()
    assert (found["median"], found["ratio"]) == (10, 1)
    assert found["ratio_quartiles"] == pytest.approx([(2 / 3 + 1) / 2, 1.5])


def test_each_group_has_its_own_rounds_of_stock():
    clock = FakeClock({STOCK: [0, 2, 3, 0, 4, 6], "a": [0, 2, 3], "b": [0, 1, 12]})
    timings = rounds.race({name: recorder(name, []) for name in (STOCK, "a", "b")}, range(3), clock, group=1)
    results = {result.encoding: result for result in rounds.rates("training", "text", "words/s", [12, 12], timings)}
    assert results["a"].ratios == pytest.approx([1, 1])
    assert results["b"].ratios == pytest.approx([4, 0.5])
    assert results[STOCK].own == pytest.approx([6, 4, 3, 2])


def test_groups_are_not_in_memory_together():
    alive, most = weakref.WeakSet(), []

    class Model:
        def __init__(self):
            self.trainer = self  # a cycle, as fairseq's trainers are
            alive.add(self)
            most.append(len(alive))

        def __call__(self, work):
            return None

    rounds.race(dict.fromkeys([STOCK, *"abcdef"], Model), range(2), Clock(), group=2)
    assert most == [1, 2, 3] * 3
    assert not alive


def test_models_that_cannot_be_built_or_run_are_listed_with_the_reason():
    def unbuildable():
        raise ValueError("no such thing")

    def out_of_memory(work):
        if work == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate much")

    builders = {
        STOCK: recorder(STOCK, []),
        "never": unbuildable,
        "large": lambda: out_of_memory,
        "a": recorder("a", []),
    }
    timings = rounds.race(builders, range(4), Clock())
    assert list(timings) == [STOCK, "never", "large", "a"]
    assert timings["never"].refused == "no such thing"
    assert timings["large"].refused == "OutOfMemoryError: CUDA out of memory."
    assert timings["large"].own == []
    assert len(timings["a"].own) == 3
    table = report.tables(rounds.rates("training", "text", "words/s", [1, 1, 1], timings))
    assert "* never, text, refused: no such thing" in table
    assert "* large, text, refused: OutOfMemoryError" in table


def test_an_error_of_stock_ends_the_benchmark():
    def unbuildable():
        raise ValueError("unrecognized arguments: --nonsense")

    with pytest.raises(BenchmarkError, match=r"stock fairseq itself .*: unrecognized arguments: --nonsense"):
        rounds.race({STOCK: unbuildable}, range(2), Clock())


def test_garbage_collection_is_disabled_during_timing():
    states = []

    def work():
        states.append(gc.isenabled())
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        Clock().seconds(work)
    assert states == [False]
    assert gc.isenabled()


# --- figures --------------------------------------------------------------------------------------------------------


def test_exponent_of_known_growth():
    lengths = [128, 256, 512, 1024]
    assert exponent(lengths, [3 * n**1.5 for n in lengths]) == pytest.approx(1.5)
    assert exponent(lengths, [7, 7, 7, 7]) == pytest.approx(0)
    rows = [
        Result("growth of time", f"n = {n}", name, "s", [2.0 * n**e], [2.0 * n])
        for n in lengths
        for name, e in ((STOCK, 1), ("a", 2))
    ]
    table = report.tables(rows).splitlines()
    assert [line.split("|")[-2].strip() for line in table if "|" in line] == [
        "exponent",
        "-----------:",
        "1.00",
        "2.00",
    ]


def test_quartiles():
    assert quartiles([5, 1, 4, 2, 3]) == (2, 3, 4)
    assert quartiles([0.5]) == (0.5, 0.5, 0.5)


# --- models ---------------------------------------------------------------------------------------------------------


def test_candidates_are_parsed():
    spelled = models.parse_candidate("shaw:position_sharing=head,clipping_distance=4")
    cfg = models.configure(spelled, SETUP, shared_dictionary=True)
    assert (cfg.model.arch, cfg.model.position_sharing, cfg.model.clipping_distance) == (
        "transformer_shaw_tiny",
        "head",
        4,
    )
    assert [candidate.name for candidate in candidates([])] == [STOCK, *ENCODINGS]


def test_stock_does_not_get_flags_of_this_package():
    setup = replace(SETUP, flags=(*toy.TINY, "--clipping-distance", "4", "--dropout", "0.5"))
    stock = models.configure(Candidate(STOCK), setup, shared_dictionary=True)
    own = models.configure(Candidate("shaw", "shaw"), setup, shared_dictionary=True)
    assert (stock.model.arch, own.model.arch) == ("transformer_tiny", "transformer_shaw_tiny")
    assert stock.model.dropout == own.model.dropout == 0.5
    assert own.model.clipping_distance == 4
    assert not hasattr(stock.model, "clipping_distance")


@pytest.mark.parametrize(
    ("size", "layers", "width", "heads"), [("base", 6, 512, 8), ("small", 4, 512, 8), ("big", 6, 1024, 16)]
)
def test_sizes(size, layers, width, heads):
    stock = models.configure(Candidate(STOCK), Setup(size=size), shared_dictionary=True).model
    own = models.configure(Candidate("t5", "t5"), Setup(size=size), shared_dictionary=True).model
    for cfg in (stock, own):
        for side in ("encoder", "decoder"):
            found = [getattr(cfg, f"{side}_{what}") for what in ("layers", "embed_dim", "attention_heads")]
            assert found == [layers, width, heads]


# --- data -----------------------------------------------------------------------------------------------------------


def test_random_sentences_have_realistic_lengths():
    corpus = data.synthetic_corpus(VOCABULARY, seed=1)
    lengths = torch.tensor([len(corpus._train[number]["source"]) for number in range(2000)], dtype=torch.float)
    assert 24 < lengths.mean() < 29
    assert 20 <= lengths.median() <= 24
    pair = corpus._train[0]
    for side in ("source", "target"):
        assert pair[side][-1] == corpus.task.source_dictionary.eos()
        assert (pair[side][:-1] >= corpus.task.source_dictionary.nspecial).all()
        assert (pair[side] < VOCABULARY).all()


def test_batches_depend_on_the_seed_only():
    first, again = (data.synthetic_corpus(VOCABULARY, seed=1).training_batches(3, 64, seed=1) for _ in range(2))
    other = data.synthetic_corpus(VOCABULARY, seed=1).training_batches(3, 64, seed=2)
    targets = [[batch["target"].tolist() for batch in batches] for batches in (first, again, other)]
    assert targets[0] == targets[1] != targets[2]


def test_fixed_batches_have_one_length_and_no_padding():
    task = data.synthetic_task(VOCABULARY)
    batch = data.fixed_batch(task, length=10, tokens=64, seed=1)
    assert batch["net_input"]["src_tokens"].shape == batch["target"].shape == (6, 10)
    assert not batch["target"].eq(task.target_dictionary.pad()).any()
    assert data.fixed_batch(task, length=100, tokens=64, seed=1)["target"].shape == (1, 100)


def test_a_corpus_repeats_for_more_batches_than_an_epoch_has(binarized):
    batches = data.binarized_corpus(binarized, "toy").training_batches(40, 64, seed=1)
    assert len(batches) == 40
    assert len({tuple(sorted(batch["id"].tolist())) for batch in batches}) < 40


# --- measures -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def binarized(tmp_path_factory):
    directory = tmp_path_factory.mktemp("benchmark")
    return toy.binarize(toy.make_corpus(directory / "text"), directory / "data-bin", joined=True)


def test_a_round_of_training_is_an_update_on_each_batch():
    task = data.synthetic_task(VOCABULARY)
    step = training.trainer_step(Candidate("shaw", "shaw"), SETUP, task)
    trainer = step.__closure__[0].cell_contents
    before = {name: tensor.clone() for name, tensor in trainer.model.named_parameters()}
    step([data.fixed_batch(task, 5, 20, seed) for seed in (1, 2, 3)])
    assert trainer.get_num_updates() == 3
    assert all(
        not torch.equal(before[name], tensor)
        for name, tensor in trainer.model.named_parameters()
        if ".k_proj.bias" not in name
    )  # which do not affect attention


def test_a_step_that_raises_an_error_writes_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = data.synthetic_task(VOCABULARY)
    setup = replace(SETUP, flags=(*toy.TINY, "--max-source-positions", "6"))
    step = training.trainer_step(Candidate("diet_abs", "diet_abs"), setup, task)
    with pytest.raises(ValueError, match="at most"):
        step([data.fixed_batch(task, 30, 60, 1)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", [None, "shaw", "diet_abs_lin"])
@pytest.mark.parametrize("ends", [-30.0, 0.0], ids=["never ends", "would end at once"])
def test_every_model_generates_as_many_tokens(encoding, ends, monkeypatch):
    """The number of tokens does not depend on the log-probability of </s>, which is fixed here."""
    corpus = data.synthetic_corpus(VOCABULARY, seed=1)

    def build(*arguments):
        model = models.build_inference_model(*arguments)
        normalize = model.get_normalized_probs

        def opinionated(*outputs, **options):
            found = normalize(*outputs, **options)
            found[..., corpus.task.target_dictionary.eos()] = ends
            return found

        model.get_normalized_probs = opinionated
        return model

    monkeypatch.setattr(generation, "build_inference_model", build)
    step = generation.translator(Candidate("model", encoding), SETUP, corpus.task, beam=5)
    for batch in corpus.generation_batches(2, 3, seed=1):
        longest = batch["target"].size(1)
        hypotheses = step(batch)
        assert len(hypotheses) == batch["nsentences"] == 3
        assert {len(hypothesis["tokens"]) for beam in hypotheses for hypothesis in beam} == {longest}
        assert {len(beam) for beam in hypotheses} == {5}


def test_peak_of_known_allocations():
    """Kept: 1 MiB. In the step: 3 MiB, then 2 MiB more, then all but 1 MiB is released and 4 MiB are allocated:
    1 + 3 + 2 = 6 MiB at once against 1 + 4 = 5.
    """
    quarter = memory.MIB // 4

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

    assert memory.peak_bytes(prepare, "cpu") == 6 * memory.MIB


def test_peak_of_a_product_and_its_gradient():
    """y = (w x)² of n numbers each: in addition to w and x, w x and y are kept for the backward pass; then the gradient
    of y and the product of both gradients, 2 w x dy.
    """
    n = 1000

    def prepare():
        w, x = torch.ones(n, requires_grad=True), torch.ones(n)

        def step():
            y = w * x
            del y

        return step

    assert memory.peak_bytes(prepare, "cpu") == 4 * n * 3


def test_memory_holds_parameters_gradients_and_both_moments():
    """At least the lower bound computed by hand, and reproducible."""
    task = data.synthetic_task(VOCABULARY)
    stock, own, again = memory.measure_memory(
        "memory", SETUP, task, candidates(["shaw", "shaw:position_sharing=none"]), [8], 64
    )
    trainer = models.build_trainer(Candidate("shaw", "shaw"), SETUP, task)
    parameters = sum(tensor.numel() for tensor in trainer.model.parameters())
    assert own.own[0] * memory.MIB > 4 * 4 * parameters
    assert own.own == again.own
    assert own.stock == stock.own
    assert own.ratios == [own.own[0] / stock.own[0]]


def test_every_measure_of_two_encodings(binarized):
    figures = {
        "training": {"training": "words/s"},
        "forward": {"forward": "words/s"},
        "generation": {"generation": "sentences/s"},
        "memory": {"memory": "MiB"},
        "growth": {"growth of time": "s", "growth of memory": "MiB"},
        "attention": {"attention: time": "ms", "attention: memory": "MiB"},
        "attention-forward": {"attention-forward: time": "ms", "attention-forward: memory": "MiB"},
    }
    assert set(figures) == set(run.MEASURES)
    for measure, units in figures.items():
        setting = "data-bin" if measure in ("training", "forward", "generation") else "n = 8"
        found = run.MEASURES[measure](plan("shaw", "alibi:clipping_distance=3", lengths=(8,), data=(binarized,)))
        assert {result.measure: result.unit for result in found} == units
        assert [result.encoding for result in found] == [STOCK, "shaw", "alibi:clipping_distance=3"] * len(units)
        for result in found:
            assert result.setting == setting
            if result.encoding.startswith("alibi"):
                assert "--clipping-distance" in result.refused
                assert result.own == result.stock == []
            else:
                assert len(result.own) == len(result.stock) == 1
                assert min(*result.own, *result.stock) > 0


def test_attention_alone_ignores_flags_of_the_model():
    own = ("--input-positions", "sinusoidal", "--attention-backend", "eager", "--clipping-distance", "4")
    setup = replace(SETUP, flags=(*toy.TINY, *own))
    assert attention._options(Candidate("shaw", "shaw"), setup, 8) == {
        "attention_backend": "eager",
        "clipping_distance": 4,
    }
    attention.attention_step(Candidate("shaw", "shaw"), setup, 8)


def test_attention_without_gradients_runs_backends_that_have_none():
    """A CPU computes no gradients with flex; shaw's plain form needs no compiler."""
    found = run.MEASURES["attention-forward"](plan("shaw:attention_backend=flex", lengths=(8,)))
    assert [result.refused for result in found] == [None] * 4
    (_, refused, *_) = run.MEASURES["attention"](plan("shaw:attention_backend=flex", lengths=(8,)))
    assert "--attention-backend flex trains on a GPU only" in refused.refused


def test_attention_alone_provides_projections_to_an_encoding_that_shares_them():
    setup = replace(SETUP, flags=("--share-key-projection", "true"))
    attention.attention_step(Candidate("deberta", "deberta"), setup, 8)(attention.make_inputs(8, 8, setup))


@pytest.mark.parametrize(("updates", "sizes"), [(1, [2, 1, 1, 1]), (3, [3, 3, 3, 3])])
def test_a_round_has_the_requested_number_of_batches(updates, sizes, monkeypatch):
    """The warm-up has at least two; no batch is used twice."""
    seen = {}

    def build(candidate, setup, task):
        return lambda batches: seen.setdefault(candidate.name, []).append([batch["id"].tolist() for batch in batches])

    monkeypatch.setitem(training.STEPS, "training", build)
    found = run.MEASURES["training"](plan("shaw", rounds=3, updates=updates, tokens=200))
    assert [len(batches) for batches in seen[STOCK]] == sizes
    assert seen["shaw"] == seen[STOCK]
    batches = [tuple(batch) for batches in seen[STOCK] for batch in batches]
    assert len(set(batches)) == len(batches) == sum(sizes)
    assert len(found[1].ratios) == 3


def test_corpora_with_the_same_name_get_different_labels(binarized, tmp_path):
    link = tmp_path / "data-bin"
    link.symlink_to(binarized)
    assert [corpus.name for corpus in plan(data=(binarized, link)).corpora()] == [str(binarized), str(link)]


def test_sentences_longer_than_a_batch_are_left_out():
    """As fairseq-train does."""
    batches = data.synthetic_corpus(VOCABULARY, seed=1).training_batches(20, 16, seed=1)
    assert max(batch["target"].size(1) for batch in batches) <= 16


def test_lengths_beyond_fairseqs_default():
    """Tables are long enough for the requested lengths."""
    found = run.MEASURES["memory"](plan("diet_abs", "learned", lengths=(1030,), tokens=1030))
    assert [result.refused for result in found] == [None, None, None]


# --- the command ----------------------------------------------------------------------------------------------------


def test_command_prints_tables_and_writes_json(binarized, tmp_path):
    file = tmp_path / "figures.json"
    result = cli(
        *("training,memory", "shaw", "nopos", "--data", binarized, "--size", "tiny", "--device", "cpu", "--rounds", 3),
        *(
            "--tokens",
            64,
            "--lengths",
            8,
            "--vocabulary",
            VOCABULARY,
            "--clock",
            "cpu",
            "--json",
            file,
            "--",
            *toy.TINY,
        ),
    )
    assert result.exit_code == 0, result.output
    assert "**training**" in result.stdout
    assert "**memory**" in result.stdout
    found = json.loads(file.read_text())
    assert set(found["versions"]) == {"fairseq_posenc", "fairseq", "torch", "python"}
    assert found["device"]
    assert found["date"][:2] == "20"
    assert (found["clock"], found["rounds"], found["precision"], found["size"]) == ("cpu", 3, "fp32", "tiny")
    assert found["flags"] == list(toy.TINY)
    assert {(row["measure"], row["encoding"]) for row in found["results"]} == {
        (measure, name) for measure in ("training", "memory") for name in (STOCK, "shaw", "nopos")
    }
    for row in found["results"]:
        assert len(row["own"]) == len(row["stock"]) == len(row["ratios"]) == (3 if row["measure"] == "training" else 1)
        assert row["ratios"] == pytest.approx(
            [own / stock for own, stock in zip(row["own"], row["stock"], strict=True)]
        )
        assert f"{row['ratio']:.3f}" in result.stdout or row["encoding"] == STOCK


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["training", "rope"], "encoding 'rope'; use one of alibi"),
        (["training", "shaw:k=3"], "'k=3' is not an option"),
        (["training", "shaw:clipping_distance"], "'clipping_distance' is not an option"),
        (["training", "shaw", "--data", "no-such-place"], "'--data': Directory 'no-such-place' does not exist."),
        (["training", "shaw", "--size", "huge"], "'--size': 'huge' is not one of"),
        (["training", "shaw", "--rounds", "0"], "'--rounds': 0 is not in the range"),
        (
            ["training", "shaw", "--device", "cpu", "--precision", "fp16"],
            "--precision fp16: ",
        ),
        (["speed", "shaw"], "'speed' is not a measure"),
        (["memory", "shaw", "--lengths", "8;16"], "'8;16': give numbers of tokens"),
        (
            ["memory", "shaw", "--lengths", "512", "--tokens", "64"],
            "--tokens 64: ",
        ),
        (
            ["training", "shaw", "--json", "/proc/a.json"],
            "--json /proc/a.json cannot be written (",
        ),
        (
            ["training", "shaw", "--", "--max-tokens", "9"],
            "--max-tokens after -- ",
        ),
        (["training", "shaw", "--size", "tiny", "--", "--nonsense", "9"], "unrecognized arguments: --nonsense 9"),
    ],
)
def test_refusals(arguments, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert expected in refusal(*arguments)


@pytest.fixture
def measured(monkeypatch):
    """Replaces the measure "forward", and records its plans."""
    plans = []
    monkeypatch.setitem(run.MEASURES, "forward", lambda plan: plans.append(plan) or [])
    return plans


def test_a_corpus_named_twice_is_used_once(measured, tmp_path):
    file = tmp_path / "figures.json"
    arguments = ("--data", tmp_path, "--data", f"{tmp_path}/", "--lengths", "8,16", "--group", 3, "--json", file)
    result = cli("forward", "shaw", "--device", "cpu", *arguments)
    assert result.exit_code == 0, result.output
    assert measured[0].data == (tmp_path,)
    found = json.loads(file.read_text())
    assert (found["data"], found["lengths"], found["group"]) == ([str(tmp_path)], [8, 16], 3)


def test_a_file_that_cannot_be_written_is_refused_before_measuring(measured, tmp_path):
    said = refusal("forward", "shaw", "--device", "cpu", "--json", tmp_path / ("x" * 300))
    assert "xx: File name too long: give a shorter path." in said
    refusal("forward", "shaw", "--device", "cpu", "--json", tmp_path / "a", "--", "--max-tokens", "9")
    assert not measured
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_a_corpus(tmp_path):
    assert "give a directory that fairseq-preprocess wrote" in refusal("training", "shaw", "--data", tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu():
    assert refusal("training", "shaw", "--device", "cuda").startswith("--device cuda: ")
