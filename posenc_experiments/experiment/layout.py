"""Names of the files in an experiment directory; no other file defines them."""

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from posenc_experiments.base.files import TEMPORARY

# Files of one test set, as TEST.KIND.
SOURCES, REFERENCES, HYPOTHESES = "src", "ref", "hyp"
SACREBLEU, HISTORICAL = "sacrebleu.json", "historical.json"
SENTENCES = "scores"  # TEST.METRIC.scores: a metric that another tool computed, by sentence
GENERATE_SCRIPT, GENERATE_LOG = "generate.sh", "generate.log"
ANALYSIS = "analysis.json"
#: kinds of files whose hashes a score records, and the keys of these hashes in the score
SCORED = {SOURCES: "sources", HYPOTHESES: "hypotheses", REFERENCES: "references"}


class _Inside:
    """A path inside the directory."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, layout: "ExperimentDirectory", owner: type) -> Path:
        return layout.directory / self.name


class ExperimentDirectory:
    """Names the files of an experiment directory, of which only the path is known."""

    about = _Inside("experiment.json")  # its settings and all that its result depends on
    summary = _Inside("training.json")  # results of the training in numbers
    command = _Inside("command.sh")  # runs the training again
    train_log = _Inside("train.log")
    nodes = _Inside("nodes.json")  # where node 0 announces its training to the other nodes
    checkpoints = _Inside("checkpoints")
    last_checkpoint = _Inside("checkpoints/checkpoint_last.pt")
    averaged = _Inside("averaged.pt")
    generate_results = _Inside("generate.tmp")  # the output of fairseq-generate while it runs
    tensorboard = _Inside("tensorboard")
    analysis = _Inside(ANALYSIS)  # figures of `analyse`

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def node_log(self, rank: int) -> Path:
        """The log of its training on a node other than node 0."""
        return self.directory / f"train.node{rank}.log"

    def test_file(self, test: str, kind: str) -> Path:
        return self.directory / f"{test}.{kind}"

    def test_files(self, kinds: Iterable[str]) -> list[Path]:
        """The existing files of these kinds, of all test sets."""
        return [path for kind in kinds for path in self.directory.glob(f"*.{kind}")]


def find_experiments(path: Path) -> list[Path]:
    """The experiment directories below a directory, links followed, or the directory itself if it is one."""
    name = ExperimentDirectory(path).about.name
    pattern = f"{glob.escape(str(path))}/**/{name}"
    experiments: dict[str, Path] = {}  # by its real path, as a link may lead to a directory above it
    for file in glob.iglob(pattern, recursive=True):
        experiments.setdefault(os.path.realpath(Path(file).parent), Path(file).parent)
    return [one for one in experiments.values() if not one.name.endswith(TEMPORARY)]
