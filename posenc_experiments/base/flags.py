"""Flags of fairseq, as a .conf and a command line write them."""

import re

from posenc_experiments.base.errors import RecipeError

# Flags of fairseq that the pipeline gives itself, and what to use instead.
RESERVED = {
    "seed": "give --seeds",
    "arch": "set [model] size, and the encoding in [experiments]",
    "save-dir": "give --output-dir",
    "results-path": "give --output-dir",
    "source-lang": "give --pair",
    "target-lang": "give --pair",
    "gen-subset": "set [corpus] tests",
    "path": "the experiment's averaged checkpoint is translated with",
    "task": "set [generate] length-penalty",
    "user-dir": "it is this plugin",
    "cpu": "give --gpus 0",
    "distributed-world-size": "give --gpus, --processes or --nodes",
    "tensorboard-logdir": "give --tensorboard",
    "wandb-project": "give --wandb",
    **dict.fromkeys(
        ["post-process", "remove-bpe", "bpe", "tokenizer"],
        "the pipeline makes text of tokens itself, [prepare] subwords",
    ),
    **dict.fromkeys(
        ["quiet", "score-reference", "num-shards", "shard-id", "scoring", "sacrebleu", "dataset-impl"], "leave it out"
    ),
    **dict.fromkeys(
        ["restore-file", "continue-once", "no-save", "no-last-checkpoints", "checkpoint-suffix"],
        "trainings are resumed by it",
    ),
    "required-batch-size-multiple": "it is 1, so that no pair is lost",
    "log-format": "the pipeline reads the log as JSON",
    "write-checkpoints-asynchronously": "leave it out: a stage ends when its files are whole",
    **dict.fromkeys(["train-subset", "valid-subset"], "set [corpus] train and valid"),
    **dict.fromkeys(
        ["tpu", "distributed-rank", "distributed-init-method", "distributed-no-spawn", "distributed-port"],
        "give --gpus, --nodes and --rendezvous",
    ),
}
Flags = dict[str, str]


def parse_flags(words: list[str], where: str) -> Flags:
    """`--a 1 --b --c x` as {"a": "1", "b": "", "c": "x"}; `where` names their origin in the error."""
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
    """The reverse of `parse_flags`: command-line words."""
    # fairseq reads a value that starts with '-' as a flag, unless it is joined by '='.
    words: list[str] = []
    for name, value in flags.items():
        words += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", *([value] if value else [])]
    return words
