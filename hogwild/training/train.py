"""``hogwild.train``: the one call that trains a model of any problem."""

from __future__ import annotations

import dataclasses
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from hogwild.config import TrainConfig
from hogwild.errors import UsageError
from hogwild.hosts.pool import Pool
from hogwild.problems.protocol import case_of
from hogwild.training.run import Run

SPLIT = ("linear", "completion")  # problems of whose data a part can be held out

if TYPE_CHECKING:
    from hogwild.config import CompletionOptions, CutsOptions, LinearOptions
    from hogwild.data.ratings.container import Ratings
    from hogwild.data.rows.container import Rows
    from hogwild.machines.cluster import Cluster
    from hogwild.problems.completion.model import CompletionModel
    from hogwild.problems.cuts.model import Segmentation
    from hogwild.problems.linear.model import LinearModel


@overload
def train(
    rows: Any,
    test: Any = None,
    *,
    problem: Literal["linear"] = ...,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    pool: Pool | None = None,
    data: str = "",
    cluster: Cluster | None = None,
    holdout: float | Rows | None = None,
    **options: Unpack[LinearOptions],
) -> Run[LinearModel]: ...
@overload
def train(
    rows: Any,
    test: Any = None,
    *,
    problem: Literal["completion"],
    checkpoint: str | Path | None = None,
    resume: bool = False,
    pool: Pool | None = None,
    data: str = "",
    cluster: Cluster | None = None,
    holdout: float | Ratings | None = None,
    **options: Unpack[CompletionOptions],
) -> Run[CompletionModel]: ...
@overload
def train(
    rows: Any,
    test: Any = None,
    *,
    problem: Literal["cuts"],
    checkpoint: str | Path | None = None,
    resume: bool = False,
    pool: Pool | None = None,
    data: str = "",
    cluster: Cluster | None = None,
    **options: Unpack[CutsOptions],
) -> Run[Segmentation]: ...
@overload
def train(
    rows: Any,
    test: Any = None,
    *,
    config: TrainConfig,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    pool: Pool | None = None,
    data: str = "",
    cluster: Cluster | None = None,
    holdout: Any = None,
) -> Run[Any]: ...
def train(
    rows: Any,
    test: Any = None,
    *,
    config: TrainConfig | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    pool: Pool | None = None,
    data: str = "",
    cluster: Cluster | None = None,
    holdout: Any = None,
    **options: Any,
) -> Run[Any]:
    """Train a sparse model on all cores without locks.

    Parameters
    ----------
    rows : Rows or (X, y); Ratings; Graph
        Training data of the problem asked for. Linear: ``Rows``, or a scipy sparse or dense matrix (n, width) and n
        targets. Completion: ``Ratings``, a scipy sparse matrix (users, items), or arrays (users, items, values).
        Cuts: ``Graph``.
    test : the same, optional
        Evaluated after every epoch; never trained on. If it was held out of ``rows`` by their ``split`` it chooses, as
        ``holdout`` does.
    config : TrainConfig, optional
        All options at once; else they are given as keywords (``loss="hinge", workers=4, ...``), where the default host
        is ``threads``, which needs no ``if __name__ == "__main__"``.
    checkpoint : path, optional
        Directory for a checkpoint at the end of every epoch and on stopping.
    resume : bool
        Go on from that checkpoint, if there is one. Only ``epochs``, ``evaluate_every``, ``machines``, ``workers``,
        ``oversubscribe``, ``host``, ``in_flight`` and ``renumber`` may differ.
    pool : Pool, optional
        Workers from :func:`hogwild.training.engine.start_pool`; they are left running. One run after another, or in
        turns, can use them.
    data : str
        Name of the data in the rows of measurements.
    cluster : Cluster, optional
        Machines that have met (:func:`hogwild.gather`) and train together; each makes this call, with the same options
        and data. With ``own_rows=True`` the data are each machine's own, and so are the test data, which machine 0 must
        have if another one has; all metrics are of all of them. Rows and checkpoints are machine 0's; on the others the
        run yields none, and ``finish()`` returns the same model.
    holdout : float or what ``rows.split`` held out, optional
        Data that choose, and are not trained on: the model is that of the epoch with the lowest loss on them (option
        ``keep``), ``patience`` watches that loss, and ``l2="auto"`` is chosen by it. A float holds that share of
        ``rows`` out. ``test`` then only judges, and the rows of the run have ``held_out_loss`` beside ``test_loss``;
        without ``test`` they have it as ``test_loss``. For both at once the problem must be linear.

        Without ``holdout``, ``l2="auto"`` holds a fifth of ``rows`` out to choose by, and the model is then trained on
        all of them. ``run.chosen`` says what was chosen.

    Returns
    -------
    Run
        Iterate over it for the rows of measurements, or call ``finish()`` for the model.

    Raises
    ------
    UsageError, InputError
        For options and data that do not go together, before anything is started.
    """
    if config is not None and options:
        raise UsageError(f"give options in config or as keywords, not both (got {', '.join(options)})")
    if config is None:
        met = {} if cluster is None else {"machines": cluster.machines}
        config = TrainConfig.from_json({"host": "threads"} | options | met)
    take = case_of(config.problem).take
    examples, test = take(rows), None if test is None else take(test)
    examples, test, held = held_apart(examples, test, holdout, config)
    return begin(examples, test, held, config, checkpoint, resume, pool, data, cluster)


def held_apart(examples: Any, test: Any, holdout: Any, config: TrainConfig) -> tuple[Any, Any, Any]:
    """Return the examples to train on, those to test on, and those that choose, if these are not the same."""
    if holdout is None:
        return examples, test, None
    if config.problem not in SPLIT:
        raise UsageError(f"holdout={holdout!r}: of problem {config.problem!r} nothing can be held out")
    if isinstance(holdout, Real):
        examples, holdout = examples.split(float(holdout), config.seed)
    elif holdout is not examples.held_out:
        raise UsageError("holdout: expected a fraction, or what rows.split(fraction) has held out of these rows")
    if test is None:
        return examples, holdout, None
    if config.problem != "linear":
        raise UsageError(f"test and holdout at once are for linear models, not for problem {config.problem!r}")
    if config.own_rows:
        raise UsageError("test and holdout at once are for one set of rows, not for machines with rows of their own")
    return examples, test, holdout


def begin(
    examples: Any,
    test: Any,
    held: Any,
    config: TrainConfig,
    checkpoint: str | Path | None,
    resume: bool,
    pool: Pool | None,
    data: str,
    cluster: Cluster | None,
) -> Run[Any]:
    """Return the run, or this machine's part in that of a cluster."""
    if cluster is None:
        if config.machines > 1:
            raise UsageError(f"machines={config.machines}: machines meet first: give cluster=hogwild.gather(...)")
        chosen = None
        if config.l2_path:
            from hogwild.training.l2_choice import settle_l2

            by = test if held is None and test is examples.held_out else held
            config, chosen = settle_l2(config, examples, checkpoint if resume else None, by)
        run: Run[Any] = Run(examples, test, config, checkpoint, resume, pool, data, chosen=chosen, held=held)
        run.stopwatch.add({} if chosen is None else {"l2": chosen.seconds})
        return run
    config = dataclasses.replace(config, machines=cluster.machines)
    if config.own_rows:
        from hogwild.machines.own_rows import settle

        examples, test = settle(cluster, examples, test, config)
    if cluster.leads:
        from hogwild.machines.agreement import Leader

        leader = Leader(cluster, examples.totals if config.own_rows else None)
        return Run(examples, test, config, checkpoint, resume, pool, data, leader=leader, held=held)
    from hogwild.training.member import Member

    member: Any = Member(examples, test, config, cluster, pool, data)
    return member
