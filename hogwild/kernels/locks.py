"""Spin locks in shared int32 arrays, and the wait loop they use.

A lock is one element: 0 free, 1 held, or the number of who holds it (``try_acquire``). It is taken by
compare-and-exchange (acquire) and given back by a release store.

A waiter spins about a thousand times and then yields to the scheduler, since with more workers than cores the holder
may not be running: three round-robin workers on two cores took 2.7 ms a turn with a pure spin, and take microseconds
with this. Every wait also watches an abort flag, so that a worker killed while holding a lock stops the others instead
of hanging them.
"""

from __future__ import annotations

from numba import njit

from hogwild.kernels.atomics import compare_exchange, load, sched_yield, store
from hogwild.kernels.control import ABORT, LEFT, LINE, TURN, WORKERS
from hogwild.kernels.options import JIT

SPINS = 1000  # about a microsecond of trying before yielding the processor


@njit(**JIT)
def acquire(locks, index, control, abort):
    """Take ``locks[index]``; return False, without the lock, if ``control[abort]`` was raised while waiting."""
    spins = 0
    while not compare_exchange(locks, index, 0, 1):
        spins += 1
        if spins >= SPINS:
            spins = 0
            if load(control, abort) != 0:
                return False
            sched_yield()
    return True


@njit(**JIT)
def try_acquire(locks, index, owner):
    """Take ``locks[index]`` for ``owner``, a positive number, unless it is held; return whether it was taken."""
    return compare_exchange(locks, index, 0, owner)


@njit(**JIT)
def release(locks, index):
    """Release ``locks[index]``; everything written while it was held is visible to the next holder."""
    store(locks, index, 0)


@njit(**JIT)
def wait_for(cells, index, value, control, abort):
    """Wait until ``cells[index] == value``; return False if ``control[abort]`` was raised meanwhile."""
    spins = 0
    while load(cells, index) != value:
        spins += 1
        if spins >= SPINS:
            spins = 0
            if load(control, abort) != 0:
                return False
            sched_yield()
    return True


@njit(**JIT)
def take_turn(control, worker):
    """Wait until it is this worker's turn to write; return False if the run was aborted."""
    return wait_for(control, TURN, worker, control, ABORT)


@njit(**JIT)
def pass_turn(control, worker, workers, leaves):
    """Give the turn to the next worker that still takes turns; ``leaves``: this one takes no more."""
    if leaves:
        store(control, WORKERS + LINE * worker + LEFT, 1)
    for k in range(1, workers + 1):
        other = (worker + k) % workers
        if load(control, WORKERS + LINE * other + LEFT) == 0:
            store(control, TURN, other)
            return
