"""Checks fairseq's command lines before hours of work depend on them.

`check_flags` parses them with fairseq's own parser, builds the models without memory, and refuses settings that cannot
lead to a result; `check_data` does so, after the preparation, for what depends on the data. Settings that fairseq-train
refuses before its first update need no rule here.
"""

import math
import re
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import literal
from posenc_experiments.base.recipe import SAVE_INTERVAL
from posenc_experiments.base.run import Run
from posenc_experiments.data import prepare, prepared
from posenc_experiments.data.prepared import is_prepared
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.experiment.command_lines import generate_command, train_command
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.fairseq_flags import Refused, read

#: entries of the dictionaries of models that are built only to find flags that do not fit together
SOME_VOCABULARY = 8
#: flags that these models ignore: they depend on the vocabulary, or need the other processes of the training
UNCHECKED = {"adaptive_softmax_cutoff": None, "adaptive_input": False, "base_layers": 0}
Fault = tuple[str, str]  # the flag, and what is wrong with it
MINIMUM = {
    **dict.fromkeys(["max-epoch", "max-update", "stop-time-hours"], 0),
    **dict.fromkeys(["save-interval", "validate-interval", "update-freq"], 1),
    **dict.fromkeys(["max-tokens", "max-tokens-valid", "batch-size", "batch-size-valid"], 1),
    **dict.fromkeys(["beam", "nbest", "total-num-update"], 1),
}
# Settings that are probabilities, or shares of one, of which 1 leaves nothing.
PROBABILITIES = re.compile(r".*(dropout|layerdrop|label_smoothing|quant_noise_pq|quant_noise_scalar)")
MOST_PARAMETERS = 10**11
# Values of --best-checkpoint-metric, and the flag that makes validation compute each.
MEASURED_BY = {"bleu": "eval-bleu", "accuracy": "report-accuracy"}


@dataclass(frozen=True)
class Checked:
    """A command of fairseq and its settings: the training of one experiment, or the generation of all (None)."""

    experiment: Experiment | None
    run: Run
    settings: dict[str, Any]

    def get(self, flag: str) -> Any:
        """The value of a flag; None if it has none, or the command has no such flag."""
        value = self.settings.get(flag.replace("-", "_"))
        # fairseq parses a flag whose default is the value of another flag as text.
        return int(value) if flag in MINIMUM and isinstance(value, str) and value.isdecimal() else value

    def refuse(self, faults: Iterator[Fault]) -> None:
        """RecipeError for the first fault, which names the place where the flag was set."""
        for flag, problem in faults:
            raise RecipeError(f"{self.where_set(flag) or self.run.recipe.path}: {problem}")

    def where_set(self, flag: str) -> str | None:
        """The place where a flag was set; None if it was not."""
        if self.experiment is not None:
            return self.experiment.where_set(flag)
        recipe = self.run.recipe
        return recipe.where("generate", flag) if flag in recipe.generate else None

    def refusal(self, complaint: str) -> RecipeError:
        """An error with fairseq's complaint and the place where the flag it names was set."""
        recipe, name = self.run.recipe, self.experiment.name if self.experiment else None
        if self.experiment is not None and complaint.startswith("argument --arch"):
            where = f"{recipe.where('experiments', self.experiment.name)}, or {recipe.where('model', 'size')}"
            return RecipeError(f"{where}: there is no architecture '{self.experiment.arch}'.")
        flags = re.findall(r"--([a-zA-Z][\w-]*)", complaint)
        found = next(filter(None, map(self.where_set, flags)), None)
        return RecipeError(f"{found or str(recipe.path) + (f', experiment {name}' if name else '')}: {complaint}")


def check_flags(experiments: list[Experiment], stages: list[str]) -> list[Checked]:
    """Checks the command lines that these stages have still to run.

    Returns:
        The commands, for `check_data` to check when the data is prepared.

    Raises:
        RecipeError: fairseq refuses a flag, or a flag cannot lead to a result; names file, section and key.
    """
    waiting = [one for one in experiments if not one.is_done("train")]
    checked = [read_training(one) for one in waiting if "train" in stages]
    if "translate" in stages and not all(one.is_done("translate") for one in experiments):
        checked.append(read_generation(experiments[0]))
    for each in checked:
        check_settings(each)
    return checked


def read_training(experiment: Experiment) -> Checked:
    """The training command of an experiment, as fairseq reads it."""
    # Imported here, because it imports torch, which would slow down --help.
    from fairseq_posenc.errors import FlagError
    from posenc_experiments.experiment.unallocated import ReadsValues, build_unallocated

    try:
        settings = _read("train", train_command(experiment))
        if "position_encoding" in settings:  # an architecture of this package
            with suppress(ReadsValues):
                _require_trainable(build_unallocated(Namespace(**settings | UNCHECKED), SOME_VOCABULARY))
        return Checked(experiment, experiment.run, settings)
    except (Refused, FlagError) as error:
        raise Checked(experiment, experiment.run, {}).refusal(str(error)) from None


def _require_trainable(model: Any) -> None:
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    if (total := sum(sizes.values())) > MOST_PARAMETERS:
        largest = max(sizes, key=lambda name: sizes[name])
        raise Refused(f"the model has {total:,} parameters, {sizes[largest]:,} of them in {largest}: make it smaller.")


def read_generation(experiment: Experiment) -> Checked:
    """The generation command, as fairseq reads it; its flags are the same for all experiments of a run."""
    run = experiment.run
    try:
        return Checked(None, run, _read("generate", generate_command(experiment, pair_tests(run)[0], run.output_dir)))
    except Refused as error:
        raise Checked(None, run, {}).refusal(str(error)) from None


def _read(kind: str, command: list[str]) -> dict[str, Any]:
    return read(kind, command[command.index(f"fairseq_cli.{kind}") + 1 :])


def check_settings(checked: Checked) -> None:
    """RecipeError for settings that cannot lead to a result with any data."""
    checked.refuse(_faults(checked))
    checked.refuse(_training_faults(checked) if checked.experiment else _generation_faults(checked))


def check_data(commands: list[Checked]) -> None:
    """RecipeError for settings that cannot lead to a result with the prepared data, or that leave out a part of it.

    Commands whose data is not prepared are not checked.
    """
    for checked in commands:
        if is_prepared(checked.run):
            checked.refuse(_data_faults(checked))


def _faults(checked: Checked) -> Iterator[Fault]:
    for flag, least in MINIMUM.items():
        value = checked.get(flag)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, str):
                yield flag, f"--{flag} {number}: write a whole number."
            elif number is not None and number < least:
                yield flag, f"--{flag} {number}: write at least {least}."
    for name, value in checked.settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, float) and not math.isfinite(value):
            yield flag, f"--{flag} {value}: write a finite number."
        elif isinstance(value, float) and PROBABILITIES.fullmatch(name) and not 0 <= value < 1:
            yield flag, f"--{flag} {value}: write a number from 0 to below 1."


def _training_faults(checked: Checked) -> Iterator[Fault]:
    get, recipe = checked.get, checked.run.recipe
    for rate in get("lr"):
        if not 0 < rate < math.inf:
            yield "lr", f"--lr {rate}: write a number above 0."
    patience = get("patience") > 0 and not get("disable-validation")
    if not (get("max-epoch") or get("max-update") or get("stop-time-hours") or patience or get("stop-min-lr") >= 0):
        yield "max-update", "the training would never end: add max-update or max-epoch to `train`."
    # fairseq-train refuses this too, but only after the preparation, which would have to be repeated.
    if get("share-all-embeddings") and not recipe.prepare.joined_dictionary:
        yield "share-all-embeddings", "--share-all-embeddings needs prepare.joined-dictionary = true: change either."
    metric = get("best-checkpoint-metric")
    if not get("disable-validation") and metric in MEASURED_BY and not get(MEASURED_BY[metric]):
        yield (
            "best-checkpoint-metric",
            f"--best-checkpoint-metric {metric} ends the training at its first validation, unless "
            f"--{MEASURED_BY[metric]} is given: add it to `train`.",
        )
    end = "max-epoch" if recipe.average_by == "epochs" else "max-update"
    if recipe.average > 1 and get(end):
        yield from _too_few(checked, end, get(end) // get(SAVE_INTERVAL[recipe.average_by]))


def _too_few(checked: Checked, end: str, kept: int) -> Iterator[Fault]:
    """A fault if a training that ends by the flag `end` writes fewer checkpoints than are averaged."""
    recipe, interval = checked.run.recipe, SAVE_INTERVAL[checked.run.recipe.average_by]
    if kept < recipe.average:
        yield (
            end,
            f"--{end} {checked.get(end)} with --{interval} {checked.get(interval)} leaves {kept} of the "
            f"{recipe.average} checkpoints by {recipe.average_by} that are averaged ("
            f"{recipe.where('generate', 'average')}): train longer, save more often, or average fewer.",
        )


def _generation_faults(checked: Checked) -> Iterator[Fault]:
    get = checked.get
    if get("temperature") <= 0:
        yield "temperature", f"--temperature {get('temperature')}: write a number above 0."
    if get("sampling") and get("nbest") != get("beam"):
        yield "sampling", "--sampling needs --nbest to be the same as --beam: add it to `generate`."
    for flag in ("sampling-topk", "sampling-topp"):
        if get(flag) >= 0 and not get("sampling"):
            yield flag, f"--{flag} needs --sampling: add it to `generate`."
    if get("diverse-beam-groups") > 0 and get("beam") % get("diverse-beam-groups"):
        yield (
            "diverse-beam-groups",
            f"--diverse-beam-groups {get('diverse-beam-groups')} does not divide --beam {get('beam')}: change one.",
        )
    searches = {
        "sampling": get("sampling"),
        "diverse-beam-groups": get("diverse-beam-groups") > 0,
        "match-source-len": get("match-source-len"),
        "diversity-rate": get("diversity-rate") > 0,
    }
    chosen = [flag for flag, wanted in searches.items() if wanted]
    if len(chosen) > 1:
        yield chosen[1], f"--{chosen[0]} and --{chosen[1]} are different kinds of search: leave one out."
    for flag, needed in (
        ("replace-unk", "text that is not binarized"),
        ("constraints", "constraints of each sentence"),
    ):
        if get(flag) is not None:
            yield flag, f"--{flag} needs {needed}, which the pipeline does not have: leave it out."
    try:
        overrides = literal(get("model-overrides"))
    except ValueError:
        overrides = None
    if not isinstance(overrides, dict):
        yield (
            "model-overrides",
            f"--model-overrides {get('model-overrides')}: write a dictionary, such as {{'dropout': 0}}.",
        )
    elif "position_encoding" in overrides:
        yield (
            "model-overrides",
            f"--model-overrides {get('model-overrides')}: the architecture names the encoding; leave it out.",
        )
    yield from _too_short(checked, get("max-source-positions"))


def _too_short(checked: Checked, source: int) -> Iterator[Fault]:
    """A fault if a source of this many tokens may get no translation, as --min-len exceeds its maximum length."""
    get = checked.get
    most = int(get("max-len-a") * source + get("max-len-b"))
    if most < get("min-len") and not get("match-source-len"):
        flags = [flag for flag in ("max-len-b", "max-len-a", "min-len") if flag in checked.run.recipe.generate]
        yield (
            flags[0],
            f"a source of {source:,} tokens gets at most {most} by --max-len-a {get('max-len-a')} and --max-len-b "
            f"{get('max-len-b')}, but at least {get('min-len')} by --min-len: raise --max-len-b.",
        )


def _data_faults(checked: Checked) -> Iterator[Fault]:
    """Faults if fairseq would leave out prepared pairs, or fail at one."""
    run, get = checked.run, checked.get
    subsets = [prepare.subset(run, test) for test in pair_tests(run)]
    longest = [prepared.longest(run, subset) for subset in subsets]
    if checked.experiment:
        train, valid = prepared.longest(run, "train"), prepared.longest(run, "valid")
        # With this flag, the user wants validation to leave out long pairs.
        longest += [train, *([] if get("skip-invalid-size-inputs-valid-test") else [valid])]
        truncates = get("truncate-source")
        tokens = {"max-tokens": max(train), "max-tokens-valid": max(valid)}
    else:
        truncates = "truncate-source" in {**run.recipe.model, **run.recipe.train, **run.extra}
        tokens = {"max-tokens": max(map(max, longest))}
    positions = {
        "max-source-positions": 0 if truncates else max(source for source, _ in longest),
        "max-target-positions": max(target for _, target in longest),
    }
    yield from _too_long(checked, positions | tokens)
    if not checked.experiment:
        yield from _too_short(checked, min(prepared.shortest_source(run, subset) for subset in subsets))


def _too_long(checked: Checked, bounds: dict[str, int]) -> Iterator[Fault]:
    """Faults for flags whose limit is below the longest sentence in `bounds`."""
    for flag, longest in bounds.items():
        limit = checked.get(flag)
        if limit is None or limit >= longest:
            continue
        if flag == "max-tokens-valid" and checked.where_set(flag) is None:
            flag = "max-tokens"  # the default of --max-tokens-valid
        yield (
            flag,
            f"--{flag} {limit} is below the longest sentence that was kept, {longest:,} tokens with its </s>: fairseq "
            f"would leave it out or fail; write at least {longest}, or lower prepare.max-tokens and "
            "eval-max-tokens.",
        )
