"""Position augmentation: the positions that each mode gives, where they reach, and what stays as it was."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.attention import backends
from fairseq_posenc.attention.module import StackPositions, use_positions
from fairseq_posenc.augmentation.choice import (
    MODES,
    UNDEFINED,
    WORKS,
    combined,
    effect,
)
from fairseq_posenc.augmentation.modes import Cape, Random, Shift, cape, shifted_positions
from fairseq_posenc.checkpoints.training import training_settings
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.errors import FlagError
from fairseq_posenc.positions import Positions
from tests.models import batch, build_model, enlarge_positions, make_task, sentences, shift_right, translate

PAD = 1
#: 3, 7 and 5 tokens, padded on the left
LEFT = torch.tensor([[True] * (7 - n) + [False] * n for n in (3, 7, 5)])
EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(scope="module")
def task():
    return make_task()


@pytest.fixture(scope="module")
def inputs(task):
    """Left-padded sources, right-padded inputs of the decoder."""
    sources, targets = sentences(task, [7, 3, 5]), sentences(task, [4, 6, 2], seed=6)
    return batch(task, sources, left_pad=True), batch(task, shift_right(targets), left_pad=False)


def model_with(name, mode, *flags):
    return enlarge_positions(build_model(f"transformer_{name}_tiny", "--position-augmentation", mode, *flags))


def logits(model, source, previous):
    return model(source, source.ne(PAD).sum(1), previous)[0]


def positions_seen(model, inputs):
    """The positions that the first layers of encoder and decoder see in a pass."""
    seen, handles = [], []
    for stack in (model.encoder, model.decoder):
        layer = stack.layers[0]
        hook = layer.register_forward_pre_hook(
            lambda _, args, rest: seen.append(rest["positions"].own), with_kwargs=True
        )
        handles.append(hook)
    try:
        logits(model, *inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


# The positions of each mode


def golden(name):
    arrays = np.load(Path(__file__).parent / "golden" / f"{name}.npz")
    return {key: torch.from_numpy(value) for key, value in arrays.items()}


def test_shifted_positions_are_those_of_the_authors_code():
    arrays = golden("shape__opennmt")
    plain = Positions(9, 9, torch.zeros(6, 9, dtype=torch.bool))
    found = shifted_positions(plain, arrays["shifts"][:, None], 7)
    assert torch.equal(found.key_positions.float(), arrays["positions"])
    assert arrays["shifts"].unique().numel() > 2


def test_cape_positions_are_those_of_public_code():
    arrays = golden("cape__gcambara")
    found = cape(torch.arange(9)[None], arrays["shift"], arrays["local"], arrays["scale"])
    torch.testing.assert_close(found, arrays["positions"], rtol=0, atol=1e-5)


def test_shift_adds_one_number_to_each_sentence_uniform_in_0_to_k():
    torch.manual_seed(1)
    shift, base = Shift(3, table=None), Positions(7, 7, LEFT).key_positions
    counts = torch.zeros(4)
    for _ in range(400):
        moved, _ = shift.source_positions(Positions(7, 7, LEFT), training=True)
        k = moved.key_positions - base
        assert (k == k[:, :1]).all()
        counts += k[:, 0].bincount(minlength=4)
    assert len(counts) == 4
    assert (counts / counts.sum() - 0.25).abs().max() < 0.04


@pytest.mark.parametrize(("keys", "most"), [(9, 1), (12, 0)])
def test_a_shift_ends_where_the_table_ends(keys, most):
    torch.manual_seed(1)
    mask = torch.zeros(100, keys, dtype=torch.bool)
    moved = Shift(3, table=10).target_positions(Positions(keys, keys, mask), True, None)
    assert moved.key_positions[:, 0].unique().tolist() == list(range(most + 1))
    assert moved.extent == (keys + most, keys + most)


def test_random_draws_an_ordered_subset_for_each_sentence():
    torch.manual_seed(1)
    counts = torch.zeros(20)
    for _ in range(200):
        moved, _ = Random(20, table=None).source_positions(Positions(7, 7, LEFT), training=True)
        for row, padding in zip(moved.key_positions, LEFT, strict=True):
            real = row[~padding]
            assert (real.diff() > 0).all()
            counts += real.bincount(minlength=20)
    assert len(counts) == 20
    assert (counts / counts.sum() * 20 - 1).abs().max() < 0.3  # each position is as probable


@pytest.mark.parametrize("training", [True, False])
def test_random_positions_of_a_target_do_not_tell_its_length(training):
    """They depend on the source's length only, so the first are the same however many follow."""
    encoded = {"encoder_padding_mask": [torch.tensor([[True, False, False], [False, False, False]])]}
    found = []
    for length in (1, 5, 30):
        torch.manual_seed(1)
        positions = Positions(length, length, torch.zeros(2, length, dtype=torch.bool))
        found.append(Random(40, table=None).target_positions(positions, training, encoded).key_positions)
    for shorter, longer in pairwise(found):
        assert torch.equal(shorter, longer[:, : shorter.size(1)])
        assert (longer.diff() > 0).all()
    assert found[-1][:, 20:].tolist() == [[40 + t - 14 for t in range(20, 30)], [40 + t - 16 for t in range(20, 30)]]


def test_cape_moves_within_its_limits():
    torch.manual_seed(1)
    mask = torch.zeros(500, 6, dtype=torch.bool)
    mode = Cape(global_shift=5, local_shift=0, scale=1.5)
    source, _ = mode.source_positions(Positions(6, 6, mask), training=True)
    scale = source.key_positions[:, 1] - source.key_positions[:, 0]
    shift = source.key_positions[:, 0] / scale
    assert 1 / 1.5 < scale.min() < 0.7
    assert 1.45 < scale.max() < 1.5
    assert -5 < shift.min() < -4.9
    assert 4.9 < shift.max() < 5
    assert scale.log().mean().abs() < 0.03
    local = Cape(global_shift=0, local_shift=0.25, scale=1)
    source, shared = local.source_positions(Positions(6, 6, mask), training=True)
    target = local.target_positions(Positions(6, 6, mask), True, shared)
    for moved in (source, target):
        away = moved.key_positions - torch.arange(6)
        assert 0.24 < away.abs().max() < 0.25
    assert not torch.equal(source.key_positions, target.key_positions)


def test_a_model_shifts_source_and_target_apart_and_ties_them_in_cape(inputs):
    torch.manual_seed(1)
    source, target = positions_seen(model_with("sinusoidal", "shift").train(), inputs)
    base = [Positions(n.keys, n.keys, n.padding_mask).key_positions for n in (source, target)]
    shifts = torch.cat([(source.key_positions - base[0])[:, :1], (target.key_positions - base[1])[:, :1]], dim=1)
    assert len(shifts.unique()) == 6
    flags = "--cape-local-shift", "0", "--cape-scale", "2"
    source, target = positions_seen(model_with("sinusoidal", "cape", *flags).train(), inputs)
    spacings = [n.key_positions[:, -1] - n.key_positions[:, -2] for n in (source, target)]
    assert spacings[0][1] == pytest.approx(float(target.key_positions[1, 1] - target.key_positions[1, 0]))
    assert len(set(spacings[0].tolist())) == 3


# How positions reach the model


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_vectors_at_the_input_are_those_of_given_positions(name):
    embed = build_model(f"transformer_{name}_tiny").float().encoder.embed_positions
    tokens = torch.full((3, 7), 5).masked_fill(LEFT, PAD)
    further = torch.full((1, 40), 5)
    at_4 = Positions(7, 7, LEFT).moved(Positions(7, 7, LEFT).key_positions + 4, 11)
    with use_positions(StackPositions(at_4)):
        found = embed(tokens)
    for row, vectors, padding in zip(at_4.key_positions, found, LEFT, strict=True):
        assert torch.equal(vectors[~padding], embed(further)[0][row[~padding]])
        assert (vectors[padding] == 0).all()


def test_sinusoids_at_real_positions_equal_plain_loops():
    embed = build_model("transformer_sinusoidal_tiny").encoder.embed_positions  # double precision
    torch.manual_seed(1)
    places = 30 * torch.rand(3, 7, dtype=torch.float64)
    with use_positions(StackPositions(Positions(7, 7, LEFT).moved(places, 7))):
        found = embed(torch.full((3, 7), 5).masked_fill(LEFT, PAD))
    for b, j in (~LEFT).nonzero().tolist():
        for c in range(8):
            # fairseq's frequencies are in single precision, and its position 0 is in row 2
            angle = (float(places[b, j]) + 2) * float(torch.tensor(-c * math.log(10000) / 7).exp())
            assert abs(found[b, j, c] - math.sin(angle)) < 1e-5
            assert abs(found[b, j, 8 + c] - math.cos(angle)) < 1e-5


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in ENCODINGS), ("fire", {"fire_threshold": 1e-3, "bidirectional": False})],
)
def test_an_encoding_reads_what_it_declares(name, options):
    """Attention changes with a shift or with gaps exactly if the encoding's class says so."""
    torch.manual_seed(2)
    encoding = build_encoding(name, num_heads=2, head_dim=8, **options).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    q, k, v = torch.randn(3, 3, 2, 7, 8, dtype=torch.float64)

    def output(change, extent):
        plain = Positions(7, 7, LEFT)
        positions = plain.moved(change(plain.key_positions), extent)
        return attend(q, k, v, encoding, LEFT, positions=positions)[0].transpose(1, 2)[~LEFT]

    plain = output(lambda p: p, 7)
    expected = attend(q, k, v, encoding, LEFT)[0].transpose(1, 2)[~LEFT]
    torch.testing.assert_close(plain, expected, **EXACT)  # the usual positions, given
    changes = [not torch.allclose(plain, output(lambda p: f(p), 30)) for f in (lambda p: p + 5, lambda p: 2 * p)]  # noqa: B023
    cls = type(encoding)
    assert changes == [cls.facts.reads == "integers", cls.facts.reads in ("integers", "reals")]
    if cls.facts.reads == "reals":
        assert not torch.allclose(plain, output(lambda p: 1.03 * p, 30))


@pytest.mark.parametrize("name", ["rotary", "diet_abs", "tupe_rel", "forget", "fire"])
def test_blocks_of_queries_have_the_given_positions(name, monkeypatch):
    monkeypatch.setattr(backends, "BLOCK_LOGITS", 1)
    torch.manual_seed(2)
    options = {"fire_threshold": 1.0} if name == "fire" else {}  # then the length of the sentence matters
    encoding = build_encoding(name, num_heads=2, head_dim=8, **options).double()
    q, k, v = torch.randn(3, 3, 2, 40, 8, dtype=torch.float64)
    mask = torch.zeros(3, 40, dtype=torch.bool)
    moved = Positions(40, 40, mask).moved(torch.randint(90, (3, 40)).sort(1).values, 90)
    later = torch.ones(40, 40, dtype=torch.bool).triu(1)
    one, other = (
        attend(q, k, v, encoding, mask, later, positions=moved, backend=backend)[0] for backend in ("blocks", "eager")
    )
    torch.testing.assert_close(one, other, **EXACT)


# Every encoding with every mode


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_trains_a_step_or_is_refused_in_one_sentence(name, mode, inputs):
    sides = {name, ENCODINGS[name].facts.in_decoder or name}
    expected = combined({effect(mode, ENCODINGS[side], ENCODINGS[side].facts.input_positions) for side in sides})
    if expected != WORKS:
        words = "is not defined for" if expected == UNDEFINED else "has no effect on"
        with pytest.raises(FlagError, match=f"^--position-augmentation {mode} {words} [^.]*\\.$"):
            build_model(f"transformer_{name}_tiny", "--position-augmentation", mode)
        return
    model = model_with(name, mode)
    plain = logits(model, *inputs)
    torch.manual_seed(1)
    one, other = (logits(model.train(), *inputs) for _ in range(2))
    assert not torch.allclose(one, plain)
    assert not torch.allclose(one, other)  # each pass has its own draw
    one.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


# What stays as it was


def trained(inputs, *flags):
    """Losses and parameters of three updates with dropout, and the state of the random generator after them."""
    model = build_model("transformer_sinusoidal_tiny", "--dropout", "0.1", *flags).float().train()
    torch.manual_seed(4)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(3):
        loss = logits(model, *inputs).log_softmax(-1)[..., 4].mean().neg()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses, list(model.parameters()), torch.get_rng_state()


def test_without_augmentation_a_training_draws_and_learns_what_it_did(inputs):
    losses, parameters, state = trained(inputs)
    same, same_parameters, same_state = trained(inputs, "--position-augmentation", "none")
    assert losses == same
    assert all(map(torch.equal, parameters, same_parameters))
    assert torch.equal(state, same_state)
    assert trained(inputs, "--position-augmentation", "shift")[0] != losses


@pytest.mark.parametrize("mode", ["shift", "cape"])
def test_evaluation_is_without_augmentation(mode, inputs):
    plain, model = build_model("transformer_sinusoidal_tiny"), model_with("sinusoidal", mode)
    assert torch.equal(logits(plain, *inputs), logits(model, *inputs))
    assert torch.equal(plain.position_version, model.position_version)


RANDOM = ["learned", "rotary", "diet_abs_lin"]
SHORT = "--max-source-positions", "60", "--max-target-positions", "60"


def scores_of(model, source, tokens):
    """The log-probabilities of a translation's tokens in a full pass."""
    scores = logits(model, source[None], shift_right([tokens])[0][None]).log_softmax(-1)[0]
    return scores.gather(1, tokens[:, None])[:, 0]


@pytest.mark.parametrize("name", RANDOM)
def test_random_positions_at_evaluation_serve_translation(task, name):
    """Cached decoding with reordered beams equals full passes, and a sentence alone the same sentence in a batch."""
    model, sources = model_with(name, "random", *SHORT), sentences(task, [7, 2, 4])
    plain = enlarge_positions(build_model(f"transformer_{name}_tiny", *SHORT))
    together = translate(model, task, batch(task, sources, left_pad=True))
    for source, found in zip(sources, together, strict=True):
        alone = translate(model, task, source[None])[0]
        assert [h["tokens"].tolist() for h in found] == [h["tokens"].tolist() for h in alone]
        for hypothesis in found:
            full = scores_of(model, source, hypothesis["tokens"])
            torch.testing.assert_close(hypothesis["positional_scores"].double(), full, rtol=0, atol=1e-5)
            assert not torch.allclose(full, scores_of(plain, source, hypothesis["tokens"]), atol=1e-3)


@pytest.mark.parametrize(
    ("name", "mode"), [("sinusoidal", "shift"), ("sinusoidal", "cape"), ("sinusoidal", "random"), ("pope", "random")]
)
def test_a_translation_in_training_mode_draws_once(task, name, mode):
    """fairseq's modules may stay in training mode while they translate, for example in a loss of sequences."""
    model = model_with(name, mode).train()
    source = sentences(task, [5])[0][None]
    encoded = model.encoder(source, torch.tensor([6]))
    state, tokens = {}, torch.tensor([[2, 5, 6, 7]])
    steps = [model.decoder(tokens[:, : n + 1], encoded, incremental_state=state)[0] for n in range(4)]
    full = model.eval().decoder(tokens, encoded)[0]
    torch.testing.assert_close(torch.cat(steps, dim=1), full, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "mode"), [("tupe_abs", "shift"), ("rotary", "cape"), ("diet_abs", "random")])
def test_activation_checkpointing_sees_the_same_positions(name, mode, inputs):
    gradients = []
    for flags in ((), ("--checkpoint-activations",)):
        model = model_with(name, mode, *flags).train()
        torch.manual_seed(6)
        first, second = logits(model, *inputs), logits(model, *(part[:1] for part in inputs))
        (first.square().sum() + second.square().sum()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-8)


def test_checkpoints_of_different_modes_are_of_different_models():
    """Their records of positions are the same, and other flags of positions count by these alone."""
    model = {"_name": "transformer_t5_tiny", "position_augmentation": "random", "clipping_distance": 3}
    state = {"cfg": {"model": model}, "model": {"position_version": torch.zeros(1)}}
    assert training_settings(state) == {"model": "transformer_t5_tiny", "position_augmentation": "random"}
