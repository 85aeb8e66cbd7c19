"""The bar that ``verbose=1`` shows while an estimator trains, in a terminal and in notebooks.

The one decision: nothing is imported or shown unless it was asked for. rich finds out itself where it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

Report = Callable[[int, float], None]  # epochs done, objective


@contextlib.contextmanager
def shown(title: str, epochs: int, verbose: int) -> Iterator[Report]:
    """Within this block, calls of what it yields move a bar, if ``verbose`` is not 0."""
    if not verbose:
        yield lambda epoch, objective: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs")
    with Progress(*columns, TextColumn("objective {task.fields[objective]:.6g}"), TimeElapsedColumn()) as bar:
        task = bar.add_task(title, total=epochs, objective=float("nan"))
        last = 0

        def report(epoch: int, objective: float) -> None:
            nonlocal last
            last = epoch
            bar.update(task, completed=epoch, objective=objective)

        yield report
        bar.update(task, total=last)  # most fits end long before max_iter
