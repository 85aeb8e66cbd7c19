"""``hogwild warm-up``: compiles the kernels of the usual runs in advance, so that nobody waits for them later.

Each part is a tiny run of something users do, in its own interpreter, with as many at a time as there are cores: Numba
compiles under one lock, so threads would not help. What a part compiles stays in the kernel cache, which the command
and the library share. A list of kernels and their types would have to follow every change; a run needs no such list.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from hogwild.cli.display import Display, bar
from hogwild.cli.options import Quiet
from hogwild.errors import TrainingError

CODE = "import sys; from hogwild.cli.warm_up import PARTS; PARTS[sys.argv[1]]()"
ROWS, WIDTH = 64, 32  # of a part's data


def warm_up(quiet: Quiet = False) -> None:
    """Compile the kernels of the usual runs, so that the first of them need not wait."""
    display, began = Display(sys.stdout, quiet), time.perf_counter()
    display.say("compiling kernels: once on this machine, which takes up to some minutes")
    done: list[str] = []

    def compile_part(name: str) -> None:
        command = [sys.executable, "-W", "ignore", "-c", CODE, name]
        child = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if child.returncode != 0:
            reason = child.stderr.strip().rpartition("\n")[2] or f"status {child.returncode}"
            raise TrainingError(f"warm-up of {name} failed: {reason}")
        done.append(name)

    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        with display.live(lambda: f"compiling {bar(len(done) / len(PARTS))} {len(done)} of {len(PARTS)}"):
            for part in [pool.submit(compile_part, name) for name in PARTS]:
                part.result()
    finally:
        pool.shutdown(cancel_futures=True)  # after a failure or Ctrl-C none is begun any more
    display.say(f"compiled in {time.perf_counter() - began:.1f} s")


# ---- the parts


def sample_text() -> bytes:
    """Return rows of svmlight text, every second of them binary."""
    rows = (f"{i % 2} {1 + i % WIDTH}:{1 if i % 2 else 0.5} {1 + WIDTH + i % 7}:1" for i in range(ROWS))
    return "\n".join(rows).encode() + b"\n"


def _train(rows: object, test: object = None, **options: object) -> None:
    from hogwild.training.run import train

    train(rows, test, epochs=2, **options).finish()  # type: ignore[call-overload]


def _from_text() -> None:
    """Read svmlight text, hold rows out, train with one worker, predict."""
    import io

    from hogwild.data.rows.source import open_data

    rows, test = open_data(io.BytesIO(sample_text())).split(0.25, 0)
    _train(rows, test, workers=1)


def _labels(discipline: str = "hogwild", binary: bool = False, classes: int = 2, **options: object) -> None:
    import numpy as np
    import scipy.sparse

    rng = np.random.default_rng(0)
    X = scipy.sparse.random(ROWS, WIDTH, 0.2, "csr", np.float32, rng)
    if binary:
        X.data[:] = 1
    y = np.arange(ROWS) % classes
    _train((X[16:], y[16:]), (X[:16], y[:16]), workers=2, discipline=discipline, **options)


def _l2() -> None:
    """Choose l2 for two classes and for more, with weights that the cache holds and with others."""
    import numpy as np
    import scipy.sparse

    from hogwild import machine
    from hogwild.config import TrainConfig
    from hogwild.data.rows.container import Rows
    from hogwild.problems.linear.options import L2_PATH
    from hogwild.problems.linear.problem import OUTGROWN
    from hogwild.training.l2_choice import choose_l2

    far = OUTGROWN * machine.l2_bytes() // 32  # weights of 16 candidates take twice what the cache holds
    for width in (WIDTH, far):
        X = scipy.sparse.random(ROWS, width, 4 / width, "csr", np.float32, np.random.default_rng(0))
        for classes, schedule in ((2, "epoch"), (2, "rows"), (4, "epoch")):
            rows = Rows.from_scipy(X, np.arange(ROWS) % classes)
            config = TrainConfig(l2_path=L2_PATH, epochs=1, schedule=schedule)
            choose_l2(config, rows)  # each row held out once
            choose_l2(config, *rows.split(0.25, 0))
    X = scipy.sparse.random(ROWS, WIDTH, 4 / WIDTH, "csr", np.float32, np.random.default_rng(0))
    choose_l2(TrainConfig(l2_path=L2_PATH), Rows.from_scipy(X, np.arange(ROWS) % 2))  # by optima


def _ratings() -> None:
    from hogwild.data.ratings.source import open_ratings

    rows, test = open_ratings("synthetic:ratings?users=40&items=20&ratings=400").split(0.1, seed=0)
    _train(rows, test, problem="completion", workers=2)


def _estimators() -> None:
    import numpy as np
    import scipy.sparse

    from hogwild.estimators import HogwildClassifier, HogwildRegressor

    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    for data in (X, scipy.sparse.csr_matrix(X)):
        for classes in (2, 3):
            for loss in ("hinge", "log_loss"):
                HogwildClassifier(loss=loss).fit(data, np.arange(ROWS) % classes).predict(data)
        HogwildRegressor().fit(data, X[:, 0]).predict(data)


PARTS: dict[str, Callable[[], None]] = {
    "tiered": lambda: _labels("tiered"),
    "long": lambda: _labels("tiered", schedule="rows"),
    "estimators": _estimators,
    "text": _from_text,
    "l2": _l2,
    "labels": _labels,
    "binary": lambda: _labels(binary=True),
    "classes": lambda: _labels(classes=4),
    "regression": lambda: _labels(loss="squared-error"),
    "ratings": _ratings,
}
