"""Whether runs that have to be reproducible still give the same bits: record them at one commit, check them at another.

    .venv/bin/python scripts/same_bits.py record bits.json     # at the commit before a change
    .venv/bin/python scripts/same_bits.py check bits.json      # after it, on the same machine

Every run has one worker, or is simulated, and a step of its own, so nothing but the code decides its result. The
model's arrays, the objectives of all rows and the history of staleness of each are hashed. The last bits of exp and log
belong to a processor and a C library, so a record is for the machine it was made on.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hogwild

Run = Callable[[], Any]
QUIET: dict[str, Any] = {"host": "threads", "workers": 1, "step": 0.1, "epochs": 3, "keep": "last"}


def digest(*parts: Any) -> str:
    """A hash of arrays, and of anything else by its representation."""
    found = hashlib.blake2b(digest_size=12)
    for part in parts:
        found.update(np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return found.hexdigest()


def arrays_of(model: Any) -> list[np.ndarray]:
    names = ("coef_", "intercept_", "user_factors", "item_factors", "user_bias", "item_bias", "x")
    return [getattr(model, name) for name in names if hasattr(model, name)]


def trained(data: Any, **options: Any) -> str:
    """The result of one run."""
    run = hogwild.train(data, **(QUIET | options))
    objectives = [row["objective"] for row in run]
    stale = [(row["staleness_mean"], row["staleness_max"], row["lost_updates"]) for row in run.history]
    return digest(*arrays_of(run.model), objectives, stale, run.staleness)


def resumed(data: Any, **options: Any) -> str:
    """The result of a run that is ended after an epoch and goes on from its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        hogwild.train(data, checkpoint=folder, **(QUIET | options | {"epochs": 1})).finish()
        run = hogwild.train(data, checkpoint=folder, resume=True, **(QUIET | options))
        run.finish()
        return digest(*arrays_of(run.model), [row["objective"] for row in run.history])


def module(**options: Any) -> str:
    """A small network on generated rows."""
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3))
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((500, 12)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 3, 500))
    run = hogwild.train_module(network, "cross-entropy", (x, y), **(QUIET | {"batch": 32} | options))
    run.finish()
    state = [*run.model.arrays.values()]
    return digest(*state, [row["objective"] for row in run.history])


def fitted(kind: str, x: Any, y: Any, **options: Any) -> str:
    """An estimator."""
    estimator = getattr(hogwild, kind)(n_jobs=1, random_state=0, **options).fit(x, y)
    return digest(estimator.coef_, estimator.intercept_, estimator.n_iter_)


def dense(classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 10))
    scores = x @ rng.standard_normal((10, max(classes, 1))) + rng.standard_normal((300, max(classes, 1)))
    return x, scores[:, 0] if classes == 0 else scores.argmax(axis=1) if classes > 2 else (scores[:, 0] > 0) * 1


def runs() -> Iterator[tuple[str, Run]]:
    """Names, and what they run."""
    text = hogwild.open_data("synthetic:rcv1?rows=3000&features=800&nnz=20")
    wide = hogwild.Rows.from_scipy(*dense(4))
    real = hogwild.Rows.from_scipy(*dense(0))
    ratings = hogwild.open_ratings("synthetic:ratings?users=300&items=200&ratings=6000")
    graph = hogwild.open_graph("synthetic:grid?side=24")
    linear: dict[str, tuple[Any, dict[str, Any]]] = {
        "log": (text, {}),
        "hinge, l1": (text, {"loss": "hinge", "l1": 1e-4}),
        "no penalty": (text, {"l2": 0.0}),
        "adagrad": (text, {"adagrad": True}),
        "inverse": (text, {"schedule": "inverse"}),
        "normalised, file order": (text, {"normalize": "l2", "order": "file", "intercept": False}),
        "four classes": (wide, {"step": 0.02}),
        "softmax": (wide, {"loss": "softmax", "step": 0.02}),
        "huber": (real, {"loss": "huber", "step": 0.01}),
    }
    for name, (data, options) in linear.items():
        yield f"linear, {name}", lambda d=data, o=options: trained(d, **o)
        yield f"linear, {name}, resumed", lambda d=data, o=options: resumed(d, **o)
    for exchange in ("averaging", "one-shot-averaging"):
        yield f"linear, {exchange}", lambda e=exchange: trained(text, exchange=e)
        yield f"linear, {exchange}, resumed", lambda e=exchange: resumed(text, exchange=e)
        yield f"completion, {exchange}", lambda e=exchange: trained(ratings, problem="completion", rank=8, exchange=e)
    for discipline in ("hogwild", "atomic", "aig", "locked", "tiered", "round-robin"):
        virtual = {"host": "simulator", "workers": 5, "discipline": discipline}
        yield f"simulated, {discipline}", lambda v=virtual: trained(text, **v)
        yield f"simulated, {discipline}, classes", lambda v=virtual: trained(wide, **(v | {"step": 0.02}))
        if discipline != "round-robin":
            law = {"delay": "straggler:alpha=1.5,slow=1,quantum=3"}
            yield f"simulated, {discipline}, straggler", lambda v=virtual | law: trained(text, **v)
    for order in ("shuffled", "file", "blocks"):
        options = {"problem": "completion", "rank": 8, "order": order}
        yield f"completion, {order}", lambda o=options: trained(ratings, **o)
        yield f"completion, {order}, resumed", lambda o=options: resumed(ratings, **o)
    for loss in ("log", "bpr"):
        yield f"completion, {loss}", lambda k=loss: trained(ratings, problem="completion", rank=8, loss=k)
    yield "cuts", lambda: trained(graph, problem="cuts", step=1.0, epochs=10)
    yield "cuts, resumed", lambda: resumed(graph, problem="cuts", step=1.0, epochs=10)
    for optimizer in ("sgd", "momentum", "adagrad", "adam"):
        yield f"module, {optimizer}", lambda o=optimizer: module(optimizer=o, step=0.05)
    for classes, kind in ((2, "HogwildClassifier"), (4, "HogwildClassifier"), (0, "HogwildRegressor")):
        yield f"{kind}, {classes}", lambda c=classes, k=kind: fitted(k, *dense(c))
        yield f"{kind}, {classes}, average", lambda c=classes, k=kind: fitted(k, *dense(c), average=True)


def found() -> dict[str, str]:
    """Hashes of all runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: run() for name, run in runs()}


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in ("record", "check"):
        print("usage: scripts/same_bits.py record|check FILE", file=sys.stderr)
        return 2
    path, now = Path(arguments[1]), found()
    if arguments[0] == "record":
        path.write_text(json.dumps(now, indent=1) + "\n")
        print(f"{len(now)} runs recorded in {path}")
        return 0
    before = json.loads(path.read_text())
    changed = [name for name in before if now.get(name) != before[name]]
    for name in changed:
        print(f"other bits, or no such run: {name}")
    print(f"{len(before) - len(changed)} of {len(before)} runs have the bits that {path} has")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
