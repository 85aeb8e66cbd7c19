"""The meaning of ``n_jobs`` and ``random_state``: a number of workers, within what the machine has, and a seed.

Within other parallel work, such as a grid search on all cores, an estimator has one worker whatever its ``n_jobs``,
because the cores are taken. The nesting level of joblib's backend shows whether it runs within joblib's workers.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from typing import Any

from sklearn.utils import check_random_state

from hogwild import machine
from hogwild.errors import HogwildWarning, UsageError

# Nonzeros times classes of an epoch below which more workers cost more than they save: workers that divide the classes
# must start threads, and workers that share parameters must also find out how.
WORTH, RACE = 2_000_000, 4_000_000


def check_jobs(n_jobs: Any) -> None:
    """Refuse any value that :func:`workers_of` would."""
    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise UsageError(f"n_jobs={n_jobs!r}: expected a whole number other than 0, or None")


def workers_of(n_jobs: Any) -> int:
    """Workers for a value of ``n_jobs``: None is 1 (or what ``joblib.parallel_config`` says), -1 all physical cores.

    Raises
    ------
    UsageError
        For 0, or anything but a whole number.
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
    """Workers of a fit: as ``n_jobs`` says, or one if an epoch is so short that more would slow each other down.

    Parameters
    ----------
    n_jobs, host
        The estimator's parameters.
    entries : int
        Nonzeros times classes of an epoch.
    rows : int
    apart : callable
        Takes a number of workers and returns whether they can divide the classes and train them independently.

    Raises
    ------
    UsageError
        As in :func:`workers_of`.
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
    """The seed of a fit; a whole number is used as it is, since to make a generator takes as long as some epochs."""
    if isinstance(random_state, numbers.Integral) and 0 <= int(random_state) < 2**32:
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
