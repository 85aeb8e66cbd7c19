"""Data and helpers of several tests: sets small enough for any machine, and epochs long enough to be disturbed."""

from __future__ import annotations

import contextlib
import importlib
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.data.rows.container import Rows
from hogwild.data.rows.store import open_store, save_store
from hogwild.problems.linear.objective import Objective

CLOCKS = re.compile("run|load|second")  # facts that differ from run to run
QUIET = {"step": 0.5, "host": "threads", "workers": 1}  # no probing, no torch


def toy(n: int = 2000, width: int = 304, nnz: int = 8, seed: int = 0, classes: int = 2, noise: float = 0.1) -> Rows:
    """A linear model's labels: -1 and +1, or 0 to ``classes - 1``; ``classes=0`` leaves the margins as targets."""
    rng = np.random.default_rng(seed)
    stratum = width // nnz  # one feature from each, so that they ascend without repeats
    indices = np.arange(nnz) * stratum + rng.integers(0, stratum, (n, nnz))
    values = rng.standard_normal((n, nnz)).astype(np.float32)
    margins = (rng.standard_normal((max(classes, 1), width))[:, indices] * values).sum(axis=2)
    margins += noise * rng.standard_normal(margins.shape)
    targets = margins[0] if classes == 0 else np.sign(margins[0]) if classes == 2 else margins.argmax(axis=0)
    return Rows(np.arange(n + 1) * nnz, indices.ravel(), values.ravel(), targets, width)


def popular(n: int = 3000, width: int = 240, seed: int = 0, weighted: bool = False, **options: Any) -> Rows:
    """``toy`` rows of features that differ in popularity, whose ranks are not their numbers, and five that none has."""
    X, y = toy(n, width, 8, seed, **options).to_scipy()
    rng = np.random.default_rng(seed)
    X = X.copy()
    X.data[rng.random(X.nnz) > rng.random(width)[X.indices]] = 0
    X.eliminate_zeros()
    weights = np.where(rng.random(n) < 0.2, 0.0, rng.random(n)) if weighted else None
    return Rows.from_scipy(X, y, weights, width + 5)


def campaign(name: str) -> Any:
    """A module of ``scripts/campaigns``, which imports what lies beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1] / "scripts" / "campaigns")
        return importlib.import_module(f"scripts.campaigns.{name}")


def line_of(error: Any, call: Callable[..., Any], *given: Any, **options: Any) -> str:
    """The one line of the error that this call has to end in."""
    with pytest.raises(error) as caught:
        call(*given, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def entries(rows: Rows) -> list[dict[int, float]]:
    """Each row as a dict; the indices ascend."""
    found = []
    for first, last in zip(rows.begin, rows.end):
        assert (np.diff(rows.indices[first:last]) > 0).all()
        found.append(dict(zip(rows.indices[first:last].tolist(), rows.values[first:last].tolist())))
    return found


def equal(one: Any, other: Any) -> bool:
    """Whether two sets of rows or of ratings hold the same numbers and names."""
    one, other = (data.compact() if isinstance(data, Rows) else data for data in (one, other))
    arrays, facts = "begin end indices values targets weights users items times", "shape hash_bits user_ids item_ids"
    return all(np.array_equal(getattr(one, name, None), getattr(other, name, None)) for name in arrays.split()) and all(
        getattr(one, name, None) == getattr(other, name, None) for name in facts.split()
    )


def long_epochs(folder: Path, repeats: int = 1000) -> Rows:
    """A thousand rows of 500 nonzeros in a store, each taken ``repeats`` times: half a billion nonzeros in 2 MB."""
    path = folder / "long.store"
    rows = open_store(path) if path.exists() else open_store(save_store(toy(1000, 5000, 500), path))
    return rows.select(np.tile(np.arange(len(rows)), repeats))


def start(rows: Rows, **options: Any) -> hogwild.Run:
    """A run that judges itself by the first thousand rows only, for sets with long epochs."""
    run = hogwild.train(rows, **({"step": 1e-3, "l2": 0.0} | options))
    p = run.problem
    run._case._objectives = {"train": Objective(rows.block(0, 1000), p.loss, p.loss_param, labels=p.labels)}
    return run


def slowed(patch: pytest.MonkeyPatch, kind: Any, seconds: float = 5e-5, few: int = 50) -> None:
    """Have workers in threads rest so many seconds for each example of a problem of this class, after every few."""
    prepare = kind.prepare

    def slow(self: Any, shared: Any, scratch: Any, data: Any, part: Any, step: Any) -> Callable[[], int]:
        work = prepare(self, shared, scratch, data, part._replace(limit=min(part.limit, few)), step)

        def turn() -> int:
            done, last = 0, few
            while last == few and done < part.limit:
                last = work()
                done += last
                time.sleep(seconds * last)
            return done

        return turn

    patch.setattr(kind, "prepare", slow)


def when(condition: Callable[[], Any], action: Callable[[], Any], seconds: float = 120.0) -> threading.Thread:
    """Start a thread that does ``action`` as soon as ``condition`` holds."""

    def watch() -> None:
        if until(condition, seconds):
            action()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], Any], seconds: float = 120.0) -> bool:
    """Wait until ``condition`` holds; whether it ever did."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def stopped_inside(begin: Callable[[], hogwild.Run], epochs: int, examples: int) -> hogwild.Run:
    """A run that was stopped after so many epochs and some more ``examples``; begun again where its epoch was over
    before the thread that stops it had its turn.
    """
    for _ in range(20):
        run, over = begin(), threading.Event()
        for _ in range(epochs + 1):
            next(run)

        def inside(run: hogwild.Run = run, over: threading.Event = over) -> bool:
            progress = run.progress()
            return over.is_set() or (progress.epoch == epochs and progress.rows_done > examples)

        stopping = when(inside, run.stop)
        row = next(run)
        over.set()
        stopping.join()
        if epochs < row["epoch"] < epochs + 1:
            assert row["status"] == "interrupted"
            return run
        run.close()
    raise AssertionError("no epoch was long enough to be stopped")


def resumed(
    begin: Callable[..., hogwild.Run], folder: Path, epochs: int, some: int, inside: int | None = None
) -> tuple[hogwild.Run, hogwild.Run, hogwild.Run]:
    """A whole run, one that ends after ``some`` epochs or after so many examples ``inside`` the second, and one that
    goes on from there, which has to be the same as the whole.
    """
    whole = begin(epochs=epochs)
    whole.finish()
    if inside is None:
        part = begin(epochs=some, checkpoint=folder)
        part.finish()
    else:
        part = stopped_inside(lambda: begin(epochs=epochs, checkpoint=folder), 1, inside)
        part.close()
    again = begin(epochs=epochs, checkpoint=folder, resume=True)
    again.finish()
    same(whole, again)
    return whole, part, again


def same(whole: hogwild.Run, parts: hogwild.Run) -> None:
    """Both ended with the same parameters, to the bit, and their rows agree but for clocks."""
    np.testing.assert_array_equal(whole.engine.job.flat, parts.engine.job.flat)
    arrays, others = (run.model.to_file()[0] for run in (whole, parts))
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name])
    known = [{name: value for name, value in row.items() if not CLOCKS.search(name)} for row in whole.history]
    assert known == [
        {name: value for name, value in row.items() if not CLOCKS.search(name)}
        for row in parts.history
        if row["status"] == "ok"
    ]


@contextlib.contextmanager
def limited(name: int, most: int) -> Iterator[None]:
    """A limit of this process, ``resource.RLIMIT_...``; a file that would grow beyond it is an error and no signal."""
    limits, before = resource.getrlimit(name), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(name, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(name, limits)
        signal.signal(signal.SIGXFSZ, before)


def living() -> set[threading.Thread]:
    """All that live: what a test leaves are those that were not there before, for others may end meanwhile."""
    return set(threading.enumerate())


def memory(pid: int | str = "self", fields: tuple[str, ...] = ("RssAnon", "RssShmem")) -> int:
    """Bytes of a process that are not pages of files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(facts[field].split()[0]) << 10 for field in fields)
