"""A machine that takes part in a run that machine 0 leads: it does the tasks that it is told, and has the model too."""

from __future__ import annotations

import contextlib
from typing import Any

from hogwild.config import TrainConfig
from hogwild.errors import TrainingError
from hogwild.hosts.pool import Pool
from hogwild.machines.agreement import confirm, discipline_for, spanning
from hogwild.machines.cluster import Cluster
from hogwild.machines.own_rows import answer
from hogwild.machines.pool import Machines
from hogwild.problems.protocol import case_of
from hogwild.training.engine import Engine, resolve, start_pool
from hogwild.training.run import Run
from hogwild.training.stopwatch import Stopwatch


class Member(Run[Any]):
    """A run's part on a machine that does not lead. It has no rows of measurements: those are machine 0's."""

    def __init__(
        self, examples: Any, test: Any, config: TrainConfig, cluster: Cluster, pool: Pool | None, data: str
    ) -> None:
        self.stopwatch = Stopwatch("set-up")
        self.cluster = cluster
        self.data = data
        self.history = []
        self._done = False
        self._ending = None
        self._closing = contextlib.ExitStack()
        resolved = resolve(config, len(examples), pool)
        workers = resolved.workers or 1
        with self.stopwatch("waiting"):
            plan = cluster.next_note(0, ("plan", "end"))
        if plan["kind"] == "end":
            raise TrainingError(f"{cluster.name(0)} has ended the run")
        totals = examples.totals if config.own_rows else None
        case: Any = case_of(config.problem)(
            resolved.settled(discipline=discipline_for(plan, workers)), examples, None if totals is None else test
        )
        if totals is None:
            case.recut(plan["cut"])
        else:
            case.make_evaluator()
        self._case = case
        self.config = case.config
        confirm(cluster, case, config, plan)
        inner = pool or start_pool(self.config.host, workers)
        everywhere = spanning(inner, cluster, self.config, case.n, totals=totals)
        self.engine = Engine(case.lay_out, everywhere, pool is None, self.stopwatch, examples=case.n)
        self._closing.callback(self.engine.close)

    @property
    def model(self) -> Any:
        """The model as of the last task; that of machine 0."""
        return self._case.model(self._solution(), self.config, [])

    def _solution(self) -> tuple[Any, ...]:
        return self._case.solution(self.engine.job.export())

    def _next_row(self) -> None:
        """Do what machine 0 says, until it says that the run has ended.

        Raises
        ------
        TrainingError
            If machine 0 is gone.
        """
        case: Any = self._case
        engine = self.engine
        pool = engine.pool
        assert isinstance(pool, Machines)
        while not self._done:
            with self.stopwatch("waiting"):
                note = self.cluster.next_note(0, ("task", "evaluate", "end"), lambda: engine.stopping)
            if note["kind"] in ("end", "stopped"):
                pool.finish(note)
                self._done = True
            elif note["kind"] == "evaluate":
                with self.stopwatch("evaluation"):
                    answer(self.cluster, case, note, self._solution())
            else:
                task = pool.follow(note)
                engine.go_to(task.epoch, task.start)
                engine.advance(task.step)
