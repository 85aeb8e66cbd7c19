"""What a comparison needs of a problem beyond its case: facts about its data, and the lowest value of its objective.

The rest of a comparison knows no problem by name. Solutions of all methods, including other programs', are judged by
the problem's own case, which also judges a run of ``hogwild train``.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.graphs.container import Graph, graph_statistics
from hogwild.data.ratings.container import Ratings, rating_statistics
from hogwild.data.rows.statistics import describe
from hogwild.problems.protocol import Case, case_of
from hogwild.training.checkpoint import fingerprint_of

if TYPE_CHECKING:
    from hogwild.data.rows.container import Rows
    from hogwild.problems.module.case import Posed

Facts = dict[str, Any]
DESCRIBED = 20_000_000  # nonzeros up to which Omega, Delta and rho of rows are computed
WORK = 1 << 36  # entries that the optimum finder may visit
#: Share of the objective that the finder's last step gains, and, for losses with kinks, that the optimum may be below.
ENOUGH = 1e-11, 2e-8


# ---- facts about the data, as fields of the first row; "megabytes" are those that an epoch reads and writes


def data_facts(config: TrainConfig, data: Any, test: Any) -> Facts:
    """Return how many examples there are, and the sizes and statistics of the training data."""
    unit, sizes = SUBJECTS[config.problem]
    return {unit: len(data), f"test_{unit}": None if test is None else len(test)} | sizes(config, data)


def row_facts(config: TrainConfig, rows: Rows) -> Facts:
    described = describe(rows) if rows.nnz <= DESCRIBED else {}
    sizes = {"width": rows.width, "nnz": rows.nnz, "megabytes": 8 * rows.nnz / 1e6}
    return sizes | {name: described.get(name) for name in ("omega", "delta", "rho")}  # Recht et al., equation 2.6


def rating_facts(config: TrainConfig, ratings: Ratings) -> Facts:
    users, items = ratings.shape
    factors = (users + items) * (-(-(config.rank or 0) // 16) * 16 + 1)
    sizes = {"users": users, "items": items, "megabytes": (12 * len(ratings) + 4 * factors) / 1e6}
    return rating_statistics(ratings) | sizes | ({"negatives": None} if config.loss == "squared-error" else {})


def graph_facts(config: TrainConfig, graph: Graph) -> Facts:
    numbers = graph.n_vertices * (1 if graph.n_labels == 2 else graph.n_labels)
    return graph_statistics(graph) | {"megabytes": (16 * len(graph) + 8 * numbers) / 1e6}


def module_facts(config: TrainConfig, posed: Posed) -> Facts:
    """Return also a hash of the layers, of the code of these and the loss, and of the parameters where runs start."""
    functions = [*dict.fromkeys(type(part).forward for part in posed.model.modules()), posed.loss]
    code = "\n".join([str(posed.model), *map(_source_of, functions)]).encode()
    first = [parameter.detach().numpy() for parameter in posed.model.state_dict().values()]
    return {
        "loss": getattr(posed.loss, "__qualname__", "custom") if config.loss == "custom" else config.loss,
        "parameters": sum(parameter.numel() for parameter in posed.model.parameters()),
        "model": type(posed.model).__name__,
        "program": fingerprint_of((), [np.frombuffer(code, np.uint8), *first]),
    }


def _source_of(function: Any) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # not from a file, or no function
        return type(function).__qualname__


#: By problem: what its examples are called, and the function that describes them.
SUBJECTS: dict[str, tuple[str, Callable[[TrainConfig, Any], Facts]]] = {
    "linear": ("rows", row_facts),
    "completion": ("ratings", rating_facts),
    "cuts": ("edges", graph_facts),
    "module": ("examples", module_facts),
    "fm": ("rows", row_facts),
    "ffm": ("rows", row_facts),
}


# ---- the lowest value of the objective


def optimum_of(case: Case, data: Any, seed: int) -> Facts:
    """Return the objective's value where runs start, and the lowest if the problem is convex; otherwise the lowest that
    any run reaches replaces it.
    """
    if case.convex:
        return find_optimum(case)[0]
    start = case.evaluate(begun(dataclasses.replace(case.config, seed=seed), data))["objective"]
    how = "best seen: nobody knows the optimum, or it is not looked for"
    return {"objective": None, "start_objective": start, "optimum_how": how, "optimum_seen": True}


def find_optimum(case: Any) -> tuple[Facts, tuple[np.ndarray, np.ndarray]]:
    """Find the optimum of a linear case, from zero weights with much work; the evaluator of all runs says its value.

    The tests hold the finder against L-BFGS, LIBLINEAR and linear programs.

    Returns
    -------
    dict
        ``objective``, ``start_objective``, ``optimum_how`` and ``optimum_gap``: the true minimum is lower by at most
        about this.
    (coef, intercept)
        The solution, (width,) or (K, width), and (K,), float64.
    """
    problem, columns = case.exact
    classes, width = case.problem.classes, case.problem.width
    zero = np.zeros((width,) if classes == 1 else (classes, width)), np.zeros(classes)
    best = problem.lowered(*columns.inward(*zero), WORK, ENOUGH[problem.kinked])
    solution = columns.outward(best.coef, best.intercept)
    start, value = (case.evaluate(each)["objective"] for each in (zero, solution))
    how = f"{best.steps} steps of the optimum finder"
    facts = {"objective": value, "start_objective": start, "optimum_how": how, "optimum_gap": max(best.gap, 0.0)}
    return facts, solution


def begun(config: TrainConfig, data: Any) -> tuple[Any, ...]:
    """Return the solution that a run of this seed starts from."""
    case = case_of(config.problem)(dataclasses.replace(config, workers=1, discipline="serial"), data, None)
    return case.solution(case.lay_out(shared=False).flat)
