"""``alpha="auto"``: the penalty that ``hogwild train`` chooses, with which all rows are then fitted."""

from __future__ import annotations

from typing import Any

from hogwild.data.rows.container import Rows
from hogwild.errors import UsageError
from hogwild.estimators.arrays import mean_weight
from hogwild.estimators.fit import FEW_EPOCHS, LOOSE
from hogwild.estimators.options import FitConfig
from hogwild.estimators.progress import shown
from hogwild.problems.linear.optimum.walk import FARTHEST
from hogwild.problems.linear.options import L2_PATH
from hogwild.training.l2_choice import choose_l2

EPOCHS = 20  # of a candidate that is trained beside others, at most


def choose_alpha(config: FitConfig, rows: Rows, intercept: float, verbose: int) -> FitConfig:
    """The config with the ``alpha`` that is best on rows held out; lanes of a regression start at ``intercept``."""
    if not config.l1 + config.l2 > 0:
        raise UsageError("alpha='auto' is the strength of a penalty, and penalty is None: give one")
    if config.passive != "none":
        raise UsageError(f"alpha='auto' goes with no passive steps: learning_rate={config.passive!r}: give alpha")
    # The objective's loss is the mean of weight times loss, that of a config is weighted.
    unit = min(max(mean_weight(rows) or 1.0, 10.0**-FARTHEST), 10.0**FARTHEST)
    meant = config.schedule == "auto" and config.epochs >= FEW_EPOCHS and config.tol <= LOOSE
    usual: Any = {"l2_path": L2_PATH, "host": "threads", "workers": 1, "epochs": min(config.epochs, EPOCHS)}
    usual |= {"schedule": "auto", "step": None, "power": None, "patience": None, "tol": 1e-3}
    with shown("choosing alpha", len(L2_PATH), verbose) as report:
        alpha = (
            unit
            * choose_l2(
                config.settled(**usual),
                rows,
                penalties=lambda strength: (config.l1 * strength, config.l2 * strength),
                exact=meant and not config.average,
                intercept=intercept,
                report=(lambda done, total: report(done, None, total)) if verbose else None,
            ).l2
        )
    return config.settled(alpha=alpha, l1=config.l1 * alpha, l2=config.l2 * alpha)
