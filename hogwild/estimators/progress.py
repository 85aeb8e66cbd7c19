"""The progress bar that ``verbose=1`` shows while an estimator trains, in a terminal and in notebooks.

Nothing is imported or shown unless it was asked for. The bar that rich has for notebooks needs ipywidgets and is lost
when the notebook is saved, so a notebook gets the line of a terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

Report = Callable[..., None]  # epochs done and the objective; or steps of a choice, None and how many there are


@contextlib.contextmanager
def shown(title: str, total: int, verbose: int) -> Iterator[Report]:
    """Show a bar within this block, unless ``verbose`` is 0; the function that is yielded moves it."""
    if not verbose:
        yield lambda *_: None
        return
    import rich
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = rich.get_console()
    if console.is_jupyter:
        console = Console(force_jupyter=False, force_terminal=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}")
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task(title, total=total, said="")
        last = 0

        def report(done: int, objective: float | None, total: int = total) -> None:
            nonlocal last
            last = done
            said = "steps" if objective is None else f"epochs objective {objective:.6g}"
            bar.update(task, completed=done, total=total, said=said)

        yield report
        bar.update(task, total=last)  # most fits end long before max_iter
