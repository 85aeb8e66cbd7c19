"""The linear problem's kernels for a device: every loss, penalty and discipline next to a slow twin, and the launcher.

The interpreter runs program after program, so with several the order of the visits is known: those of the first, then
those of the second. What only a GPU can show is in no test here.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from hogwild.config import TrainConfig
from hogwild.cuda.linear import triton as linear_kernels
from hogwild.cuda.linear.launcher import LinearLauncher
from hogwild.cuda.work import Segment, Visits
from hogwild.data.rows.container import Rows
from hogwild.kernels.losses import LOSSES
from hogwild.methods import LABEL_LOSSES
from hogwild.problems.linear.problem import LinearProblem
from tests.cuda import order_twin
from tests.cuda import torch_linear as linear_torch
from tests.cuda.linear_twin import Twin
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
        self.launcher = LinearLauncher(self.problem, entries | self.arrays, StandIn())
        rng, host = np.random.default_rng(1), np.zeros(self.problem.size, np.float32)
        parts = [part.reshape(-1, self.problem.stride) for part in self.problem.parameters(host)]
        for part, draw in zip(parts, (rng.normal, rng.normal, rng.random, rng.random)):
            part[:, : self.problem.classes] = draw(size=(len(part), self.problem.classes)) / 2
        self.launcher.flat.copy_(torch.from_numpy(host))
        w, b, w_squares, b_squares = (part[:, : self.problem.classes] for part in parts)
        if not self.problem.adagrad:
            w_squares, b_squares = np.zeros_like(w), np.zeros_like(b)
        self.twin = Twin(self.problem, rows, self.arrays, w, b[0], w_squares, b_squares[0])

    def data(self, first=0, last=None):
        part = self.launcher.part(first, len(self.rows) if last is None else last)
        return {name: torch.from_numpy(np.array(array)) for name, array in part.items()}

    def visit(self, module, visits, in_flight):
        module.visit(self.launcher, Segment(self.data(), visits), in_flight)

    def twin_visits(self, visits, in_flight=1):
        """The twin's, in the order in which the interpreter comes to them."""
        rows, steps = order_twin.rows(visits), order_twin.steps(visits)
        for k in range(in_flight):
            for p in range(k, len(rows), in_flight):
                self.twin.visit(rows[p], steps[p])

    def assert_as_twin(self, tolerance=2e-5):
        flat = self.launcher.flat.numpy()
        coef, intercept = self.problem.solution(flat)
        close = {"rtol": tolerance, "atol": tolerance}
        np.testing.assert_allclose(coef.reshape(self.problem.classes, -1).T, self.twin.w, **close)
        np.testing.assert_allclose(intercept, self.twin.b, **close)
        if self.problem.adagrad:
            squares = self.problem.parameters(flat).coef_squares.reshape(-1, self.problem.stride)
            np.testing.assert_allclose(squares[:, : self.problem.classes], self.twin.w_squares, **close)
        for part in self.problem.parameters(flat):  # what pads the classes
            assert not part.reshape(-1, self.problem.stride)[:, self.problem.classes :].any()


def visits_of(count=12, n=12, **options):
    """Visits in a random order, with falling steps."""
    return Visits(**{"first": 0, "size": count, "n": n, "key": 3, "epoch": 1, "scale": 0.1, "power": 0.5} | options)


def options_of(case):
    """Penalty, AdaGrad, discipline, weights, scales and intercept of the case with this number, pairwise mixed."""
    penalty = list(PENALTIES.values())[case % 3]
    return penalty | {
        "adagrad": case % 2 == 1,
        "discipline": ("atomic", "hogwild")[case // 2 % 2],
        "normalize": ("none", "l2", "max", "none")[case // 3 % 4],
        "intercept": case % 7 != 3,
    }


CASES = [(loss, classes, options_of(k * 5 + more)) for k, (loss, classes) in enumerate(KINDS) for more in (0, 7)]
IDS = [f"{loss}-{classes}-" + "-".join(str(o) for o in options.values()) for loss, classes, options in CASES]


@pytest.mark.parametrize(("loss", "classes", "options"), CASES, ids=IDS)
def test_kernel_visits_as_twin(loss, classes, options):
    in_flight = 3 if "l1" in options else 1
    trial = Trial(small_rows(loss, classes, weights=options["adagrad"]), loss=loss, **options)
    trial.visit(linear_kernels, visits_of(), in_flight)
    trial.twin_visits(visits_of(), in_flight)
    trial.assert_as_twin()


@pytest.mark.parametrize(("loss", "classes", "options"), CASES[::2], ids=IDS[::2])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_torch_visits_batches_as_twin(loss, classes, options, in_flight):
    trial = Trial(small_rows(loss, classes, weights=options["adagrad"]), loss=loss, **options)
    trial.visit(linear_torch, visits_of(), in_flight)
    rows, steps = order_twin.rows(visits_of()), order_twin.steps(visits_of())
    for first in range(0, len(rows), in_flight):
        trial.twin.batch(rows[first : first + in_flight], steps[first : first + in_flight])
    trial.assert_as_twin()


@pytest.mark.parametrize(
    ("discipline", "adagrad", "classes"),
    [("atomic", False, 2), ("hogwild", True, 2), ("hogwild", False, 5), ("atomic", True, 5)],
)
def test_kernel_as_that_of_the_cpu(discipline, adagrad, classes):
    """One program does what one worker of the CPU does, to float32's rounding."""
    options = {"adagrad": adagrad, "l2": 0.02, "normalize": "l2"}
    rows = small_rows(classes=classes, n=40, weights=True)
    job = make_job(rows, **options)
    trial = Trial(rows.select(sequence(job, 0)), discipline, **options)
    trial.launcher.flat.copy_(torch.from_numpy(job.export()))
    run_epoch(job, 0, CONSTANT)
    trial.visit(linear_kernels, Visits(0, 40, 40, 0, 0, CONSTANT[0], shuffled=False), 1)
    np.testing.assert_allclose(trial.launcher.flat.numpy(), job.export(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 5])
def test_several_programs_look_up_several_times(classes):
    trial = Trial(small_rows(classes=classes), l2=0.02)
    visits = visits_of(70, rate=-0.1)  # 35 of each program, in six epochs
    trial.visit(linear_kernels, visits, 2)
    trial.twin_visits(visits, 2)
    trial.assert_as_twin()


@pytest.mark.parametrize("module", [linear_kernels, linear_torch])
def test_values_that_are_all_one_are_not_read(module):
    trial = Trial(small_rows(unit=True), l2=0.02)
    assert trial.problem.unit
    assert "values" not in trial.data()
    trial.visit(module, visits_of(), 1)
    trial.twin_visits(visits_of())
    trial.assert_as_twin()


@pytest.mark.parametrize("loss", ["softmax", "hinge"])
@pytest.mark.parametrize("adagrad", [False, True])
def test_more_classes_than_a_program_takes_at_a_time(monkeypatch, loss, adagrad):
    monkeypatch.setattr(linear_kernels, "TILE", 4)
    trial = Trial(small_rows(classes=6), loss=loss, adagrad=adagrad, l2=0.02)
    constants = linear_kernels.constants(trial.problem, 1, False, False)
    assert constants["COLUMNS"] < trial.problem.classes < constants["STRIDE"]
    trial.visit(linear_kernels, visits_of(6), 1)
    trial.twin_visits(visits_of(6))
    trial.assert_as_twin()


@pytest.mark.parametrize("classes", [2, 5])
def test_long_numbers(monkeypatch, classes):
    """Offsets beyond 2^31 in the data, or in the weights, come to the same."""
    found = []
    for long in (False, True):
        trial = Trial(small_rows(classes=classes), l2=0.02)
        if long:
            monkeypatch.setattr("hogwild.cuda.work.INT32", 1)
            monkeypatch.setattr(linear_kernels, "INT32", 1)
            assert trial.data()["begin"].dtype == torch.int64
        trial.visit(linear_kernels, visits_of(), 2)
        found.append(trial.launcher.flat.clone())
    assert torch.equal(*found)


@pytest.mark.parametrize("module", [linear_kernels, linear_torch])
@pytest.mark.parametrize(("loss", "classes"), KINDS)
def test_nan_is_not_lost(module, loss, classes):
    """A run that has diverged is noticed by its weights; an elastic net's cut at zero must not repair them."""
    trial = Trial(small_rows(loss, classes), loss=loss, l1=0.01, l2=0.02)
    trial.launcher.flat[: trial.problem.width * trial.problem.stride] = float("nan")
    with np.errstate(all="ignore"):
        trial.visit(module, Visits(3, 1, 12, 0, 0, 0.1, shuffled=False), 1)
    coef, intercept = trial.problem.solution(trial.launcher.flat.numpy())
    assert np.isnan(coef).all()
    assert np.isnan(intercept).all()


# --- the launcher ---


def scattered(rows, seed=0):
    return rows.select(np.random.default_rng(seed).permutation(len(rows))[: len(rows) - 2])


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("select", [lambda rows: rows, scattered, lambda rows: rows.block(2, 11)])
def test_parts_hold_the_rows(select, classes):
    rows = select(small_rows(classes=classes, weights=True))
    trial = Trial(rows, normalize="l2")
    for first, last in ((0, len(rows)), (3, 8), (4, 5), (1, 2), (6, 6)):
        part = trial.launcher.part(first, last)
        assert sum(array.nbytes for array in part.values()) == trial.launcher.bytes_of(first, last)
        assert part["begin"].dtype == part["end"].dtype == part["indices"].dtype == np.int32
        for name in ("targets", "weights", "scales"):
            np.testing.assert_array_equal(part[name], trial.arrays[name][first:last])
        for k, row in enumerate(range(first, last)):
            there, here = slice(rows.begin[row], rows.end[row]), slice(part["begin"][k], part["end"][k])
            for name, source in (("indices", rows.indices), ("values", rows.values)):
                np.testing.assert_array_equal(part[name][here], source[there])


def test_neighbours_in_memory_are_not_copied():
    rows = small_rows()
    part = Trial(rows).launcher.part(3, 8)
    assert np.shares_memory(part["indices"], rows.indices)
    assert np.shares_memory(part["values"], rows.values)


def test_replica_launches_a_segment():
    trial = Trial(small_rows(), l2=0.02)
    stream = StandIn().stream()
    launch = trial.launcher.replica(0, stream, 1)
    for first, count in ((0, 5), (5, 0), (5, 7)):
        launch(Segment(trial.data(), visits_of(count, first=first)))
    trial.twin_visits(visits_of())
    trial.assert_as_twin()


def test_data_without_a_nonzero():
    rows = Rows(np.zeros(5, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), [1.0, -1, 1, 1], 3)
    for module in (linear_kernels, linear_torch):
        trial = Trial(rows, l2=0.02)
        trial.visit(module, visits_of(4, 4), 1)
        trial.twin_visits(visits_of(4, 4))
        trial.assert_as_twin()
