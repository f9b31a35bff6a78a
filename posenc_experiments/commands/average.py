"""`fairseq-posenc average`: averages checkpoints of one training."""

from pathlib import Path

import click


@click.command()
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The checkpoint to write. It appears only when it is complete.",
)
@click.option(
    "--last-epochs", type=click.IntRange(1), metavar="N", help="Average the last N of DIRECTORY's checkpoint<epoch>.pt."
)
@click.option(
    "--last-updates",
    type=click.IntRange(1),
    metavar="N",
    help="Average the last N of DIRECTORY's checkpoint_<epoch>_<updates>.pt.",
)
@click.option("--up-to", type=int, metavar="M", help="With --last-*: leave out later epochs (or updates) than M.")
@click.option(
    "--allow-different-runs",
    is_flag=True,
    help="Also average checkpoints of different trainings (seed, optimization, data) of one model.",
)
@click.argument("paths", nargs=-1, required=True, metavar="DIRECTORY | FILE...", type=click.Path(path_type=Path))
def main(
    output: Path,
    last_epochs: int | None,
    last_updates: int | None,
    up_to: int | None,
    allow_different_runs: bool,
    paths: tuple[Path, ...],
) -> None:
    """Averages checkpoints of one training: the last of a DIRECTORY, or the named FILEs.

    \b
    fairseq-posenc average --output averaged.pt --last-epochs 5 checkpoints/
    fairseq-posenc average --output averaged.pt --last-updates 20 --up-to 100000 checkpoints/
    fairseq-posenc average --output averaged.pt checkpoints/checkpoint7.pt checkpoints/checkpoint9.pt

    The checkpoints must be of one model (same architecture, flags and parameters) and of one training (same seed,
    batches, optimization and data; its hardware and length may differ). fairseq-generate and --finetune-from-model
    accept the result; it holds no optimizer state. Averaging needs the memory of two models.
    """
    if last_epochs is not None and last_updates is not None:
        raise click.UsageError("--last-epochs and --last-updates exclude each other; give one of them.")
    last = last_epochs if last_epochs is not None else last_updates
    if last is None and up_to is not None:
        raise click.UsageError("--up-to needs --last-epochs or --last-updates.")
    if last is not None and len(paths) != 1:
        raise click.UsageError(f"--last-epochs and --last-updates take one directory, not {len(paths)} paths.")
    directories = [path for path in paths if path.is_dir()]
    if last is None and directories:
        raise click.UsageError(
            f"{directories[0]} is a directory; say which of its checkpoints with --last-epochs or --last-updates."
        )
    from fairseq_posenc import checkpoints

    if last is not None:
        unit = "epoch" if last_epochs is not None else "update"
        paths = tuple(checkpoints.last_checkpoints(paths[0], last, unit, up_to=up_to))
    checkpoints.average_checkpoints(
        paths,
        output,
        allow_different_runs=allow_different_runs,
        report=lambda path: click.echo(f"reading {path}"),
    )
    click.echo(f"wrote {output}: the average of {len(paths)} checkpoints")
