"""``hogwild warm-up``: compiles the kernels of the usual runs in advance, so that nobody waits for them later.

Each part is a tiny run of something users do, in its own interpreter, with as many at a time as there are cores: Numba
compiles under one lock, so threads would not help. What a part compiles stays in the kernel cache, which the command
and the library share. A list of kernels and their types would have to follow every change; a run needs no such list.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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


def _train(name: str = "", workers: int = 2, **options: Any) -> None:
    """Train on generated data of a small size, or on the text, and on a part that is held out evaluate."""
    from hogwild.data.ratings.source import open_ratings
    from hogwild.data.rows.source import open_data
    from hogwild.training.run import train

    source = f"synthetic:{name}" if name else io.BytesIO(sample_text())
    data: Any = (open_ratings if "problem" in options else open_data)(source)
    rows, test = data.split(0.25, 0)
    train(rows, test, epochs=2, workers=workers, **options).finish()


def _l2() -> None:
    """Choose l2 for two classes and for more, with weights that the cache holds and with others."""
    from hogwild import machine
    from hogwild.config import TrainConfig
    from hogwild.data.rows.source import open_data
    from hogwild.problems.linear.options import L2_PATH
    from hogwild.problems.linear.problem import OUTGROWN
    from hogwild.training.l2_choice import choose_l2

    far = OUTGROWN * machine.l2_bytes() // 32  # weights of 16 candidates take twice what the cache holds
    for width in (WIDTH, far):
        for classes, schedule in ((2, "epoch"), (2, "rows"), (4, "epoch")):
            rows = open_data(f"synthetic:rcv1?rows={ROWS}&features={width}&nnz=4&classes={classes}")
            config = TrainConfig(l2_path=L2_PATH, epochs=1, schedule=schedule)
            choose_l2(config, rows)  # each row held out once
            choose_l2(config, *rows.split(0.25, 0))
    choose_l2(TrainConfig(l2_path=L2_PATH), open_data(io.BytesIO(sample_text())))  # by optima, as they are and scaled


def _estimators() -> None:
    import numpy as np
    import scipy.sparse

    from hogwild.estimators import HogwildClassifier, HogwildRegressor

    X = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    for data in (X, scipy.sparse.csr_matrix(X)):
        for classes in (2, 3):
            for loss in ("hinge", "log_loss"):
                HogwildClassifier(loss=loss).fit(data, np.arange(ROWS) % classes).predict(data)
        HogwildRegressor().fit(data, X[:, 0]).predict(data)


TEXT = f"rcv1?rows={ROWS}&features={WIDTH}&nnz=6"
PARTS: dict[str, Callable[[], None]] = {
    "tiered": lambda: _train(TEXT, discipline="tiered"),
    "long": lambda: _train(TEXT, discipline="tiered", schedule="rows"),
    "estimators": _estimators,
    "text": lambda: _train(workers=1),
    "l2": _l2,
    "labels": lambda: _train(TEXT, discipline="hogwild"),
    "binary": lambda: _train(f"{TEXT}&values=binary", discipline="hogwild"),
    "classes": lambda: _train(f"{TEXT}&classes=4", discipline="hogwild"),
    "regression": lambda: _train(f"{TEXT}&task=regress", discipline="hogwild", loss="squared-error"),
    "ratings": lambda: _train("ratings?users=40&items=20&ratings=400", problem="completion"),
}
