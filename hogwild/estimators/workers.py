"""What ``n_jobs`` and ``random_state`` mean: workers, never more than there is room for, and a seed.

The one decision: within somebody else's parallel work, such as a grid search on all cores, an estimator has one worker,
whatever its ``n_jobs`` says: the cores are taken. joblib's own workers say so by the level of nesting of their backend.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from typing import Any

from sklearn.utils import check_random_state

from hogwild import machine
from hogwild.errors import HogwildWarning, UsageError

# Nonzeros times classes of an epoch, below which more workers cost more than they save: those that share out the
# classes have threads to start, those that share parameters also have to find out how
WORTH, RACE = 2_000_000, 4_000_000


def check_jobs(n_jobs: Any) -> None:
    """Refuse what :func:`workers_of` would."""
    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise UsageError(f"n_jobs={n_jobs!r}: expected a whole number other than 0, or None")


def workers_of(n_jobs: Any) -> int:
    """Workers for a value of ``n_jobs``: None is 1 (or what ``joblib.parallel_config`` says), -1 all physical cores.

    Raises
    ------
    UsageError
        For 0, or what is no whole number.
    """
    import joblib
    from joblib.parallel import get_active_backend

    check_jobs(n_jobs)
    backend, _ = get_active_backend()
    if getattr(backend, "nesting_level", 0):
        return 1
    if n_jobs is None:
        n_jobs = joblib.effective_n_jobs(None)
    if n_jobs < 0:
        return max(1, machine.physical_cores() + 1 + int(n_jobs))
    return min(int(n_jobs), 1024)


def workers_for(n_jobs: Any, host: str, entries: int, rows: int, apart: Callable[[int], bool]) -> int:
    """Workers of a fit: those of ``n_jobs``, or one where an epoch is so short that more would be in each other's way.

    Parameters
    ----------
    n_jobs, host
        The estimator's parameters.
    entries : int
        Nonzeros times classes of an epoch.
    rows : int
    apart : callable
        Whether so many workers share out classes that have nothing to do with each other.

    Raises
    ------
    UsageError
        As :func:`workers_of`.
    """
    check_jobs(n_jobs)
    if host == "threads" and entries < min(WORTH, RACE):  # asking joblib would take as long as an epoch
        return 1
    workers = workers_of(n_jobs)
    if host == "processes":
        workers = max(1, min(workers, rows))
    elif entries < (WORTH if apart(workers) else RACE):
        return 1
    if workers > (cores := machine.physical_cores()):
        said = machine.crowded(workers, cores)
        warnings.warn(f"n_jobs={n_jobs}: {said}", HogwildWarning, stacklevel=6)  # the line that calls fit
    return workers


def drawn_seed(random_state: Any) -> int:
    """The seed of a fit: a whole number as it is, since to make a generator of it takes as long as some epochs."""
    if isinstance(random_state, numbers.Integral) and 0 <= int(random_state) < 2**32:
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
