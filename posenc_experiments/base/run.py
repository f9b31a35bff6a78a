"""The settings of one call of the pipeline, and the paths of its data."""

import shlex
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from posenc_experiments.base import languages
from posenc_experiments.base.flags import Flags
from posenc_experiments.base.hardware import Hardware
from posenc_experiments.base.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Session:
    """What jobs of one call share in this process, and the GPUs of the job at hand."""

    console: Console = field(default_factory=Console)
    stop: threading.Event = field(default_factory=threading.Event)  # set on an interrupt, to end all commands
    devices: str | None = None  # the GPUs of this job, as CUDA_VISIBLE_DEVICES names them; None: all

    @property
    def visible(self) -> dict[str, str]:
        """The environment variable that shows a command only the GPUs of this job."""
        return {} if self.devices is None else {"CUDA_VISIBLE_DEVICES": self.devices}

    def __reduce__(self) -> tuple[type["Session"], tuple[()]]:
        return Session, ()  # a job in another process has a session of its own


@dataclass(frozen=True)
class Run:
    """The settings of one call for one recipe and pair; every stage takes a Run."""

    recipe: Recipe
    pair: str
    data_dir: Path
    output_dir: Path
    source_dir: Path | None = None
    extra: Flags = field(default_factory=dict)  # flags of fairseq-train, given after `--`
    precision: str | None = None  # None: what the recipe says
    tensorboard: bool = False
    wandb: str | None = None  # a project's name
    dry_run: bool = False
    hardware: Hardware = field(default_factory=Hardware)
    session: Session = field(default_factory=Session)

    @property
    def source(self) -> str:
        return self.pair.split("-")[0]

    @property
    def target(self) -> str:
        return self.pair.split("-")[1]

    @property
    def tokenizer(self) -> str:
        """SacreBLEU's tokenizer of BLEU; RecipeError if what it needs is not on this machine."""
        return languages.usable_tokenizer(self.recipe.score.tokenize, self.target)

    def module(self, name: str) -> list[str]:
        """The command that runs a Python module, without searching for it in the current directory."""
        return [sys.executable, "-P", "-m", name]

    @property
    def pair_dir(self) -> Path:
        """The prepared data of the pair, a directory for each of its settings."""
        return self.data_dir / self.recipe.corpus.name / self.pair

    @property
    def results_dir(self) -> Path:
        """The results of all pairs of the corpus."""
        return self.output_dir / self.recipe.corpus.name

    @property
    def pair_results_dir(self) -> Path:
        return self.results_dir / self.pair

    @property
    def jobs_dir(self) -> Path:
        """Locks, logs and states of jobs that run in other processes."""
        return self.results_dir / "jobs"

    def say(self, text: str) -> None:
        """Prints one line to the user, without markup."""
        self.session.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def dry(self, words: Iterable[str | Path]) -> None:
        """Prints a command that --dry-run does not run."""
        self.say(shlex.join(str(word) for word in words))


def prepared_text(data_dir: Path, corpus: str, pair: str, name: str) -> Path:
    """The file TEST.LANGUAGE of the data that was prepared last, which may not exist."""
    folder = data_dir / corpus / pair
    texts = folder.glob(f"prepared*/{name}")
    return max(texts, key=lambda path: path.stat().st_mtime_ns, default=folder / "prepared" / name)
