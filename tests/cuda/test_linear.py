"""The linear problem on a device: every loss, penalty and discipline next to a slow twin, and the launcher.

The interpreter runs program after program, so with several the order of the visits is known: those of the first, then
those of the second. What only a GPU can show is in no test here.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from hogwild.config import TrainConfig
from hogwild.cuda import linear
from hogwild.cuda.losses import LOSSES
from hogwild.cuda.streams import Visits, entries_of
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError
from hogwild.methods import LABEL_LOSSES
from hogwild.problems.linear.problem import LinearProblem
from tests.cuda import linear_twin, order_twin
from tests.cuda.standin import StandIn
from tests.kernels.harness import CONSTANT, make_job, run_epoch, sequence

PENALTIES = {"none": {}, "l2": {"l2": 0.02}, "elastic": {"l1": 0.01, "l2": 0.02}}
KINDS = [(loss, 1) for loss in LOSSES if loss != "softmax"] + [(loss, 5) for loss in LOSSES if loss in LABEL_LOSSES]
LENGTHS = (3, 0, 7, 40, 1, 12)  # 40: more than a program takes at a time


def small_rows(loss="log", classes=2, n=12, width=50, weights=False, unit=False, seed=0):
    """Rows of all kinds of lengths, none among them, with features that many share and some that none has."""
    rng = np.random.default_rng(seed)
    lengths = [LENGTHS[i % len(LENGTHS)] for i in range(n)]
    indices = [np.sort(rng.choice(width - 5, size=length, replace=False)) for length in lengths]
    values = np.ones(sum(lengths)) if unit else rng.normal(size=sum(lengths)) / 2
    if loss in LABEL_LOSSES:
        targets = np.array([3.0, -1.5, 7.0, 0.25, 5.0, 9.0])[np.arange(n) % max(classes, 2)]
    else:
        targets = rng.poisson(2, size=n) if loss == "poisson" else rng.normal(size=n)
    row_weights = np.where(np.arange(n) % 5 == 1, 0.0, rng.random(n) + 0.1) if weights else None
    return Rows(np.concatenate(([0], np.cumsum(lengths))), np.concatenate(indices), values, targets, width, row_weights)


class Trial:
    """A problem on a device that is none, at parameters drawn at random, and its twin."""

    def __init__(self, rows, discipline="atomic", **options):
        self.rows = rows
        self.problem = LinearProblem.of(TrainConfig(**{"l2": 0.0} | options), rows, discipline)
        self.arrays = self.problem.row_arrays(rows, None)
        entries = {"begin": rows.begin, "end": rows.end, "indices": rows.indices, "values": rows.values}
        self.launcher = linear.LinearLauncher(self.problem, entries | self.arrays, StandIn())
        rng, host = np.random.default_rng(1), np.zeros(self.problem.size, np.float32)
        parts = [part.reshape(-1, self.problem.stride) for part in self.problem.parameters(host)]
        for part, draw in zip(parts, (rng.normal, rng.normal, rng.random, rng.random)):
            part[:, : self.problem.classes] = draw(size=(len(part), self.problem.classes)) / 2
        self.launcher.flat.copy_(torch.from_numpy(host))
        self.twin = linear_twin.twin_of(self.problem, rows, self.arrays, host)

    def visit(self, visits, in_flight):
        self.launcher.visit(visits, in_flight)

    def twin_visits(self, visits, in_flight=1):
        """The twin's, in the order in which the interpreter comes to them."""
        rows, steps = order_twin.rows(visits), order_twin.steps(visits)
        for k in range(in_flight):
            for p in range(k, len(rows), in_flight):
                self.twin.apply(rows[p], self.twin.gradient(rows[p]), steps[p])

    def assert_as_twin(self, tolerance=2e-5):
        flat = self.launcher.flat.numpy()
        for part, numbers in linear_twin.pairs(self.problem, flat, self.twin):
            np.testing.assert_allclose(part[:, : self.problem.classes], numbers, rtol=tolerance, atol=tolerance)
            assert not part[:, self.problem.classes :].any()  # what pads the classes


def visits_of(count=12, n=12, **options):
    """Visits in a random order, with falling steps."""
    return Visits(**{"first": 0, "size": count, "n": n, "key": 3, "scale": 0.1, "power": 0.5} | options)


def options_of(case):
    """Penalty, AdaGrad, discipline, weights, scales and intercept of the case with this number, pairwise mixed."""
    penalty = list(PENALTIES.values())[case % 3]
    return penalty | {
        "adagrad": case % 2 == 1,
        "discipline": ("atomic", "hogwild")[case // 2 % 2],
        "normalize": ("none", "l2", "none", "none")[case // 3 % 4],
        "intercept": case % 7 != 3,
    }


CASES = [(loss, classes, options_of(13 * k + 3)) for k, (loss, classes) in enumerate(KINDS)]
IDS = [f"{loss}-{classes}-" + "-".join(str(o) for o in options.values()) for loss, classes, options in CASES]


@pytest.mark.parametrize(("loss", "classes", "options"), CASES, ids=IDS)
def test_kernel_visits_as_twin(loss, classes, options):
    in_flight = 3 if "l1" in options else 1
    trial = Trial(small_rows(loss, classes, weights=options["adagrad"]), loss=loss, **options)
    trial.visit(visits_of(), in_flight)
    trial.twin_visits(visits_of(), in_flight)
    trial.assert_as_twin()


@pytest.mark.parametrize(("discipline", "adagrad", "classes"), [("atomic", False, 2), ("hogwild", True, 5)])
def test_kernel_as_that_of_the_cpu(discipline, adagrad, classes):
    """One program does what one worker of the CPU does, to float32's rounding."""
    options = {"adagrad": adagrad, "l2": 0.02, "normalize": "l2"}
    rows = small_rows(classes=classes, n=40, weights=True)
    job = make_job(rows, **options)
    trial = Trial(rows.select(sequence(job, 0)), discipline, **options)
    trial.launcher.flat.copy_(torch.from_numpy(job.export()))
    run_epoch(job, 0, CONSTANT)
    trial.visit(Visits(0, 40, 40, 0, CONSTANT[0], shuffled=False), 1)
    np.testing.assert_allclose(trial.launcher.flat.numpy(), job.export(), rtol=1e-5, atol=1e-5)


def test_several_programs_look_up_several_times():
    trial = Trial(small_rows(classes=5, n=70), l2=0.02)
    visits = visits_of(70, 70)  # 35 of each program
    trial.visit(visits, 2)
    trial.twin_visits(visits, 2)
    trial.assert_as_twin()


def test_values_that_are_all_one_are_not_read():
    trial = Trial(small_rows(unit=True), l2=0.02)
    assert trial.problem.unit
    assert "values" not in trial.launcher.data
    trial.visit(visits_of(), 1)
    trial.twin_visits(visits_of())
    trial.assert_as_twin()


def test_long_numbers(monkeypatch):
    """Offsets beyond 2^31 in the data, or in the weights, come to the same."""
    ends = []
    for long in (False, True):
        if long:
            monkeypatch.setattr("hogwild.cuda.streams.INT32", 1)
            monkeypatch.setattr(linear, "INT32", 1)
        trial = Trial(small_rows(classes=5), l2=0.02)
        assert trial.launcher.data["begin"].dtype == (torch.int64 if long else torch.int32)
        trial.visit(visits_of(), 2)
        ends.append(trial.launcher.flat.clone())
    assert torch.equal(*ends)


@pytest.mark.parametrize(("loss", "classes"), [kind for kind in KINDS if kind[1] == 1] + [("softmax", 5)])
def test_nan_is_not_lost(loss, classes):
    """A run that has diverged is noticed by its weights; an elastic net's cut at zero must not repair them."""
    trial = Trial(small_rows(loss, classes), loss=loss, l1=0.01, l2=0.02)
    trial.launcher.flat[: trial.problem.width * trial.problem.stride] = float("nan")
    with np.errstate(all="ignore"):
        trial.visit(Visits(3, 1, 12, 0, 0.1, shuffled=False), 1)
    coef, intercept = trial.problem.solution(trial.launcher.flat.numpy())
    assert np.isnan(coef).all()
    assert np.isnan(intercept).all()


# --- the launcher ---


def test_more_classes_than_a_program_holds_are_refused(monkeypatch):
    monkeypatch.setattr(linear, "MOST", 4)
    with pytest.raises(InputError, match="^device cuda: linear models have 4 classes at most there, got 5$"):
        Trial(small_rows(classes=5))


def test_a_loss_without_a_form_for_a_gpu_is_refused():
    with pytest.raises(InputError, match="^device cuda: loss quantile has no form for a GPU: train on the CPU$"):
        Trial(small_rows(), loss="quantile")


@pytest.mark.parametrize(
    "select", [lambda rows: rows, lambda rows: rows.select([7, 1, 4]), lambda rows: rows.block(2, 11)]
)
def test_entries_are_those_of_the_rows(select):
    rows = select(small_rows())
    part = entries_of(rows)
    assert part["begin"][0] == 0
    for row in range(len(rows)):
        there, here = slice(rows.begin[row], rows.end[row]), slice(part["begin"][row], part["end"][row])
        for name, source in (("indices", rows.indices), ("values", rows.values)):
            np.testing.assert_array_equal(part[name][here], source[there])
    assert np.shares_memory(part["values"], rows.values) == rows.contiguous


@pytest.mark.parametrize(("loss", "curvature"), [("squared-error", 1.0), ("log", 0.1), ("poisson", 2.5)])
def test_longest_step_is_that_of_the_curvature(loss, curvature):
    """Of the mean loss, the intercept included, which takes a share of the step."""
    rows = small_rows(loss, n=30, weights=True)
    if loss == "poisson":
        rows.targets.flags.writeable = True
        rows.targets[:] = 2.5
    trial = Trial(rows, loss=loss, normalize="l2")
    X = np.zeros((30, rows.width + 1))
    for k in range(30):
        part = slice(rows.begin[k], rows.end[k])
        X[k, rows.indices[part]] = rows.values[part] * trial.arrays["scales"][k]
    X[:, -1] = trial.problem.intercept**0.5
    largest = np.linalg.eigvalsh(X.T @ (trial.arrays["weights"][:, None] * X) / 30)[-1]
    assert trial.launcher.longest_step() == pytest.approx(1 / (curvature * largest), rel=0.05)
