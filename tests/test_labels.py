"""Rows with several labels each: the same as a binary model for each label, by every way in and out."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn import metrics as theirs
from sklearn.datasets import dump_svmlight_file, make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import hogwild
from hogwild import HogwildClassifier, InputError, Rows, UsageError, open_data
from hogwild.data.rows.labels import of_indicator
from hogwild.data.rows.store import open_store, save_store
from hogwild.data.text.svmlight import write_text
from hogwild.metrics import evaluate
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum.finder import FitProblem
from hogwild.problems.linear.rows import few_labels
from tests import reference
from tests.kernels.harness import FALLING, awkward_rows, make_job, run_epoch
from tests.runs import line_of, resumed

LABELS = 5


@pytest.fixture(scope="module")
def data() -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    X, Y = make_multilabel_classification(400, 30, n_classes=LABELS, n_labels=1, random_state=0, sparse=True)
    X = scipy.sparse.csr_array(X.astype(np.float32)).multiply(0.1).tocsr()
    return X, scipy.sparse.csr_array(Y)


@pytest.fixture(scope="module")
def rows(data: tuple[Any, Any]) -> Rows:
    return Rows.from_scipy(*data)


def text_of(X: Any, Y: Any, names: list[int]) -> bytes:
    """svmlight text as scikit-learn writes it, with other names of the labels."""
    stream = io.BytesIO()
    wide = scipy.sparse.lil_array((Y.shape[0], max(names) + 1))
    for place, name in enumerate(names):
        wide[:, [name]] = Y[:, [place]]
    dump_svmlight_file(X, wide.tocsr(), stream, zero_based=False, multilabel=True)
    return stream.getvalue()


# -- containers and text ----------------------------------------------------------------------------------------------


def test_a_matrix_comes_back_as_it_was_through_parts_and_stores(data: tuple[Any, Any], tmp_path: Path) -> None:
    X, Y = data
    rows = Rows.from_scipy(X, Y.toarray().tolist())
    counts = np.asarray(Y.sum(axis=1)).ravel()
    assert {0, 1, 2} <= set(counts)
    assert ((rows.targets >= 0) == (counts == 1)).all()
    assert len(rows.labels.indptr) - 1 == len({tuple(row) for row in Y.toarray()[counts != 1].tolist()})
    part = rows.select([7, 3, 200]).compact()
    np.testing.assert_array_equal(part.to_scipy()[1].toarray(), Y.toarray()[[7, 3, 200]])
    save_store(rows.split(0.3)[0], tmp_path / "part")
    again = open_store(tmp_path / "part")
    np.testing.assert_array_equal(again.to_scipy()[1].toarray(), rows.split(0.3)[0].to_scipy()[1].toarray())
    assert again.labels.names.tolist() == [*range(LABELS)]
    np.save(tmp_path / "part" / "label_names.npy", np.arange(LABELS - 1, dtype=np.int32))
    with pytest.raises(InputError, match="damaged store: label_names do not ascend, or lack one of label_indices"):
        open_store(tmp_path / "part")


@pytest.mark.parametrize("chunk", [16, None])
def test_text_as_scikit_learn_writes_it(data: tuple[Any, Any], chunk: int | None, monkeypatch: Any) -> None:
    if chunk:
        monkeypatch.setattr("hogwild.data.text.svmlight.CHUNK_BYTES", chunk)
    counts = np.asarray(data[1].sum(axis=1)).ravel()
    order = np.argsort(np.where(counts == 1, 0, np.where(counts > 1, 1, 2)), kind="stable")
    X, Y = (each[order] for each in data)
    names = [0, 3, 4, 50, 1000]
    labels = "several" if chunk else "required"  # no row of the first chunk has several
    found = open_data(io.BytesIO(text_of(X, Y, names)), width=X.shape[1], labels=labels)
    assert found.labels.names.tolist() == names
    np.testing.assert_array_equal(found.to_scipy()[1].toarray(), Y.toarray())
    np.testing.assert_allclose(found.to_scipy()[0].toarray(), X.toarray(), rtol=1e-6)
    stream = io.BytesIO()
    write_text(found, stream)
    again = open_data(io.BytesIO(stream.getvalue()), width=X.shape[1], labels=labels)
    assert again.labels.names.tolist() == names
    np.testing.assert_array_equal(again.to_scipy()[1].toarray(), Y.toarray())
    with pytest.raises(InputError, match="cannot hold row 1, without labels and features"):
        write_text(Rows.from_scipy(np.eye(2) * [1, 0], np.array([[0, 0], [0, 0]])), stream)


def test_a_text_without_commas_is_one_of_single_labels_unless_somebody_says_otherwise() -> None:
    text = b"3 1:1\n 2:1\n5 1:1\n"
    with pytest.raises(InputError, match=":2: no label before '2:1'"):
        open_data(io.BytesIO(text))
    assert open_data(io.BytesIO(text), labels="optional").targets.tolist() == [3, 0, 5]
    rows = open_data(io.BytesIO(text), labels="several")
    assert rows.labels.indicator(rows.targets).toarray().tolist() == [[1, 0], [0, 0], [0, 1]]
    with pytest.raises(InputError, match="all 1 rows have the label none: loss log needs two or more classes"):
        hogwild.train(open_data(io.BytesIO(b" 1:1\n"), labels="several"), l2=0.1)
    wide = open_data(io.BytesIO(b"70000 1:1\n3.0 1:1\n1,2 1:1\n"))
    assert wide.labels.names.tolist() == [1, 2, 3, 70000]
    assert open_data(io.BytesIO(b"5,5,3 1:1\n3,5 1:1\n5 1:1")).targets.tolist() == [-1, -1, 5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            b"1,5 1:1\n\n0.5 1:1\n",
            ":3: label 0.5 where rows have several: expected whole numbers from 0",
        ),
        (b"1 1:1\n 1:1\n2 x:1\n", ":2: no label before '1:1'"),
        (b"-1 1:1\n1,5 1:1\n", ":1: label -1 where rows have several"),
        (b"1,-5 1:1\n", ":1: bad label '1,-5': several labels need whole numbers with commas, and one such row in"),
        (b"1,16777216 1:1\n", ":1: bad label '1,16777216'"),
        (b"1,5 1:1\n1, 1:1\n", ":2: bad label '1,'"),
        (b"1 1:1\n" * 4 + b"1,5 1:1\n", ":5: bad label '1,5': several labels need whole numbers"),
        (b"1,5,7\n2,3,4\n", "rows of labels alone, without features; svmlight text was expected: tables need --label"),
    ],
)
def test_wrong_text_is_one_line(text: bytes, said: str, monkeypatch: Any) -> None:
    for chunk in (16, 24):
        monkeypatch.setattr("hogwild.data.text.svmlight.CHUNK_BYTES", chunk)
        assert said in line_of(InputError, open_data, io.BytesIO(text))


@pytest.mark.parametrize(
    ("Y", "said"),
    [
        (np.array([[0, 2], [1, 0]]), "needs values 0 and 1; got 2 in row 0"),
        (np.array([[0, 1], [np.nan, 0]]), "needs values 0 and 1; got nan in row 1"),
        (scipy.sparse.csr_array(np.array([[0, 0.5], [1, 0]])), "needs values 0 and 1; got 0.5 in row 0"),
        (np.eye(3), "targets: expected one per row (2)"),
        (scipy.sparse.csr_array(np.ones((2, 1))), "needs two columns or more; got 1"),
    ],
)
def test_wrong_matrices_are_one_line(Y: Any, said: str) -> None:
    assert said in line_of(InputError, Rows.from_scipy, np.eye(2), Y)


# -- training ---------------------------------------------------------------------------------------------------------


def several(n: int = 83) -> tuple[Rows, np.ndarray]:
    rows = awkward_rows("log", n=n)
    Y = np.random.default_rng(5).random((n, LABELS)) < 0.3
    targets, sets = of_indicator(Y.astype(int))
    return rows.replace(targets=targets, labels=sets), Y


def test_a_pass_is_that_of_a_binary_model_for_each_label() -> None:
    rows, Y = several()
    options = {"start": False, "l1": 0.01, "l2": 0.02, "loss": "log"}
    job, turns = (make_job(rows, discipline, 1, **options) for discipline in ("serial", "round-robin"))
    assert job.problem.stride == 8
    for each in (job, turns):
        run_epoch(each, 0, FALLING)
    np.testing.assert_array_equal(turns.flat, job.flat)
    coef, intercept = job.problem.solution(job.flat)
    for k in range(LABELS):
        alone = rows.replace(targets=np.where(Y[:, k], 1, -1).astype(np.float32), labels=None)
        job = make_job(alone, "serial", 1, **options)
        run_epoch(job, 0, FALLING)
        one, other = job.problem.solution(job.flat)
        np.testing.assert_allclose(coef[k], one, rtol=2e-5, atol=1e-7)
        np.testing.assert_allclose(intercept[k], other[0], rtol=2e-5)


def test_the_optimum_is_that_of_logistic_regression_by_label(data: tuple[Any, Any], rows: Rows) -> None:
    X, Y = data
    l2, signs = 0.001, 2 * Y.toarray() - 1
    other = OneVsRestClassifier(LogisticRegression(C=1 / (l2 * len(rows)), tol=1e-8, max_iter=1000)).fit(X, Y)
    weights = np.array([one.coef_[0] for one in other.estimators_])
    lowest = reference.loss("log", other.decision_function(X), signs).sum(axis=1).mean() + l2 / 2 * np.sum(weights**2)
    run = hogwild.train(rows, l2=l2, workers=1)
    model, last = run.finish(), run.history[-1]
    p = model.decision_function(X)
    objective = reference.loss("log", p, signs).sum(axis=1).mean() + l2 / 2 * np.square(model.coef_).sum()
    assert last["objective"] == pytest.approx(objective, rel=1e-6)
    assert 0 <= last["objective"] / lowest - 1 < 0.005
    assert last["verdict"] == "settled"
    judge = Objective(rows, "log", l2=l2, labels=model.labels, multilabel=True)
    problem = FitProblem.of(judge, rows, LABELS, True)
    best = problem.lowered(model.coef_, model.intercept_, skip=0.0)
    np.testing.assert_allclose(best.coef, weights, atol=0.03)
    assert best.value == pytest.approx(lowest, rel=1e-4)
    found = model.predict(X)
    assert found.format == "csr"
    assert last["train_accuracy"] == theirs.accuracy_score(Y, found)
    assert last["train_f1_micro"] == pytest.approx(theirs.f1_score(Y, found, average="micro"))
    assert last["train_f1_macro"] == pytest.approx(theirs.f1_score(Y, found, average="macro"))


@pytest.mark.parametrize("options", [{"discipline": "tiered"}, {"host": "simulator"}])
def test_workers_together(rows: Rows, options: dict[str, Any]) -> None:
    run = hogwild.train(rows, l2=0.001, workers=2, **{"host": "threads"} | options, epochs=5, test=rows)
    run.finish()
    assert run.history[-1]["test_loss"] < 0.6 * run.history[0]["test_loss"]
    assert run.history[-1]["test_f1_micro"] > 0.3


def test_l2_is_chosen_by_a_few_labels_and_runs_resume(rows: Rows, tmp_path: Path) -> None:
    l2, again = (hogwild.train(rows, l2="auto", epochs=4, seed=3, workers=1).config.l2 for _ in range(2))
    assert l2 == again
    resumed(functools.partial(hogwild.train, rows, l2=l2, workers=1), tmp_path, 4, 2)


def test_many_labels_are_represented_by_common_ones() -> None:
    random = np.random.default_rng(0)
    Y = scipy.sparse.csr_array(random.random((500, 200)) < 0.5 / np.arange(1, 201))
    rows = few_labels(Rows.from_scipy(np.eye(500), Y))
    assert rows.labels.names.tolist()[:3] == [0, 1, 2]
    assert 8 <= len(rows.labels.names) <= 34
    assert rows.targets is few_labels(rows).targets


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "squared-error"}, "loss squared-error needs one target a row; rows have several labels"),
        ({"loss": "softmax"}, "loss softmax needs one target a row"),
        ({"class_weight": "balanced"}, "class_weight needs one label a row"),
        ({"problem": "fm"}, "problem 'fm' needs one label a row"),
    ],
)
def test_what_takes_one_label_a_row_says_so(rows: Rows, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        hogwild.train(rows, l2=0.1, workers=1, **options)


# -- models -----------------------------------------------------------------------------------------------------------


def test_metrics_are_scikit_learns_and_unknown_labels_are_missed(data: tuple[Any, Any], rows: Rows) -> None:
    X, Y = data
    model = hogwild.train(rows, l2=0.01, epochs=3, workers=1).finish()
    found, truth = evaluate(model, rows), Y.toarray()
    decided = model.predict(X).toarray()
    assert found["accuracy"] == theirs.accuracy_score(truth, decided)
    assert [*found["f1"].values()] == pytest.approx(
        theirs.f1_score(truth, decided, average=None, zero_division=0).tolist()
    )
    assert found["f1_micro"] == pytest.approx(theirs.f1_score(truth, decided, average="micro"))
    p = model.predict_proba(X)
    assert found["log_loss"] == pytest.approx(-np.log(np.where(truth, p, 1 - p)).sum(axis=1).mean())
    wide = np.column_stack((truth, np.ones(len(truth), int)))
    less = evaluate(model, Rows.from_scipy(X, wide))
    padded = np.column_stack((decided, np.zeros(len(truth), int)))
    assert less["f1_micro"] == pytest.approx(theirs.f1_score(wide, padded, average="micro"))
    assert less["f1_macro"] == pytest.approx(found["f1_macro"])
    row = dict(zip((X.indices[: X.indptr[1]] + 1).tolist(), X.data.tolist()))
    assert [*model.predict_one(row).values()] == pytest.approx(p[0].tolist(), rel=1e-6)
    with pytest.raises(InputError, match="goes out as python or npz"):
        model.to_sklearn()


# -- estimators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_the_classifier_is_one_of_each_label(data: tuple[Any, Any], loss: str) -> None:
    X, Y = data
    model = HogwildClassifier(loss=loss, alpha=0.01, random_state=0).fit(X, Y)
    assert (model.coef_.shape, model.multilabel_, model.classes_.tolist()) == ((LABELS, 30), True, [*range(LABELS)])
    margins = model.decision_function(X)
    for k in range(LABELS):
        one = HogwildClassifier(loss=loss, alpha=0.01, random_state=0).fit(X, Y[:, [k]].toarray().ravel())
        np.testing.assert_allclose(margins[:, k], one.decision_function(X), atol=0.2)
    found = model.predict(X)
    np.testing.assert_array_equal(found.toarray(), margins > 0)
    assert model.score(X, Y) == theirs.accuracy_score(Y, found) == model.score(X, Y.toarray())
    if loss == "log_loss":
        np.testing.assert_allclose(model.predict_proba(X), 1 / (1 + np.exp(-margins)))
        written = model.to_model()
        np.testing.assert_array_equal(written.predict(X).toarray(), found.toarray())


def test_batches_validation_and_a_chosen_alpha(data: tuple[Any, Any]) -> None:
    X, Y = data
    model = HogwildClassifier(loss="log_loss", random_state=0)
    for _ in range(3):
        for first in range(0, 400, 100):
            model.partial_fit(X[first : first + 100], Y[first : first + 100])
    assert model.score(X, Y) > 0.3
    with pytest.raises(InputError, match="y has 4 columns; the model has 5 labels"):
        model.partial_fit(X, Y[:, :4])
    with pytest.raises(UsageError, match=r"classes=\[0, 1\]: y has columns 0 to 4"):
        model.partial_fit(X, Y, classes=[0, 1])
    with pytest.raises(InputError, match="the batches before had one class a row"):
        HogwildClassifier().partial_fit(X, np.arange(400) % 5, classes=range(5)).partial_fit(X, Y)
    with pytest.raises(InputError, match="y needs a column for each label"):
        model.partial_fit(X, np.zeros(400))
    stopped = HogwildClassifier(loss="log_loss", early_stopping=True, random_state=0, alpha="auto").fit(X, Y)
    assert max(stopped.validation_scores_) > 0.3
    assert 0 < stopped.alpha_ < 1
    alone = stopped.fit(X, Y[:, [0]].toarray().ravel())
    assert (alone.multilabel_, alone.predict(X).shape) == (False, (400,))


@pytest.mark.parametrize(
    ("options", "y", "said"),
    [
        ({"loss": "softmax"}, np.eye(4), "loss='softmax' needs one label a row"),
        ({"class_weight": "balanced"}, np.eye(4), "class_weight needs one label a row"),
        ({}, 2 * np.eye(4), "needs values 0 and 1; got 2.0 in row 0"),
        ({}, np.where(np.eye(4) > 0, np.nan, 0), "NaN"),
        ({}, np.eye(3), "inconsistent numbers of samples"),
        ({}, [[1], [2, 3], [], [1]], r"several labels a row as lists: a matrix of zeros and ones"),
        ({}, np.eye(4).astype(str), "needs values 0 and 1; got dtype <U"),
    ],
)
def test_the_classifier_refuses_in_one_line(options: dict[str, Any], y: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        HogwildClassifier(**options).fit(np.eye(4), y)
