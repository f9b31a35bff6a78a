"""fairseq's flags that do not change the results of a training (hardware, time, memory, reports), and its precisions.

Experiments and checkpoints ignore the former when they compare trainings. This file imports nothing, so that recipes
can load it without the package, which imports torch and fairseq.
"""

#: flags of a precision other than single; these change results
PRECISIONS = ("memory-efficient-fp16", "memory-efficient-bf16", "fp16", "bf16", "amp")
HARDWARE_FLAGS = frozenset(
    [
        # device, and where numbers of a precision are kept
        *("cpu", "fp16-no-flatten-grads", "use-old-adam"),
        # how a batch is split: its size is set by train.batch-tokens
        *("max-tokens", "update-freq", "max-tokens-valid", "batch-size-valid", "required-batch-size-multiple"),
        "skip-invalid-size-inputs-valid-test",
        # time and memory
        *("attention-backend", "checkpoint-activations", "offload-activations", "min-params-to-wrap", "ddp-backend"),
        *("bucket-cap-mb", "heartbeat-timeout", "num-workers", "data-buffer-size", "empty-cache-freq", "profile"),
        # reports
        *("no-progress-bar", "report-accuracy", "log-interval", "log-format", "log-file", "tensorboard-logdir"),
        *("log-positions", "wandb-project", "aim-repo", "aim-run-hash", "azureml-logging"),
        # which checkpoints are kept
        *("save-interval", "save-interval-updates", "keep-last-epochs", "keep-best-checkpoints"),
        *("keep-interval-updates", "keep-interval-updates-pattern", "no-epoch-checkpoints"),
    ]
)


def needs_gpu(flags: set[str]) -> bool:
    """Whether a training with these flags needs a GPU: by --fp16 alone, fairseq makes a tensor that no CPU has."""
    return "fp16" in flags and flags.isdisjoint({*PRECISIONS, "fp16-no-flatten-grads"} - {"fp16"})


def is_hardware(name: str) -> bool:
    """Whether a flag (``max-tokens``) or its configuration key (``max_tokens``) does not change the results."""
    flag = name.replace("_", "-")
    return flag in HARDWARE_FLAGS or flag.startswith("distributed-")
