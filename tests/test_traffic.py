"""What exchanges send, against a table that was computed by hand, and whether more machines can pay."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.data.rows.source import open_data
from hogwild.methods import Wire
from hogwild.training.traffic import DegreeCounts, SharedWork, moved, timed_epoch, traffic, verdict

GBIT = Wire(2e-4, 1e9 / 8)
#: Data: features, rows and nonzeros a row; and what is traded: share moved, MB an epoch, bytes a nonzero, nonzeros/s.
TABLE = {
    (47_000, 781_000, 73): {
        "server:push=100": (0.07, 216, 3.8, 0.03e9),
        "averaging:period=10000": (0.94, 14.8, 0.26, 0.48e9),
        "averaging": (1.00, 0.19, 0.003, 38e9),
    },
    (1 << 24, 45_800_000, 39): {
        "server:push=1000": (0.001, 8030, 4.5, 0.03e9),
        "server:push=100000": (0.066, 4060, 2.3, 0.06e9),
        "averaging": (1.00, 67, 0.04, 3.3e9),
    },
    (1 << 24, 4_370_000_000, 39): {"averaging:period=10000000": (0.92, 29_300, 0.17, 0.73e9)},
}


def zipf(width: int, rows: int, mean: int) -> DegreeCounts:
    """Features in shares c, c/2, c/3, ... of the rows, at most in all, ``mean`` of them in a row; in bins."""
    edges = np.unique(np.geomspace(1, width + 1, 3000).astype(int))
    features, share = np.diff(edges), np.diff(np.log(edges)) / np.diff(edges)
    c = 1.0
    for _ in range(30):
        c *= mean / (features * np.minimum(c * share, 1)).sum()
    return DegreeCounts(rows * np.minimum(c * share, 1), features)


@pytest.mark.parametrize("data", TABLE)
def test_bytes_are_those_of_the_table(data: tuple[int, int, int]) -> None:
    width, rows, mean = data
    load = SharedWork(width, rows, rows * mean, 1.0, 1, GBIT)
    found = {each.exchange: each for each in traffic(load, zipf(*data))}
    for exchange, (share, megabytes, per_nonzero, most) in TABLE[data].items():
        each = found[exchange]
        # to the digits that the table has
        assert each.moved == pytest.approx(share, rel=0.06, abs=0.004), exchange
        assert 1e-6 * each.bytes == pytest.approx(megabytes, rel=0.08)
        assert each.per_nonzero == pytest.approx(per_nonzero, rel=0.15)
        assert each.most == pytest.approx(most, rel=0.2)


def test_weights_moved_follow_from_the_degrees() -> None:
    assert moved(zipf(47_000, 781_000, 73), 781_000, 1000) == pytest.approx(0.37, abs=0.01)
    assert moved(zipf(1 << 24, 45_800_000, 39), 45_800_000, 1_000_000) == pytest.approx(0.35, abs=0.01)
    rng = np.random.default_rng(0)
    X = rng.random((4000, 50)) < np.linspace(0, 0.2, 50)  # one feature occurs in no row
    X[:, -1] = True
    seen = np.mean([X[rng.integers(4000, size=30)].any(axis=0).mean() for _ in range(300)])
    assert moved(DegreeCounts.of(X.sum(axis=0)), 4000, 30) == pytest.approx(seen, abs=0.01)
    assert moved(DegreeCounts.of(np.zeros(0)), 0, 10) == 0


def test_time_of_an_epoch_by_hand() -> None:
    load = SharedWork(1000, 40_000, 400_000, 8.0, 4, Wire(0.5, 1e3))  # a kilobyte a second
    found = {each.exchange: each for each in traffic(load, DegreeCounts.of(np.full(1000, 40_000)))}
    assert found["averaging"].seconds == pytest.approx(2 + 2 * 0.5 + 1.5 * 4)
    assert found["averaging:period=1000"].seconds == pytest.approx(2 + 10 * (2 * 0.5 + 1.5 * 4))
    assert found["averaging:period=1000"].bytes == 10 * 4000
    # ten messages of 10 entries to 3 others, and then all weights; the sending takes less than the training
    assert found["gossip:period=1000"].seconds == pytest.approx(2 + 3 * 4 + 0.5)


@pytest.mark.parametrize(
    ("seconds", "bandwidth", "said"),
    [(60.0, 1e9, "can pay: "), (0.1, 1e9, "do not pay for so few data"), (60.0, 1e2, "cannot pay over this link")],
)
def test_verdict(seconds: float, bandwidth: float, said: str) -> None:
    load = SharedWork(50_000, 1_000_000, 70_000_000, seconds, 2, Wire(2e-4, bandwidth))
    found = traffic(load, zipf(50_000, 1_000_000, 70))
    assert f"More machines {said}" in verdict(load, found)
    assert "--exchange averaging " in verdict(load, found)


def test_an_epoch_is_timed() -> None:
    rows = open_data("synthetic:rcv1?rows=300&features=200&nnz=5")
    found = timed_epoch(rows, "log")
    assert found.seconds > 0
    assert rows.width < found.width <= rows.width + 32  # with the intercept, in whole cache lines
    assert "threads" in found.how or "one thread" in found.how
