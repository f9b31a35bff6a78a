"""What an experiment asks of fairseq: an architecture and flags, from its row in the recipe and from the call."""

from __future__ import annotations

import importlib.util
import runpy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Self

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import Flags, literal, parse_flags
from posenc_experiments.base.run import Run


def package_directory() -> Path:
    """The plugin's directory, for --user-dir, found without importing the plugin, which would take seconds."""
    spec = importlib.util.find_spec("fairseq_posenc")
    if spec is None or spec.origin is None:
        raise RecipeError(
            "fairseq_posenc is not installed: run `source scripts/env.sh`, or `pip install .` in the repository."
        )
    return Path(spec.origin).parent


@cache
def _hardware() -> dict[str, Any]:
    # Executed as a file, because importing its package imports torch, which would slow down --help.
    return runpy.run_path(str(package_directory() / "hardware.py"))


def without_hardware(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that results depend on: all but those of hardware."""
    return {name: value for name, value in flags.items() if not _hardware()["is_hardware"](name)}


def value_of(value: Any) -> Any:
    """The normalized value of a flag, for JSON: equal for `(0.9, 0.98)` and `(0.90,0.98)`, and for 1 and 1.0."""
    if isinstance(value, str):
        try:
            value = literal(value)
        except ValueError:
            return value
    if isinstance(value, list | tuple):
        return [value_of(one) for one in value]
    if isinstance(value, dict):
        return {str(key): value_of(one) for key, one in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, bool | int | float | None) else str(value)


def whole(flags: Flags, name: str, default: int) -> int:
    """The value of a flag as a whole number."""
    try:
        return int(flags.get(name, default))
    except ValueError:
        raise RecipeError(f"--{name} {flags[name]}: write a whole number.") from None


@dataclass(frozen=True)
class Request:
    """An encoding with its flags, on one pair; the same for all seeds."""

    run: Run
    name: str

    @property
    def encoding(self) -> str:
        return self.run.recipe.experiments[self.name][0]

    @property
    def arch(self) -> str:
        return f"transformer_{self.encoding}_{self.run.recipe.size}"

    @cached_property
    def flags(self) -> Flags:
        """The experiment's own flags: those of its row in the recipe, and those after `--`.

        Raises:
            RecipeError: the row, --set and the flags after `--` give a flag different values, so that one is ignored.
        """
        recipe, name = self.run.recipe, self.name
        row = parse_flags(recipe.experiments[name][1:], f"`experiments` {name}")
        places = {
            recipe.where("experiments", name): row,
            "--set": recipe.overridden,
            "the flags after --": self.run.extra,
        }
        for (one, flags), (other, others) in combinations(places.items(), 2):
            for flag, value in flags.items():
                if value_of(value) != value_of(others.get(flag, value)):
                    raise RecipeError(f"--{flag} is {value} by {one}, and {others[flag]} by {other}: leave one out.")
        return {**row, **self.run.extra}

    @cached_property
    def named_flags(self) -> Flags:
        """The flags that distinguish it from the other experiments of its recipe, and name its directory."""
        return without_hardware({**self.run.recipe.overridden, **self.flags})

    @cached_property
    def train_flags(self) -> Flags:
        """All flags of the model and the training, without those that depend on the hardware."""
        recipe = self.run.recipe
        flags = {**recipe.model, **recipe.train, **self.flags}
        if recipe.average > 1:
            self._require_checkpoints(flags)
            # The training must not delete checkpoints that are averaged later.
            key = "keep-last-epochs" if recipe.average_by == "epochs" else "keep-interval-updates"
            if 0 <= whole(flags, key, -1) < recipe.average:
                flags[key] = str(recipe.average)
        return flags

    @property
    def start(self) -> Self | None:
        """What it continues, with the same seed, if --finetune-from-model names an experiment of the recipe."""
        name = self.train_flags.get("finetune-from-model")
        return replace(self, name=name) if name in self.run.recipe.experiments else None

    def _require_checkpoints(self, flags: Flags) -> None:
        """RecipeError if training with these flags writes no checkpoints of the kind that is averaged."""
        recipe = self.run.recipe
        where = f"{recipe.where('generate', 'average')}: averaging {recipe.average} checkpoints "
        if recipe.average_by == "updates" and whole(flags, "save-interval-updates", 0) < 1:
            raise RecipeError(
                f"{where}by updates needs checkpoints within epochs: add save-interval-updates to `train`."
            )
        if recipe.average_by == "epochs" and "no-epoch-checkpoints" in flags:
            raise RecipeError(
                f"{where}by epochs needs checkpoints of epochs: leave out no-epoch-checkpoints, or write average-by = "
                "updates."
            )
