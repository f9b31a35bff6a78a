"""Reads fairseq-train's JSON log, for the state of a running training and for its summary."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc_experiments.base.files import new_lines

ROW = re.compile(rb"\| INFO \| (train_inner|train|valid) \| (\{.*\})\s*$")
PARAMETERS = re.compile(rb"num\. shared model params: [\d,]+ \(num\. trained: ([\d,]+)\)")
STARTS = (b"| begin training epoch", b"| begin validation")


@dataclass
class TrainLog:
    """The state of a training after the lines read so far; after a resume, the log holds lines of several processes.

    Target words per second are measured over the windows between two log lines, without windows in which fairseq
    validated, saved or started. fairseq's own mean over an epoch includes these.
    """

    epoch: int = 0
    updates: int = 0
    valid_loss: float | None = None  # of the last validation
    parameters: int | None = None
    words: float = 0.0
    seconds: float = 0.0
    updates_per_second: float | None = None  # between the last two lines
    complete_epoch: int = 0  # the last one
    epoch_words_per_second: float | None = None  # fairseq's own, with the time of validation
    _clean_window: bool = False
    _offset: int = 0

    def follow(self, path: Path) -> None:
        """Reads what was written to the log since the last call."""
        lines, self._offset = new_lines(path, self._offset)
        for line in lines:
            self.feed(line)

    def feed(self, line: bytes) -> None:
        """Updates the state by one line."""
        if any(start in line for start in STARTS):
            self._clean_window = False
        if match := PARAMETERS.search(line):
            self.parameters = int(match[1].replace(b",", b""))
        match = ROW.search(line)
        if match is None:
            return
        try:
            row = json.loads(match[2])
        except ValueError:  # a line cut by a kill
            return
        getattr(self, "_" + match[1].decode())(row)

    def _train_inner(self, row: dict[str, Any]) -> None:
        updates, rate = int(row["num_updates"]), float(row.get("wps", 0))
        if self._clean_window and rate > 0 and updates > self.updates:
            words = float(row["wpb"]) * (updates - self.updates)
            self.words += words
            self.seconds += words / rate
            self.updates_per_second = rate / float(row["wpb"])
        self._clean_window = True
        self.epoch, self.updates = int(row["epoch"]), updates

    def _train(self, row: dict[str, Any]) -> None:
        self.epoch_words_per_second = float(row.get("train_wps", 0)) or None
        self.epoch = self.complete_epoch = int(row["epoch"])
        self.updates = int(row["train_num_updates"])

    def _valid(self, row: dict[str, Any]) -> None:
        self.valid_loss = float(row["valid_loss"])
        self.updates = max(self.updates, int(row["valid_num_updates"]))

    @property
    def words_per_second(self) -> float | None:
        """Target words per second, or None if the log is too short to measure them."""
        return self.words / self.seconds if self.seconds else self.epoch_words_per_second
