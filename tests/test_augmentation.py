"""Position augmentation: the positions that each mode gives, where they reach, and what stays as it was."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from fairseq_posenc import attend
from fairseq_posenc.attention import backends
from fairseq_posenc.attention.module import StackPositions, use_positions
from fairseq_posenc.augmentation.choice import MODES, UNDEFINED, WORKS, combined, effect
from fairseq_posenc.augmentation.modes import Cape, Random, SegmentShift, Shift, cape, shifted_positions
from fairseq_posenc.checkpoints.training import training_settings
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.errors import FlagError
from fairseq_posenc.input_positions import SinusoidalPositions
from fairseq_posenc.model import PositionMismatch
from fairseq_posenc.position_record import parse_record
from fairseq_posenc.positions import Positions
from tests.models import (
    PAD,
    batch,
    build_model,
    enlarge_positions,
    gradients,
    log_probabilities,
    logits,
    model_inputs,
    sentences,
    token_lists,
    translate,
)
from tests.variants import causal_mask, make_encoding, make_qkv, padding_mask

LEFT = padding_mask([3, 7, 5], left=True)
EXACT = {"rtol": 0, "atol": 1e-10}
INPUTS = model_inputs(sentences([7, 3, 5]), sentences([4, 6, 2], seed=6))


def model_with(name, mode, *flags):
    return enlarge_positions(build_model(f"transformer_{name}_tiny", "--position-augmentation", mode, *flags))


def positions_seen(model):
    """The positions that the first layers of encoder and decoder see in a pass."""
    seen = []
    for stack in (model.encoder, model.decoder):
        stack.layers[0].register_forward_pre_hook(
            lambda _, args, rest: seen.append(rest["positions"].own), with_kwargs=True
        )
    logits(model, *INPUTS)
    return seen


# The positions of each mode


def golden(name):
    arrays = np.load(Path(__file__).parent / "golden" / f"{name}.npz")
    return {key: torch.from_numpy(value) for key, value in arrays.items()}


def test_shifted_positions_are_those_of_the_authors_code():
    arrays = golden("shape__opennmt")
    plain = Positions(9, 9, torch.zeros(6, 9, dtype=torch.bool))
    shifted = shifted_positions(plain, arrays["shifts"][:, None], 7)
    assert torch.equal(shifted.key_positions.float(), arrays["positions"])
    assert arrays["shifts"].unique().numel() > 2


def test_cape_positions_are_those_of_public_code():
    arrays = golden("cape__gcambara")
    positions = cape(torch.arange(9)[None], arrays["shift"], arrays["local"], arrays["scale"])
    torch.testing.assert_close(positions, arrays["positions"], rtol=0, atol=1e-5)


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
    encoded = {"encoder_padding_mask": [padding_mask([2, 3], left=True)]}
    by_length = []
    for length in (1, 5, 30):
        torch.manual_seed(1)
        positions = Positions(length, length, torch.zeros(2, length, dtype=torch.bool))
        by_length.append(Random(40, table=None).target_positions(positions, training, encoded).key_positions)
    for shorter, longer in pairwise(by_length):
        assert torch.equal(shorter, longer[:, : shorter.size(1)])
        assert (longer.diff() > 0).all()
    assert by_length[-1][:, 20:].tolist() == [[*range(46, 56)], [*range(44, 54)]]


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


def test_a_model_shifts_source_and_target_apart_and_ties_them_in_cape():
    torch.manual_seed(1)
    moved = positions_seen(model_with("sinusoidal", "shift").train())
    shifts = [(n.key_positions - Positions(n.keys, n.keys, n.padding_mask).key_positions)[:, 0] for n in moved]
    assert len(torch.cat(shifts).unique()) == 6
    flags = "--cape-local-shift", "0", "--cape-scale", "2"
    source, target = (n.key_positions for n in positions_seen(model_with("sinusoidal", "cape", *flags).train()))
    spacings = source[:, -1] - source[:, -2]
    assert spacings[1] == pytest.approx(float(target[1, 1] - target[1, 0]))
    assert len(spacings.unique()) == 3


# How positions reach the model


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_vectors_at_the_input_are_those_of_given_positions(name):
    embed = build_model(f"transformer_{name}_tiny").float().encoder.embed_positions
    tokens = torch.full((3, 7), 5).masked_fill(LEFT, PAD)
    further = torch.full((1, 40), 5)
    at_4 = Positions(7, 7, LEFT).moved(Positions(7, 7, LEFT).key_positions + 4, 11)
    with use_positions(StackPositions(at_4)):
        embedded = embed(tokens)
    for row, vectors, padding in zip(at_4.key_positions, embedded, LEFT, strict=True):
        assert torch.equal(vectors[~padding], embed(further)[0][row[~padding]])
        assert (vectors[padding] == 0).all()


def test_sinusoids_at_real_positions_equal_plain_loops():
    embed = build_model("transformer_sinusoidal_tiny").encoder.embed_positions  # double precision
    torch.manual_seed(1)
    places = 30 * torch.rand(3, 7, dtype=torch.float64)
    with use_positions(StackPositions(Positions(7, 7, LEFT).moved(places, 7))):
        sinusoids = embed(torch.full((3, 7), 5).masked_fill(LEFT, PAD))
    for b, j in (~LEFT).nonzero().tolist():
        for c in range(8):
            # fairseq's frequencies are in single precision, and its position 0 is in row 2
            angle = (float(places[b, j]) + 2) * float(torch.tensor(-c * math.log(10000) / 7).exp())
            expected = math.sin(angle), math.cos(angle)
            assert sinusoids[b, j, c::8].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in ENCODINGS), ("fire", {"fire_threshold": 1e-3, "bidirectional": False})],
)
def test_an_encoding_reads_what_it_declares(name, options):
    """Attention changes with a shift or with gaps exactly if the encoding's class says so."""
    encoding, qkv, usual = make_encoding(name, options, dim=8), make_qkv(3, 7, dim=8), Positions(7, 7, LEFT)

    def output(positions):
        return attend(*qkv, encoding, LEFT, positions=positions)[0].transpose(1, 2)[~LEFT]

    places, expected, reads = usual.key_positions, output(None), encoding.facts.reads
    torch.testing.assert_close(output(usual.moved(places, 7)), expected, **EXACT)  # the usual positions, given
    shifted, spread = (output(usual.moved(moved, 30)) for moved in (places + 5, 2 * places))
    assert torch.allclose(shifted, expected) == (reads not in ("integers", "reals"))
    assert torch.allclose(spread, expected) == (reads not in ("integers", "reals", "differences"))
    if reads in ("reals", "differences"):
        assert not torch.allclose(output(usual.moved(1.03 * places, 30)), expected)


@pytest.mark.parametrize("name", ["rotary", "diet_abs", "tupe_rel", "forget", "fire"])
def test_blocks_of_queries_have_the_given_positions(name, monkeypatch):
    monkeypatch.setattr(backends, "BLOCK_LOGITS", 1)
    options = {"fire_threshold": 1.0} if name == "fire" else {}  # then the length of the sentence matters
    encoding, qkv = make_encoding(name, options, dim=8), make_qkv(3, 40, dim=8)
    mask = torch.zeros(3, 40, dtype=torch.bool)
    moved = Positions(40, 40, mask).moved(torch.randint(90, (3, 40)).sort(1).values, 90)
    in_blocks, at_once = (
        attend(*qkv, encoding, mask, causal_mask(40), positions=moved, backend=backend)[0]
        for backend in ("blocks", "eager")
    )
    torch.testing.assert_close(in_blocks, at_once, **EXACT)


# Every encoding with every mode


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_trains_a_step_or_is_refused_in_one_sentence(name, mode):
    sides = {name, ENCODINGS[name].facts.in_decoder or name}
    expected = combined({effect(mode, ENCODINGS[side], ENCODINGS[side].facts.input_positions) for side in sides})
    if expected != WORKS:
        words = "is not defined for" if expected == UNDEFINED else "has no effect on"
        with pytest.raises(FlagError, match=f"^--position-augmentation {mode} {words} [^.]*\\.$"):
            build_model(f"transformer_{name}_tiny", "--position-augmentation", mode)
        return
    model = model_with(name, mode)
    plain = logits(model, *INPUTS)
    (first, second), by_parameter = gradients(model.train(), INPUTS, INPUTS)
    assert not torch.allclose(first, plain)
    assert not torch.allclose(first, second)  # each pass has its own draw
    assert all(gradient.isfinite().all() for gradient in by_parameter.values())


# What stays as it was


def trained(*flags):
    """Losses and parameters of three updates with dropout, and the state of the random generator after them."""
    model = build_model("transformer_sinusoidal_tiny", "--dropout", "0.1", *flags).float().train()
    torch.manual_seed(4)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(3):
        loss = logits(model, *INPUTS).log_softmax(-1)[..., 4].mean().neg()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses, list(model.parameters()), torch.get_rng_state()


def test_without_augmentation_a_training_draws_and_learns_what_it_did():
    plain = trained()
    torch.testing.assert_close(trained("--position-augmentation", "none"), plain, rtol=0, atol=0)
    assert trained("--position-augmentation", "shift")[0] != plain[0]


@pytest.mark.parametrize("mode", ["shift", "cape"])
def test_evaluation_is_without_augmentation(mode):
    plain, model = build_model("transformer_sinusoidal_tiny"), model_with("sinusoidal", mode)
    assert torch.equal(logits(plain, *INPUTS), logits(model, *INPUTS))
    assert torch.equal(plain.position_version, model.position_version)


SHORT = "--max-source-positions", "60", "--max-target-positions", "60"


@pytest.mark.parametrize("name", ["learned", "rotary", "diet_abs_lin"])
def test_random_positions_at_evaluation_serve_translation(name):
    """Cached decoding with reordered beams equals full passes, and a sentence alone the same sentence in a batch."""
    model, sources = model_with(name, "random", *SHORT), sentences([7, 2, 4])
    plain = enlarge_positions(build_model(f"transformer_{name}_tiny", *SHORT))
    together = translate(model, batch(sources, left_pad=True))
    for source, hypotheses in zip(sources, together, strict=True):
        assert token_lists(hypotheses) == token_lists(translate(model, source[None])[0])
        for hypothesis in hypotheses:
            full = log_probabilities(model, source, hypothesis["tokens"])
            torch.testing.assert_close(hypothesis["positional_scores"].double(), full, rtol=0, atol=1e-5)
            assert not torch.allclose(full, log_probabilities(plain, source, hypothesis["tokens"]), atol=1e-3)


@pytest.mark.parametrize(
    ("name", "mode"), [("sinusoidal", "shift"), ("sinusoidal", "cape"), ("sinusoidal", "random"), ("pope", "random")]
)
def test_a_translation_in_training_mode_draws_once(name, mode):
    """fairseq's modules may stay in training mode while they translate, for example in a loss of sequences."""
    model = model_with(name, mode).train()
    encoded = model.encoder(sentences([5])[0][None], torch.tensor([6]))
    state, tokens = {}, torch.tensor([[2, 5, 6, 7]])
    steps = [model.decoder(tokens[:, : n + 1], encoded, incremental_state=state)[0] for n in range(4)]
    full = model.eval().decoder(tokens, encoded)[0]
    torch.testing.assert_close(torch.cat(steps, dim=1), full, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "mode"), [("tupe_abs", "shift"), ("rotary", "cape"), ("diet_abs", "random")])
def test_activation_checkpointing_sees_the_same_positions(name, mode):
    passes = INPUTS, tuple(part[:1] for part in INPUTS)
    plain, recomputed = (
        gradients(model_with(name, mode, *flags).train(), *passes)[1] for flags in ((), ("--checkpoint-activations",))
    )
    torch.testing.assert_close(recomputed, plain, rtol=0, atol=1e-8)


def test_checkpoints_of_different_modes_are_of_different_models():
    """Their records of positions are the same, and other flags of positions count by these alone."""
    model = {"_name": "transformer_t5_tiny", "position_augmentation": "random", "clipping_distance": 3}
    state = {"cfg": {"model": model}, "model": {"position_version": torch.zeros(1)}}
    assert training_settings(state) == {"model": "transformer_t5_tiny", "position_augmentation": "random"}


# Segments and lengths

SEGMENTED = ("--segment-separator", "w3")


def test_segment_shifts_are_those_of_the_authors_code():
    arrays = golden("segment_shift__lupo")
    padding = arrays["positions"].eq(PAD)
    moved = SegmentShift(21).target_positions(Positions(10, 10, padding, segments=arrays["segments"]), False, None)
    assert torch.equal((moved.key_positions + PAD + 1)[~padding], arrays["shifted"][~padding])


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "diet_abs"])
def test_positions_are_higher_in_each_next_segment_also_in_a_translation(name):
    model = enlarge_positions(build_model(f"transformer_{name}_tiny", "--segment-shift", "7", *SEGMENTED))
    separator = model.decoder.dictionary.index("w3")
    source, target = positions_seen(model)
    for tokens, positions in zip(INPUTS, (source, target), strict=True):
        real = tokens.ne(PAD)
        before = (tokens.eq(separator).cumsum(1) - tokens.eq(separator).long())[real]
        plain = (real.cumsum(1) - 1)[real]
        assert torch.equal(positions.key_positions[real], plain + 7 * before)
    for sentence, (best, *_) in zip(INPUTS[0], translate(model, INPUTS[0]), strict=True):
        expected = log_probabilities(model, sentence[sentence.ne(PAD)], best["tokens"]).float()
        torch.testing.assert_close(best["positional_scores"], expected, rtol=0, atol=1e-4)


def test_a_segment_shift_ends_where_the_table_ends_and_does_not_depend_on_the_batch():
    segments = torch.tensor([[0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0]])
    padding = padding_mask([6, 4], left=False)
    moved = SegmentShift(8, table=20).target_positions(Positions(6, 6, padding, segments=segments), True, None)
    assert moved.key_positions.tolist() == [[0, 1, 10, 11, 19, 19], [0, 1, 2, 3, 0, 0]]
    assert moved.extent == (20, 20)


@pytest.mark.parametrize("kind", ["difference", "ratio"])
def test_length_sinusoids_are_those_of_the_authors_code(kind):
    arrays = golden("length_sinusoids__takase")
    embed = SinusoidalPositions(SinusoidalPositionalEmbedding(16, PAD, 64))
    embed.length_encoding = kind
    tokens, lengths = arrays["tokens"], arrays["lengths"]
    own = Positions(9, 9, tokens.eq(PAD))
    with use_positions(StackPositions(own)):
        vectors = embed(tokens) - SinusoidalPositionalEmbedding(16, PAD, 64)(tokens)
    assert torch.equal(own.lengths[:, 0], lengths)
    for b, length in enumerate(lengths.tolist()):
        ours, theirs = vectors[b, :length], arrays[kind][b, :length]
        if kind == "difference":  # their rows are one lower
            ours, theirs = ours[1:], theirs[:-1]
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["difference", "ratio"])
@pytest.mark.parametrize(
    ("sinusoids", "moved"),
    [("fairseq", ()), ("paper", ()), ("fairseq", (*SEGMENTED, "--segment-shift", "7"))],
)
def test_length_encodings_equal_plain_loops_and_ask_for_the_source_length(kind, sinusoids, moved):
    """Lengths are those of the tokens, wherever their positions are moved."""
    flags = "--length-encoding", kind, "--length-ratio", "1.5", "--sinusoids", sinusoids, *moved
    model, plain = (build_model("transformer_sinusoidal_tiny", *words) for words in (flags, flags[4:]))
    width = model.decoder.embed_positions.embedding_dim
    source, target = INPUTS
    lengths = source.ne(PAD).sum(1)

    def vector(p, length):
        row = length - p if kind == "difference" else p
        base = 10000 if kind == "difference" else length
        if sinusoids == "paper":
            angles = [row * base ** (-2 * m / width) for m in range(width // 2)]
            return [f(angle) for angle in angles for f in (math.sin, math.cos)]
        angles = [(row + 2) * base ** (-m / (width // 2 - 1)) for m in range(width // 2)]
        return [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]

    def added(generates):
        """What the flag adds to the decoder's input, in one pass or in the steps of a generation."""
        seen = {}
        for one in (model, plain):
            vectors, state = seen.setdefault(one, []), {} if generates else None
            hook = one.decoder.embed_positions.register_forward_hook(lambda _, args, out, to=vectors: to.append(out))
            for end in range(1, target.size(1) + 1) if generates else (target.size(1),):
                one.decoder(target[:, :end], encoder_out=one.encoder(source, lengths), incremental_state=state)
            hook.remove()
        return torch.cat(seen[model], 1) - torch.cat(seen[plain], 1)

    for generates in (False, True):
        vectors = added(generates)
        for b, p in target.ne(PAD).nonzero().tolist():
            length = round(1.5 * int(lengths[b])) if generates else int(target[b].ne(PAD).sum())
            assert vectors[b, p].tolist() == pytest.approx(vector(p, length), abs=1e-4)
    assert parse_record(model.position_version)["length_encoding"] == kind
    with pytest.raises(PositionMismatch):
        plain.load_state_dict(model.state_dict())


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("sinusoidal", ["--segment-shift", "3"], "--segment-shift has no meaning without --segment-separator"),
        (
            "shaw",
            ["--segment-shift", "3", *SEGMENTED],
            "--segment-shift has no meaning for .*reads no positions .--input-positions adds",
        ),
        ("rotary", ["--segment-shift", "3", *SEGMENTED, "--cross-attention-positions", "true"], "cannot be used with"),
        ("sinusoidal", ["--segment-shift", "3", *SEGMENTED, "--position-augmentation", "shift"], "cannot be used with"),
        ("shaw", ["--length-encoding", "ratio"], "--length-encoding has no meaning without sinusoids in the decoder"),
        ("sinusoidal", ["--length-ratio", "2"], "--length-ratio has no meaning without --length-encoding"),
        ("sinusoidal", ["--length-encoding", "ratio", "--length-ratio", "0"], "must be more than 0"),
    ],
)
def test_segment_shifts_and_length_encodings_that_do_nothing_are_refused(name, flags, message):
    with pytest.raises(FlagError, match=message):
        build_model(f"transformer_{name}_tiny", *flags)
