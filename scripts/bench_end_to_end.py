"""A long epoch from Enter to prompt, beside ``SGDClassifier`` on the loaded matrix, to the same held-out log loss.

    python scripts/bench_end_to_end.py --rows 2000000 [--repeats 3] [--workers 2] [--store DIR]

Nothing but the number of epochs is asked for: ``hogwild train STORE --epochs 1``, which opens the store, finds
its step, trains on four fifths of the rows and judges the model on the others; and the same from an interpreter that
has imported all it needs (``hogwild.train`` on the opened store, from call to last row). ``SGDClassifier`` has the same
l2 penalty and the rows in memory; it takes as many passes as it needs to reach our held-out loss, each number of them
fitted anew, and only the fit is on its clock. Repeats are interleaved, each a process of its own; the medians count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

L2, HELD, MOST = 1e-5, 0.2, 12  # penalty, share of the rows held out, passes

LIBRARY = """
import sys, time, hogwild
hogwild.train(hogwild.open_data("synthetic:rcv1?rows=200"), epochs=1, workers={workers}, schedule="rows").finish()
train, test = hogwild.open_data({store!r}).split({held}, seed=0)
begin = time.perf_counter()
run = hogwild.train(train, test, epochs=1, workers={workers})
run.finish()
seconds, last = time.perf_counter() - begin, run.history[-1]
print(seconds, last["test_loss"], last["train_seconds"])
"""

THEIRS = """
import sys, time, warnings, hogwild
import numpy as np
from sklearn.linear_model import SGDClassifier
train, test = hogwild.open_data({store!r}).split({held}, seed=0)
(X, y), (held, labels) = train.to_scipy(), test.to_scipy()
model = SGDClassifier(loss="log_loss", alpha={l2}, max_iter={passes}, tol=None, random_state={seed})
begin = time.perf_counter()
model.fit(X, y)
seconds = time.perf_counter() - begin
signs = np.where(labels == model.classes_[1], 1.0, -1.0)
print(seconds, np.logaddexp(0.0, -signs * model.decision_function(held)).mean())
"""


def command(store: Path, workers: int) -> list[float]:
    """Seconds from Enter to prompt, held-out loss, and seconds of training of the command."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.jsonl")
        words = ["train", str(store), "--holdout", f"{HELD}", "--epochs", "1", "-w", f"{workers}"]
        words += ["--l2", "1e-5", "--quiet"]  # SGDClassifier's, which chooses none either
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "hogwild", *words, "--json", str(rows)], check=True)
        seconds = time.perf_counter() - begin
        last = json.loads(rows.read_text().splitlines()[-1])
    return [seconds, last["test_loss"], last["train_seconds"]]


def child(program: str, **filled: object) -> list[float]:
    """What a program of the above prints."""
    for name, value in ({"held": HELD, "l2": L2} | filled).items():
        program = program.replace(f"{{{name}!r}}", repr(value)).replace(f"{{{name}}}", str(value))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


def passes_to(loss: float, store: Path) -> int:
    """The fewest passes after which ``SGDClassifier`` is at this held-out loss; too many where it never is."""
    for passes in range(1, MOST + 1):
        if child(THEIRS, store=str(store), passes=passes, seed=0)[1] <= loss:
            return passes
    return MOST + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--passes", type=int, help="Of SGDClassifier, where they are known.")
    parser.add_argument("--store", type=Path, help="A store of such rows; made if there is none.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = asked.store or Path(folder, "rows.store")
        if not store.exists():
            source = f"synthetic:rcv1?rows={asked.rows}"
            subprocess.run([sys.executable, "-m", "hogwild", "convert", source, str(store), "--quiet"], check=True)
        loss = command(store, asked.workers)[1]  # the first reads the store into memory
        passes = asked.passes or passes_to(loss, store)
        sides: dict[str, list[list[float]]] = {"command": [], "library": [], "SGDClassifier": []}
        for seed in range(asked.repeats):
            sides["command"].append(command(store, asked.workers))
            sides["library"].append(child(LIBRARY, store=str(store), workers=asked.workers))
            sides["SGDClassifier"].append(child(THEIRS, store=str(store), passes=min(passes, MOST), seed=seed))
    medians = {side: [statistics.median(each) for each in zip(*found)] for side, found in sides.items()}
    reached = f"{passes} passes" if passes <= MOST else f"{MOST} passes without reaching our held-out loss"
    for side, (seconds, held_out, *training) in medians.items():
        more = f", {training[0]:.2f} s of it training" if training else f", {reached}"
        ratio = medians["SGDClassifier"][0] / seconds
        print(f"{side:14} {seconds:6.2f} s, held-out loss {held_out:.5f}{more}; {ratio:.2f} times as fast")


if __name__ == "__main__":
    main()
