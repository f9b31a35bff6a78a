"""Checks fairseq's command lines before hours of work depend on them.

They are parsed with fairseq's own parser, and the models are built without memory. Beyond that, it refuses trainings
that never end or write too few checkpoints and, once the data is prepared, limits below its longest sentence, because
fairseq would leave the sentence out. What else fairseq refuses needs no rule here: what was done before is kept.
"""

import re
from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.base.flags import flag_words
from posenc_experiments.base.recipe import GENERATION_TASKS, SAVE_INTERVAL
from posenc_experiments.data import prepared
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.experiment.command_lines import train_command
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.fairseq_flags import read
from posenc_experiments.experiment.stage import Stage

#: entries of the dictionaries of models that are built only to find flags that do not fit together
SOME_VOCABULARY = 8
#: flags that these models ignore: they depend on the vocabulary, or need the other processes of the training
UNCHECKED = {"adaptive_softmax_cutoff": None, "adaptive_input": False, "base_layers": 0}


def check_flags(experiments: list[Experiment], stages: Iterable[Stage]) -> None:
    """Checks the commands that these stages have still to run; with the data, if that is prepared.

    Raises:
        RecipeError: fairseq refuses a flag, or a flag cannot lead to a result; names file, section and key.
    """
    for experiment in experiments:
        for stage in stages:
            if stage.name not in ("train", "translate") or stage.is_done(experiment):
                continue
            settings = _read(experiment, stage.name)
            if stage.name == "train":
                _require_checkpoints(experiment, settings)
            if prepared.is_prepared(experiment.run):
                _require_longest(experiment, stage.name, settings)


def _read(experiment: Experiment, stage: str) -> dict[str, Any]:
    """The settings of a stage's command as fairseq reads them; RecipeError if it refuses them."""
    # Imported here, because they import torch, which would slow down --help.
    from fairseq.models import ARCH_MODEL_REGISTRY

    from posenc_experiments.experiment.unallocated import build_unallocated

    recipe = experiment.run.recipe
    if stage == "train":
        words = train_command(experiment)
        words = words[words.index("fairseq_cli.train") + 1 :]
    else:
        # Without names of files, so that the flags are parsed once for all experiments.
        task = GENERATION_TASKS[recipe.generate.length_penalty]
        words = ["data", "--path", "model", "--task", task, *flag_words(recipe.generate.flags)]
    try:
        settings = read(stage, tuple(words))
        if stage == "train" and "position_encoding" in settings:  # an architecture of this package
            with suppress(NotImplementedError):  # a constructor reads values of tensors
                args = Namespace(**settings | UNCHECKED)
                build_unallocated(args, SOME_VOCABULARY, recipe.prepare.joined_dictionary)
    except ValueError as error:
        problem = str(error)
        flags = re.findall(r"--([a-zA-Z][\w-]*)", problem)
        if problem.startswith("argument --arch"):
            problem = f"there is no architecture '{experiment.arch}'{meant(experiment.arch, ARCH_MODEL_REGISTRY)}."
        raise _error(experiment, stage, flags, problem) from None
    return settings


def _error(experiment: Experiment, stage: str, flags: list[str], problem: str) -> RecipeError:
    """An error with the place where the first of these flags of a stage that was set was set."""
    run, recipe = experiment.run, experiment.run.recipe
    places = {flag: recipe.where("generate", flag) for flag in recipe.generate.flags}
    if stage == "train":
        row = recipe.where("experiments", experiment.name)
        places = {flag: recipe.where("model", flag) for flag in recipe.model.flags}
        places |= {flag: recipe.where("train", flag) for flag in recipe.train.flags}
        places |= dict.fromkeys(experiment.flags, row) | {flag: f"--{flag} after --" for flag in run.extra}
        places["arch"] = f"{row}, or {recipe.where('model', 'size')}"
    where = next((places[flag] for flag in flags if flag in places), f"{recipe.path}, experiment {experiment.name}")
    return RecipeError(f"{where}: {problem}")


def _require_checkpoints(experiment: Experiment, settings: dict[str, Any]) -> None:
    """RecipeError if a training never ends, or writes fewer checkpoints than are averaged."""
    recipe = experiment.run.recipe
    patience = settings["patience"] > 0 and not settings["disable_validation"]
    ends = settings["max_epoch"] or settings["max_update"] or settings["stop_time_hours"] or patience
    if not ends and settings["stop_min_lr"] < 0:
        problem = "the training would never end: add max-update or max-epoch to `train`."
        raise _error(experiment, "train", ["max-update"], problem)
    average, by = recipe.generate.average, recipe.generate.average_by
    by_epochs, interval = by == "epochs", SAVE_INTERVAL[by]
    end = "max-epoch" if by_epochs else "max-update"
    last, every = settings[end.replace("-", "_")], settings[interval.replace("-", "_")]
    kept = last // every if last and every > 0 else average
    if every < 1 or (by_epochs and settings["no_epoch_checkpoints"]):
        kept = 0
    if kept < average and average > 1:
        raise _error(
            experiment,
            "train",
            [end, "no-epoch-checkpoints"],
            f"--{end} {last} with --{interval} {every} leaves {kept} of the {average} checkpoints by {by} that are "
            f"averaged ({recipe.where('generate', 'average')}): train longer, save more often, or average fewer.",
        )


def _require_longest(experiment: Experiment, stage: str, settings: dict[str, Any]) -> None:
    """RecipeError if fairseq would leave out prepared pairs, or fail at one."""
    run = experiment.run
    texts = [prepared.longest(run, prepared.subset(run, test)) for test in pair_tests(run)]
    if stage == "train":
        train, valid = prepared.longest(run, "train"), prepared.longest(run, "valid")
        # With this flag, the user wants validation to leave out long pairs.
        texts += [train, *([] if settings["skip_invalid_size_inputs_valid_test"] else [valid])]
        limits = {"max-tokens": max(train), "max-tokens-valid": max(valid)}
    else:
        limits = {"max-tokens": max(map(max, texts))}
    if "truncate-source" not in experiment.train_flags:
        limits["max-source-positions"] = max(source for source, _ in texts)
    limits["max-target-positions"] = max(target for _, target in texts)
    for flag, longest in limits.items():
        limit = settings.get(flag.replace("-", "_"))
        # fairseq parses --max-tokens-valid as text, and its default is --max-tokens.
        if isinstance(limit, str) and not limit.isdecimal():
            raise _error(experiment, stage, [flag], f"--{flag} {limit}: write a whole number.")
        if limit is not None and int(limit) < longest:
            raise _error(
                experiment,
                stage,
                [flag, "max-tokens"],
                f"--{flag} {limit} is below the longest sentence that was kept, {longest:,} tokens with its </s>: "
                f"fairseq would leave it out or fail; write at least {longest}, use fewer processes to share a batch, "
                "or lower prepare.max-tokens and eval-max-tokens.",
            )
