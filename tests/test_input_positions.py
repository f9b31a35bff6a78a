"""Learned input positions that start from a file or from sinusoids: --input-positions-from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_posenc.checkpoints import load_checkpoint
from fairseq_posenc.model import fine_tuning
from tests.models import build_model, logits, model_inputs, sentences
from tests.toy import PACKAGE, binarize, generate, hypotheses, make_corpus, train

INPUTS = model_inputs(sentences([7, 4, 2]), sentences([5, 6, 3], seed=6))
VECTORS = torch.randn(14, 16, generator=torch.Generator().manual_seed(2))
LIMITS = ("--max-source-positions", "14", "--max-target-positions", "12")


def save(path: Path, content: Any) -> str:
    """A file with this content, as numpy.save or torch.save writes it."""
    if path.suffix == ".npy":
        np.save(path, content.numpy() if isinstance(content, torch.Tensor) else content)
    else:
        torch.save(content, path)
    return str(path)


def learned(start: str, *flags: str, name: str = "learned", **how: Any) -> Any:
    return build_model(f"transformer_{name}_tiny", *LIMITS, "--input-positions-from", start, *flags, **how)


@pytest.mark.parametrize("file", ["vectors.npy", "vectors.pt"])
@pytest.mark.parametrize("gain", [[], ["--bias-gain", "auto"], ["--bias-gain", "3"]])
def test_both_stacks_start_from_the_rows_of_the_file(tmp_path, file, gain):
    """Row p is added to the token at position p, whatever the gain; a stack with fewer positions has the first rows."""
    model = learned(save(tmp_path / file, VECTORS), *gain)
    for stack, positions in ((model.encoder, 14), (model.decoder, 12)):
        added = stack.embed_positions(torch.full((1, positions), 5))
        torch.testing.assert_close(added[0], VECTORS[:positions].double())
        assert stack.embed_positions.weight.requires_grad
        assert not stack.embed_positions.weight[stack.padding_idx].any()


def test_other_initial_values_stay_the_same(tmp_path):
    usual = build_model("transformer_learned_tiny", *LIMITS).state_dict()
    started = learned(save(tmp_path / "vectors.npy", VECTORS)).state_dict()
    differing = {name for name, tensor in usual.items() if not torch.equal(started[name], tensor)}
    assert differing == {"encoder.embed_positions.weight", "decoder.embed_positions.weight"}


def test_only_the_stack_with_learned_vectors_starts_from_them(tmp_path):
    start = save(tmp_path / "vectors.npy", VECTORS)
    model = learned(start, "--source-position-encoding", "learned", name="shaw")
    torch.testing.assert_close(model.encoder.embed_positions.weight[2:], VECTORS.double())
    assert model.decoder.embed_positions is None


@pytest.mark.parametrize("sinusoids", [[], ["--sinusoids", "paper"]])
def test_from_sinusoids_it_starts_as_the_sinusoidal_model(sinusoids):
    model = learned("sinusoidal", *sinusoids, "--bias-gain", "auto")
    fixed = build_model("transformer_sinusoidal_tiny", *LIMITS, *sinusoids, seed=2)
    with fine_tuning():
        fixed.load_state_dict(model.state_dict())
    torch.testing.assert_close(logits(model, *INPUTS), logits(fixed, *INPUTS), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("missing.npy", None, r"it cannot be read \(FileNotFoundError\): name one that numpy.save"),
        ("objects.npy", np.array([{}]), r"it cannot be read \(ValueError\): name one that numpy.save"),
        ("code.pt", torch.nn.Embedding(14, 16), r"it cannot be read \(UnpicklingError\): name one that numpy.save"),
        ("checkpoint.pt", {"model": VECTORS, "args": 1}, "it holds a dict with the keys model, args: save the matrix"),
        ("list.pt", [VECTORS], "it holds a list: save the matrix of position vectors alone"),
        (
            "wide.npy",
            torch.ones(14, 17),
            r"its shape is \(14, 17\), and the model needs \(positions, 16\): .*-embed-dim",
        ),
        ("layers.pt", torch.ones(1, 14, 16), r"its shape is \(1, 14, 16\), and the model needs"),
        ("short.npy", VECTORS[:13], "it has 13 of 14 positions: set --max-source-positions 13 and --max-target-pos"),
        ("nan.pt", VECTORS / 0, "not all of its values are finite floating-point numbers: make another"),
        ("whole.npy", torch.ones(14, 16, dtype=torch.int64), "not all of its values are finite floating-point"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path, file, content, message):
    """Also when the model is built without memory, as before a recipe trains."""
    path = str(tmp_path / file) if content is None else save(tmp_path / file, content)
    for device in ("cpu", "meta"):
        with (
            torch.device(device),
            pytest.raises(ValueError, match=f"^--input-positions-from {path}: {message}") as error,
        ):
            learned(path)
        assert str(error.value).count("\n") == 0
    with torch.device("meta"):
        assert learned(save(tmp_path / "vectors.pt", VECTORS)).encoder.embed_positions.weight.is_meta


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("shaw", [], "-from has no meaning for transformer_shaw_tiny without --input-positions learned: leave it out"),
        ("learned", ["--input-positions", "sinusoidal"], "-from has no meaning for transformer_learned_tiny without"),
        ("learned", ["--sinusoids", "paper"], "--sinusoids has no meaning"),
    ],
)
def test_it_is_refused_without_learned_vectors_and_sinusoids_with_a_file(tmp_path, name, flags, message):
    with pytest.raises(ValueError, match=message):
        learned(save(tmp_path / "vectors.npy", VECTORS), *flags, name=name)


def test_fine_tuning_keeps_the_checkpoints_vectors_and_starts_new_ones_from_the_file(tmp_path):
    model = learned(save(tmp_path / "vectors.npy", VECTORS))
    before = model.encoder.embed_positions.weight.clone()
    with fine_tuning():
        model.load_state_dict(build_model("transformer_sinusoidal_tiny", seed=2).state_dict())
    assert torch.equal(model.encoder.embed_positions.weight, before)
    theirs = build_model("transformer_learned_tiny", *LIMITS, seed=2).state_dict()
    with fine_tuning():
        model.load_state_dict(theirs)
    assert torch.equal(model.encoder.embed_positions.weight, theirs["encoder.embed_positions.weight"])


def test_a_resumed_training_keeps_its_vectors_and_translation_needs_no_file(tmp_path):
    data = binarize(make_corpus(tmp_path / "text"), tmp_path / "data")
    vectors, folder = tmp_path / "vectors.npy", tmp_path / "model"

    def trained(updates: int, start: torch.Tensor) -> Any:
        flags = [*LIMITS, "--input-positions-from", save(vectors, start), "--lr", "1e-6"]
        train(data, folder, "transformer_learned_tiny", *flags, "--max-update", str(updates), user_dir=PACKAGE)
        state = load_checkpoint(folder / "checkpoint_last.pt")
        assert state["optimizer_history"][-1]["num_updates"] == updates
        return state["model"]["encoder.embed_positions.weight"][2:]

    assert not torch.equal(trained(1, VECTORS), VECTORS)
    torch.testing.assert_close(trained(2, torch.zeros(14, 16)), VECTORS, rtol=0, atol=1e-5)
    vectors.unlink()
    assert len(hypotheses(generate(data, folder / "checkpoint_last.pt", user_dir=PACKAGE).stdout)) == 20
