"""Which encodings CTranslate2 supports, and its buckets of distances."""

import pytest
import torch

from fairseq_posenc.encodings import ENCODINGS, build_encoding
from fairseq_posenc.export import ExportError
from fairseq_posenc.export.positions import export_encoding
from tests.references import bucket, clip

HEADS, WIDTH = 2, 8
EXPORTED = {"nopos", "sinusoidal", "learned", "shaw", "relative_key", "diet_rel", "t5", "rotary", "alibi"}


def build(name, **options):
    if "position_sharing" in ENCODINGS[name].options:
        options.setdefault("position_sharing", "head")
    return build_encoding(name, HEADS, WIDTH, **options)


@pytest.mark.parametrize("in_decoder", [False, True])
@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_is_exported_or_refused_by_name(name, in_decoder):
    if name in EXPORTED and (in_decoder or name != "alibi"):
        assert export_encoding(build(name), in_decoder, at_input=False).options
        return
    with pytest.raises(ExportError, match=rf"^CTranslate2 does not support {name}\b.*: .{{10,}}\.$"):
        export_encoding(build(name), in_decoder, at_input=False)


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_positions_are_in_attention_or_at_the_input(name):
    if name in ("nopos", "sinusoidal", "learned"):
        assert export_encoding(build(name), in_decoder=True, at_input=True).options == {}
        return
    with pytest.raises(ExportError, match=rf"does not support {name} on input positions.*--input-positions none"):
        export_encoding(build(name), in_decoder=True, at_input=True)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("shaw", {"position_sharing": "none"}, "shaw with a table for each head.*--position-sharing head"),
        ("alibi", {"alibi_slopes": "learned", "bidirectional": False}, "learned slopes: .*--alibi-slopes fixed"),
        ("diet_rel", {"num_segments": 2}, "segments.*--segment-separator"),
        ("t5", {"urpe": True}, "urpe: .*train without --urpe"),
        ("rotary", {"xpos": True, "bidirectional": False}, "rotary with --xpos: .*train without --xpos"),
    ],
)
def test_options_that_cannot_be_exported_are_refused_with_the_flag(name, options, words):
    with pytest.raises(ExportError, match=rf"^CTranslate2 does not support .*{words}"):
        export_encoding(build(name, **options), in_decoder=True, at_input=False)


def test_xpos_has_no_effect_in_an_encoder():
    assert export_encoding(build("rotary", xpos=True), in_decoder=False, at_input=False).options


@pytest.mark.parametrize("furthest", [0, 1, 5])
@pytest.mark.parametrize("in_decoder", [False, True])
def test_distances_beyond_the_table_are_clipped_exactly(furthest, in_decoder):
    """CTranslate2's buckets (get_relative_position_bucket) are T5's."""
    encoding = build("diet_rel", clipping_distance=furthest, position_sharing="none")
    table = torch.nn.init.normal_(encoding.relative_bias)
    exported = export_encoding(encoding, in_decoder, at_input=False).tables
    rows, far = exported["relative_attention_bias"], int(exported["relative_attention_max_distance"])
    assert rows.shape == ((2 if in_decoder else 4) * max(furthest, 1), HEADS)
    for distance in (*range(-600, 1 if in_decoder else 601), -1_000_000):
        expected = table[:, clip(distance, furthest, furthest) + furthest]
        row = rows[bucket(distance, len(rows), far, bidirectional=not in_decoder)]
        assert row.tolist() == expected.tolist(), distance
