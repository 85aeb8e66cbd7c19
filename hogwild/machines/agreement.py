"""Agreement before training: machine 0 sends what it trains; every other one answers whether its own is the same."""

from __future__ import annotations

import dataclasses
from typing import Any

from hogwild.config import TrainConfig
from hogwild.data.rows.degrees import Totals
from hogwild.errors import InputError
from hogwild.exchanges import make_exchange
from hogwild.exchanges.averaging import Averaging
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import NO_LIMIT
from hogwild.machines.cluster import Cluster, readmit, why_not
from hogwild.machines.meeting import difference
from hogwild.machines.own_rows import Evaluation
from hogwild.machines.pool import Machines, Replicas
from hogwild.machines.rotation import Ring
from hogwild.problems.protocol import Case

BY_RANK = "tiered"  # the discipline whose array is ordered by popularity


def facts_of(case: Case, config: TrainConfig) -> dict[str, Any]:
    """Return what all machines must agree on, as JSON: options, data, and the layout of the parameters."""
    return config.common() | {
        "examples": case.n,
        "parameters": case.problem.trained,
        "data": case.fingerprint,
        "array": "by popularity" if case.problem.discipline == BY_RANK else "as numbered",
    }


def spanning(
    pool: Pool,
    cluster: Cluster,
    config: TrainConfig,
    examples: int,
    totals: Totals | None = None,
) -> Machines:
    """Return a pool that spans all machines, of this one's workers; with ``totals`` each has rows of its own."""
    exchange = make_exchange(config.exchange, examples / cluster.machines, shrinks=config.l1 > 0)
    if exchange is None:
        return Ring(pool, cluster)
    if isinstance(exchange, Averaging):
        exchange = dataclasses.replace(exchange, period=min(exchange.period, NO_LIMIT - 1))  # it keeps a base
    return Replicas(pool, cluster, exchange, totals)


class Leader:
    """What a run on machine 0 asks of the cluster."""

    def __init__(self, cluster: Cluster, totals: Totals | None = None) -> None:
        """With ``totals`` every machine has rows of its own."""
        self.cluster, self.totals = cluster, totals
        self._evaluation = None if totals is None else Evaluation(cluster, totals)
        self._pool: Machines | None = None

    def agree(self, case: Case, config: TrainConfig) -> None:
        """Have all other machines confirm, before anything is trained, that they train the same, with the options as
        they were asked for.

        Raises
        ------
        InputError
            If one does not; the line names both sides.
        """
        cluster, facts = self.cluster, facts_of(case, config)
        plan = {"kind": "plan", "discipline": case.problem.discipline, "cut": case.cut(), "facts": facts}
        if why := why_not(cluster, [*range(1, cluster.machines)], plan):
            raise InputError(why)
        cluster.beside(lambda: readmit(cluster, plan))

    def around(self, case: Case, pool: Pool) -> Pool:
        """Turn this machine's pool of workers into one that spans all machines."""
        self._pool = spanning(pool, self.cluster, case.config, case.n, self.totals)
        return self._pool

    def evaluate(self, case: Any, solution: tuple[Any, ...]) -> dict[str, float | None]:
        """Evaluate the solution of the parameters as they are, on the rows of all machines."""
        if self._evaluation is None:
            facts: dict[str, float | None] = case.evaluate(solution)
            return facts
        return self._evaluation(case, solution, self._pool is not None and self._pool.in_step)


def discipline_for(plan: dict[str, Any], workers: int) -> str:
    """Return a discipline whose array is laid out as machine 0's is."""
    if plan["discipline"] == BY_RANK:
        return BY_RANK
    return "serial" if workers == 1 else "hogwild" if plan["discipline"] == "serial" else str(plan["discipline"])


def confirm(cluster: Cluster, case: Case, config: TrainConfig, plan: dict[str, Any]) -> None:
    """Compare what this machine trains with machine 0's plan, and say so.

    Raises
    ------
    InputError
        If any machine differs.
    """
    cluster.tell({"kind": "agreed", "unlike": difference(plan["facts"], facts_of(case, config))}, [0])
    cluster.next_note(0, ("go",))
