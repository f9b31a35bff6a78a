"""An experiment: an encoding with its flags, on one pair with one seed; its directory and fingerprints."""

import importlib.metadata
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import Flags
from posenc_experiments.base.languages import require_tokenizer
from posenc_experiments.base.markers import fingerprint, is_done, not_default
from posenc_experiments.base.run import Run
from posenc_experiments.data import lengths, prepared, testsets
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.experiment import identity
from posenc_experiments.experiment.layout import Layout
from posenc_experiments.experiment.request import Request, whole, without_hardware


@dataclass(frozen=True)
class Experiment(Request, Layout):
    """One experiment to train and score; it determines all results in its directory."""

    seed: int

    @cached_property
    def directory(self) -> Path:
        name, folder = re.sub(r"[^A-Za-z0-9._+-]+", "_", self.name)[:100], self.run.pair_results_dir
        # It may have been trained under another name.
        found = sorted(folder.glob(f"*-{self.fingerprint[:8]}"))
        return (found[0] if found else folder / f"{name}-{self.fingerprint[:8]}") / f"seed{self.seed}"

    @property
    def title(self) -> str:
        return f"{self.name} {self.run.pair} seed {self.seed}"

    def description(self) -> dict[str, Any]:
        """The contents of experiment.json for a training that starts now."""
        flags = {name: _number(value) for name, value in self.named_flags.items()}
        changed = without_hardware({**self.run.recipe.overridden, **self.run.extra})
        return {
            "corpus": self.run.recipe.corpus.name,
            "pair": self.run.pair,
            "setup": self.run.recipe.setup,
            "arch": self.arch,
            "encoding": self.encoding,
            "flags": flags,
            "seed": self.seed,
            "name": self.name + "".join(f" --{name} {value}".rstrip() for name, value in changed.items()),
            "made_from": self.made_from,
            "fingerprint": self.fingerprint,
            "environment": identity.environment() | self._batch(),
        }

    def _batch(self) -> dict[str, str]:
        """The batch for experiment.json, if it depends on the hardware and not on train.batch-tokens alone."""
        derived, warning = derive_batch(self)
        flags = {**self.train_flags, **derived}
        if self.run.recipe.batch_tokens and warning is None:
            return {}
        words = (f"--{name} {flags[name]}" for name in ("max-tokens", "batch-size", "update-freq") if name in flags)
        return {"batch": f"{self.run.workers} x {' '.join(words)}"}

    @cached_property
    def made_from(self) -> dict[str, Any]:
        """All that its trained weights depend on but the seed."""
        return identity.made_from(self)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of `made_from`, equal for experiments that mean the same."""
        return fingerprint(self.made_from)

    def inputs(self, stage: str) -> str:
        """The fingerprint of all that the outputs of a stage depend on."""
        makers = {
            "train": self.train_inputs,
            "average": self.average_inputs,
            "translate": self.translate_inputs,
            "score": self.score_inputs,
        }
        return makers[stage]()

    def is_done(self, stage: str) -> bool:
        """Whether a stage finished with the current inputs, and its outputs exist."""
        return is_done(self.directory, stage, self.inputs(stage))

    def train_inputs(self) -> str:
        """The fingerprint of all that the trained weights depend on."""
        return fingerprint([self.fingerprint, self.seed])

    def average_inputs(self) -> str:
        return fingerprint([self.train_inputs(), identity.averaging(self.run.recipe)])

    def translation(self) -> dict[str, Any]:
        """The settings of averaging and search, as scores record them."""
        return identity.translation(self.run)

    def translate_inputs(self) -> str:
        tests = [pair_tests(self.run), prepared.test_inputs(self.run)]
        return fingerprint([self.average_inputs(), self.translation(), *tests])

    def score_inputs(self) -> str:
        """The fingerprint of all that the scores depend on, including which of SacreBLEU's test sets are local."""
        tokenizer = self.run.tokenizer
        require_tokenizer(tokenizer)
        scoring = replace(self.run.recipe.score, tokenize=None if tokenizer == "13a" else tokenizer)
        tools = ["sacrebleu", *(["sacremoses"] if scoring.historical else [])]
        try:
            versions = [importlib.metadata.version(tool) for tool in tools]
        except importlib.metadata.PackageNotFoundError as error:
            raise RecipeError(
                f"{error.name} is not installed: run `source scripts/env.sh`, or `pip install '.[recipes]'`."
            ) from None
        local = {
            test: testsets.local_reference(name, self.run.pair) is not None for test, name in scoring.testsets.items()
        }
        return fingerprint([self.translate_inputs(), versions, not_default(scoring), local])


def _number(text: str) -> int | float | str:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def derive_batch(experiment: Experiment) -> tuple[Flags, str | None]:
    """Derives --max-tokens and --update-freq from train.batch-tokens and the number of processes.

    Returns:
        The flags, and a warning if the batch cannot be exact.

    Raises:
        RecipeError: --update-freq is given too, or the batch is too small for so many processes.
    """
    run, flags, wanted = experiment.run, experiment.train_flags, experiment.run.recipe.batch_tokens
    if wanted is None:
        return {}, None
    if "update-freq" in flags:
        raise RecipeError("--update-freq follows from train.batch-tokens: change that in the recipe instead.")
    max_tokens = whole(flags, "max-tokens", 0)
    if max_tokens < 1:
        raise RecipeError(f"--max-tokens {max_tokens}: write at least 1.")
    if run.workers > 1 and max_tokens * run.workers > wanted:
        # One step of all processes is already a larger batch: each takes a smaller part.
        max_tokens = wanted // run.workers
        if prepared.is_prepared(run):
            longest, which = max(*lengths.longest(run, "train"), *lengths.longest(run, "valid")), "in the prepared data"
        else:
            limits = run.recipe.prepare
            longest = max(limits.max_tokens, limits.eval_max_tokens) + 1  # </s> is a token, too
            which = "that prepare.max-tokens and eval-max-tokens allow"
        if max_tokens < longest:
            raise RecipeError(
                f"A batch of {wanted:,} tokens (train.batch-tokens) on {run.workers} processes leaves each "
                f"{max_tokens:,}, fewer than the {longest:,} of the longest sentence {which}: use fewer "
                "processes (--gpus-per-job, --nodes, --processes)."
            )
    update_freq = max(1, round(wanted / (max_tokens * run.workers)))
    batch = update_freq * max_tokens * run.workers
    derived = {"max-tokens": str(max_tokens), "update-freq": str(update_freq)}
    if batch == wanted:
        return derived, None
    return derived, (
        f"warning: {run.workers} x {max_tokens} tokens does not divide batch-tokens {wanted:,}: with --update-freq "
        f"{update_freq} a batch is {batch:,} tokens; change --gpus-per-job or max-tokens for an exact batch."
    )


def make_experiments(run: Run, names: list[str], seeds: list[int]) -> list[Experiment]:
    """The experiments of these names with these seeds, in order.

    Of names that mean the same experiment, only the first is kept, and a message says so.
    """
    kept: dict[str, Experiment] = {}
    for name in dict.fromkeys(names):
        one = Experiment(run, name, seeds[0])
        same = kept.setdefault(one.fingerprint, one)
        if same is not one:
            run.say(f"{name} is the same experiment as {same.name}: it is run once, as {same.name}.")
    return [Experiment(run, one.name, seed) for one in kept.values() for seed in dict.fromkeys(seeds)]
