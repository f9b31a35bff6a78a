"""Flags of fairseq, as written in a recipe and on a command line."""

import re

from posenc_experiments.base.errors import RecipeError

# Flags of fairseq that the pipeline sets itself, and what to use instead.
RESERVED = {
    "seed": "give --seeds",
    "arch": "set model.size, and the encoding in `experiments`",
    **dict.fromkeys(["save-dir", "results-path"], "give --output-dir"),
    **dict.fromkeys(["source-lang", "target-lang"], "give --pair"),
    **dict.fromkeys(["train-subset", "valid-subset", "gen-subset"], "set corpus.train, valid and tests"),
    "path": "it is the experiment's averaged checkpoint",
    "task": "set generate.length-penalty",
    "cpu": "give --gpus 0",
    "distributed-world-size": "give --gpus, --processes or --nodes",
    "tensorboard-logdir": "give --tensorboard",
    "wandb-project": "give --wandb",
    **dict.fromkeys(["post-process", "remove-bpe", "bpe", "tokenizer"], "prepare.subwords decides"),
    **dict.fromkeys(
        [
            *("user-dir", "quiet", "score-reference", "num-shards", "shard-id", "scoring", "sacrebleu", "dataset-impl"),
            *("required-batch-size-multiple", "log-format", "write-checkpoints-asynchronously", "save-async"),
            # A training that is resumed would differ from one that is not.
            *("restore-file", "continue-once", "no-save", "no-last-checkpoints", "checkpoint-suffix"),
            *("no-save-optimizer-state", "optimizer-overrides"),
            *("reset-dataloader", "reset-lr-scheduler", "reset-meters", "reset-optimizer"),
            # They follow from --gpus, --nodes and --rendezvous.
            *("tpu", "distributed-rank", "distributed-init-method", "distributed-no-spawn", "distributed-port"),
            *("device-id", "local_rank", "local-rank"),
        ],
        "leave it out",
    ),
}
Flags = dict[str, str]


def parse_flags(words: list[str], where: str) -> Flags:
    """Parses `--a 1 --b --c x` to {"a": "1", "b": "", "c": "x"}; errors begin with `where`, the origin of the words."""
    flags: Flags = {}
    name = None
    for word in words:
        if re.match(r"--[a-z]", word):
            name, has_value, value = word[2:].partition("=")
            if name in RESERVED:
                raise RecipeError(f"{where}: --{name} is set by the pipeline: {RESERVED[name]}.")
            if name in flags:
                raise RecipeError(f"{where}: --{name} is given twice; leave one out.")
            flags[name] = value
            if has_value:
                name = None
        elif name is None:
            raise RecipeError(f"{where}: '{word}' belongs to no flag; write flags as --name value.")
        else:
            flags[name] = word
            name = None
    return flags


def flag_words(flags: Flags) -> list[str]:
    """The command-line words of flags; the inverse of `parse_flags`."""
    # fairseq reads a value that starts with '-' as a flag, unless '=' joins it to its flag.
    words: list[str] = []
    for name, value in flags.items():
        words += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", *([value] if value else [])]
    return words
