"""The options of ``hogwild.train`` as a type: a name that is none fails in a type checker, before anything runs.

They are the fields of ``TrainConfig``, which says what they mean; a test holds the two against each other.
"""

from __future__ import annotations

from typing import TypedDict


class ModuleOptions(TypedDict, total=False):
    """Keywords of :func:`hogwild.train_module`, which is given its loss beside the module."""

    loss_param: float | None
    l1: float
    l2: float
    step: float | None
    schedule: str
    decay: float | None
    power: float | None
    adagrad: bool
    discipline: str
    exchange: str
    gradient_delay: float
    workers: int | None
    oversubscribe: bool
    host: str
    delay: str
    device: str
    in_flight: int | None
    order: str
    evaluate_every: int
    epochs: int
    average: bool
    intercept: bool
    normalize: str
    class_weight: str | None
    patience: int | None
    tol: float
    target: float | None
    seed: int
    rank: int | None
    penalty: str | None
    nonnegative: bool
    biases: bool
    negatives: int | None
    optimizer: str | None
    state: str | None
    batch: int | None
    momentum: float | None
    betas: tuple[float, float] | None
    launch: str | None


class TrainOptions(ModuleOptions, total=False):
    """Keywords of :func:`hogwild.train`, but for the problem."""

    loss: str
