"""Shows the states of jobs: as a live list on a terminal, otherwise as one line for each change."""

from collections import Counter
from collections.abc import Iterable

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from posenc_experiments.jobs.job import Job

STATES = ("done", "running", "waiting", "failed")
STYLES = {"running": "bold", "failed": "red"}  # states whose jobs the live list shows


class Progress:
    """Follows and shows the states of all jobs.

    Args:
        console: the terminal or file to print to.
        jobs: all jobs.
        elsewhere: whether they run in other processes. The jobs of this process print lines of their own if there is
            no terminal.
    """

    def __init__(self, console: Console, jobs: Iterable[Job], elsewhere: bool) -> None:
        self.console, self.elsewhere = console, elsewhere
        self.states = dict.fromkeys(jobs, "waiting")
        self.details = dict.fromkeys(jobs, "")
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> "Progress":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def set(self, job: Job, state: str, detail: str = "") -> None:
        """Sets a job's state; `detail` is what the cluster or its training says of it, or why it failed."""
        if state == self.states[job] and detail in ("", state, self.details[job]):
            return
        self.states[job], self.details[job] = state, detail
        if self.live is not None:
            self.live.update(self._list(), refresh=True)
        elif not self.elsewhere:
            if (state, detail) == ("done", "before"):
                self.say(f"{job.title}: done before")
            elif state == "failed":
                self.say(f"{job.title}: failed: {detail}")
        else:
            more = f" ({detail})" if detail not in ("", state) else ""
            self.say(f"{job.title}: {state}{more} [{self._counts()}]")

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _counts(self) -> str:
        counts = Counter(self.states.values())
        return ", ".join(f"{counts[state]} {state}" for state in STATES)

    def _list(self) -> Group:
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")  # wraps paths, which are useless if cut
        for job, state in self.states.items():
            if state in STYLES:
                grid.add_row(Text(job.title), Text(self.details[job] or state, STYLES[state]))
        return Group(Text(self._counts()), grid)
