"""Real data: accuracy beside scikit-learn, the optimum beside scipy, what ``--step auto`` gives up, labels and widths.

Accuracies are compared row by row on the same test rows (paired), hyper-parameters chosen by both sides on a split of
the training rows. Everything that races is the median of several seeds. BLAS gets one thread here: with two, on two
cores, scikit-learn's and scipy's solvers take ten times as long.
"""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.special

import hogwild
from hogwild.data.examples import Rows
from hogwild.errors import HogwildWarning
from hogwild.training import start_pool
from tests.runs import toy

pytestmark = pytest.mark.slow

SETS = {  # training file, test file (none: a fifth is held out), row normalisation on both sides
    "rcv1": ("rcv1/train.svm.gz", "rcv1/test.svm.gz", "none"),
    "imdb": ("imdb/train_counts.svm.gz", "imdb/test_counts.svm.gz", "l2"),
    "amazon": ("amazon-employee/train.svm.gz", "amazon-employee/test.svm.gz", "none"),
    "a9a": ("libsvm/a9a.gz", "libsvm/a9a.t.gz", "none"),
    "w8a": ("libsvm/w8a.gz", None, "none"),
    "mushrooms": ("libsvm/mushrooms.gz", None, "none"),
    "20news": ("20news/train.svm.gz", "20news/test.svm.gz", "none"),
}
BINARY = [name for name in SETS if name != "20news"]
MANY = ("20news", "imdb")  # sets on which scikit-learn's solvers are slow: fewer candidates
SEEDS = range(5)


@functools.cache
def load(folder, name):
    """``(training rows, test rows)``."""
    train, test, _ = SETS[name]
    rows = hogwild.open_data(str(folder / train))
    if test is None:
        return rows.split(0.2, seed=1)
    return rows, hogwild.open_data(str(folder / test), width=rows.width, beyond="ignore")


@pytest.fixture(scope="module", autouse=True)
def one_blas_thread():
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def pools():
    pools = {workers: start_pool("threads", workers) for workers in (1, 2)}
    yield pools
    for pool in pools.values():
        pool.close()


@pytest.fixture(scope="module")
def processes():
    pool = start_pool("processes", 2)
    yield pool
    pool.close()


def arrays(rows, normalize):
    from sklearn.preprocessing import normalize as scale

    X, y = rows.to_scipy()
    return (scale(X) if normalize == "l2" else X), y


# ---- accuracy


def predictions(rows, test, name, pool, seed=0, **options):
    run = hogwild.train(rows, workers=pool.workers, seed=seed, pool=pool, epochs=15, average=True,
                        normalize=SETS[name][2], **options)  # fmt: skip
    return run.finish().predict(test)


def chosen_options(rows, name, pool):
    """Our loss and penalty, by accuracy on a fifth of the training rows."""
    fit, validation = rows.split(0.2, seed=2)
    penalties = (1e-6, 1e-5) if name in MANY else (1e-6, 1e-5, 1e-4)
    options = [{"loss": loss, "l2": l2} for loss in ("log", "hinge") for l2 in penalties]
    scores = [np.mean(predictions(fit, validation, name, pool, **o) == validation.targets) for o in options]
    return options[int(np.argmax(scores))]


def solvers(few):
    """scikit-learn's candidates by family, each a function of the number of rows: C is 1 / (l2 * rows)."""
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.svm import LinearSVC

    def sgd(loss, l2, average):
        return lambda n: SGDClassifier(loss=loss, alpha=l2, average=average, max_iter=15, tol=None, random_state=0)

    penalties = (1e-5, 1e-4) if few else (1e-6, 1e-5, 1e-4, 1e-3)
    means = (False,) if few else (False, True)
    return {
        "SGDClassifier": [sgd(loss, l2, mean) for loss in ("log_loss", "hinge") for l2 in penalties for mean in means],
        "LogisticRegression": [lambda n, l2=l2: LogisticRegression(C=1 / (l2 * n), max_iter=100) for l2 in penalties],
        "LinearSVC": [lambda n, l2=l2: LinearSVC(C=1 / (l2 * n), max_iter=300) for l2 in penalties],
    }


def their_predictions(rows, test, name):
    """What each family of scikit-learn predicts, its candidate chosen on the same split as ours."""
    fit, validation = rows.split(0.2, seed=2)
    if name in MANY:
        fit = fit.select(np.arange(0, len(fit), 2))
    normalize, found = SETS[name][2], {}
    (X, y), (X_val, y_val), (X_all, y_all) = (arrays(part, normalize) for part in (fit, validation, rows))
    for family, candidates in solvers(name in MANY).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence: these are what a user would get, too
            scores = [candidate(len(fit)).fit(X, y).score(X_val, y_val) for candidate in candidates]
            solver = candidates[int(np.argmax(scores))](len(rows)).fit(X_all, y_all)
        found[family] = solver.predict(arrays(test, normalize)[0])
    return found


def behind(ours, theirs):
    """``(difference, standard error)`` of their accuracy less ours: medians over the runs of ours."""
    lags = [theirs.astype(float) - right for right in ours]
    return np.median([lag.mean() for lag in lags]), np.median([lag.std() for lag in lags]) / math.sqrt(len(theirs))


@pytest.mark.parametrize("name", SETS)
def test_as_accurate_as_scikit_learn(name, real_data, pools):
    """The paired difference is at most half a point, or two standard errors where these are more."""
    rows, test = load(real_data, name)
    best = chosen_options(rows, name, pools[1])
    right = {
        workers: [predictions(rows, test, name, pool, seed, **best) == test.targets for seed in SEEDS]
        for workers, pool in pools.items()
    }
    for family, predicted in their_predictions(rows, test, name).items():
        for workers, ours in right.items():
            lag, error = behind(ours, predicted == test.targets)
            assert lag <= max(0.005, 2 * error), f"{family} is {lag:.4f} ahead of {workers} worker(s) with {best}"


@pytest.mark.parametrize("name", ["rcv1", "a9a"])
def test_processes_are_as_accurate_as_one_worker(name, real_data, pools, processes):
    """Two processes, without locks, on sparse data and on data where every row shares features with most others."""
    rows, test = load(real_data, name)
    serial = predictions(rows, test, name, pools[1]) == test.targets
    lag, error = behind([predictions(rows, test, name, processes, s) == test.targets for s in SEEDS], serial)
    assert lag <= max(0.005, 2 * error)


# ---- the step


@pytest.mark.parametrize("loss", ["log", "hinge"])
@pytest.mark.parametrize("name", SETS)
def test_step_auto_is_near_the_best_of_the_grid(name, loss, real_data, pools):
    """At l2 = 1e-5 and 10 epochs it gives up at most 2 % of what the best step of 2^-8 .. 2^8 gains."""
    rows, _ = load(real_data, name)

    def objectives(step):
        run = hogwild.train(rows, loss=loss, workers=1, epochs=10, step=step, pool=pools[1])
        try:
            history = [row["objective"] for row in run]
        except hogwild.TrainingError:  # diverged
            return [math.inf], run.config.step
        return history, run.config.step

    found, step = objectives(None)
    power = round(math.log2(step))
    near = range(max(power - 3, -8), min(power + 3, 8) + 1)  # the objective has one valley in the step
    best = min(objectives(2.0**p)[0][-1] for p in {*near, -8, 8})
    assert (found[-1] - best) / (found[0] - best) <= 0.02, f"step {step:g}: {found[-1]:.4f}, best {best:.4f}"


# ---- the optimum

PARTS = {  # loss and derivative over margins m and signs, targets or (softmax) the class's column of ones, all (n, K)
    "log": lambda m, y: (np.logaddexp(0, -y * m), -y * scipy.special.expit(-y * m)),
    "softmax": lambda m, y: (-y * scipy.special.log_softmax(m, axis=1), scipy.special.softmax(m, axis=1) - y),
    "squared-error": lambda m, y: ((m - y) ** 2 / 2, m - y),
    "huber": lambda m, y: (scipy.special.huber(1.0, m - y), np.clip(m - y, -1, 1)),
    "poisson": lambda m, y: (np.exp(m) - y * m, np.exp(m) - y),
}


def optimum(X, y, loss, l1, l2):
    """The least objective by L-BFGS in float64; with l1, over the positive and the negative part of the weights."""
    (n, width), classes, transposed = X.shape, y.shape[1], X.T.tocsr()

    def objective(p):
        parts = p[:-classes].reshape(-1, width, classes)
        w = parts[0] - parts[1] if l1 else parts[0]
        values, slopes = PARTS[loss](X @ w + p[-classes:], y)
        slope = transposed @ slopes / n + l2 * w
        slopes = [slope + l1, l1 - slope, slopes.sum(axis=0) / n] if l1 else [slope, slopes.sum(axis=0) / n]
        penalty = l2 / 2 * np.vdot(w, w) + (l1 * parts.sum() if l1 else 0)
        return values.sum() / n + penalty, np.concatenate([part.ravel() for part in slopes])

    size = (2 if l1 else 1) * width * classes
    low = np.append(np.zeros(size), np.full(classes, -np.inf))
    found = scipy.optimize.minimize(
        objective, np.zeros(size + classes), jac=True, method="L-BFGS-B",
        bounds=scipy.optimize.Bounds(low) if l1 else None,
        options={"maxiter": 2000, "maxfun": 3000, "ftol": 1e-9, "gtol": 1e-7},
    )  # fmt: skip
    return found.fun


def check_optimum(rows, y, pool, loss="log", l1=0.0, l2=1e-4, normalize="none", constant=0.0):
    """One worker, round back-off: within a thousandth of the optimum, three epochs in a row, in at most 200 epochs.

    ``constant`` belongs to the loss and makes it positive, so that a relative gap has a meaning.
    """
    X = arrays(rows, normalize)[0].astype(np.float64)
    least = optimum(X, y, loss, l1, l2)
    run = hogwild.train(rows, workers=1, loss=loss, l1=l1, l2=l2, normalize=normalize, epochs=200, schedule="round",
                        pool=pool)  # fmt: skip
    gaps = []
    for row in run:
        gaps.append((row["objective"] - least) / (least + constant))
        assert gaps[-1] > -1e-5  # below the optimum: another objective
        if len(gaps) > 3 and max(gaps[-3:]) <= 1e-3:
            run.close()
            return
    pytest.fail(f"gaps after 10, 50, 100, 150, 200 epochs: {[gaps[e] for e in (10, 50, 100, 150, 200)]}")


def signs(rows):
    return np.where(rows.targets == rows.targets.max(), 1.0, -1.0)[:, None]


@pytest.mark.parametrize("name", BINARY)
def test_optimum_of_log_loss(name, real_data, pools):
    rows, _ = load(real_data, name)
    check_optimum(rows, signs(rows), pools[1], normalize=SETS[name][2])


@pytest.mark.parametrize("name", ["rcv1", "a9a", "w8a"])
def test_optimum_of_the_elastic_net(name, real_data, pools):
    rows, _ = load(real_data, name)
    check_optimum(rows, signs(rows), pools[1], l1=1e-4)


@pytest.mark.parametrize("loss", ["log", "softmax"])
def test_optimum_of_twenty_classes(loss, real_data, pools):
    """On an eighth of the rows: scipy takes minutes for all of them."""
    X, y = load(real_data, "20news")[0].select(np.arange(0, 11314, 8)).to_scipy()
    rows = Rows.from_scipy(X[:, np.unique(X.indices)], y)
    member = (y[:, None] == np.unique(y)).astype(np.float64)
    check_optimum(rows, member if loss == "softmax" else 2 * member - 1, pools[1], loss=loss)


@pytest.mark.parametrize("loss", ["squared-error", "huber", "poisson"])
def test_optimum_of_regressions(loss, pools):
    """Synthetic, since no real set has real targets: heavy-tailed errors for the first two, counts for the third."""
    rows, rng = toy(5000, classes=0), np.random.default_rng(0)
    X, margins = rows.to_scipy()
    if loss == "poisson":
        y = rng.poisson(np.exp(0.2 * margins)).astype(np.float64)
        constant = scipy.special.gammaln(y + 1).mean()
    else:
        y, constant = margins + rng.standard_t(2, len(margins)), 0.0
    rows = Rows.from_scipy(X, y)
    check_optimum(rows, rows.targets[:, None].astype(np.float64), pools[1], loss=loss, constant=constant)


# ---- what is reported, labels and widths


def brute_force(model, X, y, weights, options):
    """The objective from its definition in float64: weighted mean loss, and the penalties of the weights."""
    from sklearn.utils.class_weight import compute_sample_weight

    if options.get("class_weight"):
        weights = weights * compute_sample_weight("balanced", y)
    W, b = model.coef_.astype(np.float64), model.intercept_.astype(np.float64)
    margins = X.astype(np.float64) @ W.T + b
    member = (y[:, None] == np.asarray(model.labels)).astype(np.float64)
    member = member if margins.shape[1] > 1 else member[:, 1:]
    if options["loss"] == "hinge":
        losses = np.maximum(0, 1 - (2 * member - 1) * margins)
    else:
        losses = PARTS[options["loss"]](margins, member if options["loss"] == "softmax" else 2 * member - 1)[0]
    penalty = options.get("l2", 1e-5) / 2 * np.sum(W**2) + options.get("l1", 0) * np.abs(W).sum()
    return weights @ losses.sum(axis=1) / weights.sum() + penalty


REPORTED = {
    "weighted": ("w8a", {"loss": "hinge", "class_weight": "balanced", "l2": 1e-2}),
    "elastic net": ("a9a", {"loss": "log", "class_weight": "balanced", "l1": 1e-3, "average": True}),
    "normalised": ("imdb", {"loss": "log", "normalize": "l2", "l2": 1e-3}),
    "one versus rest": ("20news", {"loss": "hinge", "class_weight": "balanced"}),
    "softmax": ("20news", {"loss": "softmax", "l2": 1e-4}),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("case", REPORTED)
def test_the_objective_is_that_of_the_model(case, workers, real_data, pools):
    """Reported and minimised objective are one; weights and row scales are float32, hence 1e-6."""
    name, options = REPORTED[case]
    rows, _ = load(real_data, name)
    weights = np.random.default_rng(0).exponential(size=len(rows)).astype(np.float32)
    X, y = arrays(rows, options.get("normalize", "none"))
    weighted = Rows((rows.begin, rows.end), rows.indices, rows.values, rows.targets, rows.width, weights)
    run = hogwild.train(weighted, workers=workers, pool=pools[workers], epochs=2, **options)
    model = run.finish()
    expected = brute_force(model, X, y, weights.astype(np.float64), options)
    assert run.history[-1]["objective"] == pytest.approx(expected, rel=1e-6)
    assert run.history[-1]["objective"] < run.history[0]["objective"]
    assert run.history[-1]["train_accuracy"] == np.mean(model.predict(rows) == y)


def test_a_test_file_narrower_than_the_model(real_data, pools):
    rows, test = load(real_data, "a9a")
    narrow = hogwild.open_data(str(real_data / SETS["a9a"][1]))
    assert (narrow.width, test.width, rows.width) == (122, 123, 123)
    run = hogwild.train(rows, narrow, workers=1, epochs=3, pool=pools[1])
    model = run.finish()
    assert np.array_equal(model.predict(narrow), model.predict(test))
    assert run.history[-1]["test_accuracy"] == np.mean(model.predict(test) == test.targets)


def test_a_test_file_wider_than_the_model(real_data, pools):
    """Trained on a9a's narrower file: what the wider one has beyond it is counted and ignored, however it is read."""
    wide, narrow = load(real_data, "a9a")[0], hogwild.open_data(str(real_data / SETS["a9a"][1]))
    unseen = int(wide.degrees()[narrow.width :].sum())
    assert unseen > 0
    with pytest.warns(HogwildWarning, match=f"^{unseen} .* beyond the model's 122 were ignored"):
        cut = hogwild.open_data(str(real_data / SETS["a9a"][0]), width=narrow.width, beyond="ignore")
    with pytest.warns(HogwildWarning, match=f"^{unseen} .* beyond the model's 122 were ignored") as caught:
        run = hogwild.train(narrow, wide, workers=1, epochs=3, pool=pools[1])
    assert caught[0].filename == __file__
    model = run.finish()
    with pytest.warns(HogwildWarning, match=f"^{unseen} .* beyond the model's 122 were ignored"):
        predicted = model.predict(wide)
    assert np.array_equal(predicted, model.predict(cut))
    assert run.history[-1]["test_accuracy"] == np.mean(predicted == wide.targets)


def test_labels_one_and_two(real_data, pools):
    rows, test = load(real_data, "mushrooms")
    assert set(rows.targets) == {1, 2}
    model = hogwild.train(rows, workers=1, epochs=3, pool=pools[1]).finish()
    predicted = model.predict(test)
    assert model.labels == [1.0, 2.0]
    assert set(predicted) == {1.0, 2.0}
    assert np.mean(predicted == test.targets) > 0.98
    assert np.array_equal(model.decision_function(test) > 0, predicted == 2)


def test_twenty_classes(real_data, pools):
    rows, test = load(real_data, "20news")
    model = hogwild.train(rows, loss="softmax", workers=2, epochs=8, average=True, pool=pools[2]).finish()
    assert model.coef_.shape == (20, rows.width)
    assert np.array_equal(model.classes_, np.unique(rows.targets))
    assert np.mean(model.predict(test) == test.targets) > 0.83
