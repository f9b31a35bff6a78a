"""`fairseq-posenc plot-encodings`: one picture per position encoding of its effect on the attention of a toy sentence.

The pictures use only the hooks that every encoding has, so a new encoding needs no code here. They show:

* what positions add to the logits, with equal words (q = k = 1), so that only positions differ;
* what the encoding adds to the output beside the values (by ``context``);
* the share of each key and value in each mixture, for encodings that attend to mixtures (Linformer's);
* the vectors added to the embeddings (sinusoids, learned vectors).

Initial parameters, near zero or one, would show little. So seeded normal noise is added to them, of standard deviation
1, or of 1/sqrt(n) in a projection from n dimensions.
"""

import logging
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch
from fairseq.modules import PositionalEmbedding
from torch import Tensor

from fairseq_posenc.attention.inputs import AttentionInputs
from fairseq_posenc.attention.observing import content_logits
from fairseq_posenc.encodings import ENCODINGS, PositionEncoding, build_encoding, find_encoding
from fairseq_posenc.positions import Positions
from posenc_experiments.base.files import atomic_path, require_directory

WORDS = ["the", "dog", "that", "I", "saw", "yesterday", "barked", "loudly"]
HEADS, WIDTH = 4, 16
#: options of the encodings that have them, small enough for clipping and buckets to show within the sentence
OPTIONS: dict[str, Any] = {
    "clipping_distance": 3,
    "left_clip": 3,
    "right_clip": 1,
    "num_buckets": 8,
    "max_distance": 6,
    "fire_threshold": 4,
    "projection_length": 4,
    "max_positions": len(WORDS),
}


class Panels(NamedTuple):
    """One row of a picture: matrices that share axes and colours."""

    title: str
    names: list[str]  # one per matrix
    matrices: Tensor  # (panels, rows, columns)
    rows: str
    columns: str


def build(name: str) -> tuple[PositionEncoding, str]:
    """Builds an encoding for the toy sentence, with noise on its matrices; also returns a line that describes it."""
    torch.manual_seed(1)
    known = {option: value for option, value in OPTIONS.items() if option in ENCODINGS[name].options}
    idle = ENCODINGS[name].facts.idle_options(known)
    options = {option: value for option, value in known.items() if option not in idle}
    encoding = build_encoding(name, HEADS, WIDTH, **options).double()
    described = [f"{option} = {value}" for option, value in options.items()]
    tables = [(module, table) for module in encoding.modules() for table in module.parameters(False) if table.dim() > 1]
    with torch.no_grad():
        for module, table in tables:
            std = module.in_features**-0.5 if isinstance(module, torch.nn.Linear) else 1.0
            table.add_(torch.randn_like(table), alpha=std)
    return encoding, ", ".join(described + ["noise on the initial tables"] * bool(tables))


def panels_of(encoding: PositionEncoding) -> list[Panels]:
    """The rows of an encoding's picture."""
    length = len(WORDS)
    positions = Positions(length, length)
    title = "logits with positions less logits without"
    words = 5 * torch.randn(1, length, HEADS * WIDTH, dtype=torch.float64)
    panels = []
    q, k, v = torch.ones(3, 1, HEADS, length, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        inputs = AttentionInputs.from_projected(encoding, q, k, v, positions, None, 0.0, words, None)
        if inputs.from_input is not None:
            title += ", the layer's input being random vectors"
        effect = (inputs.logits() - content_logits(inputs, q, k))[0]
        if encoding.facts.projects_length:
            one_hot = torch.eye(length, WIDTH, dtype=torch.float64).expand_as(k)
            _, keys, values = encoding.transform(q, one_hot, one_hot, positions)
            mixtures = torch.stack([keys[0, 0, :, :length], values[0, 0, :, :length]])
            shares = "share of each key and value in each mixture"
            panels.append(Panels(shares, ["keys (E)", "values (F)"], mixtures, "mixture c", "key j"))
        if "context" in encoding.hooks:
            middle = length // 2
            one_hot = torch.eye(length, dtype=torch.float64)[:, None, None, :]  # sentence s attends to key s
            added = encoding.context(one_hot.expand(-1, HEADS, length, -1), positions)  # (S, H, T, d)
            added_to = f'vector added to the value of key j, as the query "{WORDS[middle]}" sees it'
            panels.append(Panels(added_to, *by_head(added[:, :, middle].transpose(0, 1)), "key j", "dimension"))
        if (kind := encoding.facts.input_positions) != "none":
            module = PositionalEmbedding(length, HEADS * WIDTH, padding_idx=1, learned=kind == "learned")
            vectors = module(torch.full((1, length), 4)).double()  # any token that is not padding
            products = vectors @ vectors.transpose(1, 2)
            panels += [
                Panels(f"{kind} vectors added to the embeddings", [""], vectors, "position", "dimension"),
                Panels("their inner products", [""], products, "position i", "position j"),
            ]
    if effect.abs().max() > 1e-12 or not panels:
        columns = "mixture c" if encoding.facts.projects_length else "key j"
        panels.insert(0, Panels(title, *by_head(effect), "query i", columns))
    return panels


def by_head(matrices: Tensor) -> tuple[list[str], Tensor]:
    """Names and matrices (H, ...) of all heads, or one of each if all heads are equal."""
    if (matrices == matrices[:1]).all():
        return ["all heads"], matrices[:1]
    return [f"head {head + 1}" for head in range(len(matrices))], matrices


def draw(name: str, path: Path) -> None:
    """Writes the picture of one encoding; one version of matplotlib always writes the same bytes."""
    from matplotlib.figure import Figure  # it logs at its import, as fairseq told all libraries to

    encoding, described = build(name)
    rows = panels_of(encoding)
    widest = max(len(panels.names) for panels in rows)
    figure = Figure(figsize=(1.5 + 2.1 * max(widest, 2), 3.2 * len(rows) + 0.5), layout="constrained")
    figure.suptitle(f"{name} ({described})" if described else name, fontsize=10)
    subfigures = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
    for part, panels in zip(subfigures, rows, strict=True):
        part.suptitle(panels.title, fontsize=10)
        axes = part.subplots(1, len(panels.names), squeeze=False)[0]
        limit, wide = float(panels.matrices.abs().max()) or 1.0, panels.columns == "dimension"
        for ax, title, matrix in zip(axes, panels.names, panels.matrices, strict=True):
            image = ax.imshow(matrix.numpy(), "RdBu_r", vmin=-limit, vmax=limit, aspect="auto" if wide else "equal")
            ax.set_title(title, fontsize=10)
            ax.set_xlabel(panels.columns, fontsize=9)
            ax.tick_params(labelsize=8.5)
            if matrix.shape[1] == len(WORDS) and not wide:
                ax.set_xticks(range(len(WORDS)), WORDS, rotation=90)
            ax.set_yticks(range(len(matrix)), WORDS if len(matrix) == len(WORDS) else range(len(matrix)))
            ax.label_outer()
        axes[0].set_ylabel(panels.rows, fontsize=9)
        part.colorbar(image, ax=axes.tolist(), shrink=0.8, panchor=False).ax.tick_params(labelsize=8.5)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=100, bbox_inches="tight", metadata={"Software": None})


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Directory of the pictures.")
def main(names: tuple[str, ...], output: Path) -> None:
    """Plots how the encodings NAMES, by default all, change attention: NAME.png for each."""
    logging.disable(logging.WARNING)  # libraries log at their import, and matplotlib each font
    require_directory(output, "--output")
    for name in names:  # refuses a wrong name before the first picture
        find_encoding(name)
    for name in names or ENCODINGS:
        draw(name, output / f"{name}.png")
        click.echo(output / f"{name}.png")
