"""Conformance tests of the whole model, and comparisons with stock fairseq."""

import copy
import gc
import io
import math
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.modules import FairseqDropout

from fairseq_posenc.architectures import SIZES, architecture_name
from fairseq_posenc.attention import backends
from fairseq_posenc.attention.module import FusedCrossAttention
from fairseq_posenc.compat import COPIES
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.contract.options import flag
from fairseq_posenc.model import PositionMismatch, PositionTransformer, fine_tuning
from fairseq_posenc.position_record import POSITION_RECORD, parse_record
from fairseq_posenc.positions import Positions
from tests.models import (
    batch,
    build_model,
    enlarge_positions,
    make_task,
    sentences,
    shift_right,
    translate,
)
from tests.variants import IN_MODELS


def arguments_of(name, options):
    return [
        architecture_name(name, "tiny"),
        *(text for key, value in options.items() for text in (flag(key), str(value).lower())),
    ]


def variant(name, options, *flags):
    return enlarge_positions(build_model(*arguments_of(name, options), *flags))


def logits(model, source, previous):
    lengths = source.ne(model.encoder.padding_idx).sum(1)
    return model(source, lengths, previous)[0]


@pytest.fixture(scope="module")
def task():
    return make_task()


@pytest.fixture(scope="module")
def pairs(task):
    return sentences(task, [7, 4, 2]), sentences(task, [5, 6, 3], seed=6)


def test_every_encoding_has_every_size():
    for name in ENCODINGS:
        for size in SIZES:
            assert ARCH_MODEL_REGISTRY[architecture_name(name, size)] is PositionTransformer


@pytest.mark.parametrize(("name", "options"), IN_MODELS)
def test_sentence_alone_equals_sentence_in_a_batch(task, pairs, name, options):
    """To 1e-6, because fairseq's own cross-attention computes the softmax in single precision."""
    model, (sources, targets) = variant(name, options), pairs
    if not options:  # beyond the default clipping distances and the exact buckets
        sources, targets = [*sources, *sentences(task, [140])], [*targets, *sentences(task, [135], seed=6)]
    inputs = shift_right(targets)
    alone = [logits(model, *(row[None] for row in pair))[0] for pair in zip(sources, inputs, strict=True)]
    for left_pad_source in (True, False):
        together = logits(model, batch(task, sources, left_pad_source), batch(task, inputs, left_pad=False))
        for row, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(row[: len(expected)], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), IN_MODELS)
def test_cached_beam_search_scores_equal_a_full_pass(task, pairs, name, options):
    """Scores in incremental decoding with reordered beams equal those of a full pass, and a
    sentence has the same translation in a left-padded batch and alone.
    """
    model, sources = variant(name, options), pairs[0][::2]
    together = translate(model, task, batch(task, sources, left_pad=True), beam=2)
    alone = translate(model, task, sources[1][None], beam=2)[0]
    assert [h["tokens"].tolist() for h in together[1]] == [h["tokens"].tolist() for h in alone]
    for source, hypotheses in zip(sources, together, strict=True):
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            scores = logits(model, source[None], shift_right([tokens])[0][None]).log_softmax(-1)
            full = scores[0].gather(1, tokens[:, None])[:, 0]
            torch.testing.assert_close(hypothesis["positional_scores"].double(), full, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "options"), IN_MODELS)
def test_gradients_reach_every_parameter_also_with_activation_checkpointing(task, pairs, name, options):
    """Two passes before one backward: the first is recomputed with its own positions, not with those of the second.

    Outputs in training are those of evaluation.
    """
    sources, targets = pairs
    passes = (
        (batch(task, sources, True), batch(task, shift_right(targets), False)),
        (sources[1][None], shift_right(targets)[1][None]),
    )
    gradients = []
    for flags in ([], ["--checkpoint-activations"]):
        model = variant(name, options, *flags)
        evaluated = logits(model, *passes[0])
        first, second = (logits(model.train(), *one) for one in passes)
        # In evaluation, fairseq's cross-attention normalizes in single precision.
        torch.testing.assert_close(first, evaluated, rtol=0, atol=1e-6)
        (first.square().sum() + second.square().sum()).backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for parameter_name, gradient in gradients[0].items():
        assert gradient.isfinite().all(), parameter_name
        # These may add the same to all logits of a query, which changes no weight.
        no_effect = parameter_name.endswith(("k_proj.bias", "position_encoding.output.bias"))
        if "fire_threshold" in options:  # times its random factor, it is shorter than all sentences
            no_effect |= parameter_name.endswith("threshold_scale")
        assert gradient.abs().sum() > 0 or no_effect, parameter_name
        torch.testing.assert_close(gradients[1][parameter_name], gradient, rtol=0, atol=1e-8)


@pytest.mark.parametrize("left_pad", [False, True])
def test_fused_cross_attention_trains_as_fairseqs(task, pairs, left_pad):
    """With padding and, in the second pass, without."""
    sources, targets = pairs
    passes = (
        (batch(task, sources, left_pad), batch(task, shift_right(targets), False)),
        (sources[0][None], shift_right(targets)[0][None]),
    )
    outputs, gradients = [], []
    for backend in ("auto", "sdpa"):
        model = variant("sinusoidal", {}, "--attention-backend", backend).train()
        outputs.append(torch.cat([logits(model, *one).flatten() for one in passes]))
        outputs[-1].square().sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-6)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-5)
    assert not torch.equal(*outputs)


@pytest.mark.parametrize(
    ("arch", "flags", "fused"),
    [
        ("sinusoidal", [], False),
        ("nopos", [], False),
        ("learned", ["--attention-backend", "sdpa"], True),
        ("sinusoidal", ["--source-position-encoding", "shaw"], True),
        ("rotary", [], True),
        ("rotary", ["--attention-backend", "eager"], False),
    ],
)
def test_cross_attention_is_fused_in_training_where_attention_is_not_stocks(
    task, pairs, monkeypatch, arch, flags, fused
):
    model = build_model(f"transformer_{arch}_tiny", *flags)
    between = [layer.encoder_attn for layer in model.decoder.layers]
    assert [isinstance(attention, FusedCrossAttention) for attention in between] == [fused] * 2
    inputs = [batch(task, rows, True) for rows in (pairs[0], shift_right(pairs[1]))]
    weights = {}
    for training in (False, True):
        asked = model.train(training).decoder(inputs[1], model.encoder(inputs[0]), alignment_layer=0, alignment_heads=1)
        weights[training] = asked[1]["attn"][0]
    torch.testing.assert_close(weights[True], weights[False], rtol=0, atol=1e-6)
    assert weights[True].shape == (3, 7, 8)


@pytest.mark.parametrize(
    ("name", "length", "dropout"), [("t5", 7, 0.3), ("t5", 40, 0.3), ("shaw", 40, 0.3), ("diet_rel", 40, 0)]
)
def test_activation_checkpointing_recomputes_the_same(task, monkeypatch, name, length, dropout):
    """With blocks of 16 queries, which are recomputed too, and without."""
    monkeypatch.setattr(backends, "LONG", 32)
    monkeypatch.setattr(backends, "BLOCK_LOGITS", 1)
    source, target = sentences(task, [length])[0][None], sentences(task, [length], seed=6)[0]
    gradients = []
    for flags in (["--attention-backend", "sdpa"] if dropout == 0 else [], ["--checkpoint-activations"]):
        model = variant(name, {}, "--attention-dropout", str(dropout), *flags).train()
        torch.manual_seed(7)
        logits(model, source, shift_right([target])[0][None]).square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for parameter_name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][parameter_name], gradient, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("name", "options"), IN_MODELS)
def test_saving_or_copying_preserves_the_model(task, pairs, name, options):
    model, (sources, targets) = variant(name, options), pairs
    inputs = batch(task, sources, True), batch(task, shift_right(targets), False)
    expected = logits(model, *inputs)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = build_model(*arguments_of(name, options), seed=9)
    loaded.load_state_dict(torch.load(file))
    assert torch.equal(logits(loaded, *inputs), expected)
    other = copy.deepcopy(model)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)  # the copy shares no tensor with the original
    torch.testing.assert_close(logits(other, *inputs), expected, rtol=0, atol=1e-12)


LIMITS = ("--max-source-positions", "12", "--max-target-positions", "12")


# `learned` is fairseq's own module; fairseq's commands check the same limit.
@pytest.mark.parametrize("name", sorted(set(ENCODINGS) - {"learned"}))
def test_only_encodings_with_absolute_tables_refuse_longer_sentences(task, name):
    model, source = build_model(architecture_name(name, "tiny"), *LIMITS), sentences(task, [20])[0][None]
    if "max_positions" in ENCODINGS[name].options:
        with pytest.raises(ValueError, match=r"sequences of at most 12 positions, not 21: .*--max-source"):
            model.encoder(source)
    else:
        assert model.encoder(source)["encoder_out"][0].isfinite().all()


def test_shared_projections_are_attentions(task, pairs):
    """They are current in each pass, and stored once in the checkpoint."""
    model = variant("deberta", {"share_key_projection": True})
    assert not [name for name in model.state_dict() if "position_encoding" in name and "relative_vectors" not in name]
    source, previous = batch(task, pairs[0], True), batch(task, shift_right(pairs[1]), False)
    before = logits(model, source, previous)
    attention = model.encoder.layers[0].self_attn
    attention.q_proj = copy.deepcopy(attention.q_proj)
    torch.nn.init.normal_(attention.q_proj.weight)
    assert not torch.allclose(logits(model, source, previous), before)
    assert attention.position_encoding.content_projections[0] is attention.q_proj


@pytest.mark.parametrize("name", ENCODINGS)
def test_translates_in_half_precision(task, pairs, name):
    model = variant(name, {}).half()
    found = translate(model, task, batch(task, pairs[0], True), beam=2)
    assert all(hypothesis["positional_scores"].isfinite().all() for row in found for hypothesis in row)


@pytest.mark.parametrize(
    ("sharing", "tables", "heads"), [("none", 2, 2), ("head", 2, 1), ("layer", 1, 2), ("all", 1, 1)]
)
@pytest.mark.parametrize("name", [name for name, cls in ENCODINGS.items() if "position_sharing" in cls.options])
def test_position_sharing_determines_the_tables(name, sharing, tables, heads):
    model = build_model(architecture_name(name, "tiny"), "--position-sharing", sharing)
    for stack in (model.encoder, model.decoder):
        found = {}
        for layer in stack.layers:
            for key, table in layer.self_attn.position_encoding.named_parameters():
                if not key.startswith(("projection.", "gate_")):  # Linformer's projections and gates are not shared
                    found.setdefault(key, {})[id(table)] = table
        assert found
        for key, of_layers in found.items():
            assert len(of_layers) == tables
            if name != "fire" or key.startswith("output."):  # heads have the other parameters of fire in common
                assert {len(table) for table in of_layers.values()} == {heads}
    both = [stack.layers[0].self_attn.position_encoding for stack in (model.encoder, model.decoder)]
    assert both[0] is not both[1]


@pytest.mark.parametrize("name", [name for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention])
def test_cross_attention_ignores_left_padding_of_the_source(task, name):
    """Also with one remaining sentence in the batch, and when fairseq sets the beam size of the modules."""
    model = variant(name, {"cross_attention_positions": True})
    for layer in model.decoder.layers:
        layer.encoder_attn.set_beam_size(3)
    sources = sentences(task, [9, 4, 2])
    together = translate(model, task, batch(task, sources, left_pad=True), beam=3)
    for source, hypotheses in zip(sources, together, strict=True):
        padded = batch(task, [sources[0], source], left_pad=True)[1:]  # one sentence with padding
        for tokens in (source[None], padded):
            alone = translate(model, task, tokens, beam=3)[0]
            assert [h["tokens"].tolist() for h in hypotheses] == [h["tokens"].tolist() for h in alone]


@pytest.mark.parametrize("training", [False, True])
def test_tensors_of_a_pass_are_freed_after_it(task, pairs, monkeypatch, training):
    """Without the garbage collector, which does not know when GPU memory is scarce."""
    model, made = variant("t5", {"cross_attention_positions": True}).train(training), []
    create = Positions.__init__
    monkeypatch.setattr(
        Positions, "__init__", lambda self, *args, **rest: made.append(weakref.ref(self)) or create(self, *args, **rest)
    )
    source, previous = batch(task, pairs[0], True), batch(task, shift_right(pairs[1]), False)
    gc.collect()
    gc.disable()
    try:
        output = logits(model, source, previous)
        if training:
            output.sum().backward()
        del output
        assert len(made) == 3
        assert not [reference for reference in made if reference() is not None]
    finally:
        gc.enable()


def test_one_model_serves_several_threads(task):
    model = variant("tupe_rel", {})
    rows = sentences(task, [9, 5, 3, 7])
    batches = [batch(task, rows[:n], left_pad=left) for n in (1, 2, 4) for left in (True, False)]
    previous = shift_right([rows[1]])[0]
    inputs = [(tokens, previous.expand(len(tokens), -1)) for tokens in batches] * 10
    expected = [logits(model, *pair) for pair in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda pair: logits(model, *pair), inputs))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


# Comparisons with stock fairseq


@pytest.mark.parametrize(
    ("name", "flags"), [("sinusoidal", []), ("learned", ["--encoder-learned-pos", "--decoder-learned-pos"])]
)
@pytest.mark.parametrize("norm", [[], ["--encoder-normalize-before", "--decoder-normalize-before"]])
def test_stock_checkpoint_gives_the_same_outputs(task, pairs, name, flags, norm):
    stock = build_model("transformer_tiny", *flags, *norm).float()
    ours = build_model(architecture_name(name, "tiny"), *norm, seed=2).float()
    ours.load_state_dict(stock.state_dict(), strict=True)
    sources, targets = pairs
    source, previous = batch(task, sources, True), batch(task, shift_right(targets), False)
    for mode in (True, False):
        assert torch.equal(logits(ours.train(mode), source, previous), logits(stock.train(mode), source, previous))
    for model in (ours, stock):
        logits(model.train(), source, previous).square().sum().backward()
    for key, parameter in stock.named_parameters():
        if key.rpartition(".")[2] in COPIES:
            continue
        gradient = dict(ours.named_parameters())[key].grad
        if ".self_attn." in key and key.endswith("_proj.bias"):  # summed in another memory layout
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-4)
        else:
            assert torch.equal(gradient, parameter.grad), key
    ours.eval()
    stock.eval()
    for mine, theirs in zip(translate(ours, task, source), translate(stock, task, source), strict=True):
        assert [h["tokens"].tolist() for h in mine] == [h["tokens"].tolist() for h in theirs]
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a["positional_scores"], b["positional_scores"], rtol=0, atol=1e-5)


def test_same_seed_gives_the_same_initial_weights_as_stock():
    stock, ours = build_model("transformer_tiny"), build_model("transformer_sinusoidal_tiny")
    own = ours.state_dict()
    for name, tensor in stock.state_dict().items():
        if name.rpartition(".")[2] not in COPIES:
            assert torch.equal(own.pop(name), tensor) or name.endswith("_float_tensor")  # 0.12.2 does not fill it
    assert list(own) == ["position_version"]


@pytest.mark.parametrize("name", ENCODINGS)
def test_stock_checkpoint_fine_tunes_into_every_encoding(name):
    stock = build_model("transformer_tiny").state_dict()
    ours = build_model(architecture_name(name, "tiny"), seed=2)
    before = {key: value.clone() for key, value in ours.state_dict().items()}
    with fine_tuning():
        ours.load_state_dict(stock)
    for key, tensor in ours.state_dict().items():
        if key.endswith("_float_tensor"):  # a buffer of fairseq 0.12.2 that is never filled
            continue
        is_new = "position_encoding" in key or key == POSITION_RECORD or key not in stock
        assert torch.equal(tensor, before[key] if is_new else stock[key]), key
        assert not is_new or "position" in key


def test_fine_tuning_keeps_position_parameters_of_the_same_shape():
    learned = build_model("transformer_learned_tiny").state_dict()
    ours = build_model("transformer_shaw_tiny", "--input-positions", "learned", seed=2)
    fresh = ours.state_dict()["encoder.layers.0.self_attn.position_encoding.relative_keys"].clone()
    with fine_tuning():
        ours.load_state_dict(learned)
    own = ours.state_dict()
    assert torch.equal(own["encoder.embed_positions.weight"], learned["encoder.embed_positions.weight"])
    assert torch.equal(own["encoder.layers.0.self_attn.position_encoding.relative_keys"], fresh)
    wider = build_model("transformer_shaw_tiny", "--clipping-distance", "20", seed=3)
    with fine_tuning():
        wider.load_state_dict(own)
    assert wider.encoder.layers[0].self_attn.position_encoding.relative_keys.shape[1] == 41
    assert torch.equal(wider.encoder.layers[0].fc1.weight, own["encoder.layers.0.fc1.weight"])


@pytest.mark.parametrize(
    ("trained", "wanted", "kept"),
    [("huang4", "huang3", False), ("t5", "gated_t5", True), ("tupe_rel", "tupe_abs", True)],
)
def test_fine_tuning_keeps_position_parameters_of_the_same_meaning_only(trained, wanted, kept):
    theirs = build_model(f"transformer_{trained}_tiny").state_dict()
    ours = build_model(f"transformer_{wanted}_tiny", seed=2)
    before = {key: value.clone() for key, value in ours.state_dict().items()}
    with fine_tuning():
        ours.load_state_dict(theirs)
    common = [key for key in before if ".position_encoding." in key and key in theirs]
    assert common
    for key in common:
        assert torch.equal(ours.state_dict()[key], theirs[key] if kept else before[key]), key


@pytest.mark.parametrize(
    ("trained", "wanted"),
    [
        (["shaw", "--clipping-distance", "4"], ["shaw", "--clipping-distance", "8"]),
        (["sinusoidal"], ["nopos"]),
        ([""], ["sinusoidal", "--sinusoids", "paper"]),
        ([""], ["nopos"]),
        ([""], ["shaw"]),
        (["t5", "--segment-separator", "w4"], ["t5", "--segment-separator", "w3"]),
        (["diet_abs"], ["diet_abs", "--max-target-positions", "500"]),
    ],
)
def test_a_checkpoint_with_other_positions_is_refused(trained, wanted):
    """An empty name is stock fairseq's."""
    theirs, ours = (
        build_model("_".join(filter(None, ("transformer", name, "tiny"))), *flags) for name, *flags in (trained, wanted)
    )
    with pytest.raises(PositionMismatch, match=r"was trained with other positions .*--finetune-from-model"):
        ours.load_state_dict(theirs.state_dict())


WIDE = ("--encoder-embed-dim", "36", "--encoder-attention-heads", "4")


@pytest.mark.parametrize(
    ("name", "flags", "recorded"),
    [
        (
            "shaw",
            ("--clipping-distance", "3", "--relative-keys", "true", "--relative-values", "false"),
            {"clipping_distance": 3, "relative_values": False},
        ),
        ("shaw", ("--clipping-distance", "16", "--input-positions", "none"), {}),
        ("t5", ("--target-position-encoding", "t5", "--cross-attention-positions", "false", "--bias-gain", "1"), {}),
        ("sinusoidal", ("--sinusoids", "fairseq", "--attention-backend", "eager"), {}),
        ("shaw", ("--segment-separator", "w3", "--num-segments", "2"), {"segment_separator": "w3"}),
        (
            "alibi",
            ("--urpe", "true", "--target-position-encoding", "rotary", "--rotary-base", "1e4"),
            {"urpe": True, "target": {"encoding": "rotary"}},
        ),
        ("learned", ("--bias-gain", "auto"), {"input_gain": 4.0}),
        (
            "alibi",
            ("--target-position-encoding", "t5", "--bias-gain", "2"),
            {"target": {"encoding": "t5", "bias_gain": 2}},
        ),
        (
            "t5",
            ("--target-position-encoding", "diet_rel", "--decoder-attention-heads", "4", "--bias-gain", "auto"),
            {"bias_gain": math.sqrt(8), "target": {"encoding": "diet_rel", "bias_gain": 2}},
        ),
        (
            "t5",
            ("--input-positions", "learned", "--bias-gain", "6", *WIDE),
            {"input_positions": "learned", "bias_gain": 6, "input_gain": 6},
        ),
    ],
)
def test_a_checkpoint_records_the_encoding_and_options_that_are_not_at_their_defaults(name, flags, recorded):
    """Gains as numbers in each stack where they act: the root of a head's width, or of the embeddings' for auto."""
    model = build_model(f"transformer_{name}_tiny", *flags)
    assert parse_record(model.position_version) == {"encoding": name, **recorded}


RANDOM = ("--position-augmentation", "random")


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("nopos", ["--clipping-distance", "4"], "--clipping-distance has no meaning for"),
        ("sinusoidal", ["--no-token-positional-embeddings"], "--no-token-positional-embeddings contradicts"),
        ("shaw", ["--encoder-learned-pos"], "--encoder-learned-pos contradicts .*--input-positions"),
        ("shaw", ["--cross-self-attention"], "--cross-self-attention cannot be used"),
        ("shaw", ["--cross-attention-positions", "true"], "shaw does not support cross-attention; .*diet_rel"),
        ("shaw", ["--target-position-encoding", "diet_abs_lin"], "decoder; use diet_abs instead"),
        ("t5", ["--cross-attention-positions", "true", "--no-cross-attention"], "--cross-attention-positions .* --no-"),
        ("shaw", ["--sinusoids", "paper"], "--sinusoids has no meaning for transformer_shaw_tiny"),
        ("shaw", ["--bias-gain", "1"], "--bias-gain has no meaning for transformer_shaw_tiny"),
        ("rotary", ["--target-position-encoding", "alibi", "--xpos", "true"], "--xpos acts in a decoder only"),
        ("rotary", ["--encoder-embed-dim", "18"], "head must be even, not 9"),
        ("t5", ["--segment-separator", "<sep>"], "<sep>.* source dictionary"),
        ("t5", ["--segment-separator", "</s>"], "</s>.* source dictionary"),
        ("t5", ["--num-segments", "3"], "--num-segments has no meaning without --segment-separator"),
        ("xlnet", ["--segment-vectors", "true"], "xlnet with these flags needs segments"),
        ("linformer", ["--segment-separator", "w3"], "linformer does not support segments"),
        ("t5", ["--attention-backend", "flex", "--attention-dropout", "0.1"], "flex cannot be used: .*dropout"),
        ("t5", ["--urpe", "true", "--attention-backend", "sdpa"], "sdpa cannot be used: t5 multiplies .*--urpe"),
        ("diet_abs", ["--urpe", "true", *RANDOM], "random cannot be used with --urpe, .*leave one of"),
        ("sinusoidal", ["--cape-scale", "2"], "--cape-scale has no meaning without --position-augmentation cape"),
        (
            "learned",
            [*RANDOM, "--position-augmentation-max", "2000"],
            "--position-augmentation-max 2000 .* 1024 positions",
        ),
        ("diet_abs", [*RANDOM, "--cross-attention-positions", "true"], "random cannot be used with --cross-attention-"),
        ("rotary", ["--position-augmentation", "cape", "--input-positions", "learned"], "cape is not defined for"),
    ],
)
def test_invalid_flags_are_refused_when_the_model_is_built(name, flags, message):
    with pytest.raises(ValueError, match=message):
        build_model(f"transformer_{name}_tiny", *flags)


# Mixed encodings, cross-attention, segments


def encodings_of(model):
    """Names of the encodings in encoder, decoder and cross-attention."""
    decoder = model.decoder.layers[0]
    found = [model.encoder.layers[0].self_attn, decoder.self_attn, decoder.encoder_attn]
    return [
        attention.position_encoding.name if hasattr(attention, "position_encoding") else None for attention in found
    ]


def test_encoder_and_decoder_may_have_different_encodings_each_with_its_own_defaults():
    flags = ["--source-position-encoding", "shaw", "--cross-attention-positions", "true", "--position-sharing", "head"]
    model = build_model("transformer_t5_tiny", *flags)
    assert encodings_of(model) == ["shaw", "t5", "t5"]
    shaw, t5 = model.encoder.layers[0].self_attn.position_encoding, model.decoder.layers[0].self_attn.position_encoding
    between = model.decoder.layers[0].encoder_attn.position_encoding
    assert (shaw.clipping_distance, t5.bidirectional, between.bidirectional) == (16, False, True)
    assert parse_record(model.position_version) == {
        "encoding": "shaw",
        "position_sharing": "head",
        "target": {"encoding": "t5", "position_sharing": "head"},
        "cross_attention_positions": True,
    }
    default = build_model("transformer_diet_rel_tiny", "--target-position-encoding", "shaw")
    assert encodings_of(default) == ["diet_rel", "shaw", None]
    sides = [stack.layers[0].self_attn.position_encoding for stack in (default.encoder, default.decoder)]
    assert [side.clipping_distance for side in sides] == [128, 16]


def test_input_positions_are_added_on_the_side_that_uses_them():
    model = build_model("transformer_shaw_tiny", "--source-position-encoding", "learned")
    assert model.encoder.embed_positions is not None
    assert model.decoder.embed_positions is None
    assert encodings_of(build_model("transformer_linformer_tiny")) == ["linformer", "sinusoidal", None]
    assert encodings_of(build_model("transformer_diet_abs_lin_tiny")) == ["diet_abs_lin", "diet_abs", None]


DROPOUT = ["--dropout", "0.3", "--attention-dropout", "0.3", "--activation-dropout", "0.3"]


@pytest.mark.parametrize("between", ["true", "false"])
def test_retained_dropout_is_that_of_stock(task, pairs, between):
    stock = build_model("transformer_tiny", *DROPOUT)
    model = build_model("transformer_t5_tiny", "--cross-attention-positions", between, *DROPOUT)
    names, ours = (
        {name: module.module_name for name, module in each.named_modules() if isinstance(module, FairseqDropout)}
        for each in (stock, model)
    )
    assert ours == names
    assert "MultiheadAttention" in names.values()
    retain = SimpleNamespace(retain_dropout=True, retain_dropout_modules=["MultiheadAttention"])
    model.prepare_for_inference_(SimpleNamespace(generation=retain))
    source, previous = batch(task, pairs[0], True), batch(task, shift_right(pairs[1]), False)
    assert not torch.equal(*(logits(model, source, previous) for _ in range(2)))
