"""Matrix completion: the objective, the layout of factors and biases in the flat array, and the kernels.

A prediction is ``mean + b_u + b_i + p_u . q_i``. In units in which the training values have mean 0 and deviation 1,

    objective = mean over ratings of  (prediction - value)^2 / 2  +  penalty

    penalty "per-rating":  l2/2 (||p_u||^2 + ||q_i||^2 + b_u^2 + b_i^2), averaged over the ratings too: a user with more
                           is shrunk more (Zhou, Wilkinson, Schreiber, Pan 2008)
    penalty "smoothed":    the same as if every user and item had SMOOTHING ratings more, so who rated little stays near
                           the mean: lower RMSE by .003 on MovieLens-1M, by .01 with five ratings a user

The problem is posed in those units so that the same step and l2 work for 1 to 5 stars and for 0 to 100. In the user's
units, with ``s`` the deviation, factors are ``sqrt(s)`` and biases ``s`` times as large, and the objective times s^2 is
half the mean squared error plus a penalty that counts ``s l2`` for factors and ``l2`` for biases: ``weights``.

Implicit feedback has no values: every rating is a choice, and a margin ``m = b_u + b_i + p_u . q_i`` is learned against
``negatives`` items per rating drawn from those the user has not chosen,

    log:  log(1 + exp(-m_ui)) + sum over drawn j of log(1 + exp(m_uj))       bpr:  log(1 + exp(m_uj - m_ui))

(bpr: Rendle, Freudenthaler, Gantner, Schmidt-Thieme 2009). There the penalty is counted for
the rating and for each drawn item, which are pairs of a user and an item.

With side features (``sums.py``) ``p_u``, ``q_i`` and the biases are sums of rows times shares, and the penalty is that
of the rows, each times the square of its share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hogwild.data.ratings.container import Ratings
from hogwild.errors import InputError, UsageError
from hogwild.kernels.control import END
from hogwild.kernels.vectors import LANE
from hogwild.machine import check_memory
from hogwild.problems.completion import kernel as completion
from hogwild.problems.completion.kernel import LOSSES, STATE, Data, Parameters, Plan
from hogwild.problems.completion.options import SMOOTHING
from hogwild.problems.completion.sums import Solution, rows_of
from hogwild.problems.completion.tiles import Tiles, file_order, tile
from hogwild.problems.linear.kernel import DISCIPLINES
from hogwild.problems.protocol import OrderSlice, Problem, Shared, counted, part_of
from hogwild.training.schedule import Step

PLAIN = ("serial", "hogwild")  # disciplines that write sums
FENCED = (*PLAIN, "atomic")  # disciplines that the order "blocks" allows: it leaves nothing to lock
BYTES = 16  # for each number of a run: the workers', the solution's, the model's, and copies
# Deviation of the initial factors. For ratings it is small, because directions that the data do not need then stay
# small, even at a high rank (MovieLens 1M, rank 128: RMSE 0.842 from 0.01, 0.849 from 0.1); choices are learnt better
# from the other. Without biases the first number of every factor begins at LEVEL, so that this direction can take the
# place of biases at once (MovieLens 100k, rank 32, 20 epochs: RMSE 0.900, else 0.906; from 0.1 it was 0.927).
SMALL, SPREAD, LEVEL = 0.01, 0.1, 0.5
#: Types of the arrays by user and by item.
PER_ROW = {
    "user_rates": np.float32,
    "item_rates": np.float32,
    "seen_begin": np.int64,
    "seen_marks": np.uint64,
    "sums_begin": np.int64,
    "sums_rows": np.int32,
    "sums_shares": np.float32,
}


@dataclass(frozen=True)
class CompletionProblem(Problem):
    """Everything a worker must know besides the arrays; made by :meth:`of`. For methods see ``protocol.Problem``."""

    users: int
    items: int
    mean: float  # mean of the training values
    scale: float  # their deviation
    discipline: str
    rank: int = 32
    loss: str = "squared-error"
    l2: float = 0.05
    penalty: str = "per-rating"  # or "smoothed"
    biases: bool = True
    negatives: int = 1
    order: str = "shuffled"
    parts: int = 1  # of users and of items, for machines between which items go round
    features: tuple[int, int] | None = None  # of users and of items, if vectors are sums with those of features

    @classmethod
    def of(cls, ratings: Ratings, discipline: str, workers: int = 1, **fields: Any) -> CompletionProblem:
        """The problem that training ratings pose.

        Raises
        ------
        InputError
            If there are no ratings, or one is of an unknown user or item.
        UsageError
            If options do not fit together.
        """
        if not len(ratings):
            raise InputError("the training data have no ratings")
        for side, numbers, _, _ in ratings.sides():
            if numbers.min() < 0:
                where = int(np.argmin(numbers))
                raise InputError(f"rating {where} is of an unknown {side} (-1): drop such ratings before training")
        if ratings.features is not None:
            of_users, of_items = (0 if side is None else side.shape[1] for side in ratings.features)
            fields["features"] = of_users, of_items
        problem = cls(*ratings.shape, 0.0, 1.0, discipline, **fields)
        _check(problem, workers)
        check_memory(f"{problem.users:,} users and {problem.items:,} items", BYTES * problem.size)
        if problem.loss != "squared-error":
            return problem
        mean, deviation = float(ratings.values.mean(dtype=np.float64)), float(ratings.values.std(dtype=np.float64))
        return dataclasses.replace(problem, mean=mean, scale=deviation or 1.0)

    @property
    def stride(self) -> int:
        """Length of a row in memory: the rank rounded up to whole cache lines, at least one."""
        return max(-(-self.rank // LANE), 1) * LANE

    @property
    def size(self) -> int:
        return sum(self._layout())

    @property
    def numbers(self) -> int:
        return self.rank + 1

    @property
    def locks(self) -> int:
        """Number of locks that workers take: one per user and item, or one per range of them (at most as many)."""
        return self.users + self.items if self.discipline == "aig" or self.order == "blocks" else 1

    @property
    def rows(self) -> tuple[int, int]:
        """Rows of parameters of users and of items: one for each of them, and for each of their features."""
        of_users, of_items = self.features or (0, 0)
        return self.users + of_users, self.items + of_items

    @property
    def rated(self) -> bool:
        """Whether the penalty of a rating depends on its user and item."""
        return self.penalty == "smoothed"

    @property
    def holds(self) -> bool:
        return super().holds or self.order == "blocks"

    @property
    def weights(self) -> tuple[float, float]:
        """Weights of the penalty in the user's units: ``l2`` of factors and of biases."""
        return self.l2 * self.scale, self.l2

    def _layout(self) -> list[int]:
        """Lengths of the four parts, each in whole cache lines."""
        lines = [-(-n // LANE) * LANE for n in self.rows]
        return [n * self.stride for n in self.rows] + lines

    def parameters(self, flat: Any) -> Parameters:
        """Named views of the flat array, or tensor."""
        p, q, b_u, _ = self._layout()
        users, items = self.rows
        return Parameters(flat[:p], flat[p : p + q], flat[p + q : p + q + users], flat[p + q + b_u :][:items])

    def factors(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Factors of both sides, (rows, rank) each, in the problem's units, as views."""
        parts = self.parameters(flat)
        return tuple(part.reshape(-1, self.stride)[:, : self.rank] for part in parts[:2])  # type: ignore[return-value]

    def start(self, flat: np.ndarray, seed: int) -> None:
        """Write the parameters that training starts from into an array of zeros: small random factors, no biases."""
        generator = np.random.default_rng(seed)
        rated = self.loss == "squared-error"
        for part in self.factors(flat):
            part[:] = generator.normal(0, SMALL if rated else SPREAD, part.shape)
            if rated and not self.biases:
                part[:, 0] += LEVEL

    def views(self, flat: np.ndarray) -> Solution:
        """Factors of both sides, (rows, rank), and biases, (rows,), in the problem's units, as views."""
        p, q = self.factors(flat)
        return p, q, *self.parameters(flat)[2:]

    @property
    def units(self) -> tuple[np.float32, ...]:
        """The user's unit of each part of a solution, in the problem's own."""
        root, scale = np.float32(np.sqrt(self.scale)), np.float32(self.scale)
        return root, root, scale, scale

    def in_units(self, solution: Iterable[np.ndarray]) -> Solution:
        """Such arrays in the user's units, as copies."""
        p, q, b, c = (np.ascontiguousarray(part * unit) for part, unit in zip(solution, self.units, strict=True))
        return p, q, b, c

    def solution(self, flat: np.ndarray) -> Solution:
        """Factors of both sides, (rows, rank), and biases, (rows,), as copies, in the user's units."""
        return self.in_units(self.views(flat))

    def adopt(self, flat: np.ndarray, solution: tuple[Any, ...]) -> None:
        """Write such arrays into the flat array, in the places of the first users and items."""
        for view, unit, values in zip(self.views(flat), self.units, solution):
            view[: len(values)] = values / unit

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Convert values to the problem's units, float32."""
        return ((values.astype(np.float64) - self.mean) / self.scale).astype(np.float32)

    def lay_out(
        self, ratings: Ratings, cache_bytes: int, workers: int, seed: int, grid: tuple[int, int] | None = None
    ) -> tuple[Tiles, dict[str, np.ndarray]]:
        """The order of training ratings, and the arrays that :meth:`data` takes.

        ``cache_bytes`` is the size of a core's own cache, ``grid`` the grid of tiles if a run is resumed.
        """
        users, items, values = ratings.users, ratings.items, self.encode(ratings.values)
        if self.order == "file":
            tiles, arrays = file_order(users, items, values)
        else:
            fenced = self.order == "blocks"
            sizes = ratings.shape, 4 * self.stride, cache_bytes, workers, seed, fenced, grid, self.parts
            tiles, arrays = tile(users, items, values, *sizes)
        return tiles, arrays | self._per_row(ratings)

    def _per_row(self, ratings: Ratings) -> dict[str, np.ndarray]:
        """Arrays by user and by item, as far as they are needed."""
        arrays: dict[str, np.ndarray] = {}
        if self.rated:
            for name, degree in zip(("user_rates", "item_rates"), rows_of(ratings.shares, ratings.degrees())):
                arrays[name] = 1.0 + SMOOTHING / np.maximum(degree, 1)
        if self.loss != "squared-error":
            begin, items = ratings.user_lists()
            arrays |= {"seen_begin": begin, "seen_marks": np.zeros(len(items), np.uint64)}
            completion.mark(begin, items, arrays["seen_marks"])
        if ratings.shares is not None:
            users, items = ratings.shares
            arrays["sums_begin"] = np.append(users.indptr, users.nnz + items.indptr[1:])
            arrays["sums_rows"] = np.append(users.indices, items.indices)
            arrays["sums_shares"] = np.append(users.data, items.data)
        return {name: arrays.get(name, np.empty(0)).astype(kind, copy=False) for name, kind in PER_ROW.items()}

    def data(self, arrays: Mapping[str, np.ndarray]) -> Data:
        return Data(**{name: arrays[name] for name in Data._fields})

    def scratch(self, *_: Any) -> tuple[np.ndarray, ...]:
        """A worker's progress in its tile; the items of a rating's pairs, and their steps; and sums of rows."""
        pairs = 1 if self.loss == "squared-error" else 1 + self.negatives
        sums = (1 + pairs) * self.stride if self.features else 0
        moves, rows = np.zeros(pairs, np.float32), np.zeros(sums, np.float32)
        return np.zeros(STATE, np.int64), np.zeros(pairs, np.int32), moves, rows

    def shuffle(self, blocks: np.ndarray, order: Tiles, seed: int, epoch: int) -> None:
        """Fill ``blocks`` (tiles,) int32 with an epoch's sequence of tiles: diagonals of the grid, permuted.

        No two tiles of a diagonal share users or items, so concurrent workers are seldom at the same rows, whether
        locks keep them apart (order "blocks") or not; with tiles in random order they shared some most of the time.

        With P ``parts`` an epoch has P turns, and every P-th tile is of the same part of the users; in a turn, all of
        these are of one part of the items (:func:`part_of`), in diagonals too.
        """
        blocks[:] = np.arange(len(blocks))
        if not order.shuffled:
            return
        generator, parts = np.random.default_rng((seed, epoch)), self.parts
        rows, columns = ([generator.permutation(n // parts) for _ in range(parts)] for n in order.grid)
        across, down = len(columns[0]), len(rows[0])
        turn, place = np.divmod(blocks, across * down * parts)
        place, users = np.divmod(place, parts)
        diagonal, k = np.divmod(place, min(across, down))
        shifted = (k + diagonal) % max(across, down)
        row, column = (shifted, k) if down >= across else (k, shifted)
        items = part_of(users, turn, epoch, parts)
        row, column = users * down + np.array(rows)[users, row], items * across + np.array(columns)[items, column]
        blocks[:] = row * order.grid[1] + column

    def rows_of_parts(self, data: Data, order: Tiles) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The users, and the items, of each part that have ratings."""
        down, across = (n // self.parts for n in order.grid)
        rated_rows: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        tiles = np.arange(order.n_chunks).reshape(order.grid)
        for part in range(self.parts):
            of = tiles[part * down : (part + 1) * down], tiles[:, part * across : (part + 1) * across]
            for side, numbers in enumerate((data.users, data.items)):
                rated = np.zeros((self.users, self.items)[side], bool)
                for row in of[side]:  # whose ratings are neighbours in memory
                    rated[numbers[data.begin[row[0]] : data.begin[row[-1] + 1]]] = True
                rated_rows[side].append(np.flatnonzero(rated))
        return rated_rows

    def copy_out(self, flat: np.ndarray, side: int, rows: np.ndarray) -> np.ndarray:
        """Factors and biases of some users (``side`` 0) or items (1): (rows * numbers,) float32."""
        bias = self.parameters(flat)[2 + side]
        return np.concatenate([self.factors(flat)[side][rows], bias[rows, None]], axis=1).ravel()

    def copy_in(self, flat: np.ndarray, side: int, rows: np.ndarray, values: np.ndarray) -> None:
        values = values.reshape(len(rows), self.numbers)
        self.factors(flat)[side][rows] = values[:, :-1]
        self.parameters(flat)[2 + side][rows] = values[:, -1]

    def prepare(
        self, shared: Shared, scratch: tuple[np.ndarray, ...], data: Data, part: OrderSlice, step: Step
    ) -> Callable[[], int]:
        order = part.order
        plan = Plan(
            **part.facts(),
            n_chunks=int(shared.control[END]) or order.n_chunks,
            columns=order.grid[1],
            n_users=self.users,
            n_items=self.items,
            start=part.start,
            step=step,
            l2=self.l2,
            negatives=self.negatives,
        )
        scratch[0][:] = 0
        lanes = (0,) * (self.stride // LANE)
        flags = self.rated, self.biases, self.order == "blocks", self.features is not None
        codes = LOSSES[self.loss], DISCIPLINES[self.discipline]
        epoch = completion.epoch(lanes, *codes, *map(int, flags))
        kernel = partial(epoch, shared.parameters, data, shared.control, shared.locks, plan, *scratch)
        return counted(kernel, shared.control, part.worker)


def _check(problem: CompletionProblem, workers: int) -> None:
    discipline, loss, order = problem.discipline, problem.loss, problem.order
    if problem.features is not None and problem.parts > 1:
        raise UsageError("side features need rows that all machines share; got exchange rotation: choose another")
    if problem.features is not None and (discipline not in PLAIN or order == "blocks"):
        raise UsageError(
            f"side features need discipline serial or hogwild, and order shuffled or file; got {discipline}, {order}"
        )
    if order == "blocks":
        if discipline not in FENCED:
            raise UsageError(
                f"order blocks needs discipline {', '.join(FENCED[:-1])} or {FENCED[-1]}; got {discipline}: "
                "choose one of these, or order shuffled"
            )
        if loss != "squared-error":
            raise UsageError(
                f"order blocks does not go with loss {loss}, which draws items from everywhere: use order shuffled"
            )
        if 2 * workers > min(problem.users, problem.items):
            raise UsageError(
                f"order blocks needs {2 * workers} users and items for {workers} workers; got {problem.users} and "
                f"{problem.items}: use fewer workers, or order shuffled"
            )
