"""``l2="auto"``: the penalty, step, rank and number of epochs that do best on ratings held out.

A tenth is held out: of all ratings, or of each user's choices, where who has few (five or less) holds out none. A
candidate is a serial run, judged after each epoch by the NDCG at 10 of choices or the RMSE of ratings.
The best one wins, and the model is then trained on all ratings for as many epochs: up to the last that was nearly as
good as the best, since on smaller steps a model is less noisy. That costs at most as many fits as there are candidates;
they run side by side, each on one core, so that the choice depends on ratings, options and seed alone.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.parallel import map_pieces
from hogwild.data.ratings.container import Ratings
from hogwild.errors import InputError, NoChoice
from hogwild.hosts.job import Job, Task
from hogwild.problems.completion.model import CompletionModel
from hogwild.problems.completion.objective import scores_of
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.completion.ranking import one_blas_thread, ranking_metrics
from hogwild.problems.completion.sums import Solution, summed
from hogwild.training.checkpoint import chosen_before
from hogwild.training.l2_choice import L2Choice
from hogwild.training.schedule import make_schedule

HELD_OUT = 0.1  # share of the ratings that judge the candidates
PATIENCE = 5  # epochs that are not nearly as good as the best, after which a candidate ends
REFINING = 0.2  # share of the first step that later passes over new ratings take
NEAR_NDCG, NEAR_RMSE = 0.01, 0.001  # share of the best metric that is nearly as good


def posed(config: TrainConfig, ratings: Ratings, discipline: str, workers: int = 1, **fields: Any) -> CompletionProblem:
    """The problem that ``config`` poses on these ratings."""
    names = ("rank", "loss", "penalty", "biases", "negatives", "order")
    fields |= {name: getattr(config, name) for name in names}
    fields |= {"l2": float(config.l2)}
    return CompletionProblem.of(ratings, discipline, workers, **fields)


def passed_over(model: CompletionModel, ratings: Ratings, config: TrainConfig) -> CompletionModel:
    """The model after one serial pass over more ratings, which have its items and may have more users, behind its own.

    Units and l2 are those it was trained with, and ``config`` has the rest. The penalty is that of these ratings alone:
    a smoothed one would shrink a user again at each call. The step is small, since the model is near its optimum: half
    of MovieLens-100k, and then four tenths more in ten calls, end at an RMSE of .92, by whole steps at .97.
    """
    size = max(ratings.shape[0], model.shape[0]), model.shape[1]
    ratings = Ratings(ratings.users, ratings.items, ratings.values, size, check=False)
    scale = model.ridge[0] / model.ridge[1] if model.ridge[1] else float(ratings.values.std()) or 1.0
    problem = dataclasses.replace(
        posed(config, ratings, "serial"), mean=model.mean, scale=scale, l2=model.ridge[1], penalty="per-rating"
    )
    order, arrays = problem.lay_out(ratings, machine.l2_bytes(), 1, config.seed)
    job = Job.of(problem, order, config.seed, 1, arrays, shared=False)
    problem.adopt(job.flat, (model.user_factors, model.item_factors, model.user_bias, model.item_bias))
    job.begin_epoch(0, 0)
    job.work(job.shared(), job.scratch(), job.data(), Task(0, 0, (REFINING * (config.step or 0.0), 1.0, 0.0)), 0)
    users, items, user_bias, item_bias = problem.solution(job.flat)
    return dataclasses.replace(model, user_factors=users, item_factors=items, user_bias=user_bias, item_bias=item_bias)


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
            raise NoChoice("no user has six ratings, of which one could be held out: give l2 as a number") from None
    problem = posed(config, rest, "serial")
    order, arrays = problem.lay_out(rest, machine.l2_bytes(), 1, config.seed)
    problem.compile()
    began = time.perf_counter()
    tested, seen = (judges.user_lists(), rest.user_lists()) if ranks else (None, None)
    path = config.candidates
    total, done = config.epochs * len(path), [0] * len(path)
    near = NEAR_NDCG if ranks else NEAR_RMSE

    def loss(solution: Solution) -> float:
        """What is minimised: minus the NDCG, or the RMSE."""
        if tested is not None:
            ndcg = ranking_metrics(solution, tested, seen)["ndcg_at_10"]
            return math.inf if ndcg is None else -ndcg
        error = scores_of(solution, problem.mean, judges.users, judges.items) - judges.values
        return float(np.sqrt(np.mean(np.square(error))))

    def fit(number: int, _: int) -> tuple[float, int]:
        """The lowest loss of a candidate, and after how many epochs it was last near."""
        l2, step, rank = path[number]
        job = Job.of(dataclasses.replace(problem, l2=l2), order, config.seed, 1, arrays, shared=False)
        if rank == 0:  # the kernel of the others is compiled: factors of zero stay zero
            for factors in problem.factors(job.flat):
                factors[:] = 0
        memory = job.shared(), job.scratch(), job.data()
        c = config
        schedule = make_schedule(c.schedule, step, decay=c.decay, power=c.power, l2=l2, tol=c.tol)
        best, last = math.inf, 0
        for epoch in range(config.epochs):
            job.begin_epoch(epoch, 0)
            job.work(*memory, Task(epoch, 0, schedule.plan(epoch)), 0)
            with np.errstate(all="ignore"):
                value = loss(summed(problem.solution(job.flat), rest.shares))
            best = min(best, value)
            last = epoch + 1 if value <= best + near * abs(best) else last
            done[number] += 1
            if report is not None:
                report(f"epoch {sum(done)} of at most {total}")
            if not math.isfinite(value) or epoch + 1 - last >= PATIENCE:
                break
        return best, last

    with one_blas_thread():
        fits = list(map_pieces(len(path), 1, fit, config.workers))
    lowest, epochs = min(fits)
    if not math.isfinite(lowest):
        raise NoChoice("every candidate for l2 diverged: give a smaller step")
    name = "held_out_ndcg_at_10" if ranks else "held_out_rmse"
    tried: list[dict[str, Any]] = []
    for (l2, step, rank), (value, epoch) in zip(path, fits):
        worth = value if math.isfinite(value) else None  # it diverged
        tried.append({"l2": l2, "step": step, "held_out_loss": worth, name: worth and abs(worth)})
        tried[-1] |= {"epochs": config.epochs, "best_epoch": epoch, "rank": rank}
    l2, step, rank = path[fits.index((lowest, epochs))]
    seconds = time.perf_counter() - began
    chosen = L2Choice(l2, tried, len(rest), len(judges), config.epochs, seconds, held is None, step=step)
    return config.settled(l2=l2, l2_path=None, step=step, epochs=epochs, rank=rank), chosen
