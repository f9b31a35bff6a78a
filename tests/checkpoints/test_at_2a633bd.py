"""Checkpoints of commit 2a633bd, one of every encoding, still load and compute the same logits."""

import shutil
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_posenc.checkpoints import CheckpointError, average_checkpoints, load_checkpoint
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.model import PositionMismatch
from fairseq_posenc.position_record import POSITION_RECORD, canonical_record, encode_record, parse_record
from tests.checkpoints.kept import FOLDER, logits

FILES = sorted(FOLDER.glob("*.pt"))
#: records of that commit contain every option
SHAW = {"clipping_distance": 16, "encoding": "shaw", "input_positions": "none", "position_sharing": "none"}
SHAW |= {"relative_keys": True, "relative_values": True}


def load(path):
    """Loads a checkpoint as fairseq-generate does."""
    models, _ = checkpoint_utils.load_model_ensemble([str(path)], arg_overrides={"data": str(FOLDER)})
    return models[0].eval()


def test_there_is_one_of_every_encoding_of_that_commit():
    assert len(set(ENCODINGS) & {path.stem for path in FILES}) == 22  # none was renamed or removed


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_loads_and_gives_the_same_logits(path):
    """Its record is equivalent to today's, and it also loads after it was saved again."""
    model = load(path)
    torch.testing.assert_close(*logits(model, path), rtol=0, atol=1e-5)
    state, today = load_checkpoint(path)["model"], model.state_dict()
    assert canonical_record(state[POSITION_RECORD]) == bytes(today[POSITION_RECORD].tolist()).decode()
    assert len(today[POSITION_RECORD]) <= len(state[POSITION_RECORD])
    # Older versions of fairseq also keep an empty tensor of sinusoids.
    ignored = (POSITION_RECORD, "._float_tensor")
    before, after = ({name: x.shape for name, x in s.items() if not name.endswith(ignored)} for s in (state, today))
    assert before == after


def with_record(origin, path, record, **flags):
    """Copies a checkpoint with another record, and other flags in its configuration."""
    state = load_checkpoint(origin)
    state["model"][POSITION_RECORD] = encode_record(record)
    for name, value in flags.items():
        setattr(state["cfg"]["model"], name, value)
    torch.save(state, path)
    return path


def test_different_positions_are_refused(tmp_path):
    assert parse_record(load_checkpoint(FOLDER / "shaw.pt")["model"][POSITION_RECORD]) == SHAW
    for number, record in enumerate(({**SHAW, "relative_values": False}, {"encoding": "diet_rel"}, {**SHAW, "new": 1})):
        path = with_record(FOLDER / "shaw.pt", tmp_path / f"{number}.pt", record)
        with pytest.raises(PositionMismatch, match=r"was trained with other positions .*--finetune-from-model"):
            load(path)


def test_equivalent_old_and_new_records_are_averaged(tmp_path):
    old = Path(shutil.copy(FOLDER / "shaw.pt", tmp_path / "old.pt"))
    new = with_record(old, tmp_path / "new.pt", {"encoding": "shaw"}, clipping_distance=16)  # set to its default
    for files in ([old, new], [new, old]):
        mean = average_checkpoints(files, tmp_path / "mean.pt")
        torch.testing.assert_close(logits(load(mean), old)[0], logits(load(old), old)[1], rtol=0, atol=1e-5)
    different = with_record(old, tmp_path / "different.pt", {"encoding": "shaw", "relative_values": False})
    with pytest.raises(CheckpointError, match=r"of different models .position_version is .*\"relative_values\": false"):
        average_checkpoints([old, different], tmp_path / "mean.pt")
