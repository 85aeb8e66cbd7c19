"""The area under the ROC curve of scores; ``auc_kernel.py`` is imported when first needed."""

from __future__ import annotations

import math

import numpy as np


def auc(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """Share of pairs of a positive and a negative row in which the positive score is larger; ties count half.

    Parameters
    ----------
    scores : array of float32, shape (n,)
    positive : array of bool, shape (n,)

    Returns
    -------
    float, or None
        None if a score is not finite, or all rows are of one kind. This takes about 15 ns a row.
    """
    from hogwild.problems.linear.auc_kernel import PASSES, PLACES, area

    bits = np.ascontiguousarray(scores, dtype=np.float32).view(np.uint32)
    marks = np.ascontiguousarray(positive, dtype=np.bool_)
    keys, other = np.empty((2, len(bits)), dtype=np.uint64)
    found = float(area(bits, marks, keys, other, np.zeros((PASSES, PLACES), dtype=np.int64)))
    return None if math.isnan(found) else found
