"""One colour for each encoding in all plots, and a line and a marker for each series of a plot."""

import re
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

#: Okabe and Ito's colours, which people with colour blindness tell apart, and grey for the baseline
COLOURS = {
    "sinusoidal": "#6e6e6e",
    "shaw": "#0072b2",
    "diet_rel": "#d55e00",
    "t5": "#009e73",
    "rotary": "#cc79a7",
    "alibi": "#e69f00",
    "learned": "#56b4e9",
    "nopos": "#000000",
    "diet_abs": "#8c564b",
    "tupe_abs": "#6a3d9a",
}
#: colours of other encodings: darker and paler than those above
OTHERS = ("#7a9a01", "#a6761d", "#1b4f72", "#b2182b", "#4d9221", "#8073ac", "#01665e", "#c51b7d", "#997700", "#44aa99")
#: matplotlib's lines and markers, which tell series apart without colour
LINES = ("-", (0, (6, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (12, 3)), (0, (2, 3)))
MARKERS = "os^DvPX<>*hp"


class Style(NamedTuple):
    """How a plot shows a series."""

    colour: str
    line: Any  # as matplotlib's `linestyle`
    marker: str


def encoding_in(name: str, encoding: str = "") -> str:
    """The encoding of an experiment by its name, such as shaw of shaw-k16-encoder.

    Args:
        encoding: what it is if the name does not begin with an encoding that has a colour of its own.
    """
    first = re.split(r"[- ]", name)[0]
    return first if first in COLOURS or not encoding else encoding


def colour_of(encoding: str) -> str:
    """The colour of an encoding, the same in all plots."""
    return COLOURS.get(encoding) or OTHERS[zlib.crc32(encoding.encode()) % len(OTHERS)]


def styles(series: Iterable[tuple[str, str]]) -> dict[str, Style]:
    """The style of each series, by its name.

    Args:
        series: names and their encodings, which may repeat.
    """
    return {
        name: Style(colour_of(encoding), LINES[number % len(LINES)], MARKERS[number % len(MARKERS)])
        for number, (name, encoding) in enumerate(dict(series).items())
    }
