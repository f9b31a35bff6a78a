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
    last = last_epochs or last_updates
    if last is None:
        fits = up_to is None and not any(path.is_dir() for path in paths)
    else:
        fits = len(paths) == 1 and None in (last_epochs, last_updates)
    if not fits:
        raise click.UsageError("name one DIRECTORY and --last-epochs or --last-updates, or FILEs without such options.")
    from fairseq_posenc import checkpoints

    if last is not None:
        unit = "epoch" if last_epochs else "update"
        paths = tuple(checkpoints.last_checkpoints(paths[0], last, unit, up_to=up_to))
    checkpoints.average_checkpoints(
        paths, output, allow_different_runs=allow_different_runs, report=lambda path: click.echo(f"reading {path}")
    )
    click.echo(f"wrote {output}: the average of {len(paths)} checkpoints")
