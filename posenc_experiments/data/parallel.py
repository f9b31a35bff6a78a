"""Maps a function over batches in several processes, in order and with bounded memory."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.subprocesses import die_with_parent

T = TypeVar("T")
R = TypeVar("R")
KILLED = (
    "A process of the stage prepare was killed, perhaps because memory ran out: run again, with fewer --cpus or a "
    "smaller 'sample' in the recipe, `prepare`; finished steps are kept."
)
AHEAD = 2  # batches per worker that are read ahead of the first result


def in_order(function: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """`map` in `workers` processes; one worker means this process."""
    if workers == 1:
        yield from map(function, items)
        return
    waiting: deque[Future[R]] = deque()
    with _pool(workers) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def in_child(function: Callable[..., R], *arguments: object) -> R:
    """Calls a function in a child process, so that all its memory is freed afterwards."""
    with _pool(1) as pool:
        return pool.submit(function, *arguments).result()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes end with the block; they are killed if it raises."""
    pool = ProcessPoolExecutor(workers, initializer=_start)
    try:
        yield pool
    except BaseException as error:
        # Not pool.shutdown(): after an interrupt in pool.submit() it would wait forever.
        for process in multiprocessing.active_children():
            process.kill()
        if isinstance(error, BrokenProcessPool):
            raise RecipeError(KILLED) from None
        raise
    pool.shutdown()


def _start() -> None:
    # Workers keep each other's pipe to the parent open: if the parent were killed, all would wait forever.
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # replaces the parent's handler, which is inherited
