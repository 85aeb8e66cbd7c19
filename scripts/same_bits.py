"""Whether runs that have to be reproducible still give the same bits: record them at one commit, check them at another.

    .venv/bin/python scripts/same_bits.py record bits.json     # at the commit before a change
    .venv/bin/python scripts/same_bits.py check bits.json      # after it, on the same machine
    .venv/bin/python scripts/same_bits.py check bits.json --case simulated --without finish

PYTHONPATH says which checkout is meant: only public names are used. Runs have one worker, or are simulated, so nothing
but the code decides their result: all arrays of the model are hashed, with the history of staleness. Beside the hash
stand the objectives, whose last bits a compiler may change, so a check can tell other last bits from another result:
equal are equal arrays and objectives within 1e-12. Racing runs have no bits; the median of their objective over five
seeds may rise by a tenth of the way from the start, or by the spread of the recorded seeds. A case whose option is
refused now is listed as gone, with the refusal.

Cases named "finish" end with exact steps and those named "chosen" choose l2 or a step, whose last bits may change by
design. The last bits of exp and log belong to a processor and a C library, so a record is for the machine it was made
on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import hogwild

Result = tuple[list[Any], list[float]]  # what is hashed, and objectives
Options = dict[str, Any]
QUIET: Options = {"host": "threads", "workers": 1, "step": 0.1, "epochs": 3, "keep": "last"}
ARRAYS = ("coef_", "intercept_", "user_factors", "item_factors", "user_bias", "item_bias", "x")
SEEDS, WAY = 5, 0.1  # of racing runs: how many, and the share of the way from the start that their median may rise by
CLOSE = 1e-12  # relative difference of objectives up to which only last bits differ

SCHEDULES: dict[str, Options] = {
    "constant": {},
    "epoch": {"decay": 0.7},
    "round": {},
    "rows": {},
    "inverse": {"power": 0.7},
    "optimal": {"step": None, "l2": 1e-3},
    "adaptive": {"epochs": 6},
}
LABEL_LOSSES = ("hinge", "squared-hinge", "modified-huber", "perceptron", "softmax")  # beside log
REAL_LOSSES = ("squared-error", "huber", "epsilon-insensitive", "squared-epsilon-insensitive")
#: Options of linear runs, by data.
LINEAR: dict[str, dict[str, Options]] = {
    "text": {
        "log": {},
        **{loss: {"loss": loss} for loss in LABEL_LOSSES},
        "l1": {"l1": 1e-4},
        "l1 and hinge": {"loss": "hinge", "l1": 1e-4, "l2": 0.0},
        "l1 and l2": {"l1": 1e-4, "l2": 1e-3},
        "no penalty": {"l2": 0.0},
        "strong l2": {"l2": 0.1},
        "no intercept": {"intercept": False},
        "file order": {"order": "file"},
        "rows of length one": {"normalize": "l2"},
        "adagrad": {"adagrad": True},
        "adagrad, l1": {"adagrad": True, "l1": 1e-4, "schedule": "round"},
        "balanced": {"class_weight": "balanced"},
        "renumbered": {"renumber": "always"},
        "renumbered, adagrad": {"renumber": "always", "adagrad": True, "normalize": "l2"},
        "every second epoch": {"evaluate_every": 2, "epochs": 5},
        "patience": {"patience": 1, "tol": 0.1, "epochs": 9},
        "target": {"target": 0.5, "epochs": 9},
        "seed": {"seed": 7},
        "best of held out": {"holdout": 0.2, "keep": "best"},
        "processes": {"host": "processes", "renumber": "never"},
        **{f"schedule {name}": {"schedule": name, **more} for name, more in SCHEDULES.items()},
        **{f"as {name}": {"discipline": name} for name in ("hogwild", "atomic", "aig", "locked", "tiered")},
    },
    "classes": {
        "log": {},
        **{loss: {"loss": loss} for loss in LABEL_LOSSES},
        "l1": {"l1": 1e-4},
        "softmax, l1": {"loss": "softmax", "l1": 1e-3},
        "adagrad": {"adagrad": True},
        "balanced": {"class_weight": "balanced"},
        "as tiered": {"discipline": "tiered"},
    },
    "weighted": {"log": {}, "hinge, l1": {"loss": "hinge", "l1": 1e-3}},
    "scaled": {
        "log": {},
        "l1": {"l1": 1e-4},
        "hinge": {"loss": "hinge"},
        "adagrad": {"adagrad": True},
        "as they are": {"scale_columns": False, "step": 1e-6},
    },
    "numbers": {
        **{loss: {"loss": loss} for loss in REAL_LOSSES},
        "huber of 0.3": {"loss": "huber", "loss_param": 0.3},
        "l1": {"loss": "squared-error", "l1": 1e-2},
    },
    "counts": {"poisson": {"loss": "poisson"}, "poisson, l1": {"loss": "poisson", "l1": 1e-3}},
}
STEPS = {"classes": 0.02, "numbers": 0.01, "counts": 0.01, "weighted": 0.02, "scaled": 0.02}
FINISH: Options = {"keep": None, "step": None, "epochs": 12}
#: Exchanges, with further options.
EXCHANGES: dict[str, Options] = {
    "averaging": {},
    "averaging:period=200": {},
    "averaging:period=200,mean=rows": {},
    "averaging:period=200,by=tree": {},
    "averaging:period=200,by=butterfly": {},
    "averaging:period=200,by=ring": {},
    "averaging:period=200,outer=1.5,momentum=0.5": {},
    "averaging:period=200,threshold=0.01": {},
    "averaging:period=200,share=0.5": {},
    "one-shot-averaging": {},
    "consensus:period=200": {},
    "consensus:period=200,pull=0.2": {},
    "gossip:period=100": {"step": 0.05},
    "gossip:period=100,tau=0.001": {"step": 0.05},
    "gossip:period=100,tau=0.001,home=0": {"step": 0.05},
    "server:push=100": {},
    "server:push=100,fetch=300,shards=3": {},
    "server:push=100,warm=300": {},
    "server:push=100,bound=1": {},
    "server:push=100,rule=sum": {"step": 0.03},
    "server:push=100,rule=adagrad": {},
    "server:push=100,rule=revision": {},
    "server:push=100,rule=scaled": {},
    "server:push=100,rule=soft,soft=2": {},
}
#: With which two threads race: they trade seldom, since each waits for the other on a busy machine.
RACING = {
    "averaging": {},
    "averaging:period=1000": {},
    "one-shot-averaging": {},
    "consensus:period=1000": {},
    "gossip:period=1000,tau=0.001": {"step": 0.05},
    "server:push=1000": {},
    "server:push=1000,rule=adagrad": {},
}
DELAYS = ("constant:delay=2", "random:window=0.5", "straggler:alpha=1.5,quantum=3")
DISCIPLINES = ("hogwild", "atomic", "aig", "locked", "tiered", "round-robin")
RATING_LOSSES = ("squared-error", "log", "bpr")
COMPLETION: dict[str, Options] = {
    **{loss: {"loss": loss} for loss in RATING_LOSSES},
    **{f"{order} order": {"order": order} for order in ("file", "blocks")},
    "no biases": {"biases": False, "l2": 0.0},
    "three negatives": {"loss": "bpr", "negatives": 3},
    "rank 13": {"rank": 13},
    "averaging": {"exchange": "averaging:period=500"},
    "every second epoch": {"evaluate_every": 2, "epochs": 5},
    **{f"schedule {name}": {"schedule": name} for name in ("constant", "round", "inverse", "adaptive")},
    **{f"as {name}": {"discipline": name} for name in ("hogwild", "atomic", "aig", "locked")},
}
#: Graphs, with further options.
CUTS: dict[str, tuple[str, Options]] = {
    "two labels": ("grid?side=24", {}),
    "four labels": ("grid?side=16&labels=4", {}),
    "file order, inverse": ("grid?side=24", {"order": "file", "schedule": "inverse"}),
    "averaging": ("grid?side=24", {"exchange": "averaging"}),
    "as atomic": ("grid?side=24", {"discipline": "atomic"}),
}
OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam")
MODULES: dict[str, Options] = {
    **{name: {"optimizer": name} for name in OPTIMIZERS},
    **{f"{name}, embedding": {"optimizer": name, "bag": True} for name in OPTIMIZERS},
    "momentum of 0.5": {"optimizer": "momentum", "momentum": 0.5},
    "squares": {"loss": "mse"},
    "bce": {"loss": "bce"},
    "schedule epoch, file order": {"schedule": "epoch", "order": "file", "batch": 50},
    "averaging": {"exchange": "averaging:period=100"},
}
CLASSIFIERS: dict[str, Options] = {
    **{loss.replace("-", "_"): {"loss": loss.replace("-", "_")} for loss in LABEL_LOSSES},
    "log_loss": {"loss": "log_loss"},
    "squares": {"loss": "squared_error"},
    "hinge, elastic net": {"loss": "hinge", "penalty": "elasticnet"},
    "log_loss, l1": {"loss": "log_loss", "penalty": "l1", "alpha": 1e-3},
    "log_loss, no penalty": {"loss": "log_loss", "penalty": None},
    "optimal": {"loss": "log_loss", "learning_rate": "optimal"},
    "constant": {"loss": "log_loss", "learning_rate": "constant"},
    "invscaling": {"loss": "log_loss", "learning_rate": "invscaling"},
    "adaptive": {"loss": "log_loss", "learning_rate": "adaptive"},
    "pa1": {"loss": "hinge", "learning_rate": "pa1", "eta0": 1.0, "penalty": None},
    "pa2": {"loss": "hinge", "learning_rate": "pa2", "eta0": 1.0, "penalty": None},
    "average": {"loss": "log_loss", "average": True},
    "average after 500": {"loss": "hinge", "average": 500, "learning_rate": "optimal"},
    "early stopping": {"loss": "log_loss", "early_stopping": True},
    "no intercept, balanced": {"loss": "log_loss", "fit_intercept": False, "class_weight": "balanced"},
    "three epochs": {"loss": "log_loss", "max_iter": 3, "tol": None, "shuffle": False},
    "chosen alpha": {"loss": "log_loss", "alpha": "auto"},
}
REGRESSORS: dict[str, Options] = {
    **{loss.replace("-", "_"): {"loss": loss.replace("-", "_")} for loss in (*REAL_LOSSES, "poisson")},
    "l1": {"penalty": "l1", "alpha": 1e-2},
    "average": {"average": True},
    "optimal": {"learning_rate": "optimal", "loss": "huber"},
    "invscaling": {"learning_rate": "invscaling"},
    "pa1": {"loss": "epsilon_insensitive", "learning_rate": "pa1", "penalty": None},
    "early stopping": {"early_stopping": True},
    "chosen alpha": {"alpha": "auto"},
}


def digest(*parts: Any) -> str:
    """A hash of arrays, and of anything else by its representation."""
    hashed = hashlib.blake2b(digest_size=12)
    for part in parts:
        hashed.update(np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return hashed.hexdigest()


# ---- data


def dense(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns with numbers (0 classes), two classes 0 and 1, or more."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 10))
    scores = x @ rng.standard_normal((10, max(classes, 1))) + rng.standard_normal((300, max(classes, 1)))
    return x, scores[:, 0] if classes == 0 else scores.argmax(axis=1) if classes > 2 else (scores[:, 0] > 0) * 1


def counts(y: np.ndarray) -> np.ndarray:
    return np.floor(np.exp(np.clip(y / 2, -3, 3)))


@cache
def rows(kind: str) -> Any:
    x, y = dense({"classes": 4, "numbers": 0, "counts": 0}.get(kind, 2))
    if kind == "text":
        return hogwild.open_data("synthetic:rcv1?rows=3000&features=800&nnz=20")
    if kind == "weighted":
        return hogwild.Rows.from_scipy(x, y, weights=np.random.default_rng(2).exponential(size=len(y)))
    if kind == "scaled":
        return hogwild.Rows.from_scipy(x * 10.0 ** np.linspace(-3, 3, 10) + np.arange(10), y)
    return hogwild.Rows.from_scipy(x, counts(y) if kind == "counts" else y)


@cache
def ratings() -> Any:
    return hogwild.open_ratings("synthetic:ratings?users=300&items=200&ratings=6000")


@cache
def graph(name: str) -> Any:
    return hogwild.open_graph(f"synthetic:{name}")


# ---- runs


def arrays_of(model: Any) -> list[np.ndarray]:
    return [getattr(model, name) for name in ARRAYS if hasattr(model, name)] or [*model.arrays.values()]


def outcome(run: Any) -> Result:
    """What a run is judged by."""
    run.finish()
    objectives = [row["objective"] for row in run.history]
    stale = [(row["staleness_mean"], row["staleness_max"], row["lost_updates"]) for row in run.history]
    return [*arrays_of(run.model), stale, run.staleness], objectives


def trained(data: Callable[[], Any], **options: Any) -> Result:
    return outcome(hogwild.train(data(), **(QUIET | options)))


def module(bag: bool = False, **options: Any) -> Result:
    """A small network on generated rows, or an embedding bag on sparse ones."""
    import torch

    torch.manual_seed(0)
    loss = options.pop("loss", "cross-entropy")
    options = QUIET | {"batch": 32, "step": 0.05} | options
    if bag:
        network: Any = torch.nn.EmbeddingBag(800, 2, mode="sum", sparse=True)
        return outcome(hogwild.train_module(network, loss, rows("text"), **options))
    layers = (torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.BatchNorm1d(8))
    network = torch.nn.Sequential(*layers, torch.nn.Linear(8, 3))
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((500, 12)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 3, 500))
    if loss != "cross-entropy":
        y = torch.nn.functional.one_hot(y).float()
    return outcome(hogwild.train_module(network, loss, (x, y), **options))


def resumed(run: Callable[..., Result], **options: Any) -> Result:
    """The result of a run that ends after an epoch and goes on from its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        run(checkpoint=folder, **(options | {"epochs": 1}))
        return run(checkpoint=folder, resume=True, **options)


def reread(data: Callable[[], Any], **options: Any) -> Result:
    """Predictions of a model that is written and read back."""
    with tempfile.TemporaryDirectory() as folder:
        hogwild.train(data(), **(QUIET | options)).finish().save(Path(folder, "model"))
        model: Any = hogwild.load(Path(folder, "model"))
    if hasattr(model, "item_factors"):
        return [*arrays_of(model), model.predict(np.arange(50), np.arange(50)), *model.recommend([1, 2], n=5)], []
    if hasattr(model, "n_labels"):
        return [*arrays_of(model), model.label_of(np.arange(20)), model.energy], [float(model.energy)]
    return [*arrays_of(model), model.predict(data()), model.decision_function(data())], []


def margin_loss(loss: str, p: np.ndarray, y: np.ndarray) -> float:
    """Mean loss of margins (n,) or (n, K), summed over classes, with epsilon 0.1 as the estimators have it."""
    if loss == "softmax" and p.ndim == 2:
        return float(np.mean(np.log(np.exp(p).sum(axis=1)) - p[np.arange(len(p)), y.astype(int)]))
    if p.ndim == 2:
        y = np.where(y[:, None] == np.arange(p.shape[1]), 1.0, -1.0)
    z, r = y * p, np.abs(p - y)
    inner = np.minimum(r, 0.1)
    values = {
        "log_loss": np.logaddexp(0, -z),
        "softmax": np.logaddexp(0, -z),
        "hinge": np.maximum(0, 1 - z),
        "squared_hinge": np.maximum(0, 1 - z) ** 2,
        "modified_huber": np.where(z < -1, -4 * z, np.maximum(0, 1 - z) ** 2),
        "perceptron": np.maximum(0, -z),
        "squared_error": r**2 / 2,
        "huber": inner * (r - inner / 2),
        "epsilon_insensitive": np.maximum(0, r - 0.1),
        "squared_epsilon_insensitive": np.maximum(0, r - 0.1) ** 2,
        "poisson": np.exp(np.minimum(p, 60)) - z,
    }[loss]
    return float(values.sum() / len(p))


def fitted(kind: str, classes: int, partly: bool = False, weighted: bool = False, **options: Any) -> Result:
    """An estimator on dense rows, and its objective (without the rows' weights), computed here."""
    x, y = dense(classes)
    y = counts(y) if options.get("loss") == "poisson" else y
    estimator = getattr(hogwild, kind)(**({"n_jobs": 1, "random_state": 0} | options))
    if partly:
        more = {"classes": np.unique(y)} if classes else {}
        for part in np.array_split(np.arange(len(y)), 5):
            estimator.partial_fit(x[part], y[part], **more)
    else:
        estimator.fit(x, y, **({"sample_weight": 1.0 + np.arange(len(y)) % 3} if weighted else {}))
    p = estimator.decision_function(x) if classes else x @ np.ravel(estimator.coef_) + estimator.intercept_[0]
    loss = margin_loss(estimator.loss, p, 2 * y - 1 if classes == 2 else y)
    alpha = getattr(estimator, "alpha_", estimator.alpha) if estimator.penalty else 0.0
    l1 = {"l1": 1.0, "elasticnet": estimator.l1_ratio}.get(estimator.penalty, 0.0)
    w = estimator.coef_.astype(np.float64)
    penalty = alpha * (l1 * np.abs(w).sum() + (1 - l1) / 2 * np.square(w).sum())
    arrays = [estimator.coef_, estimator.intercept_, getattr(estimator, "n_iter_", 0), estimator.predict(x)]
    return arrays, [loss + float(penalty)]


def factorized(**options: Any) -> Result:
    import scipy.sparse

    x = np.maximum(np.random.default_rng(3).integers(-3, 6, (60, 40)), 0).astype(np.float32)
    matrix = scipy.sparse.csr_array(x)
    estimator = hogwild.HogwildFactorizer(8, n_jobs=1, random_state=0, max_iter=5, **options).fit(matrix)
    more = [estimator.transform(matrix)] if estimator.loss == "squared_error" else []
    return [estimator.user_factors_, estimator.components_, *more], []


def raced(run: Callable[..., Result], **options: Any) -> list[float]:
    """The objective at the start, then those at the end with each seed."""
    ends = [run(seed=seed, **({"workers": 2, "epochs": 4} | options))[1] for seed in range(SEEDS)]
    return [ends[0][0], *(end[-1] for end in ends)]


def linear_cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    for kind, table in LINEAR.items():
        step = {"step": STEPS.get(kind, 0.1)}
        run, first = partial(trained, partial(rows, kind)), next(iter(table.values()))
        for name, options in table.items():
            yield f"linear, {kind}, {name}", partial(run, **(step | options))
            if name not in ("best of held out", "target", "patience"):
                yield f"linear, {kind}, {name}, resumed", partial(resumed, run, **(step | options))
        yield f"linear, {kind}, finish", partial(run, **first, **FINISH)
        yield f"linear, {kind}, read back", partial(reread, partial(rows, kind), **step, **first)
    text, classes = (partial(trained, partial(rows, kind)) for kind in ("text", "classes"))
    yield "linear, text, finish, hinge", partial(text, loss="hinge", **FINISH)
    yield "linear, text, finish, l1", partial(text, l1=1e-4, **FINISH)
    yield "linear, text, chosen step", partial(text, step=None)
    yield "linear, text, chosen l2", partial(text, l2="auto")
    yield "linear, classes, chosen l2", partial(classes, l2="auto")
    for exchange, options in EXCHANGES.items():
        yield f"one worker, {exchange}", partial(text, exchange=exchange, **options)
        virtual: Options = {"host": "simulator", "workers": 4, "exchange": exchange, **options}
        yield f"simulated, {exchange}", partial(text, **virtual)
        yield f"simulated, {exchange}, link", partial(text, link="latency=1ms,bandwidth=1Gbit,row=1us", **virtual)
    for exchange, options in RACING.items():
        yield f"racing, {exchange}", partial(raced, text, exchange=exchange, **options)
    for discipline in DISCIPLINES:
        virtual = {"host": "simulator", "workers": 5, "discipline": discipline}
        yield f"simulated, {discipline}", partial(text, **virtual)
        if discipline != "tiered":  # sums of squares have no copies
            yield f"simulated, {discipline}, adagrad", partial(text, adagrad=True, **virtual)
        yield f"simulated, {discipline}, classes", partial(classes, step=0.02, **virtual)
        yield f"simulated, {discipline}, resumed", partial(resumed, text, **virtual)
        for delay in DELAYS if discipline != "round-robin" else ():
            yield f"simulated, {discipline}, {delay}", partial(text, delay=delay, l1=1e-5, **virtual)
        yield f"racing, {discipline}, classes", partial(raced, classes, discipline=discipline, step=0.02)
        if discipline != "round-robin":  # whose workers wait for each other at every row
            yield f"racing, {discipline}", partial(raced, text, discipline=discipline)
        if discipline not in ("tiered", "round-robin"):
            low: Options = {"problem": "completion", "rank": 8, "discipline": discipline}
            yield f"racing, {discipline}, completion", partial(raced, partial(trained, ratings), **low)


def other_cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    tables: dict[str, Any] = {
        "completion": {name: (ratings, {"rank": 8} | options) for name, options in COMPLETION.items()},
        "cuts": {
            name: (partial(graph, spec), {"step": 1.0, "epochs": 10} | options)
            for name, (spec, options) in CUTS.items()
        },
    }
    for problem, table in tables.items():
        for name, (data, options) in table.items():
            yield f"{problem}, {name}", partial(trained, data, problem=problem, **options)
            yield f"{problem}, {name}, resumed", partial(resumed, partial(trained, data), problem=problem, **options)
            yield f"{problem}, {name}, read back", partial(reread, data, problem=problem, **options)
    grid = partial(trained, partial(graph, "grid?side=24"))
    yield "racing, cuts", partial(raced, grid, problem="cuts", step=1.0, epochs=10)
    for name, options in MODULES.items():
        yield f"module, {name}", partial(module, **options)
        yield f"module, {name}, resumed", partial(resumed, module, **options)
    yield "racing, module", partial(raced, module, batch=20)


def estimator_cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, options in CLASSIFIERS.items():
        for classes in (2, 4):
            fit = partial(fitted, "HogwildClassifier", classes, **options)
            yield f"estimator, finish, classifier, {classes} classes, {name}", fit
    for name, options in REGRESSORS.items():
        yield f"estimator, finish, regressor, {name}", partial(fitted, "HogwildRegressor", 0, **options)
    for kind, classes in (("HogwildClassifier", 2), ("HogwildClassifier", 4), ("HogwildRegressor", 0)):
        fit = partial(fitted, kind, classes, loss="log_loss" if classes else "squared_error")
        yield f"estimator, partial fit, {kind}, {classes}", partial(fit, partly=True)
        constant = partial(fit, partly=True, learning_rate="constant")
        yield f"estimator, partial fit, constant, {kind}, {classes}", constant
        yield f"estimator, partial fit, average, {kind}, {classes}", partial(constant, average=True)
        yield f"estimator, finish, weights, {kind}, {classes}", partial(fit, weighted=True)
    for loss in ("squared_error", "log", "bpr"):
        yield f"estimator, factorizer, {loss}", partial(factorized, loss=loss)
    yield "estimator, factorizer, no biases", partial(factorized, biases=False)


# ---- records


def measured(run: Callable[[], Any]) -> dict[str, Any]:
    """What is recorded of a case: its hash and objectives, those of a race, or why there are none."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = run()
        except (hogwild.UsageError, TypeError, AttributeError) as error:
            return {"gone": f"{type(error).__name__}: {error}"}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}
    seconds = {"seconds": round(time.process_time() - began, 2)}  # CPU seconds, for whoever shortens the record
    if isinstance(result, list):
        return {"race": result} | seconds
    return {"bits": digest(*result[0]), "objectives": [float(value) for value in result[1]]} | seconds


def judged(before: dict[str, Any], now: dict[str, Any]) -> tuple[str, str]:
    """A verdict and its figures."""
    if "bits" not in before and "race" not in before:
        return "not recorded", next(iter(before.values()))
    for verdict in ("gone", "failed"):
        if verdict in now:
            return verdict, now[verdict]
    if "race" in before:
        start, *ends = before["race"]
        median, recorded = statistics.median(now["race"][1:]), statistics.median(ends)
        most = recorded + max(WAY * abs(start - recorded), max(ends) - min(ends))
        figures = f"median {recorded:.6g}, now {median:.6g}, may be {most:.6g}"
        return ("race no worse" if median <= most else "race worse"), figures
    same, pairs = before["bits"] == now["bits"], list(zip(before["objectives"], now["objectives"]))
    if len(before["objectives"]) != len(now["objectives"]) or not (pairs or same):
        return "different", f"{len(before['objectives'])} objectives, now {len(now['objectives'])}"
    changes = [(b - a) / max(abs(a), 1e-300) for a, b in pairs] or [0.0]
    figures = f"largest change of an objective {max(changes, key=abs):+.1e}, of the last {changes[-1]:+.1e}"
    if max(map(abs, changes)) > CLOSE:
        return "different", figures
    return ("equal bits", "") if same else ("other bits", figures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("record", "check", "list"))
    parser.add_argument("file", type=Path, nargs="?", default=Path("bits.json"))
    parser.add_argument("--case", action="append", metavar="PART", help="cases whose name holds it; again: or this")
    parser.add_argument("--without", action="append", default=[], metavar="PART", help="no case whose name holds it")
    asked = parser.parse_args()
    cases = {
        name: run
        for table in (linear_cases, other_cases, estimator_cases)
        for name, run in table()
        if any(part in name for part in asked.case or [""]) and not any(part in name for part in asked.without)
    }
    if asked.do == "list":
        print("\n".join(cases))
        return 0
    if asked.do == "record":
        facts = {name: measured(run) for name, run in cases.items()}
        asked.file.write_text(json.dumps(facts, indent=1) + "\n")
        for name, fact in facts.items():
            if "gone" in fact or "failed" in fact:
                print(f"no result: {name}: {next(iter(fact.values()))}")
        print(f"{len(facts)} cases recorded in {asked.file}")
        return 0
    verdicts: dict[str, list[str]] = {}
    for name, before in json.loads(asked.file.read_text()).items():
        if name in cases:
            verdict, figures = judged(before, measured(cases[name]))
            verdicts.setdefault(verdict, []).append(name)
            if verdict not in ("equal bits", "race no worse"):
                print(f"{verdict}: {name}: {figures}", flush=True)
    for verdict, names in verdicts.items():
        print(f"{len(names):4} {verdict}")
    return 1 if {"different", "other bits", "failed", "race worse"} & set(verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
