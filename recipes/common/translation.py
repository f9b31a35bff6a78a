"""What makes the translations of a trained model: averaging and [generate], written in one way."""

from typing import Any

from recipes.common.settings import Recipe

# fairseq-generate's defaults, and the pipeline's own; a test compares them with fairseq's.
DEFAULTS: dict[str, Any] = {
    **{"average": 1, "average-by": "epochs", "length-penalty": "power"},
    **{"beam": 5, "nbest": 1, "lenpen": 1, "unkpen": 0, "temperature": 1},
    **{"max-len-a": 0, "max-len-b": 200, "min-len": 1, "no-repeat-ngram-size": 0, "prefix-size": 0},
    **{"sampling-topk": -1, "sampling-topp": -1, "diverse-beam-groups": -1, "diverse-beam-strength": 0.5},
    **{"diversity-rate": -1, "lm-weight": 0, "max-source-positions": 1024, "max-target-positions": 1024},
}
# They change time and memory only.
HARDWARE = {"max-tokens", "batch-size", "num-workers", "data-buffer-size", "required-batch-size-multiple"}


def canonical(recipe: Recipe) -> dict[str, Any]:
    """Averaging, length penalty and the flags of [generate], sorted, without those at their defaults."""
    settings: dict[str, Any] = {
        **recipe.generate,
        "average": recipe.average,
        "length-penalty": recipe.length_penalty,
    }
    if recipe.average > 1:  # of one checkpoint it is always the last
        settings["average-by"] = recipe.average_by
    values = {name: _value(text) for name, text in settings.items() if name not in HARDWARE}
    return {name: value for name, value in sorted(values.items()) if value != DEFAULTS.get(name)}


def _value(text: Any) -> Any:
    """A number as such, whole ones without a fraction; a flag without a value as true."""
    if text == "":
        return True
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
