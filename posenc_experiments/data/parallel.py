"""Work on many batches in several processes, with the results in the batches' order and memory that does not grow."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.run import die_with_parent

T = TypeVar("T")
R = TypeVar("R")
KILLED = (
    "A process of the stage prepare was killed, perhaps for want of memory: run again, with fewer --cpus or a smaller "
    "'sample' in the .conf, section [prepare]; what was finished is kept."
)
AHEAD = 2  # batches a worker that are read before the first result is taken


def in_order(
    function: Callable[[T], R],
    items: Iterable[T],
    workers: int,
    start: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
) -> Iterator[R]:
    """`map` over processes; `start(*arguments)` is called once in each. With one worker all happens here."""
    if workers == 1:
        if start is not None:
            start(*arguments)
        yield from map(function, items)
        return
    waiting: deque[Future[R]] = deque()
    with _pool(workers, start, arguments) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def in_child(function: Callable[..., None], *arguments: object) -> None:
    """Calls a function in a process of its own, for the memory that it takes would never be given back in this one."""
    with _pool(1) as pool:
        pool.submit(function, *arguments).result()


@contextmanager
def _pool(
    workers: int, start: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes end with the block; if the block raises, at once."""
    pool = ProcessPoolExecutor(workers, initializer=_start, initargs=(start, arguments))
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


def _start(start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    # The pipe to a parent that was killed stays open in the other workers: without this all would wait for ever.
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the parent's handler
    os.environ["OMP_NUM_THREADS"] = "1"
    if start is not None:
        start(*arguments)
