"""Has fairseq itself read command lines before hours of work depend on them; run as a process of its own.

Reads JSON, a list of [kind, words], from standard input; prints for each what fairseq understood, up to the first that
it refuses, and of that one the complaint.
"""

import contextlib
import io
import json
import logging
import math
import os
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from recipes.common.check_settings import Checked, Settings, check_settings, where_set
from recipes.common.errors import RecipeError
from recipes.common.experiment import Experiment, generate_command, train_command
from recipes.common.run import ROOT, Run

JSON_TYPES = (bool, int, float, str, list, type(None))


def main() -> None:
    """The process's side."""
    logging.disable(logging.CRITICAL)
    print(json.dumps(read_commands(json.load(sys.stdin)), default=str))


def read_commands(commands: list[tuple[str, list[str]]]) -> tuple[list[Settings], str | None]:
    """What each command line sets, defaults included, up to the first that fairseq refuses, and its complaint."""
    from fairseq import options

    found: list[Settings] = []
    for kind, words in commands:
        parser = options.get_training_parser() if kind == "train" else options.get_generation_parser()
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                settings = vars(options.parse_args_and_arch(parser, words))
                if kind == "train":
                    settings["first_rate"] = first_rate(settings)
        except SystemExit:
            return found, " ".join(said.getvalue().rsplit("error: ", 1)[-1].split())
        except ValueError as error:  # the plugin's own refusal, or first_rate's
            return found, " ".join(str(error).split())
        found.append({name: value for name, value in settings.items() if isinstance(value, JSON_TYPES)})
    return found, None


def first_rate(settings: Settings) -> float:
    """The learning rate with which a training starts, by the optimizer and the schedule that fairseq makes; ValueError
    if it makes none.
    """
    import torch
    from fairseq import optim
    from fairseq.optim import lr_scheduler

    if settings["optimizer"] == "composite":
        return math.inf  # it takes groups of parameters, which only a model has
    flag = "optimizer"
    try:
        of_optimizer = _config(settings, settings["optimizer"], optim.OPTIMIZER_DATACLASS_REGISTRY)
        optimizer = optim.build_optimizer(of_optimizer, [torch.nn.Parameter(torch.zeros(1, 1))])
        flag = "lr-scheduler"
        of_schedule = _config(settings, settings["lr_scheduler"], lr_scheduler.LR_SCHEDULER_DATACLASS_REGISTRY)
        schedule = lr_scheduler.build_lr_scheduler(of_schedule, optimizer)
        schedule.step_update(0)  # as fairseq's trainer does
        schedule.step(1)
        schedule.step_update(0)
    except Exception as error:  # whatever a bad value makes of it
        problem = str(error) or f"it is refused ({type(error).__name__})"
        raise ValueError(f"--{flag} {settings[flag.replace('-', '_')]}: {problem}") from None
    return float(optimizer.get_lr())


def _config(settings: Settings, name: str, registry: dict[str, Any]) -> Any:
    """What fairseq builds an optimizer or a schedule from; all settings as they are for those of its old kind."""
    from omegaconf import OmegaConf

    if name not in registry:
        return Namespace(**settings)
    known = [field.name for field in fields(registry[name]) if field.name in settings]
    return OmegaConf.create({"_name": name, **{key: settings[key] for key in known}})


def first_refused(commands: list[tuple[str, list[str]]]) -> tuple[int, str] | None:
    """The index of the first command line that fairseq refuses, and its complaint."""
    found, complaint = read_commands(commands)
    return None if complaint is None else (len(found), complaint)


def commands_to_check(run: Run, experiments: list[Experiment], stages: list[str]) -> list[tuple[str, list[str]]]:
    """The command lines that these stages will run and have not run yet."""
    commands: list[tuple[str, list[str]]] = []
    if "train" in stages:
        waiting = [one for one in experiments if not one.markers.is_done("train", one.train_inputs())]
        commands += [("train", words_behind(train_command(one), "fairseq_cli.train")) for one in waiting]
    if "translate" in stages and not all(
        one.markers.is_done("translate", one.translate_inputs()) for one in experiments
    ):
        words = generate_command(experiments[0], run.recipe.corpus.tests[0], run.output_dir)
        commands.append(("generate", words_behind(words, "fairseq_cli.generate")))
    return commands


def check_flags(run: Run, experiments: list[Experiment], stages: list[str]) -> list[Checked]:
    """RecipeError naming file, section and key of the first flag that fairseq refuses, or with which no result can
    come. What was checked is to be checked again when the data is there.
    """
    commands = commands_to_check(run, experiments, stages)
    if not commands:
        return []
    process = subprocess.run(
        [run.python, "-m", "recipes.common.check_flags"],
        input=json.dumps(commands),
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        },
    )
    lines = process.stdout.strip().split("\n")
    if process.returncode != 0 or not lines[-1]:
        reason = (process.stderr.strip().split("\n") or ["no message"])[-1]
        raise RecipeError(f"fairseq cannot be started with {run.python}: {reason}")
    found, complaint = json.loads(lines[-1])
    if complaint is not None:
        raise RecipeError(refusal(run, *commands[len(found)], complaint, experiments))
    checked = [
        Checked(next(of_command(words, experiments), None) if kind == "train" else None, run, settings)
        for (kind, words), settings in zip(commands, found, strict=True)
    ]
    for one in checked:
        check_settings(one)
    return checked


def words_behind(words: list[str], module: str) -> list[str]:
    """A command line without what starts the program."""
    return words[words.index(module) + 1 :]


def refusal(run: Run, kind: str, words: list[str], complaint: str, experiments: list[Experiment]) -> str:
    """One sentence that says where the flag that fairseq complains of was written."""
    recipe = run.recipe
    mine = next(of_command(words, experiments), None) if kind == "train" else None
    if mine and complaint.startswith("argument --arch"):
        where = f"{recipe.where('experiments', mine.name)}, or {recipe.where('model', 'size')}"
        return f"{where}: there is no architecture '{mine.arch}'."
    flags = re.findall(r"--([a-z][a-z0-9-]*)", complaint)
    found = next(filter(None, (where_set(run, mine, flag) for flag in flags)), None)
    return f"{found or recipe.path}: fairseq says: {complaint}"


def of_command(words: list[str], experiments: list[Experiment]) -> Iterator[Experiment]:
    """The experiment that a training's command line is of."""
    return (one for one in experiments if str(one.checkpoints) in words)


if __name__ == "__main__":
    main()
