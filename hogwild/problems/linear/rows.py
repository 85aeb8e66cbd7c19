"""Inputs of the linear problem taken from its training rows: labels, weights, and the step of the intercept."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.rows.container import EMPTY, PIECE, READ, Rows, evenly, narrowed, readonly, shortest
from hogwild.data.rows.counts_kernel import lengths, squared_lengths
from hogwild.data.rows.labels import EXACT, NO_SETS, LabelSets
from hogwild.data.rows.margins import row_scales
from hogwild.data.tables.plan import shown
from hogwild.errors import HogwildWarning, InputError
from hogwild.methods import COUNT_LOSSES, LABEL_LOSSES
from hogwild.problems.linear.options import FEW_LABELS

MAX_CLASSES = 10_000
MANY_CLASSES = 64  # more labels than this, some of them fractions, look like real targets
COMPARED = 1 << 16  # values at a time
SAMPLED = 512  # rows that tell whether all have unit length
UNIT = 1e-3  # by how much their squared lengths may differ from one
UNLIKE = 0.1  # spread of rows' lengths over their mean, above which they are uneven
FULL = 0.25  # share of the width that a row fills, from which rows are not sparse
WEIGHTLESS = "weights: all rows have weight zero"
UNEVEN = 64.0  # times the median row; from here on, a step that suits most rows throws the model
SHARE_ROWS, SHARE_NONZEROS = 2_048, 1 << 22  # most that intercept_share reads
SHARE_WIDTH = 1 << 18  # features from which it leaves out those that these rows lack


def all_ones(values: np.ndarray) -> bool:
    """Whether all values are one, as in binary features; for other data, the first few usually tell."""
    pieces = (values[first : first + COMPARED] for first in range(0, len(values), COMPARED))
    return bool((values[:64] == 1.0).all()) and all(bool((piece == 1.0).all()) for piece in pieces)


def like_text(rows: Rows) -> bool:
    """Whether the rows are sparse and of length one, as far as a sample tells."""
    if rows.nnz >= FULL * rows.width * len(rows):
        return False
    squares = lengths_of(_picked(rows, evenly(len(rows), SAMPLED)))
    return bool((np.abs(squares[squares > 0] - 1) <= UNIT).all())


def like_counts(rows: Rows) -> bool:
    """Whether the rows are sparse, without negative values and of uneven length, as far as a sample tells."""
    if rows.nnz >= FULL * rows.width * len(rows):
        return False
    some = rows.select(evenly(len(rows), SAMPLED)).compact()
    lengths = np.sqrt(lengths_of(some))
    return not (some.values < 0.0).any() and bool(lengths.std() > UNLIKE * lengths.mean())


def lengths_of(rows: Rows) -> np.ndarray:
    """Squared norms of the rows, (n,) float64."""
    squares = np.empty(len(rows))
    squared_lengths(rows.begin, rows.end, rows.values, squares)
    return squares


def intercept_share(config: TrainConfig, rows: Rows, most: int = SHARE_ROWS) -> float:
    """Share of the step that the intercept takes, so that it moves other rows' margins as other features do.

    An update along row i moves the margin of row j by ``step * g * x_i . x_j`` through the weights and by ``step * g``
    through the intercept. On text ``x_i . x_j`` is a few hundredths, so an intercept with the full step swings from
    what one row requires to what the next one does. The share is the mean of ``x_i . x_j``, that is ``||mean x||^2``,
    or the mean square of a column if that is more; it is 1 for columns scaled to variance one, whose rows agree on
    nothing but the intercept. It is at least 1 % of the mean of ``x_i . x_i``, and at most 1, as it is if all rows are
    empty. (scikit-learn takes 1 for dense and 0.01 for sparse data.) AdaGrad finds the scale of each coordinate itself.
    Means are taken of at most ``most`` evenly spaced rows.
    """
    if not config.intercept:
        return 0.0
    if config.adagrad:
        return 1.0
    least = max(1 / max(rows.width, 1), 0.01)
    rows = _picked(rows, rows.spread(SHARE_NONZEROS, most))
    if rows.width > SHARE_WIDTH:  # sums by feature would take longer to lay out than to add up
        rows, _ = narrowed(rows.compact())
    n, scales = len(rows), EMPTY if config.normalize == "none" else row_scales(rows, config.normalize)
    squared, mutual = lengths(rows.begin, rows.end, rows.indices, rows.values, scales, np.zeros(rows.width))
    if not squared > 0:
        return 1.0
    return min(max(mutual / n**2, squared / n * least), 1.0)


def _picked(rows: Rows, ids: np.ndarray) -> Rows:
    """Some of the rows, copied from a store."""
    some = rows.select(ids)
    return some if rows.store is None else some.compact()


def uneven(rows: Rows, weights: np.ndarray | None) -> bool:
    """Whether some rows move the model ``UNEVEN`` times as far as the median row: by squared length and weight."""
    if weights is None and like_text(rows):
        return False
    whole = rows.nnz <= READ
    ids = np.arange(len(rows)) if whole else rows.spread(READ // 16)
    if weights is not None:
        ids = np.append(ids, np.argmax(weights))
    reach = lengths_of(rows if whole and weights is None else _picked(rows, ids))
    reach = reach if weights is None else reach * weights[ids]
    reach = reach[reach > 0]
    return bool(len(reach) and reach.max() > UNEVEN * np.partition(reach, len(reach) // 2)[len(reach) // 2])


def row_weights(rows: Rows, class_weight: str | None) -> np.ndarray | None:
    """Sample weights times class weights, scaled to mean one, float32; None if all are one.

    With ``balanced`` a row of class c has the weight ``n / (classes * n_c)``, as in scikit-learn.

    Raises
    ------
    InputError
        If all weights are zero.
    """
    totals, factors = rows.totals, np.ones(1)
    weights = None if rows.weights is None else rows.weights.astype(np.float64)
    if class_weight == "balanced":
        if totals is None:
            _, codes, counts = np.unique(rows.targets, return_inverse=True, return_counts=True)
        else:
            codes, counts = np.searchsorted(totals.labels, rows.targets), totals.counts
        factors = (len(rows) if totals is None else totals.rows) / (len(counts) * counts)
        weights = factors[codes] if weights is None else weights * factors[codes]
    if weights is None:
        if totals is None or not totals.weighted:
            return None
        weights = np.ones(len(rows))  # other machines' rows have some
    total = weights.sum() if totals is None else (totals.weights * factors).sum()
    if not total > 0:
        raise InputError(WEIGHTLESS)
    mean = weights.mean() if totals is None else total / totals.rows
    return (weights / mean).astype(np.float32)


def check_classes(labels: Sequence[Any] | np.ndarray, weights: np.ndarray, stacklevel: int) -> None:
    """Warn of each class without weight; ``weights`` are the sums of those of its rows.

    Raises
    ------
    InputError
        If only one class has any.
    """
    weighted, weightless = (
        [str(label) for label, weight in zip(labels, weights) if (weight > 0) == has] for has in (True, False)
    )
    if len(weighted) == 1 and weightless:
        raise InputError(
            f"weights: all rows but those of class {weighted[0]} have weight zero: expected two or more classes"
        )
    if weightless:
        message = f"weights: all rows of a class have weight zero, so nothing is learned of it: {shown(weightless)}"
        warnings.warn(message, HogwildWarning, stacklevel=stacklevel)


def below_range(loss: str, targets: np.ndarray) -> str:
    """Say which target is too small for a loss of counts and amounts, if one is."""
    least = targets.min(initial=np.inf)
    if loss not in COUNT_LOSSES or least > 0 or (least == 0 and loss != "gamma"):
        return ""
    needed = "above 0" if loss == "gamma" else "of 0 or more"
    return f"loss {loss} needs targets {needed}; row {np.argmin(targets)} has {least:g}"


def labels_of(
    targets: np.ndarray,
    loss: str,
    table: Mapping[str, Any] | None = None,
    fewest: int = 2,
    sets: LabelSets | None = None,
) -> np.ndarray:
    """The classes, ascending; empty for a loss of real targets. ``table`` is the plan of the rows, if they have one.

    If targets stand for ``sets`` of labels, these labels are the classes, whether or not a row has them.

    There must be ``fewest`` of them: 1 if other machines may have more.

    Raises
    ------
    InputError
        If there is one class or too many, labels are too large for float32, counts are negative, or the targets for a
        loss of real targets are names.
    """
    if sets is not None and (loss == "softmax" or loss not in LABEL_LOSSES):
        raise InputError(f"loss {loss} needs one target a row; rows have several labels: choose log or hinge")
    if loss not in LABEL_LOSSES:
        if table is not None and table["label_kind"] == "text":
            raise InputError(
                f"loss {loss} needs numbers; column {table['label']} holds text ({table['label_names'][0]!r}): "
                "choose a loss for labels such as log"
            )
        if problem := below_range(loss, targets):
            raise InputError(problem)
        return np.empty(0)
    if sets is None:
        pieces = [np.unique(targets[first : first + PIECE]) for first in range(0, len(targets), PIECE)]
        labels = np.unique(np.concatenate([targets[:0], *pieces]))
    else:
        labels = sets.names.astype(np.float64)
    if len(labels) < fewest:
        only = shortest(labels[0]) if len(labels) else "none"
        raise InputError(f"all {len(targets)} rows have the label {only}: loss {loss} needs two or more classes")
    if len(labels) > MAX_CLASSES:
        raise InputError(
            f"loss {loss} takes {MAX_CLASSES} classes at most; got {len(labels)} labels: "
            "for real targets choose a regression loss such as squared-error"
        )
    large = labels[np.abs(labels) >= EXACT]
    if len(large):
        raise InputError(
            f"labels need to be below 2^24 (float32 is exact to there); got {shortest(large[0])}: renumber them"
        )
    if fewest > 1 and len(labels) > MANY_CLASSES and (labels % 1 != 0).any():
        warnings.warn(
            f"{len(labels)} different targets are taken for classes: for real targets choose a regression loss such as "
            "squared-error",
            HogwildWarning,
            stacklevel=2,
        )
    return labels


def few_labels(rows: Rows) -> Rows:
    """The same rows with some of their labels, common ones rather than rare ones, which stand for all."""
    sets = rows.labels
    if sets is None or len(sets.names) <= FEW_LABELS:
        return rows
    _, labels = sets.flat(rows.targets)
    counts = np.bincount(np.searchsorted(sets.names, labels), minlength=len(sets.names))
    order = np.argsort(-counts, kind="stable")
    shares = np.cumsum(counts[order])
    chosen = np.searchsorted(shares, evenly(int(shares[-1]), FEW_LABELS), side="right")
    names = np.unique(sets.names[order[np.append(chosen, (0, 1))]])
    return rows.replace(labels=sets._replace(names=readonly(names)))


def pairs_of(rows: Rows) -> int:
    """Number of pairs of a row and one of its several labels."""
    return (rows.labels or NO_SETS).pairs(rows.targets)


def numbered(rows: Rows, labels: Any, multilabel: bool, before: int = 0) -> tuple[np.ndarray, LabelSets]:
    """The targets as places in ``labels``, as :func:`class_numbers` has them, and for ``multilabel`` the sets of these.

    A set's labels that are not among ``labels`` are left out.

    Raises
    ------
    InputError
        Also if rows have several labels and should have one.
    """
    if not multilabel:
        if rows.labels is not None:
            raise InputError("rows have several labels each; the model was trained on one label a row")
        return class_numbers(rows.targets, labels, before), NO_SETS
    wrong = (rows.targets < 0) | (rows.targets % 1 != 0)
    if rows.labels is None and wrong.any():
        row = int(np.argmax(wrong))
        value = shortest(rows.targets[row])
        raise InputError(
            f"row {before + row + 1} has label {value}: labels of a model of several are whole numbers from 0"
        )
    return (rows.labels or NO_SETS).numbered(rows.targets, labels)


def class_numbers(targets: np.ndarray, labels: Sequence[float], before: int = 0) -> np.ndarray:
    """Position of each target in ``labels``, (n,) float32; labels are compared as float32, as rows hold them.

    ``before`` is the number of rows before these, for the message.

    Raises
    ------
    InputError
        If a target is no label; the message names the first such target.
    """
    known, wanted = np.asarray(labels, np.float32), np.asarray(targets, np.float32)
    order = np.argsort(known, kind="stable")
    numbers = np.empty(len(wanted), np.float32)
    for first in range(0, len(wanted), PIECE):
        part = wanted[first : first + PIECE]
        places = order[np.searchsorted(known, part, sorter=order).clip(max=len(known) - 1)]
        wrong = known[places] != part
        if wrong.any():
            row = first + int(np.argmax(wrong))
            shown = ", ".join(shortest(label) for label in labels[:10]) + (", ..." if len(labels) > 10 else "")
            raise InputError(f"row {before + row + 1} has label {shortest(targets[row])}: the model knows {shown}")
        numbers[first : first + PIECE] = places
    return numbers
