"""Stage `train`: fairseq-train, resumed where a killed run left it, with exact command, log and summary."""

import shutil
import zipfile
from pathlib import Path

from posenc_experiments.data import prepare
from posenc_experiments.errors import RecipeError
from posenc_experiments.training import superseded
from posenc_experiments.training.nodes import announced
from posenc_experiments.training.train_log import TrainLog
from posenc_experiments.workflow.experiment import Experiment, derive_batch, train_command, train_environment
from posenc_experiments.workflow.run import run_command, write_command
from posenc_experiments.workflow.stages import TEMPORARY, atomic_path, locked, write_json


def train(experiment: Experiment, which: str) -> None:
    """Runs the stage; `which` says "2 of 7"."""
    run, markers = experiment.run, experiment.markers
    command, environment = train_command(experiment), train_environment(experiment.run)
    _, warning = derive_batch(experiment)
    if run.dry_run:
        run.dry([*(f"{name}={value}" for name, value in environment.items()), *command])
        return
    inputs = experiment.train_inputs()
    if markers.is_done("train", inputs):
        run.say(f"train {which}: {experiment.title}: done before")
        return
    with prepare.in_use(run) as data, locked(experiment.directory) as lock:
        if superseded.exchange(experiment, inputs) and markers.is_done("train", inputs):
            run.say(f"train {which}: {experiment.title}: done before, with these settings")
            return
        if warning:
            run.say(warning)
        markers.clear("train")
        resumed = make_ready(experiment, inputs)
        write_json(experiment.directory / "experiment.json", experiment.description())
        write_command(experiment.directory / "command.sh", command, environment)
        run.say(
            f"train {which}: {experiment.title}: "
            f"{'resumes from its last checkpoint' if resumed else 'starts'}, log {experiment.train_log}"
        )
        log = TrainLog()
        display = _Display(experiment, log, which)
        with announced(experiment):
            run_command(
                run,
                command,
                experiment.train_log,
                f"Training {experiment.title}",
                environment,
                (lock, data),
                display.show,
            )
        log.follow(experiment.train_log)
        if not whole_checkpoint(experiment.last_checkpoint):
            raise RecipeError(f"Training {experiment.title} ended without a checkpoint: see {experiment.train_log}.")
        summary = experiment.directory / "training.json"
        rate = log.words_per_second
        write_json(
            summary,
            {
                "parameters": log.parameters,
                "words_per_second": None if rate is None else round(rate, 1),
                "updates": log.updates,
                "seconds": log.wall,
                "valid_loss": log.valid_loss,
            },
        )
        markers.set_done("train", inputs, [summary])
    run.say(f"train {which}: {experiment.title}: {log.updates:,} updates, valid loss {log.valid_loss}, {_rate(rate)}")


def _rate(rate: float | None) -> str:
    return "words/s not measured" if rate is None else f"{rate:,.0f} words/s"


def whole_checkpoint(path: Path) -> bool:
    """Whether a checkpoint was written to its end: it is a zip archive, whose directory comes last."""
    return path.is_file() and zipfile.is_zipfile(path)


def make_ready(experiment: Experiment, inputs: str) -> bool:
    """Leaves `checkpoints/` as this training may go on from; whether there is anything to go on from."""
    directory, origin = experiment.checkpoints, experiment.checkpoints / "inputs.json"
    directory.mkdir(parents=True, exist_ok=True)
    if not origin.is_file():
        write_json(origin, inputs)
        experiment.train_log.unlink(missing_ok=True)
    for left in directory.glob(f"*{TEMPORARY}"):  # a checkpoint whose writing was cut off
        left.unlink()
    last = experiment.last_checkpoint
    if whole_checkpoint(last):
        return True
    # fairseq copies checkpoint_last.pt in place: killed at that moment, it is cut short while the file it
    # copied is whole.
    whole = [path for path in directory.glob("checkpoint*.pt") if whole_checkpoint(path)]
    if not whole:
        last.unlink(missing_ok=True)
        return False
    newest = max(whole, key=lambda path: path.stat().st_mtime_ns)
    with atomic_path(last) as temporary:
        shutil.copyfile(newest, temporary)
    return True


class _Display:
    """Follows the log of a running training: in the live view on a terminal, a line an epoch elsewhere."""

    def __init__(self, experiment: Experiment, log: TrainLog, which: str) -> None:
        self.run, self.path, self.log = experiment.run, experiment.train_log, log
        self.title = f"train {which}: {experiment.title}"
        flags = experiment.train_flags
        self.by_updates = int(flags.get("max-update", 0)) > 0
        self.goal = int(flags.get("max-update", 0)) or int(flags.get("max-epoch", 0)) or None
        self.said = 0

    def show(self) -> None:
        """Called every now and then."""
        log = self.log
        if not log.follow(self.path):
            return
        epoch_ended = log.epoch_end == log.updates
        if self.run.show is not None:
            done = log.updates if self.by_updates else max(log.epoch - (not epoch_ended), 0)
            share = f"{done / self.goal:.0%}, " if self.goal else ""
            self.run.show(f"{share}{_state(log)}")
        elif log.epoch > self.said and epoch_ended:
            self.said = log.epoch
            self.run.say(f"{self.title}: {_state(log)}")


def _state(log: TrainLog) -> str:
    loss = "" if log.valid_loss is None else f", valid loss {log.valid_loss}"
    rate = "" if log.recent_words_per_second is None else f", {log.recent_words_per_second:,.0f} words/s"
    return f"epoch {log.epoch}, {log.updates:,} updates{loss}{rate}"
