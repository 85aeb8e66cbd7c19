"""What data look like, and what that means for workers without locks: the three quantities of the Hogwild paper.

With a row e as the set of its features, N rows and d_u rows that hold feature u (Recht et al. 2011, eq. 2.6):

    Omega = max_e |e|,   Delta = max_u d_u / N,   rho = max_e |{e' : e' meets e}| / N   (a row meets itself)

    Delta <= rho <= min(1, max_e sum_{u in e} d_u / N) <= min(1, Omega Delta)

Omega and Delta take one pass. rho would take all pairs of rows; instead, 64 rows at a time get one bit each in a mask
for each feature, and one pass over the data finds which rows meet them: exact if all rows can be tried this way, else a
lower bound from 64 random ones. The cost is some four passes over the data, and 16 bytes for each feature.

The RCV1 line of the paper's table has rho and Delta swapped: it breaks the first inequality.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.rows.container import Rows, map_chunks, shortest

BITS = 64  # rows tried in one pass
EXACT_BELOW = 50_000_000  # nonzeros looked at in all passes together
MOST_LABELS = 64  # with more distinct targets, their range is reported instead


def describe(rows: Rows, seed: int = 0) -> dict[str, Any]:
    """Facts about ``rows``, in plain numbers and text.

    Parameters
    ----------
    rows : Rows
    seed : int
        Seed of the sample of rows for ``rho`` and ``collision``.

    Returns
    -------
    dict
        ``rows width nnz hash_bits used_features empty_rows density``;
        ``targets`` (counts by label, or the range of real targets; of names and several labels a row those of the most
        frequent);
        ``hottest`` (up to five pairs of a feature, counted from 0, and its share of rows);
        ``omega delta rho``, where ``rho`` is a lower bound unless ``rho_exact``;
        ``collision``: probability that two random rows share a feature.
    """
    degrees = rows.degrees()
    n, nnz = len(rows), rows.nnz
    share = degrees / max(n, 1)
    hottest = np.argsort(-degrees, kind="stable")[:5]
    facts: dict[str, Any] = {
        "rows": n,
        "width": rows.width,
        "nnz": nnz,
        "hash_bits": rows.hash_bits,
        "used_features": int(np.count_nonzero(degrees)),
        "empty_rows": int(np.count_nonzero(rows.end == rows.begin)),
        "density": nnz / max(n * rows.width, 1),
        "targets": _targets(rows),
        "hottest": [(int(u), float(share[u])) for u in hottest if degrees[u]],
        "omega": int((rows.end - rows.begin).max(initial=0)),
        "delta": float(share.max(initial=0.0)),
    }
    return facts | _meetings(rows, facts["delta"], seed)


def _targets(rows: Rows) -> dict[str, Any]:
    targets, names = rows.targets, [] if rows.table is None else rows.table["label_names"]
    several = rows.labels is not None
    labels, counts = np.unique(targets if rows.labels is None else rows.labels.flat(targets)[1], return_counts=True)
    if names or several or len(labels) <= MOST_LABELS:
        shown = np.sort(np.argsort(-counts, kind="stable")[:MOST_LABELS])
        texts = [names[int(label)] if names else shortest(label) for label in labels[shown]]
        return {"labels": dict(zip(texts, counts[shown].tolist()))}
    wide = targets.astype(np.float64)
    return {name: float(getattr(wide, name)()) for name in ("min", "mean", "max", "std")}


def _meetings(rows: Rows, delta: float, seed: int) -> dict[str, Any]:
    """Return rho, whether it is exact, and how often two random rows meet."""
    n = len(rows)
    exact = n <= 2 * BITS or -(-n // BITS) * rows.nnz <= EXACT_BELOW
    ids = np.arange(n) if exact else np.random.default_rng(seed).choice(n, BITS, replace=False)
    met = [meets(rows, ids[at : at + BITS]) / n for at in range(0, len(ids), BITS)]
    shares = np.concatenate([*met, np.empty(0)])
    rho = max(float(shares.max(initial=0)), delta)
    return {"rho": rho, "rho_exact": exact, "collision": float(shares.mean()) if n else 0.0}


def meets(rows: Rows, ids: np.ndarray) -> np.ndarray:
    """Number of rows that share a feature with each of ``ids`` (at most 64), itself included: (len(ids),) int64."""
    masks = np.zeros(rows.width, dtype=np.uint64)
    bits = np.uint64(1) << np.arange(len(ids), dtype=np.uint64)
    for bit, i in zip(bits, ids):
        masks[rows.indices[rows.begin[i] : rows.end[i]]] |= bit

    def count(first: int, last: int) -> np.ndarray:
        indptr, indices, _ = rows.block(first, last).flat()
        starts = indptr[:-1][indptr[:-1] < indptr[1:]]  # empty rows have no entries to cut
        met = np.bitwise_or.reduceat(masks[indices], starts) if len(starts) else masks[:0]
        return np.array([np.count_nonzero(met & bit) for bit in bits])

    return sum(map_chunks(rows, count), np.zeros(len(ids), dtype=np.int64))
