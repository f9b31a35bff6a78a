"""The command `fairseq-posenc`: its subcommands are the files of `commands/`."""

import importlib
import io
import logging
import sys

from posenc_experiments.base.errors import meant, sentence

try:
    import click
except ModuleNotFoundError as error:
    sys.exit(f"Error: {sentence(error)}")

HELP_OPTIONS = {"help_option_names": ["-h", "--help"], "max_content_width": 120, "show_default": True}
COMMANDS = {
    "run": "Run a recipe: prepare, train, average, translate, score, compare.",
    "own": "Compare encodings on your own text.",
    "table": "Run what is missing of a paper's table, and print it beside the paper's figures.",
    "compare": "Compare scored experiments in a table and a plot.",
    "analyse": "Show on a page what experiments learned and where they differ.",
    "score-targets": "Score given targets: their log-probability under a model.",
    "contrast": "Measure accuracy on contrastive pairs, by phenomenon and distance.",
    "keep-results": "Copy settings, translations, scores and analyses of experiments, without checkpoints.",
    "average": "Average checkpoints of one training.",
    "describe": "Count the parameters that architectures spend on positions.",
    "plot-encodings": "Plot how position encodings change attention.",
    "benchmark": "Measure speed and memory beside stock fairseq.",
    "export": "Write a checkpoint as a model of CTranslate2.",
    "estimate-cost": "Estimate the GPU-hours of the papers' tables.",
}


class _Commands(click.Group):
    """A group that imports a command only when it is called, because some need torch and fairseq.

    An error that the user can fix prints one sentence and exits with status 1.
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
            # Here, because only some commands read kept results.
            from posenc_experiments.evaluation.kept import original

            raise click.ClickException(original(text)) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            ctx.fail(f"there is no command '{cmd_name}'{meant(cmd_name, COMMANDS)}.")
        return importlib.import_module(f"posenc_experiments.commands.{cmd_name.replace('-', '_')}").main

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings=HELP_OPTIONS)
def group() -> None:
    """Experiments with position encodings in translation.

    \b
    fairseq-posenc run quickstart --jobs 0                 a first experiment, ten minutes on 2 CPU cores
    fairseq-posenc own --text DIR --pair en-de             your own text
    fairseq-posenc compare output/multi30k/en-de           a table of the scored experiments
    fairseq-posenc COMMAND --help                          what a command does, and its options

    `run`, `own` and `table` write results to output/ and data to data/ of the current directory, and resume where an
    earlier call stopped. In a clone of the repository, recipes/NAME/run.sh and table.sh call them with the clone's
    environment, output/ and data/.
    """
    # Warnings only: importing fairseq sets the root logger to DEBUG, so every library would log.
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    logging.basicConfig(handlers=[handler])


def main(words: list[str] | None = None) -> None:
    """Runs a command line, by default that of this process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may have no ±
    group.main(words, prog_name="fairseq-posenc")
