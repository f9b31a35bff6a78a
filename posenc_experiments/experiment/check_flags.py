"""Checks fairseq's command lines before hours of work depend on them.

They are parsed with fairseq's own parser, and the models are built without memory. Beyond that, it refuses trainings
that never end or write too few checkpoints and, once the data is prepared, limits below its longest sentence, because
fairseq would leave the sentence out. What else fairseq refuses needs no rule here: what was done before is kept.
"""

import re
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import flag_words
from posenc_experiments.base.recipe import GENERATION_TASKS, SAVE_INTERVAL
from posenc_experiments.data import prepare, prepared
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.experiment.command_lines import train_command
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.fairseq_flags import Refused, read

#: entries of the dictionaries of models that are built only to find flags that do not fit together
SOME_VOCABULARY = 8
#: flags that these models ignore: they depend on the vocabulary, or need the other processes of the training
UNCHECKED = {"adaptive_softmax_cutoff": None, "adaptive_input": False, "base_layers": 0}


@dataclass(frozen=True)
class Command:
    """A command of fairseq for an experiment, and its settings as fairseq reads them."""

    experiment: Experiment
    kind: str  # train or generate
    settings: dict[str, Any]

    def error(self, flags: list[str], problem: str) -> RecipeError:
        """An error with the place where the first of these flags that was set was set."""
        recipe = self.experiment.run.recipe
        if self.kind == "train":
            places = [self.experiment.where_set(flag) for flag in flags]
        else:
            places = [recipe.where("generate", flag) for flag in flags if flag in recipe.generate]
        where = next(filter(None, places), f"{recipe.path}, experiment {self.experiment.name}")
        return RecipeError(f"{where}: {problem}")

    def refusal(self, complaint: str) -> RecipeError:
        """An error with fairseq's complaint."""
        one, recipe = self.experiment, self.experiment.run.recipe
        if complaint.startswith("argument --arch"):
            where = f"{recipe.where('experiments', one.name)}, or {recipe.where('model', 'size')}"
            return RecipeError(f"{where}: there is no architecture '{one.arch}'.")
        return self.error(re.findall(r"--([a-zA-Z][\w-]*)", complaint), complaint)


def check_flags(experiments: list[Experiment], stages: list[str]) -> None:
    """Checks the commands that these stages have still to run; with the data, if that is prepared.

    Raises:
        RecipeError: fairseq refuses a flag, or a flag cannot lead to a result; names file, section and key.
    """
    for experiment in experiments:
        for command in _commands(experiment, stages):
            if command.kind == "train":
                _require_checkpoints(command)
            if prepared.is_prepared(experiment.run):
                _require_longest(command)


def _commands(experiment: Experiment, stages: list[str]) -> Iterator[Command]:
    recipe = experiment.run.recipe
    if "train" in stages and not experiment.is_done("train"):
        words = train_command(experiment)
        yield _read(experiment, "train", words[words.index("fairseq_cli.train") + 1 :])
    if "translate" in stages and not experiment.is_done("translate"):
        # Without names of files, so that the flags are parsed once for all experiments.
        task = GENERATION_TASKS[recipe.length_penalty]
        yield _read(experiment, "generate", ["data", "--path", "model", "--task", task, *flag_words(recipe.generate)])


def _read(experiment: Experiment, kind: str, words: list[str]) -> Command:
    # Imported here, because it imports torch, which would slow down --help.
    from fairseq_posenc.errors import FlagError
    from posenc_experiments.experiment.unallocated import ReadsValues, build_unallocated

    try:
        settings = read(kind, words)
        if kind == "train" and "position_encoding" in settings:  # an architecture of this package
            joined = experiment.run.recipe.prepare.joined_dictionary
            with suppress(ReadsValues):
                build_unallocated(Namespace(**settings | UNCHECKED), SOME_VOCABULARY, joined)
    except (Refused, FlagError) as error:
        raise Command(experiment, kind, {}).refusal(str(error)) from None
    return Command(experiment, kind, settings)


def _require_checkpoints(training: Command) -> None:
    """RecipeError if a training never ends, or writes fewer checkpoints than are averaged."""
    settings, recipe = training.settings, training.experiment.run.recipe
    patience = settings["patience"] > 0 and not settings["disable_validation"]
    ends = settings["max_epoch"] or settings["max_update"] or settings["stop_time_hours"] or patience
    if not ends and settings["stop_min_lr"] < 0:
        raise training.error(["max-update"], "the training would never end: add max-update or max-epoch to `train`.")
    by_epochs, interval = recipe.average_by == "epochs", SAVE_INTERVAL[recipe.average_by]
    end = "max-epoch" if by_epochs else "max-update"
    last, every = settings[end.replace("-", "_")], settings[interval.replace("-", "_")]
    kept = last // every if last and every > 0 else recipe.average
    if every < 1 or (by_epochs and settings["no_epoch_checkpoints"]):
        kept = 0
    if kept < recipe.average and recipe.average > 1:
        raise training.error(
            [end, "no-epoch-checkpoints"],
            f"--{end} {last} with --{interval} {every} leaves {kept} of the {recipe.average} checkpoints by "
            f"{recipe.average_by} that are averaged ({recipe.where('generate', 'average')}): train longer, save more "
            "often, or average fewer.",
        )


def _require_longest(command: Command) -> None:
    """RecipeError if fairseq would leave out prepared pairs, or fail at one."""
    run, settings = command.experiment.run, command.settings
    texts = [prepared.longest(run, prepare.subset(run, test)) for test in pair_tests(run)]
    if command.kind == "train":
        train, valid = prepared.longest(run, "train"), prepared.longest(run, "valid")
        # With this flag, the user wants validation to leave out long pairs.
        texts += [train, *([] if settings["skip_invalid_size_inputs_valid_test"] else [valid])]
        limits = {"max-tokens": max(train), "max-tokens-valid": max(valid)}
    else:
        limits = {"max-tokens": max(map(max, texts))}
    if "truncate-source" not in command.experiment.train_flags:
        limits["max-source-positions"] = max(source for source, _ in texts)
    limits["max-target-positions"] = max(target for _, target in texts)
    for flag, longest in limits.items():
        limit = settings.get(flag.replace("-", "_"))
        # fairseq parses --max-tokens-valid as text, and its default is --max-tokens.
        if limit is not None and int(limit) < longest:
            raise command.error(
                [flag, "max-tokens"],
                f"--{flag} {limit} is below the longest sentence that was kept, {longest:,} tokens with its </s>: "
                f"fairseq would leave it out or fail; write at least {longest}, use fewer processes to share a batch, "
                "or lower prepare.max-tokens and eval-max-tokens.",
            )
