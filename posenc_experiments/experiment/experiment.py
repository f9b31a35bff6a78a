"""An experiment: an encoding with its flags, on one pair with one seed; its identity, directory and fingerprints.

Its identity is all that its result depends on but the seed, as it was given: the architecture, the flags with
normalized values, the settings of the preparation, the text and the content of files. Its SHA-256 is the fingerprint,
which names its directory. fairseq_posenc/effects.py says which flags count, and what else pooled seeds share. The
commit and the versions of fairseq and torch do not count; they are recorded separately. A change of the code that
changes results must raise a number: ``COMPUTATION`` in fairseq_posenc, or the ``initial_values`` of an encoding.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Self

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash, fingerprint, not_default
from posenc_experiments.base.flags import Flags, parse_flags
from posenc_experiments.base.recipe import SAVE_INTERVAL
from posenc_experiments.base.run import Run
from posenc_experiments.data import prepared, subwords
from posenc_experiments.experiment import versions
from posenc_experiments.experiment.fairseq_flags import (
    DERIVED,
    counted,
    normalized,
    precision,
    value_of,
    whole,
    with_precision,
)
from posenc_experiments.experiment.layout import ExperimentDirectory

# Flags that change when the model is validated, and on which pairs; they count if validation affects the training.
VALIDATED_BY = {"save-interval", "save-interval-updates", "skip-invalid-size-inputs-valid-test"}
# Flags that name a file: its content counts, not its path.
FILES = (
    *("finetune-from-model", "encoder-embed-path", "decoder-embed-path", "input-positions-from"),
    "quantization-config-path",
)


@dataclass(frozen=True)
class Experiment(ExperimentDirectory):
    """One experiment to train and score; it determines all results in its directory."""

    run: Run
    name: str
    seed: int

    @property
    def encoding(self) -> str:
        return self.run.recipe.experiments[self.name][0]

    @property
    def arch(self) -> str:
        return f"transformer_{self.encoding}_{self.run.recipe.model.size}"

    @property
    def title(self) -> str:
        return f"{self.name} {self.run.pair} seed {self.seed}"

    @cached_property
    def directory(self) -> Path:  # type: ignore[override] # it follows from the settings
        name, folder = re.sub(r"[^A-Za-z0-9._+-]+", "_", self.name)[:100], self.run.pair_results_dir
        # It may have been trained under another name.
        ending = f"-{self.fingerprint[:8]}"
        return min(folder.glob(f"*{ending}"), default=folder / f"{name}{ending}") / f"seed{self.seed}"

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
    def train_flags(self) -> Flags:
        """All flags of the model and the training, without those that depend on the number of processes."""
        recipe = self.run.recipe
        flags = {**recipe.model.flags, **recipe.train.flags, **self.flags}
        if self.run.precision:
            flags = with_precision(flags, self.run.precision)
        if flags.get("total-num-update") == "auto":
            if "max-update" not in flags:
                raise RecipeError("--total-num-update auto is --max-update, which is missing: give a number to one.")
            flags["total-num-update"] = flags["max-update"]
        if recipe.generate.average > 1:
            # The training must not delete checkpoints that are averaged later.
            key = "keep-last-epochs" if recipe.generate.average_by == "epochs" else "keep-interval-updates"
            if 0 <= whole(flags, key, -1) < recipe.generate.average:
                flags[key] = str(recipe.generate.average)
        return flags

    @property
    def start(self) -> Self | None:
        """What it continues, with the same seed, if --finetune-from-model names an experiment of the recipe."""
        name = self.train_flags.get("finetune-from-model")
        if name == self.name:
            raise RecipeError(f"--finetune-from-model {name}: {name} cannot continue itself; put it in --experiments.")
        return replace(self, name=name) if name in self.run.recipe.experiments else None

    def description(self) -> dict[str, Any]:
        """The contents of experiment.json for a training that starts now."""
        recipe = self.run.recipe
        # These distinguish it from the other experiments of its recipe.
        flags = self._distinguishing({**recipe.overridden, **self.flags})
        changed = self._distinguishing({**recipe.overridden, **self.run.extra})
        return {
            "corpus": recipe.corpus.name,
            "pair": self.run.pair,
            "setup": recipe.model.setup,
            "arch": self.arch,
            "encoding": self.encoding,
            "flags": {name: _number(value) for name, value in flags.items()},
            "seed": self.seed,
            "name": self.name + "".join(f" --{name} {value}".rstrip() for name, value in changed.items()),
            "made_from": self.made_from,
            "fingerprint": self.fingerprint,
            "environment": {
                **versions.environment(),
                "device": self.run.hardware.device(self.run.session.visible),
                **prepared.text_libraries(recipe.prepare),
                **({"batch": self.batch} if self.batch else {}),
            },
        }

    @property
    def batch(self) -> str | None:
        """The batch, if it depends on the hardware; None if it is train.batch-tokens."""
        derived, warning = derive_batch(self)
        flags = {**self.train_flags, **derived}
        if self.run.recipe.train.batch_tokens and warning is None:
            return None
        words = (f"--{name} {flags[name]}" for name in ("max-tokens", "batch-size", "update-freq") if name in flags)
        return f"{self.run.hardware.workers} x {' '.join(words)}"

    def _distinguishing(self, given: Flags) -> Flags:
        """Some flags without those of hardware, and with one name for a precision that is not the recipe's."""
        recipe = self.run.recipe
        flags = {**recipe.model.flags, **recipe.train.flags, **self.flags}
        written = precision(flags.keys() - recipe.overridden.keys() - self.run.extra.keys())
        chosen = precision(self.train_flags)
        changed = {"precision": chosen} if chosen != written else {}
        return {**with_precision(counted(given), "fp32"), **changed}

    @cached_property
    def made_from(self) -> dict[str, Any]:
        """All that its trained weights depend on but the seed: its identity.

        Raises:
            RecipeError: a file that a flag names is missing.
        """
        import fairseq_posenc
        from fairseq_posenc.arguments import PLACES
        from fairseq_posenc.encodings import ENCODINGS
        from fairseq_posenc.encodings.contract.registry import names_in

        run, recipe, flags = self.run, self.run.recipe, self.train_flags
        typed = [flags.get(f"{place}-position-encoding") or "" for place in PLACES]
        names = {self.encoding, *(name for text in typed for name in names_in(text))}
        names |= {ENCODINGS[name].facts.in_decoder or "" for name in names if name in ENCODINGS}
        # Whether validation affects the learning rate or the end of the training.
        validated = "patience" in flags or flags.get("lr-scheduler") == "reduce_lr_on_plateau"
        prepare = prepared.changed_settings(run)
        if not validated:
            prepare.pop("eval_max_tokens", None)  # only cuts validation and test sets
        if recipe.prepare.subwords == "none":  # no subwords are learnt
            prepare = {key: value for key, value in prepare.items() if key not in ("vocabulary", "sample")}
        # Flags that may count: the interval between checkpoints decides which are averaged.
        kept = {SAVE_INTERVAL[recipe.generate.average_by]}
        kept |= set() if recipe.train.batch_tokens else set(DERIVED)
        kept |= VALIDATED_BY if validated else set()
        training = counted(flags) | {name: flags[name] for name in kept & flags.keys()}
        corpus = recipe.corpus
        parts = {
            "computation": fairseq_posenc.COMPUTATION,
            # Encodings that do not exist are refused when the model is built.
            "initial_values": {
                name: ENCODINGS[name].facts.initial_values for name in sorted(names) if name in ENCODINGS
            },
            "architecture": self.arch,
            "training": normalized({name: value for name, value in training.items() if name not in FILES}),
            "batch_tokens": recipe.train.batch_tokens or None,
            "files": {name.replace("-", "_"): self._content(name) for name in FILES if flags.get(name)},
            "pair": run.pair,
            "prepare": prepare,
            "data": {
                "train": prepared.contents(run, corpus.train_splits(run.pair)),
                "valid": prepared.contents(run, [corpus.valid])[0],
            },
        }
        return {key: value for key, value in parts.items() if value not in (None, {})}

    def _content(self, flag: str) -> str:
        """The checksum of the file that a flag names, or the fingerprint of the experiment that it continues.

        Raises:
            RecipeError: there is no such file.
        """
        name = self.train_flags[flag]
        if flag == "finetune-from-model" and self.start is not None:
            return f"experiment:{fingerprint([self.start.made_from, self.averaging])}"
        if (flag, name) == ("input-positions-from", "sinusoidal"):
            return name
        if not Path(name).is_file():
            raise RecipeError(f"--{flag} {name}: there is no such file; name another, or leave the flag out.")
        return _hash_of(Path(name))

    @cached_property
    def fingerprint(self) -> str:
        """The hash of `made_from`, equal for experiments that mean the same."""
        return fingerprint(self.made_from)

    @property
    def averaging(self) -> dict[str, Any]:
        """The settings of averaging; empty if only the last checkpoint is used."""
        generate = self.run.recipe.generate
        by = {} if generate.average_by == "epochs" else {"average_by": generate.average_by}
        return {} if generate.average == 1 else {"average": generate.average, **by}

    def translation(self) -> dict[str, Any]:
        """The settings of averaging, search and detokenization, as scores record them."""
        recipe = self.run.recipe
        flags = normalized(counted(recipe.generate.flags))
        flags.pop("batch_size", None)  # does not change the translation of a sentence
        if "lm_path" in flags and Path(flags["lm_path"]).is_file():
            flags["lm_path"] = _hash_of(Path(flags["lm_path"]))
        if recipe.generate.length_penalty != "power":
            flags["length_penalty"] = recipe.generate.length_penalty
        limit = {key: value for key, value in not_default(recipe.prepare).items() if key == "eval_max_tokens"}
        joined = subwords.detokenization(self.run.target, recipe.prepare)
        return {**self.averaging, **flags, **limit, **joined}


def _hash_of(path: Path) -> str:
    return f"sha256:{_sha256(path.absolute(), path.stat().st_mtime_ns)}"


@cache
def _sha256(path: Path, changed: int) -> str:
    return file_hash(path)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def derive_batch(experiment: Experiment) -> tuple[Flags, str | None]:
    """Derives --max-tokens and --update-freq from train.batch-tokens and the number of processes.

    Returns:
        The flags, and a warning if the batch cannot be exact.

    Raises:
        RecipeError: --update-freq is given too.
    """
    run, flags, wanted = experiment.run, experiment.train_flags, experiment.run.recipe.train.batch_tokens
    workers = run.hardware.workers
    if not wanted:
        return {}, None
    if "update-freq" in flags:
        raise RecipeError("--update-freq follows from train.batch-tokens: change that in the recipe instead.")
    max_tokens = whole(flags, "max-tokens", 0)
    if workers > 1 and max_tokens * workers > wanted:
        # One step of all processes is already a larger batch: each takes a smaller part. Whether it holds the longest
        # sentence is checked with the prepared data.
        max_tokens = max(1, wanted // workers)
    update_freq = max(1, round(wanted / (max_tokens * workers)))
    batch = update_freq * max_tokens * workers
    derived = {"max-tokens": str(max_tokens), "update-freq": str(update_freq)}
    return derived, None if batch == wanted else (
        f"warning: {workers} x {max_tokens} tokens does not divide batch-tokens {wanted:,}: with --update-freq "
        f"{update_freq} a batch is {batch:,} tokens; change --gpus-per-job or max-tokens for an exact batch."
    )


def make_experiments(run: Run, names: list[str], seeds: list[int]) -> list[Experiment]:
    """The experiments of these names with these seeds, all different, in order.

    Of names that mean the same experiment, only the first is kept, and a message says so.
    """
    kept: dict[str, Experiment] = {}
    for name in names:
        one = Experiment(run, name, seeds[0])
        same = kept.setdefault(one.fingerprint, one)
        if same is not one:
            run.say(f"{name} is the same experiment as {same.name}: it is run once, as {same.name}.")
    return [Experiment(run, one.name, seed) for one in kept.values() for seed in seeds]
