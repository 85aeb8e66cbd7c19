"""The cells through which workers and the parent steer a run, and the events by which the simulator steers a kernel.

The cells are one shared int64 array, with a cache line for each; all reads and writes go through ``atomics.py``.
"""

from __future__ import annotations

from numba import njit

from hogwild.kernels.atomics import load, store
from hogwild.kernels.options import JIT

LINE = 8  # int64 per 64-byte cache line
NO_LIMIT = 1 << 62  # limit of a call that goes on to the end of the epoch

NEXT = 0 * LINE  # next chunk to be claimed
STOP = 1 * LINE  # nonzero: finish the current chunk, then return
ABORT = 2 * LINE  # nonzero: return at once, even from a wait; the run is lost
TURN = 3 * LINE  # round robin: whose turn it is, a position in the epoch (linear models) or a worker
LAST = 4 * LINE  # round robin of linear models: the position at which the epoch ends; else 0
SKIP = 5 * LINE  # chunks after each claimed one that are for other machines
END = 6 * LINE  # the chunk at which a task ends; 0: that of the epoch
WORKERS = 8 * LINE  # from here on, one line per worker:
# ... rows and nonzeros done in this epoch, coordinates merged (tiered), and whether it takes no more turns
ROWS, NONZEROS, MERGED, LEFT = range(4)


@njit(forceinline=True, **JIT)  # and called from Python
def count(control, worker, rows, nonzeros):
    """Add to a worker's own progress counters."""
    cell = WORKERS + LINE * worker
    store(control, cell + ROWS, load(control, cell + ROWS) + rows)
    store(control, cell + NONZEROS, load(control, cell + NONZEROS) + nonzeros)


def cells(workers: int) -> int:
    """Length of the control array for ``workers`` workers."""
    return WORKERS + LINE * workers


# What virtual workers do next is an int64 array of events, ``worker * EVENT_KINDS + kind``. READ: take the next row and
# compute its gradient; LOAD: copy the row's weights; STORE: write its update; PAY: add what is still owed to the
# shared intercept.
READ, LOAD, STORE, PAY = range(4)
EVENT_KINDS = 4
CHUNK, COUNT, FIRST = range(3)  # cells: the chunk whose rows are read or -1, the number of events, the first event
