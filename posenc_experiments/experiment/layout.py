"""The files of an experiment directory: the one place that knows their names."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from posenc_experiments.base.markers import Markers

# Files of one test set, as TEST.KIND.
SOURCES, REFERENCES, HYPOTHESES = "src", "ref", "hyp"
SACREBLEU, HISTORICAL = "sacrebleu.json", "historical.json"
GENERATE_SCRIPT, GENERATE_LOG = "generate.sh", "generate.log"
#: the files whose hashes a score records, with the names of these records
SCORED = {HYPOTHESES: "hypotheses", REFERENCES: "references"}


class _Inside:
    """A path inside the directory."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, layout: "Layout", owner: type) -> Path:
        return layout.directory / self.name


class Layout(ABC):
    """Names the files of an experiment directory."""

    about = _Inside("experiment.json")  # what the experiment is: its settings and all that its result was made from
    summary = _Inside("training.json")  # numbers of its training
    command = _Inside("command.sh")  # runs its training again
    train_log = _Inside("train.log")
    nodes = _Inside("nodes.json")  # where node 0 announces its training to the other nodes
    checkpoints = _Inside("checkpoints")
    last_checkpoint = _Inside("checkpoints/checkpoint_last.pt")
    checkpoints_inputs = _Inside("checkpoints/inputs.json")  # the fingerprint of what the checkpoints are trained from
    averaged = _Inside("averaged.pt")
    generate_results = _Inside("generate.tmp")  # where fairseq-generate writes, for as long as it runs
    tensorboard = _Inside("tensorboard")

    @property
    @abstractmethod
    def directory(self) -> Path:
        """Where they are."""

    @property
    def markers(self) -> Markers:
        return Markers(self.directory)

    def node_log(self, rank: int) -> Path:
        """The log of its training on a node other than node 0."""
        return self.directory / f"train.node{rank}.log"

    def test_file(self, test: str, kind: str) -> Path:
        return self.directory / f"{test}.{kind}"

    def test_files(self, kinds: Iterable[str]) -> list[Path]:
        """The files of these kinds that are there, of all test sets."""
        return [path for kind in kinds for path in self.directory.glob(f"*.{kind}")]


@dataclass(frozen=True)
class ExperimentDirectory(Layout):
    """An experiment directory of which nothing but its path is known."""

    path: Path

    @property
    def directory(self) -> Path:
        return self.path


def find_experiments(path: Path) -> list[Path]:
    """The experiment directories at or below a directory: if it is one itself, it alone."""
    own = ExperimentDirectory(path).about
    return [path] if own.is_file() else [one.parent for one in path.rglob(own.name)]
