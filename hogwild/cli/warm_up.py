"""``hogwild warm-up``: compiles the kernels of the usual runs in advance, so that nobody waits for them later.

Each part is some tiny runs of what users do, in its own interpreter, with as many at a time as there are cores: Numba
compiles under one lock, so threads would not help. What a part compiles stays in the kernel cache, which the command
and the library share. A list of kernels and their types would have to follow every change; a run needs no such list.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from hogwild import machine
from hogwild.cli.display import Display, bar
from hogwild.cli.options import Quiet
from hogwild.errors import TrainingError

ROWS, WIDTH = 64, 32  # of a part's data
#: Runs commands of hogwild, its arguments.
COMMANDS = """
import sys
from hogwild.__main__ import main
sys.exit(max(main([*words.split(), "--no-cache", "--quiet"]) for words in sys.argv[1:]))
"""
ESTIMATORS = f"""
import numpy as np, scipy.sparse
from hogwild import HogwildClassifier, HogwildRegressor
X = np.random.default_rng(0).standard_normal(({ROWS}, {WIDTH})).astype(np.float32)
for data in (X, scipy.sparse.csr_matrix(X)):
    for classes in (2, 3):
        for loss in ("hinge", "log_loss"):
            HogwildClassifier(loss=loss).fit(data, np.arange({ROWS}) % classes).predict(data)
    HogwildRegressor().fit(data, X[:, 0]).predict(data)
"""


def warm_up(quiet: Quiet = False) -> None:
    """Compile the kernels of the usual runs, so that the first of them need not wait."""
    display, began = Display(sys.stdout, quiet), time.perf_counter()
    display.say("compiling kernels: once on this machine, which takes up to some minutes")
    done: list[str] = []

    def compile_part(name: str, code: str, commands: list[str]) -> None:
        command = [sys.executable, "-W", "ignore", "-c", code, *commands]
        child = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if child.returncode != 0:
            reason = child.stderr.strip().rpartition("\n")[2] or f"status {child.returncode}"
            raise TrainingError(f"warm-up of {name} failed: {reason}")
        done.append(name)

    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    with tempfile.NamedTemporaryFile("w", suffix=".svm") as file:
        file.write(sample_text())
        file.flush()
        parts = [(name, COMMANDS, commands) for name, commands in trainings(file.name).items()]
        parts.append(("estimators", ESTIMATORS, []))
        try:
            with display.live(lambda: f"compiling {bar(len(done) / len(parts))} {len(done)} of {len(parts)}"):
                for part in [pool.submit(compile_part, *part) for part in parts]:
                    part.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure or Ctrl-C none is begun any more
    display.say(f"compiled in {time.perf_counter() - began:.1f} s")


def sample_text() -> str:
    """Return rows of svmlight text, every second of them binary."""
    rows = (f"{i % 2} {1 + i % WIDTH}:{1 if i % 2 else 0.5} {1 + WIDTH + i % 7}:1" for i in range(ROWS))
    return "\n".join(rows) + "\n"


def trainings(text: str) -> dict[str, list[str]]:
    """Return commands by the names of parts; those on ``text`` are a user's, whose penalty is chosen."""
    from hogwild.problems.linear.problem import OUTGROWN

    made = f"train synthetic:rcv1?rows={ROWS}&nnz=4&features="
    race = "--epochs 2 --holdout 0.25 --l2 1e-5 -w 2 --discipline"
    narrow = f"{made}{WIDTH}"
    widths = WIDTH, OUTGROWN * machine.l2_bytes() // 32  # the lanes of 16 candidates stay in the cache, or do not
    kinds = "&classes=2", "&classes=2 --schedule rows", "&classes=4"
    lanes = [f"{made}{width}{kind} -w 1 --epochs 1 --l2 auto" for width in widths for kind in kinds]
    return {
        "text": [f"train {text} -w 1 --l2 auto", f"train {text} -w 1 --holdout 0.25 --l2 auto"],
        "lanes": lanes + [f"{command} --holdout 0.25" for command in lanes],
        "tiered": [f"{narrow} {race} tiered", f"{narrow} {race} tiered --schedule rows"],
        "labels": [f"{narrow} {race} hogwild"],
        "binary": [f"{narrow}&values=binary {race} hogwild"],
        "classes": [f"{narrow}&classes=4 {race} hogwild"],
        "regression": [f"{narrow}&task=regress --loss squared-error {race} hogwild"],
        "ratings": ["train synthetic:ratings?users=40&items=20&ratings=400 --epochs 2 --holdout 0.25 -w 2"],
    }
