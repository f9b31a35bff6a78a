"""Options that `--model-overrides` sets at test time, which no checkpoint records."""

from argparse import ArgumentParser

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from fairseq_posenc.errors import CheckpointError, Refusal
from fairseq_posenc.model import PositionTransformer
from fairseq_posenc.position_record import POSITION_RECORD
from fairseq_posenc.trained import load_trained
from tests.checkpoints.kept import FOLDER, logits


@pytest.mark.parametrize("scale", ["rotary_linear_scale", "rotary_ntk_scale"])
def test_a_trained_model_is_translated_with_scaled_rotations(scale):
    path = FOLDER / "rotary.pt"
    models = [load_trained(path, FOLDER, {scale: value}).model for value in (None, 1, 2)]
    assert torch.equal(models[1].state_dict()[POSITION_RECORD], models[2].state_dict()[POSITION_RECORD])
    plain, by_1, by_2 = (logits(model, path)[0] for model in models)
    assert torch.equal(by_1, plain)
    assert not torch.allclose(by_2, plain, rtol=0, atol=1e-3)


def test_a_model_of_hydra_train_takes_them_too(tmp_path):
    """Its configuration of the model is a dictionary, which has only what was set in the training."""
    state = torch.load(FOLDER / "rotary.pt", weights_only=False)
    parser = ArgumentParser()
    PositionTransformer.add_args(parser)
    known = {action.dest for action in parser._actions}
    settings = {name: value for name, value in vars(state["cfg"]["model"]).items() if name in known}
    state["cfg"]["model"] = {**settings, "_name": "transformer_rotary_tiny"}
    path, scale = tmp_path / "hydra.pt", {"rotary_ntk_scale": 2}
    torch.save(state, path)
    scaled, expected, plain = (
        logits(load_trained(file, FOLDER, overrides).model, path)[0]
        for file, overrides in ((path, scale), (FOLDER / "rotary.pt", scale), (path, {}))
    )
    assert torch.equal(scaled, expected)
    assert not torch.allclose(scaled, plain, rtol=0, atol=1e-3)
    with pytest.raises(Refusal, match="rotary_ntk_scale 'two'"):
        load_trained(path, FOLDER, {"rotary_ntk_scale": "two"})


def test_a_missing_checkpoint_is_not_blamed_on_dictionaries(tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.pt does not exist or is no file: name a checkpoint"):
        load_trained(tmp_path / "none.pt")


@pytest.mark.parametrize(
    ("checkpoint", "value", "message"),
    [
        ("shaw", 2, "rotary_ntk_scale in --model-overrides has no meaning for transformer_shaw_tiny .*leave it out"),
        ("rotary", 0.5, "rotary_ntk_scale 0.5: must be a finite number of at least 1"),
        ("rotary", "two", "rotary_ntk_scale 'two': .*"),
    ],
)
def test_an_override_without_meaning_is_refused(checkpoint, value, message):
    with pytest.raises(Refusal, match=message):
        load_trained(FOLDER / f"{checkpoint}.pt", FOLDER, {"rotary_ntk_scale": value})


def test_the_encoding_is_no_override():
    """The architecture would replace it without a word."""
    overrides = {"position_encoding": "t5", "data": str(FOLDER)}
    with pytest.raises(Refusal, match=r"position_encoding in --model-overrides has no effect, .*: leave it out\."):
        load_model_ensemble([str(FOLDER / "rotary.pt")], arg_overrides=overrides)
