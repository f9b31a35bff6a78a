"""Which encodings CTranslate2 supports, and its buckets of distances."""

import pytest
import torch

from fairseq_posenc.encodings import ENCODINGS, build_encoding
from fairseq_posenc.export.errors import ExportError
from fairseq_posenc.export.positions import CONVERTERS, NO_REASON, REASONS, biases, export_encoding, without_encoding
from tests.references import bucket

HEADS, WIDTH = 2, 8
EXPORTED = {"nopos", "sinusoidal", "learned", "shaw", "relative_key", "diet_rel", "t5", "rotary", "alibi"}


def build(name, **options):
    if "position_sharing" in ENCODINGS[name].options:
        options.setdefault("position_sharing", "head")
    return build_encoding(name, HEADS, WIDTH, **options)


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_is_exported_or_refused_by_name(name):
    for in_decoder in (False, True):
        if name in CONVERTERS and (in_decoder or name != "alibi"):
            assert name in EXPORTED
            place = export_encoding(build(name), in_decoder, at_input=False)
            assert place.options
        else:
            assert name not in EXPORTED or name == "alibi"
            with pytest.raises(ExportError, match=rf"^CTranslate2 does not support {name}\b.*: .{{10,}}\.$"):
                export_encoding(build(name), in_decoder, at_input=False)


def test_reasons_exist_for_unsupported_encodings_only():
    assert set(REASONS).isdisjoint(CONVERTERS)
    assert set(REASONS) | set(CONVERTERS) <= set(ENCODINGS)


def test_an_encoding_without_converter_or_reason_is_refused():
    encoding = build("nopos")
    unheard = type("Unheard", (type(encoding),), {"name": "unheard"})(HEADS, WIDTH)
    with pytest.raises(ExportError, match=rf"does not support unheard: {NO_REASON}"):
        export_encoding(unheard, in_decoder=False, at_input=False)


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_positions_are_in_attention_or_at_the_input(name):
    if CONVERTERS[name] is without_encoding:
        assert export_encoding(build(name), in_decoder=True, at_input=True).options == {}
        return
    with pytest.raises(ExportError, match=rf"does not support {name} on input positions.*--input-positions none"):
        export_encoding(build(name), in_decoder=True, at_input=True)


@pytest.mark.parametrize("sharing", ["none", "layer"])
@pytest.mark.parametrize("options", [{}, {"relative_keys": False}, {"relative_values": False}])
def test_tables_for_each_head_are_refused_with_the_flag_that_shares_them(sharing, options):
    encoding = build("shaw", position_sharing=sharing, **options)
    with pytest.raises(ExportError, match=r"shaw with a table for each head.*--position-sharing head"):
        export_encoding(encoding, in_decoder=False, at_input=False)


@pytest.mark.parametrize("slopes", ["learned", "two-sided"])
def test_learned_slopes_are_refused(slopes):
    encoding = build("alibi", alibi_slopes=slopes, bidirectional=False)
    with pytest.raises(ExportError, match=r"alibi with learned slopes: .*--alibi-slopes fixed"):
        export_encoding(encoding, in_decoder=True, at_input=False)


def test_segments_are_refused():
    encoding = build("diet_rel", num_segments=2)
    with pytest.raises(ExportError, match=r"segments.*--segment-separator"):
        export_encoding(encoding, in_decoder=False, at_input=False)


def test_xpos_is_refused_in_a_decoder_and_has_no_effect_in_an_encoder():
    with pytest.raises(ExportError, match=r"rotary with --xpos: .*train without --xpos"):
        export_encoding(build("rotary", xpos=True, bidirectional=False), in_decoder=True, at_input=False)
    assert export_encoding(build("rotary", xpos=True), in_decoder=False, at_input=False).options


@pytest.mark.parametrize("furthest", [0, 1, 2, 5, 128])
@pytest.mark.parametrize("in_decoder", [False, True])
def test_distances_beyond_the_table_are_clipped_exactly(furthest, in_decoder):
    """CTranslate2's buckets (get_relative_position_bucket) are T5's."""
    table = torch.randn(HEADS, 2 * furthest + 1)
    held = biases(table, in_decoder).tables
    rows, far = held["relative_attention_bias"], int(held["relative_attention_max_distance"])
    assert rows.shape == ((2 if in_decoder else 4) * max(furthest, 1), HEADS)
    distances = [*range(-600, 1 if in_decoder else 601), -1_000_000]
    for distance in distances:
        expected = table[:, max(-furthest, min(furthest, distance)) + furthest]
        found = rows[bucket(distance, len(rows), far, bidirectional=not in_decoder)]
        assert found.tolist() == expected.tolist(), distance


@pytest.mark.parametrize("in_decoder", [False, True])
@pytest.mark.parametrize("name", ["diet_rel", "t5"])
def test_the_export_applies_the_gain_to_its_tables(name, in_decoder):
    gained, plain = (build_encoding(name, 2, 16, bias_gain=gain) for gain in ("auto", None))
    with torch.no_grad():
        gained.relative_bias.normal_()
        plain.relative_bias.copy_(4 * gained.relative_bias)
    found, expected = (export_encoding(encoding, in_decoder, at_input=False) for encoding in (gained, plain))
    assert found.options == expected.options
    assert found.tables.keys() == expected.tables.keys()
    for key, table in expected.tables.items():
        assert (found.tables[key] == table).all()


def test_urpe_is_refused():
    with pytest.raises(ExportError, match=r"does not support urpe: .*train without --urpe\."):
        export_encoding(build_encoding("t5", HEADS, WIDTH, urpe=True), in_decoder=False, at_input=False)
