"""Conformance tests of the whole model, and comparisons with stock fairseq."""

import copy
import gc
import io
import math
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

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
    gradients,
    log_probabilities,
    logits,
    model_inputs,
    sentences,
    shift_right,
    token_lists,
    translate,
)
from tests.variants import IN_MODELS

SOURCES, TARGETS = sentences([7, 4, 2]), sentences([5, 6, 3], seed=6)
INPUTS = model_inputs(SOURCES, TARGETS)


def command_line(name: str, options: dict[str, Any]) -> list[str]:
    words = (word for key, value in options.items() for word in (flag(key), str(value).lower()))
    return [architecture_name(name, "tiny"), *words]


def variant(name: str, options: dict[str, Any], *flags: str) -> Any:
    return enlarge_positions(build_model(*command_line(name, options), *flags))


def test_every_encoding_has_every_size():
    names = [architecture_name(name, size) for name in ENCODINGS for size in SIZES]
    assert {ARCH_MODEL_REGISTRY[name] for name in names} == {PositionTransformer}


@pytest.mark.parametrize(("name", "options"), IN_MODELS)
def test_sentence_alone_equals_sentence_in_a_batch(name, options):
    """To 1e-6, because fairseq's own cross-attention computes the softmax in single precision."""
    model, sources, targets = variant(name, options), SOURCES, TARGETS
    if not options:  # beyond the default clipping distances and the exact buckets
        sources, targets = [*sources, *sentences([140])], [*targets, *sentences([135], seed=6)]
    alone = [
        logits(model, *model_inputs([source], [target]))[0] for source, target in zip(sources, targets, strict=True)
    ]
    for left_pad_source in (True, False):
        together = logits(model, *model_inputs(sources, targets, left_pad_source))
        for row, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(row[: len(expected)], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), IN_MODELS)
def test_cached_beam_search_scores_equal_a_full_pass(name, options):
    """Scores in incremental decoding with reordered beams equal those of a full pass, and a
    sentence has the same translation in a left-padded batch and alone.
    """
    model, sources = variant(name, options), SOURCES[::2]
    together = translate(model, batch(sources, left_pad=True), beam=2)
    assert token_lists(together[1]) == token_lists(translate(model, sources[1][None], beam=2)[0])
    for source, hypotheses in zip(sources, together, strict=True):
        for hypothesis in hypotheses:
            full = log_probabilities(model, source, hypothesis["tokens"])
            torch.testing.assert_close(hypothesis["positional_scores"].double(), full, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "options"), IN_MODELS)
def test_gradients_reach_every_parameter_also_with_activation_checkpointing(name, options):
    """Two passes before one backward: the first is recomputed with its own positions, not with those of the second.

    Outputs in training are those of evaluation.
    """
    results = []
    for flags in ([], ["--checkpoint-activations"]):
        model = variant(name, options, *flags)
        evaluated = logits(model, *INPUTS)
        outputs, by_parameter = gradients(model.train(), INPUTS, model_inputs(SOURCES[1:2], TARGETS[1:2]))
        # In evaluation, fairseq's cross-attention normalizes in single precision.
        torch.testing.assert_close(outputs[0], evaluated, rtol=0, atol=1e-6)
        results.append(by_parameter)
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-8)
    for parameter_name, gradient in results[0].items():
        assert gradient.isfinite().all(), parameter_name
        # These may add the same to all logits of a query, which changes no weight.
        no_effect = parameter_name.endswith(("k_proj.bias", "position_encoding.output.bias"))
        if "fire_threshold" in options:  # times its random factor, it is shorter than all sentences
            no_effect |= parameter_name.endswith("threshold_scale")
        assert gradient.abs().sum() > 0 or no_effect, parameter_name


def test_fused_cross_attention_trains_as_fairseqs():
    """With padding on either side and without."""
    passes = [INPUTS, model_inputs(SOURCES, TARGETS, left_pad=False), model_inputs(SOURCES[:1], TARGETS[:1])]
    fused, stock = (
        gradients(variant("sinusoidal", {}, "--attention-backend", backend).train(), *passes)
        for backend in ("sdpa", "auto")
    )
    torch.testing.assert_close(fused[0], stock[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(fused[1], stock[1], rtol=1e-5, atol=1e-5)
    assert not torch.equal(fused[0][0], stock[0][0])


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
def test_cross_attention_is_fused_in_training_where_attention_is_not_stocks(arch, flags, fused):
    model = build_model(f"transformer_{arch}_tiny", *flags)
    assert [isinstance(layer.encoder_attn, FusedCrossAttention) for layer in model.decoder.layers] == [fused] * 2
    source, previous = INPUTS
    weights = [
        model.train(training).decoder(previous, model.encoder(source), alignment_layer=0, alignment_heads=1)[1]["attn"][
            0
        ]
        for training in (False, True)
    ]
    torch.testing.assert_close(*weights, rtol=0, atol=1e-6)
    assert weights[0].shape == (3, 7, 8)


@pytest.mark.parametrize(
    ("name", "length", "dropout"), [("t5", 7, 0.3), ("t5", 40, 0.3), ("shaw", 40, 0.3), ("diet_rel", 40, 0)]
)
def test_activation_checkpointing_recomputes_the_same(monkeypatch, name, length, dropout):
    """With blocks of 16 queries, which are recomputed too, and without."""
    monkeypatch.setattr(backends, "LONG", 32)
    monkeypatch.setattr(backends, "BLOCK_LOGITS", 1)
    inputs = model_inputs(sentences([length]), sentences([length], seed=6))
    plain, recomputed = (
        gradients(variant(name, {}, "--attention-dropout", str(dropout), *flags).train(), inputs)[1]
        for flags in (["--attention-backend", "sdpa"] if dropout == 0 else [], ["--checkpoint-activations"])
    )
    torch.testing.assert_close(recomputed, plain, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("name", "options"), IN_MODELS)
def test_saving_or_copying_preserves_the_model(name, options):
    model, file = variant(name, options), io.BytesIO()
    expected = logits(model, *INPUTS)
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = build_model(*command_line(name, options), seed=9)
    loaded.load_state_dict(torch.load(file))
    assert torch.equal(logits(loaded, *INPUTS), expected)
    copied = copy.deepcopy(model)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)  # the copy shares no tensor with the original
    torch.testing.assert_close(logits(copied, *INPUTS), expected, rtol=0, atol=1e-12)


LIMITS = ("--max-source-positions", "12", "--max-target-positions", "12")


# `learned` is fairseq's own module; fairseq's commands check the same limit.
@pytest.mark.parametrize("name", sorted(set(ENCODINGS) - {"learned"}))
def test_only_encodings_with_absolute_tables_refuse_longer_sentences(name):
    model, source = build_model(architecture_name(name, "tiny"), *LIMITS), sentences([20])[0][None]
    if "max_positions" in ENCODINGS[name].options:
        with pytest.raises(ValueError, match=r"sequences of at most 12 positions, not 21: .*--max-source"):
            model.encoder(source)
    else:
        assert model.encoder(source)["encoder_out"][0].isfinite().all()


def test_shared_projections_are_attentions():
    """They are current in each pass, and stored once in the checkpoint."""
    model = variant("deberta", {"share_key_projection": True})
    assert not [name for name in model.state_dict() if "position_encoding" in name and "relative_vectors" not in name]
    before = logits(model, *INPUTS)
    attention = model.encoder.layers[0].self_attn
    attention.q_proj = copy.deepcopy(attention.q_proj)
    torch.nn.init.normal_(attention.q_proj.weight)
    assert not torch.allclose(logits(model, *INPUTS), before)
    assert attention.position_encoding.content_projections[0] is attention.q_proj


@pytest.mark.parametrize("name", ENCODINGS)
def test_translates_in_half_precision(name):
    translations = translate(variant(name, {}).half(), INPUTS[0], beam=2)
    assert all(hypothesis["positional_scores"].isfinite().all() for row in translations for hypothesis in row)


@pytest.mark.parametrize(
    ("sharing", "tables", "heads"), [("none", 2, 2), ("head", 2, 1), ("layer", 1, 2), ("all", 1, 1)]
)
@pytest.mark.parametrize("name", [name for name, cls in ENCODINGS.items() if "position_sharing" in cls.options])
def test_position_sharing_determines_the_tables(name, sharing, tables, heads):
    model = build_model(architecture_name(name, "tiny"), "--position-sharing", sharing)
    stacks = [[layer.self_attn.position_encoding for layer in stack.layers] for stack in (model.encoder, model.decoder)]
    for layers in stacks:
        # Linformer's projections and gates are not shared
        keys = [key for key, _ in layers[0].named_parameters() if not key.startswith(("projection.", "gate_"))]
        assert keys
        for key in keys:
            shared = [layer.get_parameter(key) for layer in layers]
            assert len(set(map(id, shared))) == tables
            if name != "fire" or key.startswith("output."):  # heads have the other parameters of fire in common
                assert {len(table) for table in shared} == {heads}
    assert stacks[0][0] is not stacks[1][0]


@pytest.mark.parametrize("name", [name for name, cls in ENCODINGS.items() if cls.facts.supports_cross_attention])
def test_cross_attention_ignores_left_padding_of_the_source(name):
    """Also with one remaining sentence in the batch, and when fairseq sets the beam size of the modules."""
    model = variant(name, {"cross_attention_positions": True})
    for layer in model.decoder.layers:
        layer.encoder_attn.set_beam_size(3)
    sources = sentences([9, 4, 2])
    together = translate(model, batch(sources, left_pad=True), beam=3)
    for source, hypotheses in zip(sources, together, strict=True):
        padded = batch([sources[0], source], left_pad=True)[1:]  # one sentence with padding
        for tokens in (source[None], padded):
            assert token_lists(hypotheses) == token_lists(translate(model, tokens, beam=3)[0])


@pytest.mark.parametrize("training", [False, True])
def test_tensors_of_a_pass_are_freed_after_it(monkeypatch, training):
    """Without the garbage collector, which does not know when GPU memory is scarce."""
    model, references = variant("t5", {"cross_attention_positions": True}).train(training), []
    create = Positions.__init__
    monkeypatch.setattr(
        *(Positions, "__init__"),
        lambda self, *args, **rest: references.append(weakref.ref(self)) or create(self, *args, **rest),
    )
    gc.collect()
    gc.disable()
    try:
        output = logits(model, *INPUTS)
        if training:
            output.sum().backward()
        del output
        assert [reference() for reference in references] == [None] * 3
    finally:
        gc.enable()


def test_one_model_serves_several_threads():
    model, rows = variant("tupe_rel", {}), sentences([9, 5, 3, 7])
    batches = [batch(rows[:n], left_pad=left) for n in (1, 2, 4) for left in (True, False)]
    previous = shift_right(rows)[1]
    inputs = [(tokens, previous.expand(len(tokens), -1)) for tokens in batches] * 10
    expected = [logits(model, *pair) for pair in inputs]
    with ThreadPoolExecutor(4) as pool:
        outputs = list(pool.map(lambda pair: logits(model, *pair), inputs))
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)


# Comparisons with stock fairseq


@pytest.mark.parametrize(
    ("name", "flags"), [("sinusoidal", []), ("learned", ["--encoder-learned-pos", "--decoder-learned-pos"])]
)
@pytest.mark.parametrize("norm", [[], ["--encoder-normalize-before", "--decoder-normalize-before"]])
def test_stock_checkpoint_gives_the_same_outputs(name, flags, norm):
    stock = build_model("transformer_tiny", *flags, *norm).float()
    ours = build_model(architecture_name(name, "tiny"), *norm, seed=2).float()
    ours.load_state_dict(stock.state_dict(), strict=True)
    assert torch.equal(logits(ours, *INPUTS), logits(stock, *INPUTS))
    (own_outputs, own_gradients), (outputs, stock_gradients) = (gradients(m.train(), INPUTS) for m in (ours, stock))
    assert torch.equal(own_outputs[0], outputs[0])
    for key, gradient in stock_gradients.items():
        if ".self_attn." in key and key.endswith("_proj.bias"):  # summed in another memory layout
            torch.testing.assert_close(own_gradients[key], gradient, rtol=1e-4, atol=1e-4)
        elif key.rpartition(".")[2] not in COPIES:
            assert torch.equal(own_gradients[key], gradient), key
    ours.eval()
    stock.eval()
    for mine, theirs in zip(translate(ours, INPUTS[0]), translate(stock, INPUTS[0]), strict=True):
        assert token_lists(mine) == token_lists(theirs)
        own_scores, scores = ([hypothesis["positional_scores"] for hypothesis in row] for row in (mine, theirs))
        torch.testing.assert_close(own_scores, scores, rtol=0, atol=1e-5)


def test_same_seed_gives_the_same_initial_weights_as_stock():
    stock, ours = build_model("transformer_tiny"), build_model("transformer_sinusoidal_tiny").state_dict()
    for name, tensor in stock.state_dict().items():
        if name.rpartition(".")[2] not in COPIES:
            assert torch.equal(ours.pop(name), tensor) or name.endswith("_float_tensor")  # 0.12.2 does not fill it
    assert list(ours) == ["position_version"]


@pytest.mark.parametrize(
    ("trained", "wanted", "keeps_positions"),
    [
        *(("tiny", f"{name}_tiny", True) for name in ENCODINGS),
        ("learned_tiny", "shaw_tiny --input-positions learned", True),
        ("shaw_tiny", "shaw_tiny --clipping-distance 20", True),
        *(("t5_tiny", "gated_t5_tiny", True), ("tupe_rel_tiny", "tupe_abs_tiny", True)),
        ("huang4_tiny", "huang3_tiny", False),  # of the same shape, but another meaning
    ],
)
def test_fine_tuning_keeps_parameters_of_the_same_name_shape_and_meaning(trained, wanted, keeps_positions):
    theirs = build_model(*f"transformer_{trained}".split()).state_dict()
    model = build_model(*f"transformer_{wanted}".split(), seed=2)
    before = copy.deepcopy(model.state_dict())
    with fine_tuning():
        model.load_state_dict(theirs)
    for key, tensor in model.state_dict().items():
        if key == POSITION_RECORD or key.endswith("_float_tensor"):  # a buffer of fairseq 0.12.2 that is never filled
            continue
        is_kept = key in theirs and theirs[key].shape == tensor.shape
        is_kept &= keeps_positions or ".position_encoding." not in key
        assert torch.equal(tensor, theirs[key] if is_kept else before[key]), key
        assert is_kept or "position" in key


@pytest.mark.parametrize(
    ("trained", "wanted"),
    [
        ("shaw_tiny --clipping-distance 4", "shaw_tiny --clipping-distance 8"),
        ("sinusoidal_tiny", "nopos_tiny"),
        ("tiny", "sinusoidal_tiny --sinusoids paper"),
        *(("tiny", "nopos_tiny"), ("tiny", "shaw_tiny")),
        ("t5_tiny --segment-separator w4", "t5_tiny --segment-separator w3"),
        ("diet_abs_tiny", "diet_abs_tiny --max-target-positions 500"),
    ],
)
def test_a_checkpoint_with_other_positions_is_refused(trained, wanted):
    theirs, ours = (build_model(*f"transformer_{flags}".split()) for flags in (trained, wanted))
    with pytest.raises(PositionMismatch, match=r"was trained with other positions .*--finetune-from-model"):
        ours.load_state_dict(theirs.state_dict())


@pytest.mark.parametrize(
    ("name", "flags", "recorded"),
    [
        ("shaw", "--clipping-distance 3 --relative-values false", {"clipping_distance": 3, "relative_values": False}),
        ("shaw", "--clipping-distance 16 --input-positions none --relative-keys true", {}),
        ("t5", "--target-position-encoding t5 --cross-attention-positions false --bias-gain 1", {}),
        ("sinusoidal", "--sinusoids fairseq --attention-backend eager", {}),
        ("shaw", "--segment-separator w3 --num-segments 2", {"segment_separator": "w3"}),
        (
            *("alibi", "--urpe true --target-position-encoding rotary --rotary-base 1e4"),
            {"urpe": True, "target": {"encoding": "rotary"}},
        ),
        ("learned", "--bias-gain auto", {"input_gain": 4.0}),
        ("alibi", "--target-position-encoding t5 --bias-gain 2", {"target": {"encoding": "t5", "bias_gain": 2}}),
        (
            *("t5", "--target-position-encoding diet_rel --decoder-attention-heads 4 --bias-gain auto"),
            {"bias_gain": math.sqrt(8), "target": {"encoding": "diet_rel", "bias_gain": 2}},
        ),
        (
            *("t5", "--input-positions learned --bias-gain 6 --encoder-embed-dim 36 --encoder-attention-heads 4"),
            {"input_positions": "learned", "bias_gain": 6, "input_gain": 6},
        ),
    ],
)
def test_a_checkpoint_records_the_encoding_and_options_that_are_not_at_their_defaults(name, flags, recorded):
    """Gains as numbers in each stack where they act: the root of a head's width, or of the embeddings' for auto."""
    model = build_model(f"transformer_{name}_tiny", *flags.split())
    assert parse_record(model.position_version) == {"encoding": name, **recorded}


RANDOM = ("--position-augmentation", "random")


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("nopos", ["--clipping-distance", "4"], "--clipping-distance has no meaning for"),
        ("sinusoidal", ["--no-token-positional-embeddings"], "--no-token-positional-embeddings contradicts"),
        ("shaw", ["--encoder-learned-pos"], "--encoder-learned-pos contradicts .*--input-positions"),
        ("shaw", ["--cross-self-attention"], "--cross-self-attention cannot be used"),
        ("pope", ["--cross-attention-positions", "true"], "pope cannot be used between .*; .*diet_rel"),
        ("shaw", ["--cross-position-encoding", "xlnet"], "--cross-position-encoding: xlnet cannot .*; use one of"),
        ("t5", ["--cross-position-encoding", "rotray"], "--cross-position-encoding: .*'rotray' .did you mean rotary"),
        ("t5", ["--cross-position-encoding", "t5", "--cross-attention-positions", "true"], "contradict each other"),
        ("t5", ["--source-position-encoding", "shaw,t5,t5"], "names 3 encodings, but the encoder has 2 layers"),
        ("t5", ["--source-position-encoding", "learned,sinusoidal"], "one kind of position, not learned and sinus"),
        (
            "t5",
            ["--source-position-encoding", "shaw:num_buckets=8"],
            "--source-position-encoding: shaw:num.* is no option of shaw",
        ),
        (
            "t5",
            ["--source-position-encoding", "shaw:clipping-distance=no"],
            "--clipping-distance 'no': must be a whole",
        ),
        ("rotary", ["--cross-start", "after-source"], "--cross-start has no meaning for"),
        ("t5", ["--source-position-encoding", "rotary:cross_start=zero"], "rotary: cross_start has no effect"),
        ("t5", ["--cross-position-encoding", "rotary:xpos=true"], "rotary: xpos has no effect at this place"),
        (
            "t5",
            ["--cross-position-encoding", "learned_qk", "--decoder-embed-dim", "24", "--decoder-output-dim", "24"],
            "learned_qk between source and target .* to the same number",
        ),
        (
            "t5",
            ["--source-position-encoding", "t5,nopos", "--encoder-layers-to-keep", "1"],
            "--encoder-layers-to-keep cannot be used with --source-position-encoding for each layer",
        ),
        ("t5", ["--cross-position-encoding", "nopos"], "nopos cannot be used between source and target"),
        ("t5", ["--source-position-encoding", "t5:num_buckets=8:num_buckets=4"], "num_buckets is given twice"),
        (
            "t5",
            ["--target-position-encoding", "shaw:clipping_distance=2", "--clipping-distance", "3"],
            "whose layers have values of their own",
        ),
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
        ("learned", [*RANDOM, "--position-augmentation-max", "2000"], "-augmentation-max 2000 .* 1024 positions"),
        ("diet_abs", [*RANDOM, "--cross-attention-positions", "true"], "random cannot be used with --cross-attention-"),
        ("rotary", ["--position-augmentation", "cape", "--input-positions", "learned"], "cape is not defined for"),
    ],
)
def test_invalid_flags_are_refused_when_the_model_is_built(name, flags, message):
    with pytest.raises(ValueError, match=message):
        build_model(f"transformer_{name}_tiny", *flags)


# Mixed encodings, cross-attention, segments


def attentions(model: Any) -> list[Any]:
    """The attentions of the first layers: of the encoder, the decoder, and between both."""
    decoder = model.decoder.layers[0]
    return [model.encoder.layers[0].self_attn, decoder.self_attn, decoder.encoder_attn]


def encoding_names(model: Any) -> list[str | None]:
    return [getattr(getattr(attention, "position_encoding", None), "name", None) for attention in attentions(model)]


def test_encoder_and_decoder_may_have_different_encodings_each_with_its_own_defaults():
    flags = ["--source-position-encoding", "shaw", "--cross-attention-positions", "true", "--position-sharing", "head"]
    model = build_model("transformer_t5_tiny", *flags)
    assert encoding_names(model) == ["shaw", "t5", "t5"]
    shaw, t5, between = (attention.position_encoding for attention in attentions(model))
    assert (shaw.clipping_distance, t5.bidirectional, between.bidirectional) == (16, False, True)
    assert parse_record(model.position_version) == {
        **{"encoding": "shaw", "position_sharing": "head", "cross_attention_positions": True},
        "target": {"encoding": "t5", "position_sharing": "head"},
    }
    default = build_model("transformer_diet_rel_tiny", "--target-position-encoding", "shaw")
    assert encoding_names(default) == ["diet_rel", "shaw", None]
    assert [side.position_encoding.clipping_distance for side in attentions(default)[:2]] == [128, 16]


def test_input_positions_are_added_on_the_side_that_uses_them():
    model = build_model("transformer_shaw_tiny", "--source-position-encoding", "learned")
    assert model.encoder.embed_positions is not None
    assert model.decoder.embed_positions is None
    assert encoding_names(build_model("transformer_linformer_tiny")) == ["linformer", "sinusoidal", None]
    assert encoding_names(build_model("transformer_diet_abs_lin_tiny")) == ["diet_abs_lin", "diet_abs", None]


DROPOUT = ["--dropout", "0.3", "--attention-dropout", "0.3", "--activation-dropout", "0.3"]


@pytest.mark.parametrize("between", ["true", "false"])
def test_retained_dropout_is_that_of_stock(between):
    stock = build_model("transformer_tiny", *DROPOUT)
    model = build_model("transformer_t5_tiny", "--cross-attention-positions", between, *DROPOUT)
    theirs, ours = (
        {name: module.module_name for name, module in modules.named_modules() if isinstance(module, FairseqDropout)}
        for modules in (stock, model)
    )
    assert ours == theirs
    assert "MultiheadAttention" in theirs.values()
    retain = SimpleNamespace(retain_dropout=True, retain_dropout_modules=["MultiheadAttention"])
    model.prepare_for_inference_(SimpleNamespace(generation=retain))
    assert not torch.equal(*(logits(model, *INPUTS) for _ in range(2)))
