"""Shows the states of jobs: as a live list on a terminal, otherwise as one line for each change."""

from collections import Counter
from collections.abc import Iterable

from rich import progress
from rich.console import Console
from rich.table import Column

from posenc_experiments.jobs.job import Job

STATES = ("done", "running", "waiting", "failed")


class Progress:
    """Follows and shows the states of all jobs; the list on a terminal has those that run or failed."""

    def __init__(self, console: Console, jobs: Iterable[Job]) -> None:
        self.console = console
        self.shown = dict.fromkeys(jobs, ("waiting", ""))
        columns = [
            progress.TextColumn("{task.description}", markup=False),
            # Wraps paths, which are useless if cut.
            progress.TextColumn("{task.fields[text]}", markup=False, table_column=Column(overflow="fold")),
        ]
        self.live = progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.counts = self.live.add_task("", text="")
        self.rows = {job: self.live.add_task(job.title, visible=False, text="") for job in self.shown}

    def set(self, job: Job, state: str, text: str = "") -> None:
        """Sets a job's state; `text` says more of it, such as what the cluster says, or why it failed."""
        text = text or state
        if self.shown[job] == (state, text):
            return
        self.shown[job] = (state, text)
        found = Counter(state for state, _ in self.shown.values())
        counts = ", ".join(f"{found[state]} {state}" for state in STATES)
        self.live.update(self.rows[job], visible=state in ("running", "failed"), text=text)
        self.live.update(self.counts, description=counts)
        if not self.console.is_terminal:
            self.console.print(f"{job.title}: {text} [{counts}]", markup=False, highlight=False, soft_wrap=True)
