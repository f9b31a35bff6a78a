"""Stage `train`: runs or resumes fairseq-train, and writes its command, log and summary; stage `average`.

After a kill, the same call resumes: fairseq-train dies with its parent (subprocesses.py) or, where it cannot, keeps the
lock of the directory, so that the call is refused (done.py). `train` is not recorded as done (stage.py), so it runs
again: `prepare_checkpoints` makes the newest whole checkpoint `checkpoint_last.pt`, from which fairseq starts by
default, or clears what there is. Stages that are done are skipped.
"""

import shutil
import threading
from pathlib import Path
from zipfile import is_zipfile

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import TEMPORARY, atomic_path, read_json, write_json
from posenc_experiments.base.subprocesses import run_command, time_left, write_command
from posenc_experiments.data import prepared
from posenc_experiments.data.prepared import binarized_dir
from posenc_experiments.experiment import versions
from posenc_experiments.experiment.command_lines import train_command, train_environment
from posenc_experiments.experiment.experiment import Experiment, derive_batch
from posenc_experiments.experiment.fairseq_flags import effects
from posenc_experiments.experiment.stage import Stage
from posenc_experiments.training.nodes import announced
from posenc_experiments.training.train_log import TrainLog

# Threads must not import fairseq at the same time, and each average takes the memory of two models.
ONE_AT_A_TIME = threading.Lock()


class TrainStage(Stage):
    name = "train"
    reads_data = True

    def settings(self, experiment: Experiment) -> list[object]:
        return [experiment.fingerprint, experiment.seed]

    def dry_run(self, experiment: Experiment) -> None:
        environment = train_environment(experiment.run)
        experiment.run.dry([*(f"{name}={value}" for name, value in environment.items()), *train_command(experiment)])

    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> list[Path]:
        run, (_, warning) = experiment.run, derive_batch(experiment)
        if experiment.start is not None and not AverageStage().is_done(experiment.start):
            raise RecipeError(
                f"{experiment.title} continues from {experiment.start.name}, which is not trained and averaged yet: "
                "add it to --experiments, or run its stages train..average."
            )
        command, environment = train_command(experiment), train_environment(run)
        if warning:
            run.say(warning)
        resumed = prepare_checkpoints(experiment)
        about = experiment.description()
        if resumed and experiment.about.is_file():
            earlier = read_json(experiment.about)["environment"]
            about["environment"] = versions.all_environments(earlier, about["environment"])
        write_json(experiment.about, about)
        write_command(experiment.command, command, environment)
        how = "resumes from its last checkpoint" if resumed else "starts"
        self.say(experiment, f"{how}, log {experiment.train_log}")
        log = TrainLog()
        what = f"Training {experiment.title}"
        with announced(experiment):
            run_command(run, command, experiment.train_log, what, environment, locks, _Display(experiment, log).show)
        log.follow(experiment.train_log)
        if not is_zipfile(experiment.last_checkpoint):
            raise RecipeError(f"{what} ended without a checkpoint: see {experiment.train_log}.")
        rate = log.words_per_second or 0.0
        summary = {
            "parameters": log.parameters,
            "words_per_second": round(rate, 1) or None,
            "updates": log.updates,
            "valid_loss": log.valid_loss,
            "vocabulary": prepared.vocabulary(binarized_dir(run), run.source, run.target),
        }
        write_json(experiment.summary, summary)
        self.say(experiment, f"{log.updates:,} updates, valid loss {log.valid_loss}, {rate:,.0f} words/s")
        return [experiment.summary]


class AverageStage(Stage):
    name = "average"
    reads = TrainStage()

    def settings(self, experiment: Experiment) -> list[object]:
        return [experiment.averaging]

    def dry_run(self, experiment: Experiment) -> None:
        run, generate = experiment.run, experiment.run.recipe.generate
        # Without averaging, the last state counts; no checkpoint of an epoch has it if training ends within an epoch.
        several = [f"--last-{generate.average_by}", str(generate.average), experiment.checkpoints]
        which = [experiment.last_checkpoint] if generate.average == 1 else several
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


def require_same_batch(experiment: Experiment) -> None:
    """RecipeError if the training is done, but with other batches than this call would use."""
    if not experiment.about.is_file() or not TrainStage().is_done(experiment):
        return
    trained = versions.as_list(read_json(experiment.about)["environment"].get("batch"))
    if experiment.batch not in trained:
        recorded, asked = (
            one or f"{experiment.run.recipe.train.batch_tokens:,} tokens" for one in (trained[-1], experiment.batch)
        )
        raise RecipeError(
            f"{experiment.title} was trained in batches of {recorded} ({experiment.directory}), and this call asks for "
            f"{asked}: leave the stage train out, give the earlier flags and number of processes, or train into "
            "another --output-dir."
        )


def require_gpu_of_precision(experiment: Experiment) -> None:
    """RecipeError if the training would run on a CPU with --fp16, which needs a GPU."""
    if not experiment.run.hardware.gpus and effects.needs_gpu(set(experiment.train_flags)):
        raise RecipeError(
            f"{experiment.title}: --fp16 needs a GPU, and this call trains on a CPU: give --precision bf16 or fp32."
        )


def prepare_checkpoints(experiment: Experiment) -> bool:
    """Prepares `checkpoints/` for a start or a resume; returns whether there is a checkpoint to resume from.

    A checkpoint is a zip archive. The directory of such an archive is at its end, so an incomplete one is none.
    """
    directory = experiment.checkpoints
    directory.mkdir(parents=True, exist_ok=True)
    for partial in directory.glob(f"*{TEMPORARY}"):  # checkpoints that a killed run did not finish writing
        partial.unlink()
    last = experiment.last_checkpoint
    if is_zipfile(last):
        return True
    # fairseq writes checkpoint_last.pt in place, as a copy of another checkpoint: after a kill it may be incomplete,
    # but the other is not.
    whole = [path for path in directory.glob("checkpoint*.pt") if is_zipfile(path)]
    if not whole:
        last.unlink(missing_ok=True)
        experiment.train_log.unlink(missing_ok=True)
        return False
    newest = max(whole, key=lambda path: path.stat().st_mtime_ns)
    with atomic_path(last) as temporary:
        shutil.copyfile(newest, temporary)
    return True


class _Display:
    """Prints a line for each epoch of a running training, and one as soon as the remaining time is known."""

    def __init__(self, experiment: Experiment, log: TrainLog) -> None:
        self.experiment, self.log = experiment, log
        self.goal = int(experiment.train_flags.get("max-update", 0))
        self.printed = (0, False)  # the last complete epoch, and whether the remaining time was known

    def show(self) -> None:
        """Reads new lines of the log; called a few times a second."""
        log, experiment, left = self.log, self.experiment, ""
        log.follow(experiment.train_log)
        if log.updates_per_second is not None and log.updates < self.goal:
            left = time_left((self.goal - log.updates) / log.updates_per_second)
        reached = (log.complete_epoch, self.printed[1] or bool(left))
        if reached != self.printed:
            self.printed = reached
            loss = "" if log.valid_loss is None else f", valid loss {log.valid_loss}"
            rate = "" if log.words_per_second is None else f", {log.words_per_second:,.0f} words/s"
            text = f"epoch {log.epoch}, {log.updates:,} updates{loss}{rate}{left}"
            experiment.run.say(f"train: {experiment.title}: {text}")
