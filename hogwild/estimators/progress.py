"""The progress bar that ``verbose=1`` shows while an estimator trains, in a terminal and in notebooks.

Nothing is imported or shown unless it was asked for. A terminal gets rich's bar. In a notebook that bar needs
ipywidgets, warns at every refresh if they are missing, and is lost when the notebook is saved; so a notebook gets one
HTML output that is updated in place, which every front end can show and save.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

Report = Callable[[int, float], None]  # epochs done, objective

REFRESH = 0.1  # least seconds between two updates in a notebook


@contextlib.contextmanager
def shown(title: str, epochs: int, verbose: int) -> Iterator[Report]:
    """Show a bar within this block, unless ``verbose`` is 0; the function that is yielded moves it."""
    if not verbose:
        yield lambda epoch, objective: None
        return
    import rich

    with _in_notebook(title, epochs) if rich.get_console().is_jupyter else _in_terminal(title, epochs) as report:
        yield report


@contextlib.contextmanager
def _in_terminal(title: str, epochs: int) -> Iterator[Report]:
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


@contextlib.contextmanager
def _in_notebook(title: str, epochs: int) -> Iterator[Report]:
    from IPython.display import display

    start = time.monotonic()
    last = 0
    value = float("nan")
    drawn = 0.0

    def picture(total: int) -> dict[str, str]:
        text = f"{last}/{total} epochs, {time.monotonic() - start:.1f} s"
        if last:
            text += f", objective {value:.6g}"
        bar = f'<progress value="{last}" max="{total}"></progress>'
        return {"text/plain": f"{title} {text}", "text/html": f"<div>{title} {bar} {text}</div>"}

    output = display(picture(epochs), raw=True, display_id=True)

    def report(epoch: int, objective: float) -> None:
        nonlocal last, value, drawn
        last, value = epoch, objective
        if time.monotonic() - drawn >= REFRESH:
            drawn = time.monotonic()
            output.update(picture(epochs), raw=True)

    try:
        yield report
    except BaseException:  # an interrupted fit keeps the bar where it was
        output.update(picture(epochs), raw=True)
        raise
    output.update(picture(last), raw=True)
