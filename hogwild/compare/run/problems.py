"""What a comparison needs of each problem beyond its case: sizes for the report, a hash, the optimum.

There is one class for each kind of data, and the rest of a comparison knows no problem by name. Solutions of all
methods, including other programs', are judged by the problem's own case, which also judges a run of ``hogwild train``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.compare.reference.optimum import Optimum, find_optimum
from hogwild.compare.report.results import OBJECTIVE
from hogwild.config import TrainConfig
from hogwild.data.graphs.container import Graph, graph_statistics
from hogwild.data.ratings.container import Ratings, rating_statistics
from hogwild.data.rows.statistics import describe
from hogwild.errors import UsageError
from hogwild.problems.protocol import case_of
from hogwild.training.checkpoint import fingerprint, fingerprint_of
from hogwild.training.schedule import usual_schedule

if TYPE_CHECKING:
    from hogwild.data.rows.container import Rows
    from hogwild.problems.module.case import Posed
    from hogwild.problems.module.feed import Examples
    from hogwild.problems.protocol import Case

Facts = dict[str, Any]
DESCRIBED = 20_000_000  # nonzeros up to which Omega, Delta and rho of rows are computed


class Subject:
    """One problem in a comparison, with what most problems have in common."""

    unit = "rows"  # name of an example

    def take(self, base: TrainConfig, data: Any, test: Any) -> tuple[TrainConfig, Any, Any]:
        """Return the config with the fields that the data decide, and the user's containers; raise UsageError."""
        take = case_of(base.problem).take
        base = dataclasses.replace(base, schedule=usual_schedule(base.schedule, 0, settled=True))
        return base, take(data), None if test is None else take(test)

    def fingerprint(self, data: Any) -> str:
        """Return a hash that identifies these data."""
        return fingerprint_of((len(data), *(data.shape or ())), data.sample_arrays())

    def facts(self, base: TrainConfig, data: Any, test: Any) -> Facts:
        """Return the objective, sizes and the paper's statistics, as fields of the first row."""
        options = {name: value for name, value in base.to_json().items() if name in OBJECTIVE}
        counts = {self.unit: len(data), f"test_{self.unit}": None if test is None else len(test)}
        return options | counts | self.sizes(base, data)

    def sizes(self, base: TrainConfig, data: Any) -> Facts:
        """Return the sizes and statistics of the data; ``megabytes``: of what an epoch reads and writes."""
        raise NotImplementedError

    def optimum(self, base: TrainConfig, data: Any, case: Case) -> Optimum:
        """Return the lowest value of the objective, or that it is unknown; then the lowest of any run replaces it."""
        start = case.evaluate(begun(dataclasses.replace(case.config, seed=base.seed), data))["objective"]
        assert start is not None
        return Optimum(None, start, "best seen: nobody knows the optimum, or it is not looked for")


class Sparse(Subject):
    """Factorization machines on sparse rows, and whatever else is trained on them."""

    def fingerprint(self, data: Rows) -> str:
        return fingerprint(data)

    def sizes(self, base: TrainConfig, data: Rows) -> Facts:
        described = describe(data) if data.nnz <= DESCRIBED else {}
        sizes = {"width": data.width, "nnz": data.nnz, "megabytes": 8 * data.nnz / 1e6}
        return sizes | {name: described.get(name) for name in ("omega", "delta", "rho")}  # Recht et al., equation 2.6


class Linear(Sparse):
    """Sparse linear models: the problem is convex, so the optimum can be found."""

    def take(self, base: TrainConfig, data: Any, test: Any) -> tuple[TrainConfig, Rows, Rows | None]:
        if base.loss == "perceptron":
            raise UsageError(
                "loss='perceptron' is lowest where it starts, so there is nothing to reach: choose another"
            )
        return super().take(base, data, test)

    def optimum(self, base: TrainConfig, data: Rows, case: Case) -> Optimum:
        return find_optimum(case)


class Completion(Subject):
    """Matrix completion: it is not convex, so runs are measured against the best of them."""

    unit = "ratings"

    def sizes(self, base: TrainConfig, data: Ratings) -> Facts:
        users, items = data.shape
        factors = (users + items) * (-(-(base.rank or 0) // 16) * 16 + 1)
        sizes = {"users": users, "items": items, "megabytes": (12 * len(data) + 4 * factors) / 1e6}
        return rating_statistics(data) | sizes | ({"negatives": None} if base.loss == "squared-error" else {})


class Cuts(Subject):
    """Graph cuts, measured against the best of the runs."""

    unit = "edges"

    def sizes(self, base: TrainConfig, data: Graph) -> Facts:
        numbers = data.n_vertices * (1 if data.n_labels == 2 else data.n_labels)
        return graph_statistics(data) | {"megabytes": (16 * len(data) + 8 * numbers) / 1e6}


class Module(Subject):
    """A torch module on its examples: it is not convex, so runs are measured against the best of them.

    All runs start from the parameters of the given module, whatever their seed.
    """

    unit = "examples"

    def take(self, base: TrainConfig, data: Any, test: Any) -> tuple[TrainConfig, Posed, Examples | None]:
        posed: Posed = case_of("module").take(data)
        name = posed.loss_name
        if base.loss not in ("custom", name):
            raise UsageError(f"loss={base.loss!r}: the module was posed with loss {name!r}")
        return dataclasses.replace(base, loss=name), posed, test.examples if isinstance(test, type(posed)) else test

    def fingerprint(self, data: Posed | Examples) -> str:
        """Hash test examples; for training data, also the module: layers, first parameters and the user's own code,
        which neither the parameters nor the layers' names show.
        """
        from hogwild.problems.module.case import Posed

        if not isinstance(data, Posed):
            return fingerprint_of((len(data),), data.sample())
        parameters = [parameter.detach().numpy() for parameter in data.model.state_dict().values()]
        texts = [re.sub(r" at 0x[0-9a-f]+", "", str(part)) for part in (data.model, data.loss)]
        kinds = {type(part).__qualname__: type(part).forward for part in data.model.modules()}
        for _, function in [*sorted(kinds.items()), ("the loss", data.loss)]:
            with contextlib.suppress(OSError, TypeError):  # not from a file, or no function
                texts.append(inspect.getsource(function))
        words = np.frombuffer("\n".join(texts).encode(), np.uint8)
        return fingerprint_of((len(data),), [words, *data.examples.sample(), *parameters])

    def sizes(self, base: TrainConfig, data: Posed) -> Facts:
        parameters = sum(parameter.numel() for parameter in data.model.parameters())
        arrays, _ = data.examples.lay_out(shared=False)
        named = {"loss": getattr(data.loss, "__qualname__", type(data.loss).__name__)} if base.loss == "custom" else {}
        return named | {
            "parameters": parameters,
            "megabytes": (sum(array.nbytes for array in arrays.values()) + 4 * parameters) / 1e6 if arrays else None,
            "model": type(data.model).__name__,
            "optimizer": base.optimizer,
            "batch": base.batch,
        }


def begun(base: TrainConfig, data: Any) -> tuple[Any, ...]:
    """Return the solution that a run of this seed starts from."""
    case = case_of(base.problem)(dataclasses.replace(base, workers=1, discipline="serial"), data, None)
    return case.solution(case.lay_out(shared=False).flat)


SUBJECTS: dict[str, Subject] = {
    "linear": Linear(),
    "completion": Completion(),
    "cuts": Cuts(),
    "module": Module(),
    "fm": Sparse(),
    "ffm": Sparse(),
}
