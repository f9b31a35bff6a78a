"""Runs the work of a job, pickled on standard input: `python -m posenc_experiments.jobs.work`."""

import pickle
import signal
import sys

from posenc_experiments.jobs.pool import reason

if __name__ == "__main__":
    # SLURM signals every process of a step before time is up; submitit handles the signal, others must ignore it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        pickle.load(sys.stdin.buffer)("")
    except Exception as error:
        sys.exit(f"Error: {reason(error)}")
