"""The plugin with the fairseq of this environment, as `scripts/try_fairseq.sh` runs it in an environment of its own."""

import pytest
import torch

from fairseq_posenc.checkpoints import load_checkpoint
from fairseq_posenc.compat import COPIES
from tests.toy import PACKAGE, binarize, generate, hypotheses, make_corpus, train

pytestmark = pytest.mark.slow
TRIED = ("alibi", "deberta", "diet_rel", "learned", "linformer", "rotary", "shaw", "sinusoidal", "t5", "tupe_rel")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus")
    return binarize(make_corpus(directory / "text"), directory / "data")


@pytest.mark.parametrize("name", TRIED)
def test_it_trains_and_translates(data, tmp_path, name):
    train(data, tmp_path, f"transformer_{name}_tiny", user_dir=PACKAGE)
    run = generate(data, tmp_path / "checkpoint_last.pt", user_dir=PACKAGE)
    assert len(hypotheses(run.stdout)) == 20


def test_sinusoidal_is_its_own_transformer_to_the_bit(data, tmp_path):
    flags = ("--max-update", "5")
    train(data, tmp_path / "stock", "transformer_tiny", *flags)
    train(data, tmp_path / "ours", "transformer_sinusoidal_tiny", *flags, user_dir=PACKAGE)
    stock, ours = (load_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("stock", "ours"))
    compared = [key for key in stock if key.rpartition(".")[2] not in {*COPIES, "_float_tensor"}]
    assert len(compared) > 60
    for key in compared:
        assert torch.equal(stock[key], ours[key]), key
