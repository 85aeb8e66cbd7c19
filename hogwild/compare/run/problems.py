"""What a comparison needs of each problem beyond its case: facts for the report, a sample, a first step, the optimum.

There is one class per problem, and the rest of a comparison knows no problem by name. Solutions of all methods,
including other programs', are judged by the problem's own case, which also judges a run of ``hogwild train``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.compare.reference.optimum import Optimum, find_optimum, minimum_cut, unknown
from hogwild.config import TrainConfig
from hogwild.data.graphs.container import Graph, graph_statistics
from hogwild.data.ratings.container import Ratings, rating_statistics
from hogwild.data.rows.statistics import describe
from hogwild.errors import UsageError
from hogwild.problems.protocol import case_of
from hogwild.training.checkpoint import fingerprint, fingerprint_of
from hogwild.training.schedule import usual_schedule
from hogwild.training.step_search import Probe

if TYPE_CHECKING:
    from types import CodeType

    from hogwild.data.rows.container import Rows
    from hogwild.problems.module.case import Posed
    from hogwild.problems.module.feed import Examples
    from hogwild.problems.protocol import Case

Facts = dict[str, Any]
DESCRIBED = 20_000_000  # nonzeros up to which Omega, Delta and rho of rows are computed
EDGES = 4_000_000  # of a graph up to which the exact cut is looked for: it takes about a minute at most
PAPER = ("omega", "delta", "rho", "collision")
NO_OPTIMUM = {
    "completion": "the objective is not convex, so nobody knows its optimum",
    "cuts": "with more than two labels the smallest cut is NP-hard, so nobody knows it",
    "module": "the objective of a module is not convex, so nobody knows its optimum",
}


class Subject:
    """One problem in a comparison, with what most problems have in common."""

    def take(self, base: TrainConfig, data: Any, test: Any) -> tuple[TrainConfig, Any, Any]:
        """Return the config with the fields that the data decide, and the user's containers; raise UsageError."""
        take = case_of(base.problem).take
        base = dataclasses.replace(base, schedule=usual_schedule(base.schedule, 0, settled=True))
        return base, take(data), None if test is None else take(test)

    def fingerprint(self, data: Any) -> str:
        """Return a hash that identifies these data."""
        return fingerprint_of((len(data), *(data.shape or ())), data.sample_arrays())

    def first_step(self, base: TrainConfig, data: Any) -> float:
        """Return the middle of the grid of steps."""
        assert base.step is not None  # the config's own
        return base.step

    def facts(self, base: TrainConfig, data: Any, test: Any) -> Facts:
        """Return sizes, the paper's statistics and the objective, as fields of the first row."""
        raise NotImplementedError

    def optimum(self, base: TrainConfig, data: Any, case: Case) -> Optimum:
        """Return the lowest value of the objective; ``case`` is the evaluator's, which decides."""
        return unknown(_objective(case, start_of(case, base.seed)), NO_OPTIMUM[base.problem])


class Linear(Subject):
    """Sparse linear models: the problem is convex, so the optimum can be found."""

    def take(self, base: TrainConfig, data: Any, test: Any) -> tuple[TrainConfig, Rows, Rows | None]:
        if base.loss == "perceptron":
            raise UsageError(
                "loss='perceptron' is lowest where it starts, so there is nothing to reach: choose another"
            )
        return super().take(base, data, test)

    def fingerprint(self, data: Rows) -> str:
        return fingerprint(data)

    def first_step(self, base: TrainConfig, data: Rows) -> float:
        from hogwild.problems.linear.coordinates import scaled_for

        return Probe(base, scaled_for(base, data)[0].rows(data)).search()

    def facts(self, base: TrainConfig, data: Rows, test: Rows | None) -> Facts:
        from hogwild.problems.linear.problem import LinearProblem

        labels = LinearProblem.of(base, data, "serial").labels
        return {
            "rows": len(data),
            "width": data.width,
            "nnz": data.nnz,
            "megabytes": 8 * data.nnz / 1e6,
            "test_rows": None if test is None else len(test),
            **_paper(describe(data) if data.nnz <= DESCRIBED else {}),
            "task": "labels" if labels else "real",
            "classes": len(labels),
            **_options(base, "loss l1 l2 loss_param normalize class_weight intercept"),
        }

    def optimum(self, base: TrainConfig, data: Rows, case: Case) -> Optimum:
        return find_optimum(data, base)


class Completion(Subject):
    """Matrix completion: it is not convex, so runs are measured against the best of them."""

    def facts(self, base: TrainConfig, data: Ratings, test: Ratings | None) -> Facts:
        factors = sum(data.shape) * (-(-(base.rank or 0) // 16) * 16 + 1)
        return {
            "ratings": len(data),
            "users": data.shape[0],
            "items": data.shape[1],
            "megabytes": (12 * len(data) + 4 * factors) / 1e6,
            "test_ratings": None if test is None else len(test),
            **_paper(rating_statistics(data)),
            **_options(base, "loss l2 rank penalty nonnegative biases"),
            "negatives": None if base.loss == "squared-error" else base.negatives,
        }


class Cuts(Subject):
    """Graph cuts: with two labels the minimum cut is found exactly."""

    def facts(self, base: TrainConfig, data: Graph, test: None) -> Facts:
        statistics = graph_statistics(data)
        numbers = data.n_vertices * (1 if data.n_labels == 2 else data.n_labels)
        return {
            **{name: statistics[name] for name in ("edges", "vertices", "labels", "terminals")},
            "megabytes": (16 * len(data) + 8 * numbers) / 1e6,
            **_paper(statistics),
            **_options(base, "loss"),
        }

    def optimum(self, base: TrainConfig, data: Graph, case: Case) -> Optimum:
        start = _objective(case, start_of(case, base.seed))
        if data.n_labels > 2:
            return unknown(start, NO_OPTIMUM[base.problem])
        if len(data) > EDGES:
            return unknown(start, f"{len(data):,} edges are more than the {EDGES:,} up to which the exact cut is found")
        return minimum_cut(data, start)


class Module(Subject):
    """A torch module on its examples: it is not convex, so runs are measured against the best of them.

    All runs start from the parameters of the given module, whatever their seed.
    """

    def take(self, base: TrainConfig, data: Any, test: Any) -> tuple[TrainConfig, Posed, Examples | None]:
        posed: Posed = case_of("module").take(data)
        name = _loss_of(posed)
        if base.loss not in ("custom", name):
            raise UsageError(f"loss={base.loss!r}: the module was posed with loss {name!r}")
        return dataclasses.replace(base, loss=name), posed, test.examples if isinstance(test, type(posed)) else test

    def fingerprint(self, data: Posed | Examples) -> str:
        """Hash test examples; for training data, also the module: layers, first parameters and its code."""
        from hogwild.problems.module.case import Posed

        if not isinstance(data, Posed):
            return fingerprint_of((len(data),), data.sample())
        case, flat = _begun(data)
        shown = [re.sub(r" at 0x[0-9a-f]+", "", str(part)) for part in (data.model, data.loss)]
        words = [case.fingerprint, *shown, *_programs(data)]
        return fingerprint_of((len(data),), [np.frombuffer("\n".join(words).encode(), np.uint8), flat])

    def first_step(self, base: TrainConfig, data: Posed) -> float:
        from hogwild.problems.module.case import STEPS

        return STEPS[base.optimizer or ""]

    def facts(self, base: TrainConfig, data: Posed, test: Examples | None) -> Facts:
        parameters = sum(parameter.numel() for parameter in data.model.parameters())
        arrays, _ = data.examples.lay_out(shared=False)
        loss = _loss_of(data)
        if loss == "custom":
            loss = getattr(data.loss, "__qualname__", type(data.loss).__name__)
        return {
            "examples": len(data),
            "parameters": parameters,
            "test_examples": None if test is None else len(test),
            "megabytes": (sum(array.nbytes for array in arrays.values()) + 4 * parameters) / 1e6 if arrays else None,
            "model": type(data.model).__name__,
            **_options(base, "optimizer batch"),
            "loss": loss,
        }

    def optimum(self, base: TrainConfig, data: Posed, case: Case) -> Optimum:
        return unknown(_objective(case, case.solution(_begun(data)[1])), NO_OPTIMUM["module"])


def _loss_of(data: Posed) -> str:
    from hogwild.problems.module.case import NamedLoss

    return data.loss.name if isinstance(data.loss, NamedLoss) else "custom"


def _begun(data: Posed) -> tuple[Case, np.ndarray]:
    """Return a case of one worker, and the flat array that its run would start from."""
    case = case_of("module")(TrainConfig(problem="module", workers=1, discipline="serial"), data, None)
    return case, case.lay_out(shared=False).flat


def _programs(data: Posed) -> Iterator[str]:
    """Yield the code of the user's own functions, which neither the parameters nor the layers' names show."""
    functions: dict[str, Any] = {type(part).__qualname__: type(part).forward for part in data.model.modules()}
    functions["the loss"] = data.loss
    for name, function in sorted(functions.items()):
        if hasattr(function, "__code__") and not function.__module__.startswith("torch."):
            yield f"{name} {_said(function.__code__)}"


def _said(code: CodeType) -> str:
    """Return text that is the same in every process with the same code, unlike a pickle."""
    inner = [_said(each) for each in code.co_consts if hasattr(each, "co_code")]
    numbers = [repr(each) for each in code.co_consts if isinstance(each, int | float | str | bytes)]
    return f"{code.co_code.hex()} {code.co_names} {numbers} {inner}"


def _paper(statistics: Facts) -> Facts:
    """Return the statistics of Recht et al., equation 2.6, and related ones; those of ratings and graphs are exact."""
    return {name: statistics.get(name) for name in PAPER} | {"rho_exact": statistics.get("rho_exact", True)}


def _options(base: TrainConfig, names: str) -> Facts:
    return {name: getattr(base, name) for name in names.split()}


def start_of(case: Case, seed: int) -> tuple[Any, ...]:
    """Return the solution that a run starts from."""
    flat = np.zeros(case.problem.size, np.float32)
    case.problem.start(flat, seed)
    return case.solution(flat)


def _objective(case: Case, solution: tuple[Any, ...]) -> float:
    value = case.evaluate(solution)["objective"]
    assert value is not None
    return value


SUBJECTS: dict[str, Subject] = {"linear": Linear(), "completion": Completion(), "cuts": Cuts(), "module": Module()}
