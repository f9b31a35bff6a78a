"""What each position augmentation does with each encoding: it works, has no effect, or is undefined."""

from __future__ import annotations

from collections.abc import Collection

from ..encodings import PositionEncoding

WORKS, NO_EFFECT, UNDEFINED = "works", "no effect", "undefined"


def effect(mode: str, encoding: type[PositionEncoding], input_positions: str) -> str:
    """What a mode does in a stack: WORKS, NO_EFFECT or UNDEFINED.

    Args:
        input_positions: "none", "sinusoidal" or "learned".
    """
    at_input = input_positions != "none"
    if not at_input and encoding.facts.reads == "nothing":
        return NO_EFFECT
    if mode == "shift":
        return WORKS if at_input or encoding.facts.sees_shifts else NO_EFFECT
    if encoding.facts.reads == "distances":
        return UNDEFINED
    if mode == "cape" and (encoding.facts.reads == "integers" or input_positions == "learned"):
        return UNDEFINED
    return WORKS


def combined(effects: Collection[str]) -> str:
    """The effect in a model whose stacks have these effects."""
    if UNDEFINED in effects:
        return UNDEFINED
    return WORKS if WORKS in effects else NO_EFFECT


def undefined_because(encoding: type[PositionEncoding]) -> str:
    """The reason why a mode is undefined in a stack, as a clause."""
    if encoding.facts.reads == "distances":
        return f"{encoding.name} reads distances between tokens, not their positions"
    return "its positions are real numbers, and tables have rows for whole ones only"
