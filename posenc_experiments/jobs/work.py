"""Runs the work of a job, pickled on standard input: `python -m posenc_experiments.jobs.work`."""

import pickle
import sys

from posenc_experiments.jobs.pool import reason

if __name__ == "__main__":
    try:
        pickle.load(sys.stdin.buffer)("")
    except Exception as error:
        sys.exit(f"Error: {reason(error)}")
