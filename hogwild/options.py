"""The options of ``hogwild.train`` as a type, so that a type checker rejects an unknown name before anything runs.

They are the fields of ``TrainConfig``, which explains them; a test compares the two. A type checker reads the types
here and nowhere else, so they cannot be made from the fields.
"""

from __future__ import annotations

from typing import TypedDict


#: Keywords of :func:`hogwild.train_module`, which receives its loss together with the module.
class ModuleOptions(TypedDict, total=False):
    loss_param: float | None
    l1: float
    intercept: bool
    scale_columns: bool
    renumber: str
    normalize: str
    class_weight: str | None
    rank: int | None
    penalty: str | None
    nonnegative: bool
    biases: bool
    negatives: int | None
    step: float | None
    schedule: str
    decay: float | None
    power: float | None
    adagrad: bool
    order: str
    seed: int
    optimizer: str | None
    state: str | None
    batch: int | None
    momentum: float | None
    betas: tuple[float, float] | None
    discipline: str
    exchange: str
    link: str
    gradient_delay: float
    workers: int | None
    oversubscribe: bool
    machines: int
    own_rows: bool
    host: str
    delay: str
    device: str
    in_flight: int | None
    evaluate_every: int
    epochs: int
    patience: int | None
    tol: float
    target: float | None
    keep: str | None


class TrainOptions(ModuleOptions, total=False):
    """Keywords of :func:`hogwild.train`, except the problem."""

    loss: str
    l2: float | str | tuple[float, ...]
    l2_path: tuple[float, ...] | None
