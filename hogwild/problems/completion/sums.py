"""Side features: vectors that are sums, of a row of one's own and of rows that users or items with a feature share.

    p_u = s_u E_u + sum over features f of x_uf s_u E_f,     s_u such that the squares of the shares sum to one

(LightFM: Kula 2015, whose shares sum to one; with squares a step moves a score as far as it does without features). An
item that nobody rated has no share in a row of its own, which was never trained: its vector is its features'. The
shares are :attr:`hogwild.Ratings.shares`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Shares = tuple[Any, Any]  # CSR float32 of users and of items
Solution = tuple[Any, Any, Any, Any]  # user factors (users, k), item factors (items, k), user bias, item bias


def summed(solution: Solution, shares: Shares | None) -> Solution:
    """Factors and biases of users and items, of those of rows."""
    if shares is None:
        return solution
    of_users, of_items = shares
    return of_users @ solution[0], of_items @ solution[1], of_users @ solution[2], of_items @ solution[3]


def rows_of(shares: Shares | None, numbers: tuple[Any, Any], weighted: bool = False) -> tuple[Any, Any]:
    """Numbers of users and of items, (users,) and (items,), summed for each row over those with a share in it.

    ``weighted``: times the square of the share.
    """
    if shares is None:
        return numbers
    import scipy.sparse

    sides = []
    for side, of in zip(shares, numbers):
        weights = side.data.astype(np.float64) ** 2 if weighted else (side.data != 0).astype(np.float64)
        sides.append(scipy.sparse.csr_array((weights, side.indices, side.indptr), side.shape).T @ of)
    return sides[0], sides[1]
