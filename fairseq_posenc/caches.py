"""Values that are computed once: for one forward pass, or for all steps of a generation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from torch import Tensor


class Cache:
    """The cached values of one forward pass of an encoder or decoder, shared by its layers.

    Args:
        recomputed: whether layers run again in the backward pass (activation checkpointing); values that need a
            gradient are then not cached.
        generation: a dictionary that caches values for one batch, the same in all steps of incremental decoding; None
            outside incremental decoding.
    """

    def __init__(self, recomputed: bool = False, generation: dict[Any, Any] | None = None) -> None:
        self.recomputed = recomputed
        self.generation = generation
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], Any], learned: bool = False) -> Any:
        """``make()``, cached for this pass under ``key``.

        Args:
            learned: whether the value depends on parameters; it is then not cached if layers are recomputed.
        """
        if learned and self.recomputed:
            return make()
        if key not in self._values:
            self._values[key] = make()
        return self._values[key]

    def get_for_generation(
        self, key: Hashable, length: int, make: Callable[[int], Tensor], longest: int | None = None
    ) -> Tensor:
        """``make(capacity)``, cached under ``key`` for the whole generation; the capacity doubles when outgrown.

        Outside incremental decoding the value is cached for this pass and must not depend on parameters.

        Args:
            length: the number of positions that this pass needs.
            make: makes the value for a number of positions.
            longest: maximum capacity.
        """
        if self.generation is None:
            return self.get(key, lambda: make(length))
        capacity, value = self.generation.get(key, (0, None))
        if capacity < length:
            capacity = max(64, 2 * length) if longest is None else min(max(64, 2 * length), longest)
            value = make(capacity)
            self.generation[key] = capacity, value
        return value

    def for_observer(self) -> Cache:
        """A copy for computations without gradients: it computes learned values again and caches none."""
        copied = Cache(recomputed=True)
        copied._values = dict(self._values)
        return copied
