"""Has fairseq itself read command lines before hours of work depend on them; run as a process of its own.

Reads JSON, a list of [kind, words], from standard input; prints the index and fairseq's complaint for the
first that it refuses.
"""

import contextlib
import io
import json
import logging
import os
import re
import subprocess
import sys

from recipes.common.errors import RecipeError
from recipes.common.experiment import Experiment, generate_command, train_command
from recipes.common.run import ROOT, Run
from recipes.common.sources import pair_tests


def main() -> None:
    """The process's side."""
    logging.disable(logging.CRITICAL)
    print(json.dumps(first_refused(json.load(sys.stdin))))


def first_refused(commands: list[tuple[str, list[str]]]) -> tuple[int, str] | None:
    """The index of the first command line that fairseq refuses, and its complaint."""
    from fairseq import options

    for index, (kind, words) in enumerate(commands):
        parser = options.get_training_parser() if kind == "train" else options.get_generation_parser()
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                options.parse_args_and_arch(parser, words)
        except SystemExit:
            return index, " ".join(said.getvalue().rsplit("error: ", 1)[-1].split())
        except ValueError as error:  # the plugin's own refusal
            return index, " ".join(str(error).split())
    return None


def commands_to_check(run: Run, experiments: list[Experiment], stages: list[str]) -> list[tuple[str, list[str]]]:
    """The command lines that these stages will run and have not run yet."""
    commands: list[tuple[str, list[str]]] = []
    if "train" in stages:
        waiting = [one for one in experiments if not one.markers.is_done("train", one.train_inputs())]
        commands += [("train", words_behind(train_command(one), "fairseq_cli.train")) for one in waiting]
    if "translate" in stages and not all(
        one.markers.is_done("translate", one.translate_inputs()) for one in experiments
    ):
        words = generate_command(experiments[0], pair_tests(run)[0], run.output_dir)
        commands.append(("generate", words_behind(words, "fairseq_cli.generate")))
    return commands


def check_flags(run: Run, experiments: list[Experiment], stages: list[str]) -> None:
    """RecipeError naming file, section and key of the first flag that fairseq refuses."""
    commands = commands_to_check(run, experiments, stages)
    if not commands:
        return
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
    found = json.loads(lines[-1])
    if found is not None:
        index, complaint = found
        kind, words = commands[index]
        raise RecipeError(refusal(run, kind, words, complaint, experiments))


def words_behind(words: list[str], module: str) -> list[str]:
    """A command line without what starts the program."""
    return words[words.index(module) + 1 :]


def refusal(run: Run, kind: str, words: list[str], complaint: str, experiments: list[Experiment]) -> str:
    """One sentence that says where the flag that fairseq complains of was written."""
    recipe = run.recipe
    mine = [one for one in experiments if kind == "train" and str(one.checkpoints) in words]
    if mine and complaint.startswith("argument --arch"):
        where = f"{recipe.where('experiments', mine[0].name)}, or {recipe.where('model', 'size')}"
        return f"{where}: there is no architecture '{mine[0].arch}'."
    sections = {"generate": recipe.generate} if kind == "generate" else {"model": recipe.model, "train": recipe.train}
    where = str(recipe.path)
    for flag in re.findall(r"--([a-z][a-z0-9-]*)", complaint):
        if kind == "train" and flag in run.extra:
            where = f"--{flag} behind --"
        elif mine and flag in mine[0].flags:
            where = recipe.where("experiments", mine[0].name)
        elif found := [section for section, flags in sections.items() if flag in flags]:
            where = recipe.where(found[-1], flag)
        else:
            continue
        break
    return f"{where}: fairseq says: {complaint}"


if __name__ == "__main__":
    main()
