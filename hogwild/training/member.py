"""A machine that takes part in a run that machine 0 leads: it does the tasks that it is told, and has the model too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from hogwild.config import TrainConfig
from hogwild.errors import TrainingError
from hogwild.hosts.pool import Pool
from hogwild.machines.agreement import confirm, discipline_for, spanning
from hogwild.machines.cluster import Cluster
from hogwild.machines.own_rows import answer
from hogwild.machines.pool import Machines
from hogwild.problems.protocol import case_of
from hogwild.training.engine import Engine, EpochProgress, resolve, start_pool
from hogwild.training.stopwatch import Stopwatch

M = TypeVar("M")


class Member(Generic[M]):
    """A run's part on a machine that does not lead.

    It has the interface of :class:`hogwild.training.run.Run`, but no rows of measurements: those are machine 0's.
    """

    def __init__(
        self, examples: Any, test: Any, config: TrainConfig, cluster: Cluster, pool: Pool | None, data: str
    ) -> None:
        self.stopwatch = Stopwatch("set-up")
        self.cluster = cluster
        self.data = data
        self.history: list[dict[str, Any]] = []
        self._over = False
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
        self._engine = Engine(case.lay_out, everywhere, pool is None, self.stopwatch, examples=case.n)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Train to the end; there are no rows."""
        self.follow()
        return iter(())

    def __enter__(self) -> Member[M]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> M:
        """The model as of the last task; that of machine 0."""
        model: M = self._case.model(self._solution(), self.config, [])
        return model

    def _solution(self) -> tuple[Any, ...]:
        solution: tuple[Any, ...] = self._case.solution(self._engine.job.export())
        return solution

    def finish(self) -> M:
        """Train to the end and return the model."""
        self.follow()
        return self.model

    def follow(self) -> None:
        """Do what machine 0 says, until it says that the run has ended.

        Raises
        ------
        TrainingError
            If machine 0 is gone.
        """
        engine = self._engine
        pool = engine.pool
        assert isinstance(pool, Machines)
        if self._over:
            return
        self._over = True
        try:
            while True:
                with self.stopwatch("waiting"):
                    note = self.cluster.next_note(0, ("task", "evaluate", "end"), lambda: engine.stopping)
                if note["kind"] in ("end", "stopped"):
                    pool.finish(note)
                    return
                if note["kind"] == "evaluate":
                    with self.stopwatch("evaluation"):
                        answer(self.cluster, self._case, note, self._solution())
                    continue
                task = pool.follow(note)
                engine.go_to(task.epoch, task.start)
                engine.advance(task.step)
        finally:
            self.close()

    def progress(self) -> EpochProgress:
        """How far the run is."""
        return self._engine.progress()

    def stop(self) -> None:
        """Leave the run at the next chunk; the others go on."""
        self._engine.stop()

    def close(self) -> None:
        """End the workers; the trained model stays."""
        self._engine.close()
