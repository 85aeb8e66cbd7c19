"""Graph cuts posed on a graph: every edge is one example, and the model is the labelling of the vertices."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.graphs.container import Graph
from hogwild.data.order import Order
from hogwild.errors import UsageError
from hogwild.exchanges import make_exchange
from hogwild.hosts.job import Job
from hogwild.problems.cuts.model import Segmentation
from hogwild.problems.cuts.objective import CutEvaluator
from hogwild.problems.cuts.problem import CutsProblem
from hogwild.problems.protocol import Case, with_discipline
from hogwild.training.checkpoint import fingerprint_of


class CutsCase(Case):
    """See :class:`hogwild.problems.protocol.Case`."""

    names = ("x",)

    def __init__(self, config: TrainConfig, train: Graph, test: None) -> None:
        if test is not None:
            raise UsageError("test: a cut is of one graph, and there is nothing to test on")
        c = self.config = with_discipline(config)
        self._graph = train
        self.problem = CutsProblem.of(train, c.discipline, machine.l2_bytes())
        self._arrays = self.problem.arrays(train)
        self.n = len(self._arrays["u"])  # a bundle of edges is one example
        self.order = Order.of(self.n, config.order == "shuffled")
        facts = (train.n_vertices, train.n_labels, len(train))
        self.fingerprint = fingerprint_of(facts, train.sample_arrays())

    @staticmethod
    def take(data: Any) -> Graph:
        if isinstance(data, str | Path):
            from hogwild.data.graphs.source import open_graph

            return open_graph(data)
        if not isinstance(data, Graph):
            raise UsageError(f"expected a path or a Graph, got {type(data).__name__}")
        return data

    def cut(self) -> dict[str, Any]:
        return {"block": self.order.block}

    def recut(self, saved: dict[str, Any]) -> None:
        self.order = dataclasses.replace(self.order, block=saved["block"])

    def make_evaluator(self, like: Any = None) -> None:
        self._evaluator = CutEvaluator(self._graph)

    def lay_out(self, shared: bool) -> Job:
        c = self.config
        arrays = self._arrays
        self._arrays = {}  # the job holds them
        exchange = make_exchange(c.exchange, self.n / c.replicas, sums=False)
        return Job.of(self.problem, self.order, c.seed, c.workers or 1, arrays, shared, exchange=exchange)

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, ...]:
        return self.problem.solution(flat)

    def evaluate(self, solution: tuple[Any, ...]) -> dict[str, float | None]:
        return {**self._evaluator(*solution)}

    def model(
        self, solution: tuple[np.ndarray, ...], config: TrainConfig, history: list[dict[str, Any]]
    ) -> Segmentation:
        return Segmentation.of(
            self._graph, *solution, config=config.to_json(), fingerprint=self.fingerprint, history=history
        )
