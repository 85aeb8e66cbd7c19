"""``l2="auto"``: the penalty, step, rank and number of epochs that do best on ratings held out.

A tenth is held out: of all ratings, or of each user's choices, where who has few (five or less) holds out none. A
candidate is a serial run, judged by the NDCG at 10 of choices or the RMSE of ratings. Of those nearly as good as the
best the strongest penalty wins, and biases alone before any: few ratings tell such candidates apart by chance. The
model is then trained on all ratings for as many epochs: up to the last that was nearly as good as the best, since on
smaller steps a model is less noisy.

With choices the better half goes on after five epochs, and after ten again, which costs two fits in place of four: on
three real and three generated sets these win in the end too, and after three epochs other ones lead. To rank all items
for 2,000 users takes as long as an epoch or, with many items, three times as long, so they are judged after every fifth
epoch. With ratings all go on: an epoch is short, and factors may help after ten. Candidates run side by side, each on
one core, so that the choice depends on ratings, options and seed alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.parallel import in_order
from hogwild.data.ratings.container import Ratings
from hogwild.errors import InputError, NoChoice
from hogwild.hosts.job import Job, Task
from hogwild.problems.completion.objective import scores_of
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.completion.ranking import one_blas_thread, ranking_metrics
from hogwild.problems.completion.sums import Solution, summed
from hogwild.problems.completion.tiles import Tiles
from hogwild.training.checkpoint import chosen_before
from hogwild.training.l2_choice import L2Choice
from hogwild.training.schedule import Schedule, make_schedule

HELD_OUT = 0.1  # share of the ratings that judge the candidates
LOOK = 5  # epochs after which choices are judged; if they bring a candidate no nearer to its best, it ends
NEAR_NDCG, NEAR_RMSE = 0.01, 0.001  # share of the best metric that is nearly as good


def posed(config: TrainConfig, ratings: Ratings, discipline: str, workers: int = 1, **fields: Any) -> CompletionProblem:
    """The problem that ``config`` poses on these ratings."""
    names = ("rank", "loss", "penalty", "biases", "negatives", "order")
    fields |= {name: getattr(config, name) for name in names}
    fields |= {"l2": float(config.l2)}
    return CompletionProblem.of(ratings, discipline, workers, **fields)


def serially(
    problem: CompletionProblem,
    laid_out: tuple[Tiles, dict[str, np.ndarray]],
    seed: int,
    schedule: Schedule,
    start: Iterable[np.ndarray] = (),
) -> Iterator[Solution]:
    """Train on one thread, and yield after each epoch factors and biases of rows, as copies in the user's units.

    ``laid_out`` is a result of :meth:`CompletionProblem.lay_out`; the first parts of a solution may ``start`` from
    given values.
    """
    order, arrays = laid_out
    job = Job.of(problem, order, seed, 1, arrays, shared=False)
    problem.adopt(job.flat, tuple(start))
    memory = job.shared(), job.scratch(), job.data()
    for epoch in itertools.count():
        job.begin_epoch(epoch, 0)
        job.work(*memory, Task(epoch, 0, schedule.plan(epoch)), 0)
        with np.errstate(all="ignore"):  # the metric shows if the run has diverged
            solution = problem.solution(job.flat)
        yield solution


def settle(
    config: TrainConfig,
    ratings: Ratings,
    resumed: str | Path | None,
    held: Ratings | None,
    report: Callable[[str], None] | None = None,
) -> tuple[TrainConfig, L2Choice | None]:
    """Return the config with the penalty, step, rank and number of epochs that do best, and how they were chosen.

    ``resumed`` is the directory of a checkpoint: what the run there has is not chosen again. ``report`` is told of the
    progress.
    """
    if saved := chosen_before(resumed, "l2", "epochs", "step", "rank", path=config.l2_path):
        return config.settled(l2_path=None, **saved), None
    ranks = config.ranks
    rest, judges = ratings, held
    if judges is None:
        try:
            rest, judges = ratings.split(HELD_OUT, config.seed, "user" if ranks else "row")
        except InputError:
            few = (
                "no user has six ratings, of which one could be held out"
                if ranks
                else f"{len(ratings)} ratings are few"
            )
            raise NoChoice(f"{few}: give l2 as a number") from None
    problem = posed(config, rest, "serial")
    laid_out = problem.lay_out(rest, machine.l2_bytes(), 1, config.seed)
    began = time.perf_counter()
    tested, seen = (judges.user_lists(), rest.user_lists()) if ranks else (None, None)
    near = NEAR_NDCG if ranks else NEAR_RMSE

    def loss(solution: Solution) -> float:
        """What is minimised: minus the NDCG, or the RMSE."""
        if tested is not None:
            ndcg = ranking_metrics(solution, tested, seen, area=False)["ndcg_at_10"]
            return math.inf if ndcg is None else -ndcg
        error = scores_of(solution, problem.mean, judges.users, judges.items) - judges.values
        return float(np.sqrt(np.mean(np.square(error))))

    def trial(number: int) -> Generator[None]:
        """Train a candidate; note after each epoch its lowest loss, when it was last near that, and the epoch."""
        c, (l2, step, rank) = config, path[number]
        schedule = make_schedule(c.schedule, step, decay=c.decay, power=c.power, l2=l2, tol=c.tol)
        # the kernel of the others is compiled, and factors of zero stay zero
        start = [] if rank else [np.zeros((rows, problem.rank)) for rows in problem.rows]
        value, best, last = 0.0, math.inf, 0
        solutions = serially(dataclasses.replace(problem, l2=l2), laid_out, c.seed, schedule, start)
        for epoch, solution in enumerate(itertools.islice(solutions, c.epochs), 1):
            if not ranks or epoch % LOOK == 0 or epoch == c.epochs:  # to rank all items may take longer than an epoch
                value = loss(summed(solution, rest.shares))
                best = min(best, value)
                last = epoch if value <= best + near * abs(best) else last
            fits[number] = best, last, epoch
            if report is not None:
                report(f"epoch {sum(fit[2] for fit in fits)}, {len(going)} of {len(path)} candidates")
            yield
            if not math.isfinite(value) or epoch - last >= LOOK:
                break

    def advance(epochs: int, number: int) -> None:
        for _ in itertools.islice(trials[number], epochs):
            pass

    def better(number: int) -> tuple[float, float]:
        """Best first; of those nearly as good as the best, the last: the strongest penalty, or biases alone."""
        lowest, value = min(fits)[0], fits[number][0]
        return (0, -number) if value <= lowest + near * abs(lowest) else (1, value)

    path = config.candidates
    fits = [(math.inf, 0, 0)] * len(path)
    going = ended = list(range(len(path)))
    trials = [trial(number) for number in going]
    with one_blas_thread():
        for epochs in (LOOK, LOOK, config.epochs) if ranks else (config.epochs,):
            for _ in in_order(going, partial(advance, epochs), config.workers):
                pass
            ended, going = going, sorted(going, key=better)[: -(-len(going) // 2)]
            for number in {*ended} - {*going}:
                trials[number].close()  # with its model
    l2, step, rank = path[going[0]]
    lowest, epochs, _ = fits[going[0]]
    if not math.isfinite(lowest):
        raise NoChoice("every candidate for l2 diverged: give a smaller step")
    tried = []
    for number, ((value, epoch, trained), candidate) in enumerate(zip(fits, path)):
        worth = value if math.isfinite(value) else None  # it diverged
        facts = {"held_out_loss": worth, "held_out_ndcg_at_10" if ranks else "held_out_rmse": worth and abs(worth)}
        facts |= {"epochs": config.epochs if number in ended else trained, "best_epoch": epoch}
        tried.append(dict(zip(("l2", "step", "rank"), candidate)) | facts)
    seconds = time.perf_counter() - began
    chosen = L2Choice(l2, tried, len(rest), len(judges), config.epochs, seconds, held is None, step=step)
    return config.settled(l2=l2, l2_path=None, step=step, epochs=epochs, rank=rank), chosen
