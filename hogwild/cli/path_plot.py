"""A picture of the choice of l2: the held-out loss over the path of penalties."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from hogwild.methods import PROBLEMS
from hogwild.model_file import write_atomically

if TYPE_CHECKING:
    from hogwild.training.l2_path import L2Choice


def draw(chosen: L2Choice, path: str) -> None:
    """Draw the losses of the candidates that did not diverge as a PNG file; the chosen and the default stand out."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg by default

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    panel = figure.subplots()
    losses = {float(each["l2"] or 0.0): loss for each in chosen.path if (loss := each["held_out_loss"]) is not None}
    panel.plot(list(losses), list(losses.values()), marker="o", markersize=3, color="0.4")
    for l2, name, color in ((PROBLEMS["linear"]["defaults"]["l2"], "default", "C0"), (chosen.l2, "chosen", "C3")):
        if l2 in losses:
            panel.plot([l2], [losses[l2]], marker="o", markersize=8, linestyle="", color=color, label=f"{name}: {l2:g}")
    panel.set_xscale("symlog" if 0.0 in losses else "log", **({"linthresh": 1e-9} if 0.0 in losses else {}))
    panel.set_xlabel("l2")
    panel.set_ylabel(f"loss on {chosen.held_out:,} rows held out")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
    out = BytesIO()
    figure.savefig(out, format="png", dpi=150)
    write_atomically(Path(path), out.getvalue())
