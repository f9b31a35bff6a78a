"""Stage `average`: the last checkpoints of a training as one."""

import threading

from posenc_experiments.errors import RecipeError
from posenc_experiments.workflow.experiment import Experiment
from posenc_experiments.workflow.stages import locked

# Two experiments at once would import fairseq at once, and hold the memory of four models.
ONE_AT_A_TIME = threading.Lock()


def average(experiment: Experiment) -> None:
    """Runs the stage."""
    run, markers = experiment.run, experiment.markers
    last, by_updates = run.recipe.average, run.recipe.average_by == "updates"
    if run.dry_run:
        # A training that ends within an epoch has its last state in no epoch's checkpoint.
        several = ["--last-updates" if by_updates else "--last-epochs", str(last), experiment.checkpoints]
        which = [experiment.last_checkpoint] if last == 1 else several
        run.dry([*run.module("posenc_experiments"), "average", "--output", experiment.averaged, *which])
        return
    inputs = experiment.average_inputs()
    if markers.is_done("average", inputs):
        return
    if not markers.is_done("train", experiment.train_inputs()):
        raise RecipeError(
            f"{experiment.title} is not trained yet (or its settings changed since): run the stage train."
        )
    with ONE_AT_A_TIME, locked(experiment.directory):
        # Here, because it imports torch and fairseq, which --help and --dry-run need not wait for.
        from fairseq_posenc import checkpoints
        from fairseq_posenc.checkpoints import CheckpointError, average_checkpoints

        markers.clear("average")
        choose = checkpoints.last_update_checkpoints if by_updates else checkpoints.last_epoch_checkpoints
        try:
            paths = [experiment.last_checkpoint] if last == 1 else choose(experiment.checkpoints, last)
            # They are of one training by the fingerprint of its directory, though its data may have moved since.
            average_checkpoints(paths, experiment.averaged, allow_different_runs=True)
        except CheckpointError as error:
            raise RecipeError(f"Averaging {experiment.title} failed: {error}") from None
        markers.set_done("average", inputs, [experiment.averaged])
    run.say(f"average: {experiment.title}: {' '.join(path.name for path in paths)}")
