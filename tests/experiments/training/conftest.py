"""An experiment that was never trained."""

from pathlib import Path

import pytest

from posenc_experiments.experiment.experiment import Experiment
from tests.experiments.tiny import make_recipe, make_run


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    conf, _ = make_recipe(tmp_path)
    return Experiment(make_run(tmp_path, conf, None), "shaw-k2", 1)
