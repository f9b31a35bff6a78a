"""An experiment that continues another one of its recipe: each seed from the model of that seed."""

from itertools import product
from pathlib import Path

import pytest
import torch

from fairseq_posenc.checkpoints import load_checkpoint
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import read_json
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.training.train import AverageStage, TrainStage
from tests.experiments.tiny import CONF, forked_commands, make_experiment, make_recipe, make_run, prepare_data

ROWS = CONF + "  after: shaw --clipping-distance 2 --finetune-from-model sinusoidal --max-epoch 2 --lr 1e-7\n"


def test_each_seed_continues_from_its_own_model(tmp_path: Path) -> None:
    conf, corpus = make_recipe(tmp_path, ROWS)
    run = prepare_data(make_run(tmp_path, conf, corpus))
    with pytest.raises(RecipeError, match=r"^after en-de seed 1 continues from sinusoidal, which is not trained and"):
        TrainStage().run(Experiment(run, "after", 1))
    with forked_commands():
        for name, seed, stage in product(("sinusoidal", "after"), (1, 2), (TrainStage(), AverageStage())):
            stage.run(Experiment(run, name, seed))

    def weights(name: str, seed: int) -> torch.Tensor:
        state = load_checkpoint(Experiment(run, name, seed).averaged)["model"]
        return state["encoder.layers.0.fc1.weight"]

    for seed in (1, 2):
        torch.testing.assert_close(weights("after", seed), weights("sinusoidal", seed), rtol=0, atol=1e-4)
    assert (weights("after", 1) - weights("after", 2)).abs().max() > 0.01
    made = [read_json(Experiment(run, "after", seed).about)["made_from"] for seed in (1, 2)]
    assert made[0] == made[1]
    assert made[0]["files"]["finetune_from_model"].startswith("experiment:")
    with pytest.raises(RecipeError, match=r"^--finetune-from-model sinusoidal: sinusoidal cannot continue itself"):
        _ = make_experiment(tmp_path, extra={"finetune-from-model": "sinusoidal"}).fingerprint
    # Another model to continue from is another experiment.
    conf.write_text(ROWS.replace("sinusoidal: sinusoidal", "sinusoidal: sinusoidal --dropout 0.2"))
    assert not TrainStage().is_done(make_experiment(tmp_path, "after"))
