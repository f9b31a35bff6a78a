"""analyse_model: every encoding, whatever the batches and the backend, and what it refuses."""

import json
import shutil

import pytest

from fairseq_posenc.attention import backends
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.errors import CheckpointError
from posenc_experiments.analysis import model
from posenc_experiments.analysis.model import analyse_model
from posenc_experiments.base.errors import RecipeError

#: defined by the task: what each head of each attention has
FIGURES = {
    *("mean_distance", "mean_absolute_distance", "share", "entropy", "relative_entropy", "logit_rank"),
    *("locality", "symmetry"),
}


def leaves(value, path=""):
    """Every number of a document by its path; None as it is."""
    if not isinstance(value, dict | list):
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for key, inner in items for k, v in leaves(inner, f"{path}.{key}").items()}


def assert_same_figures(expected, actual):
    expected, actual = leaves(expected), leaves(actual)
    assert expected.keys() == actual.keys()
    for path, value in expected.items():
        if isinstance(value, float):
            assert actual[path] == pytest.approx(value, rel=1e-3, abs=1e-4), path
        else:
            assert actual[path] == value, path


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding(name, checkpoint, data):
    analysis = analyse_model(checkpoint(f"transformer_{name}_tiny"), data, sentences=3)
    json.dumps(analysis, allow_nan=False)
    assert analysis["skipped"] == 0
    cls = ENCODINGS[name]
    for stack in ("encoder", "decoder", "cross"):
        assert [len(layer["heads"]) for layer in analysis["attention"][stack]] == [2, 2]
        for layer in analysis["attention"][stack]:
            assert all(head.keys() == FIGURES for head in layer["heads"])
            assert all(0 < head["relative_entropy"] <= 1 and 0 < head["logit_rank"] <= 1 for head in layer["heads"])
    encoder_head = analysis["attention"]["encoder"][0]["heads"][0]
    mixes = name in ("linformer", "diet_abs_lin")
    assert (encoder_head["mean_distance"] is None) == mixes
    silent = mixes or name == "nopos" or cls.facts.input_positions != "none"
    assert [part is None for part in analysis["position_logits"]["encoder"]] == [silent] * 2
    assert analysis["position_logits"]["cross"] == [None, None]
    told = {parameter for entry in analysis["learned"] for parameter in entry["name"].split(", ")}
    encoding = cls(2, 8)
    assert told >= {parameter for parameter, _ in encoding.named_parameters()}
    assert ("embed_positions.weight" in told) == (cls.facts.input_positions == "learned")


def test_padding_has_no_influence(checkpoint, data, monkeypatch):
    path = checkpoint("transformer_diet_abs_tiny", "--cross-attention-positions", "true")
    padded = analyse_model(path, data)
    monkeypatch.setattr(model, "BATCH_TOKENS", 1)
    assert_same_figures(padded, analyse_model(path, data))


@pytest.mark.parametrize(("name", "others"), [("shaw", ("flex", "blocks", "eager")), ("t5", ("sdpa",))])
def test_every_backend_gives_the_same(name, others, checkpoint, data, monkeypatch):
    monkeypatch.setattr(backends, "BLOCK_LOGITS", 1)  # blocks of 16 queries
    auto, *results = (
        analyse_model(checkpoint(f"transformer_{name}_tiny", "--attention-backend", backend), data)
        for backend in ("auto", *others)
    )
    for result in results:
        assert_same_figures(auto, result)


def test_some_sentences_are_spread_over_those_that_the_model_can_take(checkpoint, data):
    path = checkpoint("transformer_shaw_tiny", "--max-source-positions", "10")
    sizes = [len(line.split()) + 1 for line in (data.parent / "text" / "test.en").read_text().splitlines()]
    short = [size for size in sizes if size <= 10]
    analysis = analyse_model(path, data, sentences=2)
    assert (analysis["sentences"], analysis["skipped"]) == (2, 12 - len(short))
    assert analysis["tokens"]["source"] == short[0] + short[len(short) // 2]


def test_a_bias_is_what_positions_add(checkpoint, data):
    flags = ("--cross-attention-positions", "true", "--bias-gain", "3")
    analysis = analyse_model(checkpoint("transformer_diet_rel_tiny", *flags), data)
    for entry in analysis["learned"]:
        tables = [dict(zip(entry["distances"], head, strict=True)) for head in entry["heads"]]
        added = analysis["position_logits"][entry["stack"]][entry["layer"]]
        assert 0 in added["distances"]
        for table, values in zip(tables, added["heads"], strict=True):
            assert values == pytest.approx([table[distance] for distance in added["distances"]], rel=1e-4, abs=1e-4)
    assert {entry["stack"] for entry in analysis["learned"]} == {"encoder", "decoder", "cross"}


def test_refusals(checkpoint, data, tmp_path):
    path = checkpoint("transformer_shaw_tiny")
    damaged = shutil.copytree(data, tmp_path / "other")
    (damaged / "train.en-de.en.idx").write_bytes(b"damaged")
    with pytest.raises(RecipeError, match="'train' cannot be read"):
        analyse_model(path, damaged, subset="train")
    with (damaged / "dict.en.txt").open("a") as dictionary:
        dictionary.write("".join(f"word{number} 1\n" for number in range(8)))
    with pytest.raises(CheckpointError, match=r"cannot be loaded with the dictionaries in .*--data"):
        analyse_model(path, damaged)
