"""Work in several processes ends when it is interrupted at any moment."""

import subprocess
import sys

import pytest

# The moment after the pool forked its first process: no thread of the pool would end it yet.
INTERRUPTED = """
import threading
from posenc_experiments.data.parallel import in_child, in_order

def interrupt(thread):
    raise KeyboardInterrupt

threading.Thread.start = interrupt
{call}
"""


@pytest.mark.parametrize("call", ["in_child(print)", "list(in_order(print, range(9), 2))"])
def test_an_interrupt_while_the_pool_starts_ends_it(call: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(call=call)], capture_output=True, encoding="utf-8", timeout=30
    )
    assert process.stderr.rstrip().endswith("KeyboardInterrupt")
