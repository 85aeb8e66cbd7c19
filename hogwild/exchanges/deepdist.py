"""Bring your own gradient and descent: the two functions of DeepDist (Dirk Neumann's package of that name) in threads.

``gradient(parameters, part)`` runs in the workers, on a copy of the parameters; ``descent(parameters, update)`` runs at
the server, one call at a time. DeepDist hands all workers the same copy until every one of them has answered; here each
takes a fresh copy for each part, as Downpour does, so a quick worker does not wait for a slow one. DeepDist sends
pickles over HTTP, which let anybody run code; here nothing but arrays is passed on, within one process. Threads are
enough while NumPy or a compiled function does the work; Python code in ``gradient`` runs in one thread at a time.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from hogwild.errors import UsageError

Parameters = TypeVar("Parameters", np.ndarray, Mapping[str, np.ndarray])
Part = TypeVar("Part")


def serve(
    parameters: Parameters,
    partitions: Iterable[Part],
    gradient: Callable[[Parameters, Part], Any],
    descent: Callable[[Parameters, Any], object],
    workers: int = 4,
    push: int = 1,
) -> Parameters:
    """Train parameters by two functions of your own, with worker threads and a server that they share.

    Parameters
    ----------
    parameters : ndarray or dict of ndarray
        What is trained; changed in place.
    partitions : iterable
        Parts of the data, handed out one by one to whichever worker is free. An iterator is read as it is needed.
    gradient : callable
        ``gradient(parameters, part)`` returns an update: an array, or a dict of arrays. It gets a copy.
    descent : callable
        ``descent(parameters, update)`` changes the parameters in place. Its calls never overlap.
    workers : int
        Number of threads. With one, everything happens in the order of the parts.
    push : int
        Parts after which a worker pushes the sum of its updates.

    Returns
    -------
    ndarray or dict of ndarray
        ``parameters``.

    Raises
    ------
    UsageError
        If ``workers`` or ``push`` is less than 1.

    See Also
    --------
    train : problems whose gradient is here, with ``exchange="server"``.

    Notes
    -----
    What either function raises ends the training, and is raised here once the other workers have finished their parts.

    Examples
    --------
    >>> import numpy as np
    >>> import hogwild
    >>> x = np.arange(6.0)
    >>> def gradient(w, part):
    ...     return (w[0] * part - 2 * part) @ part
    >>> def descent(w, update):
    ...     w -= 0.01 * update
    >>> hogwild.serve(np.zeros(1), np.split(x, 3) * 60, gradient, descent, workers=2).round(3)
    array([2.])
    """
    for name, number in (("workers", workers), ("push", push)):
        if number < 1:
            raise UsageError(f"{name} needs a whole number from 1; got {number}")
    parts: Iterator[Part] = iter(partitions)
    taking = threading.Lock()
    changing = threading.Lock()
    failed = threading.Event()

    def updates() -> Iterator[Any]:
        """The updates of parts that no other worker has taken."""
        while not failed.is_set():
            with taking:
                part = [*itertools.islice(parts, 1)]
            if not part:
                return
            with changing:
                copy = _mapped(np.copy, parameters)
            yield gradient(copy, part[0])

    def added(total: Any, update: Any) -> Any:
        return update if total is None else _mapped(np.add, total, update)

    def work() -> None:
        """Do parts until none is left or something has failed."""
        try:
            while (total := functools.reduce(added, itertools.islice(updates(), push), None)) is not None:
                with changing:
                    descent(parameters, total)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(workers, "hogwild-serve") as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    return parameters


def _mapped(function: Callable[..., Any], *arrays: Any) -> Any:
    """Apply a function to arrays, or to the arrays of dicts name by name."""
    if isinstance(arrays[0], Mapping):
        return {name: function(*(array[name] for array in arrays)) for name in arrays[0]}
    return function(*arrays)
