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
from recipes.common.settings import Recipe


def main() -> None:
    """The process's side."""
    from fairseq import options

    logging.disable(logging.CRITICAL)
    for index, (kind, words) in enumerate(json.load(sys.stdin)):
        parser = options.get_training_parser() if kind == "train" else options.get_generation_parser()
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                options.parse_args_and_arch(parser, words)
        except SystemExit:
            complaint = said.getvalue().rsplit("error: ", 1)[-1]
            print(json.dumps([index, " ".join(complaint.split())]))
            return
        except ValueError as error:  # the plugin's own refusal
            print(json.dumps([index, " ".join(str(error).split())]))
            return
    print("null")


def check_flags(run: Run, experiments: list[Experiment], stages: list[str]) -> None:
    """RecipeError naming file, section and key of the first flag that fairseq refuses."""
    commands: list[tuple[str, list[str]]] = []
    if "train" in stages:
        waiting = [one for one in experiments if not one.markers.is_done("train", one.train_inputs())]
        commands += [("train", words_behind(train_command(one), "fairseq_cli.train")) for one in waiting]
    if "translate" in stages and not all(
        one.markers.is_done("translate", one.translate_inputs()) for one in experiments
    ):
        words = generate_command(experiments[0], run.recipe.corpus.tests[0], run.output_dir)
        commands.append(("generate", words_behind(words, "fairseq_cli.generate")))
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
        raise RecipeError(f"{_origin(run, commands[index][0], complaint, experiments)}: fairseq says: {complaint}")


def words_behind(words: list[str], module: str) -> list[str]:
    """A command line without what starts the program."""
    return words[words.index(module) + 1 :]


def _origin(run: Run, kind: str, complaint: str, experiments: list[Experiment]) -> str:
    recipe: Recipe = run.recipe
    for flag in re.findall(r"--([a-z][a-z0-9-]*)", complaint):
        if flag in run.extra:
            return f"--{flag} behind --"
        for one in experiments:
            if flag in one.flags and kind == "train":
                return f"{recipe.path}, section [experiments], key '{one.name}'"
        sections = (
            {"generate": recipe.generate} if kind == "generate" else {"model": recipe.model, "train": recipe.train}
        )
        for section, flags in sections.items():
            if flag in flags:
                return f"{recipe.path}, section [{section}], key '{flag}'"
    if "--arch" in complaint or "-a" in complaint.split():
        for one in experiments:
            if one.arch in complaint:
                return f"{recipe.path}, section [experiments], key '{one.name}', or section [model], key 'size'"
    return str(recipe.path)


if __name__ == "__main__":
    main()
