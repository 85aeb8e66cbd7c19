"""The cells through which workers and the parent steer a run: one shared int64 array, a cache line for each cell.

Read and written only through ``kernels/atomics.py``.
"""

from __future__ import annotations

LINE = 8  # int64 per 64-byte cache line

NEXT = 0 * LINE  # next chunk to be claimed
STOP = 1 * LINE  # not 0: finish the chunk in hand, then return
ABORT = 2 * LINE  # not 0: return at once, even from a wait; the run is lost
TURN = 3 * LINE  # round robin: position in the epoch whose turn it is
LAST = 4 * LINE  # round robin: position at which the epoch ends
WORKERS = 8 * LINE  # from here one line a worker:
ROWS, NONZEROS, MERGED = 0, 1, 2  # ... rows and nonzeros done in this epoch, coordinates merged (tiered)


def cells(workers: int) -> int:
    """Length of the control array for so many workers."""
    return WORKERS + LINE * workers
