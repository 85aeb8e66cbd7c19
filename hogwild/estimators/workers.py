"""How many workers an estimator's ``n_jobs`` makes: scikit-learn's meaning, and never more than there is room for.

The one decision: within somebody else's parallel work, such as a grid search on all cores, an estimator has one worker,
whatever its ``n_jobs`` says: the cores are taken. joblib's own workers say so by the level of nesting of their backend.
"""

from __future__ import annotations

from typing import Any

from hogwild import machine
from hogwild.errors import UsageError

WORTH = 300_000  # nonzeros times classes of an epoch, below which the start of threads costs more than they save


def workers_of(n_jobs: Any) -> int:
    """Workers for a value of ``n_jobs``: None is 1 (or what ``joblib.parallel_config`` says), -1 all physical cores.

    Raises
    ------
    UsageError
        For 0, or what is no whole number.
    """
    import numbers

    import joblib
    from joblib.parallel import get_active_backend

    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise UsageError(f"n_jobs={n_jobs!r}: expected a whole number other than 0, or None")
    backend, _ = get_active_backend()
    if getattr(backend, "nesting_level", 0):
        return 1
    if n_jobs is None:
        n_jobs = joblib.effective_n_jobs(None)
    if n_jobs < 0:
        return max(1, machine.physical_cores() + 1 + int(n_jobs))
    return min(int(n_jobs), 1024)


def worth_it(workers: int, host: str, entries: int, rows: int) -> int:
    """``workers``, or fewer of them where an epoch is so short that threads would only wait for each other."""
    if host == "processes":
        return max(1, min(workers, rows))
    return workers if entries >= WORTH else 1
