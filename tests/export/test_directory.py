"""Exporting a checkpoint: what is written, what is refused, and that the output is written atomically."""

import json
import shutil
import sys

import ctranslate2
import pytest
import sentencepiece
import torch
from click.testing import CliRunner

from fairseq_posenc.checkpoints import load_checkpoint
from fairseq_posenc.errors import Refusal
from fairseq_posenc.export import ExportError, directory, export
from posenc_experiments.cli import group
from tests.toy import PACKAGE, generate, hypotheses

OLD = PACKAGE.parent / "tests" / "checkpoints" / "at_2a633bd"


def train_subwords(data, prefix):
    """A SentencePiece model whose pieces are the words of the data and the space."""
    files = {"input": str(data.parents[1] / "text" / "train.en"), "model_prefix": str(prefix)}
    options = {"model_type": "char", "vocab_size": 24, "hard_vocab_limit": False, "minloglevel": 2}
    words = [f"s{number}" for number in range(20)]
    sentencepiece.SentencePieceTrainer.train(**files, **options, user_defined_symbols=words)
    return prefix.with_suffix(".model")


@pytest.fixture(scope="module")
def served(checkpoint, tmp_path_factory):
    """The exported checkpoint, with default options."""
    output = tmp_path_factory.mktemp("served") / "model"
    return export(checkpoint, output), output


def test_rotations_are_scaled_as_at_test_time(tmp_path):
    """The export compares log-probabilities with fairseq's, which has the same scale."""
    scale = "rotary_ntk_scale"
    words = [OLD / "rotary.pt", tmp_path / "served", "--data", OLD]
    result = command(*words, "--model-overrides", {scale: 2})
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "served" / "export.json").read_text())["model_overrides"] == {scale: 2}
    result = command(*words, "--model-overrides", scale)
    assert f"{scale} is not a dictionary" in " ".join(result.output.split())


def command(*arguments):
    return CliRunner().invoke(group, ["export", *map(str, arguments)])


@pytest.fixture
def altered(checkpoint, tmp_path):
    """Writes a copy of the checkpoint with other settings of its model."""

    def write(**settings):
        state = load_checkpoint(checkpoint)
        vars(state["cfg"]["model"]).update(settings)
        torch.save(state, tmp_path / "altered.pt")
        return tmp_path / "altered.pt"

    return write


def test_the_exported_model_translates_as_fairseq_generate(checkpoint, data, tmp_path):
    output = tmp_path / "model"
    finished = command(checkpoint, output)
    assert finished.exit_code == 0, finished.output
    first, *middle, last = finished.stdout.splitlines()
    assert (first, last) == (f"comparing with fairseq on 20 sentences of {data}, valid", f"wrote {output} (float32)")
    assert "20 of 20 translations are the same" in "\n".join(middle)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    options = json.loads((output / "export.json").read_text())["translate_batch"]
    translator = ctranslate2.Translator(str(output))
    lines = (data.parents[1] / "text" / "test.en").read_text().splitlines()
    results = translator.translate_batch([line.split() for line in lines], **options)
    run = generate(data, checkpoint, "--beam", "5", "--max-len-b", "200", user_dir=PACKAGE)
    translations = [" ".join(result.hypotheses[0]) for result in results]
    assert dict(enumerate(translations)) == hypotheses(run.stdout)
    assert len(set(translations)) > 3  # the model does not always output the same


def test_weights_are_quantized_after_the_comparison(served, checkpoint, tmp_path):
    verification = export(checkpoint, tmp_path / "model", quantization="int8")
    assert verification == served[0]
    sizes = [(path / "model.bin").stat().st_size for path in (tmp_path / "model", served[1])]
    assert sizes[0] < 0.6 * sizes[1]
    translator = ctranslate2.Translator(str(tmp_path / "model"))
    assert translator.translate_batch([["s1", "s2"]])[0].hypotheses[0]
    assert translator.compute_type.startswith("int8")


def test_a_sample_is_compared_and_subwords_are_copied(checkpoint, data, tmp_path):
    lines = data.parents[1] / "text" / "test.en"
    model, said = train_subwords(data, tmp_path / "spm"), []
    export(checkpoint, tmp_path / "model", sample=lines, sentencepiece=model, say=said.append)
    assert said == [f"comparing with fairseq on 20 lines of {lines}"]
    assert (tmp_path / "model" / "sentencepiece.model").read_bytes() == model.read_bytes()


def test_without_data_random_sentences_are_compared(checkpoint, data, tmp_path):
    for side in ("en", "de"):
        shutil.copy(data / f"dict.{side}.txt", tmp_path)
    said = []
    verification = export(checkpoint, tmp_path / "model", data=tmp_path, say=said.append)
    assert said == ["comparing with fairseq on 40 random sentences"]
    assert verification.sentences == 40


def test_an_output_is_replaced_only_by_force_and_only_a_model(served, checkpoint, tmp_path):
    output = tmp_path / "model"
    shutil.copytree(served[1], output)
    (output / "left").touch()
    with pytest.raises(ExportError, match=r"exists already.*--force"):
        export(checkpoint, output)
    assert (output / "left").exists()
    export(checkpoint, output, force=True)
    assert not (output / "left").exists()
    letter = tmp_path / "home" / "letter"
    letter.parent.mkdir()
    letter.touch()
    with pytest.raises(ExportError, match="exists already"):
        export(checkpoint, letter.parent, force=True)
    assert letter.exists()


def test_a_model_that_differs_is_not_written(checkpoint, tmp_path, monkeypatch):
    make = directory.make_specification

    def alter(*arguments):
        specification = make(*arguments)
        specification.decoder.layer[0].self_attention.relative_position_keys[0] += 1
        return specification

    monkeypatch.setattr(directory, "make_specification", alter)
    with pytest.raises(ExportError, match=r"CTranslate2 and fairseq differ by more than 0\.001, so nothing"):
        export(checkpoint, tmp_path / "model", quantization="int8")
    assert list(tmp_path.iterdir()) == []


def test_bad_input_is_one_sentence(checkpoint, data, altered, tmp_path):
    output = tmp_path / "model"

    def refuse(words, checkpoint=checkpoint, **options):
        with pytest.raises(Refusal, match=words) as caught:
            export(checkpoint, output, **options)
        assert "\n" not in str(caught.value)
        assert not output.exists()
        assert not list(tmp_path.glob(".*"))

    (tmp_path / "cut.pt").write_bytes(checkpoint.read_bytes()[:5000])
    refuse("damaged or no checkpoint", tmp_path / "cut.pt")
    refuse(r"altered\.pt cannot be loaded .*Unexpected key", altered(_name="transformer_tiny"))
    refuse(r"altered\.pt: The checkpoint was trained with other positions ", altered(clipping_distance=3))
    refuse(r"cannot be loaded with the dictionaries in .*dict\.en\.txt.*--data", data=tmp_path)
    for side in ("en", "de"):
        (tmp_path / f"dict.{side}.txt").write_text("word 1\n")
    refuse(r"cannot be loaded with the dictionaries in .*size mismatch.*--data", data=tmp_path)
    (tmp_path / "text").write_bytes(b"\xff\n")
    refuse(r"text cannot be read \(UnicodeDecodeError", sample=tmp_path / "text")
    (tmp_path / "text").write_text("\n \n" + "s1 " * 1024 + "\n")
    refuse("has no line that the model accepts", sample=tmp_path / "text")
    refuse("text is not a SentencePiece model", sentencepiece=tmp_path / "text")
    with pytest.raises(ExportError, match="is not a directory"):
        export(checkpoint, tmp_path / "none" / "model")


def test_the_command_refuses_an_unsupported_encoding(tmp_path):
    finished = command(OLD / "alibi.pt", tmp_path / "model", "--data", OLD)
    assert finished.exit_code == 1
    assert finished.output.startswith("Error: CTranslate2 does not support alibi in an encoder")
    assert "--source-position-encoding" in finished.output
    assert list(tmp_path.iterdir()) == []


def test_without_ctranslate2_the_command_says_how_to_install_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("fairseq_posenc.export")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    finished = command("a.pt", "b")
    assert finished.exit_code == 1
    assert finished.output.startswith("Error: CTranslate2 is not installed: run pip install '.[export]'")
