"""Stage `average`: averages the last checkpoints of a training."""

import threading
from pathlib import Path

from posenc_experiments.base.files import TEMPORARY
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.step import Step
from posenc_experiments.training.train import TrainStage

# Threads must not import fairseq at the same time, and each average takes the memory of two models.
ONE_AT_A_TIME = threading.Lock()


class AverageStage(Step):
    name = "average"
    after = TrainStage()

    def dry_run(self, experiment: Experiment) -> None:
        run, generate = experiment.run, experiment.run.recipe.generate
        # Without averaging, the last state counts; no checkpoint of an epoch has it if training ends within an epoch.
        which: list[str | Path] = [experiment.last_checkpoint]
        if generate.average > 1:
            which = [f"--last-{generate.average_by}", str(generate.average), experiment.checkpoints]
        run.dry([*run.module("posenc_experiments"), "average", "--output", experiment.averaged, *which])

    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> list[Path]:
        generate = experiment.run.recipe.generate
        for left in experiment.directory.glob(f".{experiment.averaged.name}.*{TEMPORARY}"):  # by a killed call
            left.unlink()
        with ONE_AT_A_TIME:
            # Imported here, because it imports torch and fairseq, which would slow down --help.
            from fairseq_posenc import checkpoints

            paths = [experiment.last_checkpoint]
            if generate.average > 1:
                unit = generate.average_by.removesuffix("s")
                paths = checkpoints.last_checkpoints(experiment.checkpoints, generate.average, unit)
            # The directory's fingerprint guarantees one training; its data may have another path since a resume.
            checkpoints.average_checkpoints(paths, experiment.averaged, allow_different_runs=True)
        self.say(experiment, " ".join(path.name for path in paths))
        return [experiment.averaged]
