"""Numbers of parameters, compared with the papers' formulas and with built models."""

import pytest

from fairseq_posenc.architectures import architecture_name
from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.evaluation.measurements import parameters
from tests.experiments.tiny import run_here
from tests.models import build_model, make_task
from tests.toy import TINY

LAYERS, HEADS, HEAD_DIM, LENGTH = 12, 12, 64, 512
WIDTH = HEADS * HEAD_DIM

# an encoder of BERT-base's size
BERT = (
    *("--encoder-layers", str(LAYERS), "--encoder-attention-heads", str(HEADS), "--encoder-embed-dim", str(WIDTH)),
    *("--encoder-ffn-embed-dim", str(4 * WIDTH), "--max-source-positions", str(LENGTH)),
    *("--decoder-layers", "1", "--decoder-attention-heads", "2", "--decoder-embed-dim", "16"),
)
# one row for each distance between positions of a sequence of 512
UNCLIPPED = ("--clipping-distance", str(LENGTH - 1))
DISTANCES = 2 * LENGTH - 1
RANK = ("--position-rank", "128")


def describe_tiny(encoding, *flags, vocabulary=100):
    return parameters.describe(architecture_name(encoding, "tiny"), flags, vocabulary)


# Chen et al. (2021), Table 6, and Huang et al. (2020), Table 1, where d is the width of what gets the vectors, one head
# or, for absolute positions, the model. Huang's own example for Shaw's and methods 3 and 4, 12 * 12 * (2 * 512 - 1) =
# 147K, leaves out d: it is the number of method 2. It has the keys alone of Shaw's, with own vectors for each head.
@pytest.mark.parametrize(
    ("encoding", "flags", "expected"),
    [
        ("diet_rel", [*UNCLIPPED, "--position-sharing", "none"], LAYERS * HEADS * DISTANCES),
        ("diet_rel", [*UNCLIPPED, "--position-sharing", "layer"], HEADS * DISTANCES),
        ("diet_abs", [*RANK, "--position-sharing", "none"], LAYERS * HEADS * 2 * LENGTH * 128),
        ("diet_abs", [*RANK, "--position-sharing", "layer"], HEADS * 2 * LENGTH * 128),
        ("shaw", [*UNCLIPPED, "--relative-values", "false"], LAYERS * HEADS * DISTANCES * HEAD_DIM),
        ("huang1", [], LAYERS * HEADS * LENGTH),
        ("huang2", UNCLIPPED, LAYERS * HEADS * DISTANCES),
        ("huang3", UNCLIPPED, LAYERS * HEADS * DISTANCES * HEAD_DIM),
        ("huang4", UNCLIPPED, LAYERS * HEADS * DISTANCES * HEAD_DIM),
    ],
)
def test_numbers_of_the_papers(encoding, flags, expected):
    row = describe_tiny(encoding, *BERT, *flags)
    assert row["encoder"] == expected
    assert row["cross"] == row["input"] == 0


def test_table_1_of_huang_for_absolute_positions():
    row = describe_tiny("learned", *BERT, "--target-position-encoding", "nopos")
    unused_rows = make_task().source_dictionary.pad() + 1  # fairseq counts positions from its padding symbol on
    assert row["input"] == (LENGTH + unused_rows) * WIDTH
    assert row["encoder"] == row["decoder"] == 0


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_counts_are_those_of_the_built_model(encoding):
    model = build_model(architecture_name(encoding, "tiny"))
    row = describe_tiny(encoding, *TINY, vocabulary=len(make_task().source_dictionary))
    assert row["total"] == sum(parameter.numel() for parameter in model.parameters())
    counts = parameters.count(model)
    assert {place: row[place] for place in counts} == counts
    without = describe_tiny("nopos", *TINY, vocabulary=len(make_task().source_dictionary))
    assert row["share"] == pytest.approx(100 * (row["total"] - without["total"]) / row["total"])
    assert row["source_encoding"] == encoding


def test_each_part_of_the_model_has_its_column():
    """Layers of TINY: 2 of 2 heads of 8."""
    flags = [
        *TINY,
        *("--source-position-encoding", "shaw", "--target-position-encoding", "t5"),
        *("--cross-attention-positions", "true"),
    ]
    shaw = 2 * 2 * 2 * (2 * 16 + 1) * 8  # layers, keys and values, heads, distances
    t5 = 2 * 32  # heads, buckets, for all layers
    row = describe_tiny("nopos", *flags)
    assert (row["encoder"], row["decoder"], row["cross"], row["input"]) == (shaw, t5, t5, 0)
    assert (row["source_encoding"], row["target_encoding"]) == ("shaw", "t5")

    segments = 2 * 3 * 3  # heads, pairs
    row = describe_tiny("nopos", *flags, "--segment-separator", "<sep>", "--num-segments", "3")
    assert (row["encoder"], row["decoder"], row["cross"]) == (shaw + 2 * segments, t5 + segments, t5 + segments)

    row = describe_tiny("nopos", *flags, "--input-positions", "learned", "--max-target-positions", "30")
    assert row["input"] == (1024 + 2 + 30 + 2) * 16


def test_a_big_model_takes_no_memory():
    row = parameters.describe("transformer_sinusoidal_wmt_en_de_big", ["--encoder-ffn-embed-dim", str(10**9)])
    assert row["total"] > 10**12


def describe(*words):
    return run_here("describe", *words)


def test_the_command_prints_the_table():
    flags = ["--clipping-distance", "4", "--share-all-embeddings"]
    archs = ["transformer_shaw_tiny", "transformer_diet_rel_tiny"]
    result = describe("--vocabulary", "100", *archs, "--format", "csv", "--", *flags)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == parameters.report([parameters.describe(arch, flags, 100) for arch in archs]).format("csv")


def test_the_command_says_which_vocabulary_it_assumes():
    note = "The dictionary of each language is taken to have 32,768 entries (--vocabulary)."
    assert note in describe("transformer_shaw_tiny").stdout
    row = describe("transformer_shaw_tiny", "--vocabulary", "77", "--format", "csv").stdout.splitlines()[1]
    assert row.endswith(",77")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["transformer_shw_tiny"], "transformer_shw_tiny"),
        (["transformer_shaw_tiny", "--", "--clipping-distance", "-1"], "--clipping-distance '-1': must be 0 or more"),
        (["transformer_shaw_tiny", "--", "--clip", "3"], "--clip 3"),
        (["transformer_shaw_tiny", "--", "--encoder-attention-heads", "7"], "with these flags"),
        (["transformer_shaw_tiny", "--", "--bias-gain", "auto"], "--bias-gain"),
        (["--", "--clipping-distance", "4"], "name an architecture"),
    ],
)
def test_what_makes_no_model_is_refused_in_one_line(words, message):
    result = describe(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
