"""The penalty of ``hogwild train``: whether l2 is chosen where nobody gives it, what is said of it, and its picture.

Without ``--l2`` it is chosen as by ``--l2 auto`` where that costs seconds at most and rows enough can be held out. The
rule goes by options and data alone, so the same command takes the same penalty on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hogwild.config import TrainConfig
from hogwild.errors import NoChoice
from hogwild.methods import LABEL_LOSSES
from hogwild.model_file import save_figure
from hogwild.problems.linear.options import L2_PATH, LinearConfig

if TYPE_CHECKING:
    from hogwild.data.rows.container import Rows
    from hogwild.training.l2_choice import L2Choice

R = TypeVar("R")  # a run
USUAL = LinearConfig.l2
FEWEST = 50  # rows, below which those that are held out tell too little
FEWEST_OF_CLASS = 5
MOST_ENTRIES = 50_000_000  # nonzeros times classes: candidates take up to about ten seconds
MOST_WEIGHTS = 1 << 22  # features times classes: candidates take 256 MiB


def chosen_unasked(config: TrainConfig) -> tuple[TrainConfig, str]:
    """Return the config that chooses l2 where nobody gave it, or else the same one and why it does not."""
    if config.problem != "linear" or config.host == "simulator" or config.machines > 1:
        return config, ""
    if config.target is not None:
        return config, "--target is a value of one objective"
    return config.replace(l2=None, l2_path=L2_PATH), ""


def why_fixed(config: TrainConfig, rows: Rows, held: Rows | None) -> str:
    """Why l2 is not chosen for these rows unless somebody asks for it; "" if it is."""
    many = len(rows) + (0 if held is None else len(held))
    if many < FEWEST:
        return f"{many} rows are too few to hold some out, below {FEWEST}"
    classes = 1
    if config.loss in LABEL_LOSSES and rows.nnz <= MOST_ENTRIES:
        labels, counts = np.unique(rows.targets, return_counts=True)
        if counts.min() < FEWEST_OF_CLASS:
            return f"a class has fewer than {FEWEST_OF_CLASS} rows"
        classes = 1 if len(labels) <= 2 else len(labels)
    for count, most, what in ((rows.nnz, MOST_ENTRIES, "nonzeros"), (rows.width, MOST_WEIGHTS, "weights")):
        if count * classes > most:
            times = "" if classes == 1 else f" times {classes} classes"
            return f"it takes long for {count:,} {what}{times}, above {most:,}"
    return ""


def unasked(
    config: TrainConfig, fixed: str, rows: Any, held: Any, begin: Callable[[TrainConfig], R], say: Callable[[str], None]
) -> R:
    """Begin a run for which nobody gave l2; where it cannot be chosen, or ``fixed`` says why not, it is the default."""
    why = why_fixed(config, rows, held) if config.l2_path else fixed
    if not why:
        try:
            return begin(config)
        except NoChoice as error:
            why = str(error)
    say(f"l2 {USUAL:g}, not chosen by held-out rows: {why}")
    return begin(config.replace(l2=USUAL, l2_path=None))


def tell_choice(chosen: L2Choice | None, given: bool, plot: str | None, say: Callable[[str], None]) -> None:
    """Say what was chosen, if anything, and draw it if a file is named."""
    for line in () if chosen is None else lines_of_choice(chosen, given):
        say(line)
    if plot is not None and chosen is not None:
        draw(chosen, plot)
        say(f"the path is drawn in {plot}")
    elif plot is not None:
        say(f"l2 is not chosen in this run: nothing is drawn in {plot}")


def lines_of_choice(chosen: L2Choice, asked: bool) -> Iterator[str]:
    """Yield what was chosen, and before it a line for each candidate if somebody ``asked`` for the choice."""
    metric, path = chosen.metric.removeprefix("held_out_"), chosen.path
    if asked:
        how = f"side by side, {chosen.epochs} epochs" if chosen.epochs else "each fitted to its optimum"
        yield f"choosing l2: {len(path)} values {how}"
        yield f"{'l2':>9}  {'step':>9}  {f'held-out {metric}':>14}  {'epochs':>6}"
        for each in path:
            step = f"{each['step']:.4g}" if each["step"] is not None else "schedule's" if chosen.epochs else "exact"
            worth = "diverged" if each["held_out_loss"] is None else f"{each[chosen.metric]:.5g}"
            note = "  chosen" if each["l2"] == chosen.l2 else "  the default" if each["l2"] == USUAL else ""
            yield f"{each['l2']:>9.2g}  {step:>9}  {worth:>14}  {each['epochs']:>6}{note}"
    total, then = chosen.rows + chosen.held_out, " before the fit on all" if chosen.refitted else ""
    held_out = f"{chosen.held_out:,} rows held out of {total:,}{then}"
    if chosen.folds > 1:
        again = f", {chosen.rounds} times over" if chosen.rounds > 1 else ""
        held_out = f"{chosen.folds} parts of {total:,} rows, each held out once{again}"
    usual = chosen.value(USUAL)
    against = "" if chosen.l2 == USUAL or usual is None else f", {usual:.5g} with {USUAL:g}"
    yield (
        f"l2 {chosen.l2:g} of {len(path)} from {path[0]['l2']:g} to {path[-1]['l2']:g}: "
        f"{metric} {chosen.value(chosen.l2):.5g} on {held_out}{against} ({chosen.seconds:.2f} s)"
    )


def draw(chosen: L2Choice, path: str) -> None:
    """Draw the losses of the candidates that did not diverge as a PNG file; the chosen and the default stand out."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg by default

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    panel = figure.subplots()
    losses = {float(each["l2"] or 0.0): loss for each in chosen.path if (loss := each[chosen.metric]) is not None}
    panel.plot(list(losses), list(losses.values()), marker="o", markersize=3, color="0.4")
    for l2, name, color in ((USUAL, "default", "C0"), (chosen.l2, "chosen", "C3")):
        if l2 in losses:
            panel.plot([l2], [losses[l2]], marker="o", markersize=8, linestyle="", color=color, label=f"{name}: {l2:g}")
    panel.set_xscale("symlog" if 0.0 in losses else "log", **({"linthresh": 1e-9} if 0.0 in losses else {}))
    panel.set_xlabel("l2")
    panel.set_ylabel(f"{chosen.metric.removeprefix('held_out_')} on {chosen.held_out:,} rows held out")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
    save_figure(figure, path)
