"""The command `fairseq-posenc`: its subcommands are the files of `commands/`."""

import importlib
import logging
import sys
from pathlib import Path

import click

from posenc_experiments.base.errors import sentence

HELP_OPTIONS = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
COMMANDS = {
    "run": "Run a recipe: prepare, train, average, translate, score, compare.",
    "own": "Compare encodings on your own text.",
    "table": "Run what is missing of a paper's table, and print it beside the paper's figures.",
    "compare": "Compare scored experiments in a table and a plot.",
    "analyse": "Show on a page what experiments learned and where they differ.",
    "keep-results": "Copy the text of scored experiments to where it is kept.",
    "average": "Average checkpoints of one training.",
    "describe": "Count the parameters that architectures spend on positions.",
    "plot-encodings": "Draw what position encodings do to attention.",
    "benchmark": "Measure speed and memory beside stock fairseq.",
    "export": "Write a checkpoint as a model of CTranslate2.",
    "compare-ctranslate2": "Compare speed and BLEU of an exported model with fairseq's.",
    "estimate-cost": "Estimate the GPU-hours of the papers' tables.",
}


class _Commands(click.Group):
    """Imports a command only when it runs, as some need torch and fairseq. What a user can fix ends in one sentence
    and exit status 1.
    """

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.exit_code = 1  # type: ignore[misc]
            raise
        except Exception as error:
            text = sentence(error)
            if text is None:
                raise
            raise click.ClickException(text) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(
            f"posenc_experiments.commands.{cmd_name.replace('-', '_')}"
        ).main
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _require_copy(ctx: click.Context, parameter: click.Parameter, script: Path | None) -> None:
    """Refuses a script of another copy of the code than the one that is imported."""
    here = Path(__file__).resolve().parents[1]
    if script is not None and script.resolve().parents[1] != here:
        raise click.ClickException(
            f"{script} is not of the installed copy, {here}: run `source scripts/env.sh` in the script's copy first."
        )


@click.group(cls=_Commands, context_settings=HELP_OPTIONS)
@click.option("--script", type=click.Path(path_type=Path), hidden=True, callback=_require_copy, expose_value=False)
def group() -> None:
    """Experiments with position encodings in translation.

    \b
    bash recipes/quickstart/run.sh                         a first experiment, ten minutes on 2 CPU cores
    bash recipes/own/run.sh --text DIR --pair en-de        your own text
    fairseq-posenc compare output/multi30k/en-de           a table of what was scored
    fairseq-posenc COMMAND --help                          what a command does, and its options

    A recipe's run.sh is `run` with the recipe filled in, its table.sh is `table`. They put results into output/, data
    into data/, and resume what was stopped.
    """
    # Warnings only: importing fairseq sets the root logger to DEBUG, and every library would talk.
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    logging.basicConfig(handlers=[handler])


def main() -> None:
    """Runs the command line of this process."""
    group.main(prog_name="fairseq-posenc")


def script(file: str, command: str) -> None:
    """Runs a command for the script in `scripts/` that stands for it."""
    group.main(["--script", file, command, *sys.argv[1:]], prog_name="fairseq-posenc")
