"""What each flag of fairseq-train changes: what makes two trainings the same.

All who compare trainings read this table:

* An experiment's fingerprint counts results, precision and end. It counts a batch unless the recipe gives its size as
  train.batch-tokens (`made_from` in posenc_experiments/experiment/experiment.py, which also names exceptions).
* Checkpoints of one training share results, precision and the size of all processes' batch; a training may be resumed
  to another end (checkpoints/training.py).
* Seeds are pooled if their fingerprints and what is RECORDED beside them are equal (`depends_on` in
  posenc_experiments/evaluation/results.py).

This file imports nothing of the package, so that recipes can load it without torch and fairseq.
"""

from typing import Literal

Effect = Literal["result", "precision", "batch", "end", "speed", "report"]

#: flags of a precision other than single
PRECISIONS = ("memory-efficient-fp16", "memory-efficient-bf16", "fp16", "bf16", "amp")
#: effects that experiment.json records in `environment`: the batch if it depends on the hardware, and, in earlier
#: records, the precision
RECORDED: tuple[Effect, ...] = ("batch", "precision")

_LISTED: dict[Effect, tuple[str, ...]] = {
    "precision": (
        *PRECISIONS,
        *("fp16-init-scale", "fp16-scale-window", "fp16-scale-tolerance", "threshold-loss-scale", "fp16-adam-stats"),
        *("amp-batch-retries", "amp-init-scale", "amp-scale-window", "fp32-reduce-scatter"),
    ),
    "batch": ("max-tokens", "batch-size", "max-sentences", "update-freq", "required-batch-size-multiple"),
    # when a training ends, and validation, which may end it
    "end": (
        *("max-epoch", "max-update", "stop-time-hours", "stop-min-lr", "min-loss-scale", "patience"),
        *("validate-interval", "validate-interval-updates", "validate-after-updates", "disable-validation"),
        *("valid-subset", "combine-valid-subsets", "ignore-unused-valid-subsets", "gen-subset", "max-valid-steps"),
        *("fixed-validation-seed", "best-checkpoint-metric", "maximize-best-checkpoint-metric"),
    ),
    # device, time and memory
    "speed": (
        *("cpu", "tpu", "device-id", "nprocs-per-node", "fp16-no-flatten-grads", "on-cpu-convert-precision"),
        *("use-old-adam", "max-tokens-valid", "batch-size-valid", "skip-invalid-size-inputs-valid-test"),
        *("attention-backend", "checkpoint-activations", "offload-activations", "min-params-to-wrap", "ddp-backend"),
        *("bucket-cap-mb", "find-unused-parameters", "gradient-as-bucket-view", "broadcast-buffers", "zero-sharding"),
        *("no-reshard-after-forward", "cpu-offload", "not-fsdp-flatten-parameters", "heartbeat-timeout"),
        *("num-workers", "data-buffer-size", "dataset-impl", "use-plasma-view", "plasma-path", "empty-cache-freq"),
        *("all-gather-list-size", "profile"),
    ),
    # reports, and which checkpoints are written and read
    "report": (
        *("no-progress-bar", "report-accuracy", "log-interval", "log-format", "log-file", "tensorboard-logdir"),
        *("log-positions", "wandb-project", "aim-repo", "aim-run-hash", "azureml-logging", "reset-logging"),
        *("suppress-crashes", "fast-stat-sync", "debug-param-names", "user-dir"),
        *("save-dir", "save-interval", "save-interval-updates", "keep-last-epochs", "keep-best-checkpoints"),
        *("keep-interval-updates", "keep-interval-updates-pattern", "no-epoch-checkpoints", "no-last-checkpoints"),
        *("no-save", "no-save-optimizer-state", "checkpoint-suffix", "checkpoint-shard-count", "use-sharded-state"),
        *("write-checkpoints-asynchronously", "load-checkpoint-on-all-dp-ranks", "restore-file", "continue-once"),
        *("reset-dataloader", "reset-lr-scheduler", "reset-meters", "reset-optimizer", "optimizer-overrides"),
    ),
}
_EFFECTS = {flag: effect for effect, flags in _LISTED.items() for flag in flags}


def effect(name: str) -> Effect:
    """What a flag (``max-tokens``) or its configuration key (``max_tokens``) changes: by default, the result."""
    flag = name.replace("_", "-")
    return "speed" if flag.startswith(("distributed-", "pipeline-")) else _EFFECTS.get(flag, "result")


def needs_gpu(flags: set[str]) -> bool:
    """Whether a training with these flags needs a GPU: by --fp16 alone, fairseq makes a tensor that no CPU has."""
    return "fp16" in flags and flags.isdisjoint({*PRECISIONS, "fp16-no-flatten-grads"} - {"fp16"})
