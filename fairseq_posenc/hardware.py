"""Which flags of fairseq say where, how fast and with how much memory it runs, and what it reports, but not what it
computes: the one place that says so, for experiments and for checkpoints.

This file imports nothing: recipes run it by itself, since the package would import torch and fairseq.
"""

HARDWARE_FLAGS = frozenset(
    [
        # where, and in which precision
        "cpu",
        "fp16",
        "bf16",
        "amp",
        "memory-efficient-fp16",
        "memory-efficient-bf16",
        "fp16-no-flatten-grads",
        "fp16-adam-stats",
        "use-old-adam",
        # how a batch is cut into parts: what it holds is said by [train] batch-tokens
        "max-tokens",
        "update-freq",
        "max-tokens-valid",
        "batch-size-valid",
        "required-batch-size-multiple",
        "skip-invalid-size-inputs-valid-test",
        # time and memory
        "attention-backend",
        "checkpoint-activations",
        "offload-activations",
        "min-params-to-wrap",
        "ddp-backend",
        "bucket-cap-mb",
        "heartbeat-timeout",
        "num-workers",
        "data-buffer-size",
        "empty-cache-freq",
        "profile",
        # reports
        "no-progress-bar",
        "report-accuracy",
        "log-interval",
        "log-format",
        "log-file",
        "tensorboard-logdir",
        "wandb-project",
        "aim-repo",
        "aim-run-hash",
        "azureml-logging",
        # which checkpoints are kept: averaging more of them makes no other training
        "save-interval",
        "save-interval-updates",
        "keep-last-epochs",
        "keep-best-checkpoints",
        "keep-interval-updates",
        "keep-interval-updates-pattern",
        "no-epoch-checkpoints",
    ]
)


def is_hardware(name: str) -> bool:
    """Whether a flag, ``max-tokens``, or the key of a configuration, ``max_tokens``, is one of these."""
    flag = name.replace("_", "-")
    return flag in HARDWARE_FLAGS or flag.startswith("distributed-")
