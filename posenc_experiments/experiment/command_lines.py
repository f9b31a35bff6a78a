"""The commands that train an experiment and translate with it."""

from pathlib import Path

from posenc_experiments.base.flags import Flags, flag_words
from posenc_experiments.base.recipe import GENERATION_TASKS
from posenc_experiments.base.run import Run
from posenc_experiments.data import prepared
from posenc_experiments.data.prepared import binarized_dir
from posenc_experiments.experiment.experiment import Experiment, derive_batch
from posenc_experiments.experiment.fairseq_flags import PLUGIN

# Flags of every training, unless it sets them itself.
TRAIN_DEFAULTS = {
    "log-format": "json",
    # The buffer's thread can abort the interpreter ("terminate called without an active exception") when a training
    # ends within an epoch. The workers of the data loader read ahead without it.
    "data-buffer-size": "0",
    # fairseq distributes sentences of equal length to batches at random, depending on the epoch in which the process
    # started. If batches are made again for each epoch, a resumed run has the same batches as an uninterrupted one.
    "update-epoch-batch-itr": "True",
}


def common_words(run: Run, task: str) -> list[str]:
    """The words that training and generation share: data, plugin, task and languages."""
    return [
        *(str(binarized_dir(run)), "--user-dir", str(PLUGIN), "--task", task),
        *("--source-lang", run.source, "--target-lang", run.target, "--required-batch-size-multiple", "1"),
    ]


def train_command(experiment: Experiment) -> list[str]:
    """The command that trains an experiment."""
    run, flags = experiment.run, TRAIN_DEFAULTS | experiment.train_flags | derive_batch(experiment)[0]
    if experiment.start is not None:
        flags["finetune-from-model"] = str(experiment.start.averaged)
    return [
        *(*_launcher(run), *common_words(run, "translation"), "--arch", experiment.arch),
        *flag_words(flags | _hardware(experiment)),
        *("--seed", str(experiment.seed), "--save-dir", str(experiment.checkpoints)),
    ]


def _launcher(run: Run) -> list[str]:
    """The words that start the processes of a training on this node: Python alone, or torchrun."""
    hardware, module, meet = run.hardware, "fairseq_cli.train", ["--standalone"]
    if hardware.workers == 1:
        return run.module(module)
    if hardware.nodes > 1:
        host, _, port = hardware.rendezvous.rpartition(":")
        meet = ["--nnodes", str(hardware.nodes), "--node_rank", str(hardware.node_rank)]
        meet += ["--master_addr", host.strip("[]"), "--master_port", port]
    return [*run.module("torch.distributed.run"), *meet, "--nproc_per_node", str(hardware.processes), "-m", module]


def _hardware(experiment: Experiment) -> Flags:
    """The flags for hardware and reporting."""
    run = experiment.run
    # Without a number, fairseq uses every GPU that it sees.
    flags = {"distributed-world-size": str(run.hardware.workers)}
    if run.tensorboard:
        flags["tensorboard-logdir"] = str(experiment.tensorboard)
    if run.wandb:
        flags["wandb-project"] = run.wandb
    if not run.hardware.gpus:
        flags["cpu"] = ""
        if run.hardware.workers > 1:
            # Without these, each process would start a training of its own, all in one directory.
            flags |= {"distributed-backend": "gloo", "ddp-backend": "legacy_ddp", "distributed-init-method": "env://"}
            flags |= {"distributed-no-spawn": "", "distributed-rank": "-1"}
    return flags


def train_environment(run: Run) -> dict[str, str]:
    """Environment variables of a training: on the CPU, the number of threads, and settings of glibc's malloc.

    By default, malloc returns every large tensor to the system and requests it again; keeping the memory gives 1.2
    times as many words/s.
    """
    # torchrun does not pass on its own -P to the processes that it starts.
    safe = {"PYTHONSAFEPATH": "1"} if run.hardware.workers > 1 else {}
    if run.hardware.gpus:
        return safe
    keep = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 28)}
    return {**safe, "OMP_NUM_THREADS": str(run.hardware.job_cpus), **keep}


def generate_command(experiment: Experiment, test: str, results: Path) -> list[str]:
    """The command that translates one binarized test set into `results`/generate-<subset>.txt."""
    run = experiment.run
    subset = prepared.subset(run, test)
    task = GENERATION_TASKS[run.recipe.generate.length_penalty]
    return [
        *(*run.module("fairseq_cli.generate"), *common_words(run, task), "--path", str(experiment.averaged)),
        *("--gen-subset", subset, "--results-path", str(results), *flag_words(run.recipe.generate.flags)),
        *("--distributed-world-size", "1", *([] if run.hardware.gpus else ["--cpu"])),
    ]


def generate_environment(run: Run) -> dict[str, str]:
    """Environment variables of a translation."""
    return {"OMP_NUM_THREADS": str(run.hardware.job_cpus)}
