"""The options of ``hogwild.train`` as types, so that a type checker rejects an unknown name before anything runs.

They are the fields of ``TrainConfig`` and of the problems' configs, which explain them; a test compares the two. A type
checker reads the types here and nowhere else, so they cannot be made from the fields.
"""

from __future__ import annotations

from typing import TypedDict


class CommonOptions(TypedDict, total=False):
    step: float | None
    schedule: str
    decay: float | None
    power: float | None
    order: str
    seed: int
    discipline: str
    exchange: str
    workers: int | None
    oversubscribe: bool
    host: str
    device: str
    in_flight: int | None
    machines: int
    link: str
    delay: str
    gradient_delay: float
    evaluate_every: int
    epochs: int
    patience: int | None
    tol: float
    keep: str | None
    target: float | None


class LinearOptions(CommonOptions, total=False):
    loss: str
    loss_param: float | None
    l1: float
    l2: float | str | tuple[float, ...]
    l2_path: tuple[float, ...] | None
    normalize: str
    class_weight: str | None
    intercept: bool
    scale_columns: bool
    adagrad: bool
    renumber: str
    own_rows: bool


class CompletionOptions(CommonOptions, total=False):
    loss: str
    l2: float
    rank: int
    penalty: str
    nonnegative: bool
    biases: bool
    negatives: int


class CutsOptions(CommonOptions, total=False):
    loss: str


class ModuleOptions(CommonOptions, total=False):
    """Keywords of :func:`hogwild.train_module`, which receives its loss together with the module."""

    optimizer: str
    state: str
    batch: int
    momentum: float
    betas: tuple[float, float]
