"""What each flag of fairseq-train changes: what makes two trainings the same.

* An experiment's fingerprint counts results, precision and end, a batch that does not follow from train.batch-tokens,
  and the interval between checkpoints, which decides what is averaged (`made_from` in
  posenc_experiments/experiment/experiment.py).
* Checkpoints of one training share results, precision and the size of all processes' batch (checkpoints/training.py).
  The recipes' stage `average` does not compare them: one directory has one fingerprint.
* Seeds of one name and setup are pooled if what their fingerprints are made of, their searches and the batch (in old
  records the precision, too) that was recorded for the hardware are equal (`_variants` in
  posenc_experiments/evaluation/results.py).

This file imports nothing of the package, so that recipes can load it without torch and fairseq.
"""

from typing import Literal

Effect = Literal["result", "precision", "batch", "end", "speed", "report"]

#: flags of a precision other than single
PRECISIONS = ("memory-efficient-fp16", "memory-efficient-bf16", "fp16", "bf16", "amp")

#: the flags that change something else than the result; names that end in `-` are beginnings
_LISTED: dict[Effect, str] = {
    "precision": " ".join(PRECISIONS)
    + " fp16-init-scale fp16-scale- threshold-loss-scale fp16-adam-stats amp- fp32-reduce-scatter",
    "batch": "max-tokens batch-size max-sentences update-freq required-batch-size-multiple",
    # when a training ends, and validation, which may end it
    "end": """
        max-epoch max-update stop-time-hours stop-min-lr min-loss-scale patience validate- disable-validation
        valid-subset combine-valid-subsets ignore-unused-valid-subsets gen-subset max-valid-steps fixed-validation-seed
        best-checkpoint-metric maximize-best-checkpoint-metric""",
    # device, time and memory
    "speed": """
        cpu tpu device-id nprocs-per-node distributed- pipeline- fp16-no-flatten-grads on-cpu-convert-precision
        use-old-adam max-tokens-valid batch-size-valid skip-invalid-size-inputs-valid-test attention-backend
        checkpoint-activations offload-activations min-params-to-wrap ddp-backend bucket-cap-mb find-unused-parameters
        gradient-as-bucket-view broadcast-buffers zero-sharding no-reshard-after-forward cpu-offload
        not-fsdp-flatten-parameters heartbeat-timeout num-workers data-buffer-size dataset-impl use-plasma-view
        plasma-path empty-cache-freq all-gather-list-size profile""",
    # reports, and which checkpoints are written and read
    "report": """
        no-progress-bar report-accuracy log-interval log-format log-file log-positions tensorboard-logdir wandb-project
        aim-repo aim-run-hash azureml-logging suppress-crashes fast-stat-sync debug-param-names user-dir save-dir
        save-interval save-interval-updates keep-last-epochs keep-best-checkpoints keep-interval-updates
        keep-interval-updates-pattern no-epoch-checkpoints no-last-checkpoints no-save no-save-optimizer-state
        checkpoint-suffix checkpoint-shard-count use-sharded-state write-checkpoints-asynchronously
        load-checkpoint-on-all-dp-ranks restore-file continue-once reset- optimizer-overrides""",
}
_EFFECTS = {flag: effect for effect, flags in _LISTED.items() for flag in flags.split()}


def effect(name: str) -> Effect:
    """What a flag (``max-tokens``) or its configuration key (``max_tokens``) changes: by default, the result."""
    flag = name.replace("_", "-")
    beginnings = (other for other in _EFFECTS if other.endswith("-") and flag.startswith(other))
    return _EFFECTS.get(flag) or _EFFECTS.get(next(beginnings, ""), "result")


def needs_gpu(flags: set[str]) -> bool:
    """Whether a training with these flags needs a GPU: by --fp16 alone, fairseq makes a tensor that no CPU has."""
    return "fp16" in flags and flags.isdisjoint({*PRECISIONS, "fp16-no-flatten-grads"} - {"fp16"})
