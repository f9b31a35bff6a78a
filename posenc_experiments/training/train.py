"""Stage `train`: runs or resumes fairseq-train, and writes its command, log and summary."""

import shutil
import zipfile
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import TEMPORARY, atomic_path, read_json, write_json
from posenc_experiments.base.run import run_command, write_command
from posenc_experiments.data import prepare
from posenc_experiments.data.prepared import binarized_dir
from posenc_experiments.experiment import versions
from posenc_experiments.experiment.command_lines import train_command, train_environment
from posenc_experiments.experiment.experiment import Experiment, derive_batch
from posenc_experiments.experiment.step import Step
from posenc_experiments.training.nodes import announced
from posenc_experiments.training.train_log import TrainLog


class TrainStage(Step):
    """The stage `train`; `which` is the number of the experiment for messages, such as "2 of 7"."""

    name = "train"
    missing = "is not trained yet"
    says_done = True
    reads_data = True

    def __init__(self, which: str = "1 of 1") -> None:
        self.which = which

    def dry_run(self, experiment: Experiment) -> None:
        environment = train_environment(experiment.run)
        experiment.run.dry([*(f"{name}={value}" for name, value in environment.items()), *train_command(experiment)])

    def say(self, experiment: Experiment, text: str) -> None:
        experiment.run.say(f"train {self.which}: {experiment.title}: {text}")

    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> list[Path]:
        run, (_, warning) = experiment.run, derive_batch(experiment)
        if experiment.start is not None and not experiment.start.is_done("average"):
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
            earlier = read_json(experiment.about)
            environment_then = earlier.get("environment") if isinstance(earlier, dict) else None
            if isinstance(environment_then, dict):
                about["environment"] = versions.all_environments(environment_then, about["environment"])
        write_json(experiment.about, about)
        write_command(experiment.command, command, environment)
        how = "resumes from its last checkpoint" if resumed else "starts"
        self.say(experiment, f"{how}, log {experiment.train_log}")
        log = TrainLog()
        show = _Display(experiment, log, self.which).show
        what = f"Training {experiment.title}"
        with announced(experiment):
            run_command(run, command, experiment.train_log, what, environment, locks, show)
        log.follow(experiment.train_log)
        if not whole_checkpoint(experiment.last_checkpoint):
            raise RecipeError(f"{what} ended without a checkpoint: see {experiment.train_log}.")
        rate = log.words_per_second
        summary = {
            "parameters": log.parameters,
            "words_per_second": None if rate is None else round(rate, 1),
            "updates": log.updates,
            "valid_loss": log.valid_loss,
            "vocabulary": prepare.vocabulary(binarized_dir(run), run.source, run.target),
        }
        write_json(experiment.summary, summary)
        self.say(experiment, f"{log.updates:,} updates, valid loss {log.valid_loss}, {_rate(rate)}")
        return [experiment.summary]


def _rate(rate: float | None) -> str:
    return "words/s not measured" if rate is None else f"{rate:,.0f} words/s"


def whole_checkpoint(path: Path) -> bool:
    """Whether a checkpoint is complete: it is a zip archive, and the directory of these is at their end."""
    return path.is_file() and zipfile.is_zipfile(path)


def prepare_checkpoints(experiment: Experiment) -> bool:
    """Prepares `checkpoints/` for a start or a resume; returns whether there is a checkpoint to resume from."""
    directory = experiment.checkpoints
    directory.mkdir(parents=True, exist_ok=True)
    for partial in directory.glob(f"*{TEMPORARY}"):  # checkpoints that a killed run did not finish writing
        partial.unlink()
    last = experiment.last_checkpoint
    if whole_checkpoint(last):
        return True
    # fairseq writes checkpoint_last.pt in place, as a copy of another checkpoint: after a kill it may be incomplete,
    # but the other is not.
    whole = [path for path in directory.glob("checkpoint*.pt") if whole_checkpoint(path)]
    if not whole:
        last.unlink(missing_ok=True)
        experiment.train_log.unlink(missing_ok=True)
        return False
    newest = max(whole, key=lambda path: path.stat().st_mtime_ns)
    with atomic_path(last) as temporary:
        shutil.copyfile(newest, temporary)
    return True


class _Display:
    """Follows the log of a running training: shows its state on a terminal, otherwise prints a line for each epoch."""

    def __init__(self, experiment: Experiment, log: TrainLog, which: str) -> None:
        self.run, self.path, self.log = experiment.run, experiment.train_log, log
        self.title = f"train {which}: {experiment.title}"
        flags = experiment.train_flags
        self.by_updates = int(flags.get("max-update", 0)) > 0
        self.goal = int(flags.get("max-update", 0)) or int(flags.get("max-epoch", 0)) or None
        self.printed_epoch = 0
        self.printed_left = False

    def show(self) -> None:
        """Reads new lines of the log and updates the display; called a few times a second."""
        log = self.log
        if not log.follow(self.path):
            return
        epoch_ended = log.epoch_end == log.updates
        if self.run.session.show is not None:
            done = log.updates if self.by_updates else max(log.epoch - (not epoch_ended), 0)
            share = f"{done / self.goal:.0%}, " if self.goal else ""
            self.run.session.show(f"{share}{_state(log)}{self._left()}")
        elif (log.epoch > self.printed_epoch and epoch_ended) or (self._left() and not self.printed_left):
            self.printed_epoch = log.epoch if epoch_ended else self.printed_epoch
            self.printed_left = bool(self._left())
            self.run.say(f"{self.title}: {_state(log)}{self._left()}")

    def _left(self) -> str:
        """The remaining time of the training at its current rate; empty until that is known."""
        rate = self.log.recent_updates_per_second
        if rate is None or not self.by_updates or self.goal is None or self.log.updates >= self.goal:
            return ""
        minutes = (self.goal - self.log.updates) / rate / 60
        return f", about {max(1, minutes):.0f} min left" if minutes < 120 else f", about {minutes / 60:.0f} h left"


def _state(log: TrainLog) -> str:
    loss = "" if log.valid_loss is None else f", valid loss {log.valid_loss}"
    rate = "" if log.recent_words_per_second is None else f", {log.recent_words_per_second:,.0f} words/s"
    return f"epoch {log.epoch}, {log.updates:,} updates{loss}{rate}"
