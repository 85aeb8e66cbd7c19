"""The progress bar that ``verbose=1`` shows while an estimator trains, in a terminal and in notebooks.

Nothing is imported or shown unless it was asked for. The bar that rich has for notebooks needs ipywidgets and is lost
when the notebook is saved, so a notebook gets the line of a terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

Report = Callable[[int, float], None]  # epochs done, objective


@contextlib.contextmanager
def shown(title: str, epochs: int, verbose: int) -> Iterator[Report]:
    """Show a bar within this block, unless ``verbose`` is 0; the function that is yielded moves it."""
    if not verbose:
        yield lambda epoch, objective: None
        return
    import rich
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = rich.get_console()
    if console.is_jupyter:
        console = Console(force_jupyter=False, force_terminal=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs")
    objective = TextColumn("objective {task.fields[objective]:.6g}")
    with Progress(*columns, objective, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task(title, total=epochs, objective=float("nan"))
        last = 0

        def report(epoch: int, objective: float) -> None:
            nonlocal last
            last = epoch
            bar.update(task, completed=epoch, objective=objective)

        yield report
        bar.update(task, total=last)  # most fits end long before max_iter
