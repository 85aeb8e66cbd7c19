"""Replicas of a module on streams: one is the CPU's worker, several lose nothing, captures leave no trace."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import hogwild
from hogwild.cuda import module as on_device
from hogwild.cuda import streams
from hogwild.cuda.module import ModuleLauncher
from hogwild.cuda.streams import Visits
from hogwild.data.rows.container import readonly
from hogwild.errors import HogwildWarning, InputError
from hogwild.problems.module.feed import take_data
from hogwild.problems.module.layout import Layout, pack, unpack
from hogwild.problems.module.problem import ModuleProblem
from tests.cuda.standin import StandIn
from tests.runs import toy

STEPS = {"sgd": 0.125, "momentum": 0.0625, "adagrad": 0.0625, "adam": 0.015625}  # exact in float32
BATCH = 16
TOGETHER = 8  # minibatches in a segment
gpu = pytest.mark.gpu


@pytest.fixture(params=["stand-in", pytest.param("cuda", marks=gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in, in the place of a device, or a real one."""
    if request.param == "stand-in":
        found = StandIn(2)
        monkeypatch.setattr(streams, "connect", lambda: found)
        return found
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return streams.connect()


def trained(model: nn.Module, data: Any, rule: str = "sgd", device: str = "cuda", **options: Any) -> Any:
    """The state after two epochs in the order of the data, with a step that falls."""
    options = {"workers": 1, "schedule": "inverse", "order": "file", "epochs": 2, "keep": "last"} | options
    about = {"optimizer": rule, "step": STEPS[rule], "batch": BATCH, "device": device}
    return hogwild.train_module(model, "cross-entropy", data, **about, **options).finish().arrays


on_gpu = pytest.mark.parametrize("device", [pytest.param("cuda", marks=gpu)], indirect=True)


class Posed(NamedTuple):
    """A module on its data, as the case poses it."""

    problem: ModuleProblem
    arrays: dict[str, np.ndarray]
    flat: np.ndarray

    @property
    def n(self) -> int:
        return len(self.arrays["target"])


def pose(
    model: nn.Module,
    data: Any,
    loss: Callable[..., torch.Tensor] = functional.cross_entropy,
    rule: str = "sgd",
    workers: int = 1,
    discipline: str = "hogwild",
) -> Posed:
    examples = take_data(data, "custom")
    layout = Layout.of(model, rule, workers)
    flat = np.zeros(layout.size, np.float32)
    for view, parameter in zip(layout.views(flat), model.parameters()):
        view.copy_(parameter.detach())
    for worker in range(workers):
        layout.read_buffers(model, layout.slot_buffers(layout.slot(flat, worker)))
    program = pack(model, loss)
    betas = (0.9, 0.0) if rule == "momentum" else (0.9, 0.999)
    problem = ModuleProblem(discipline, layout, program, betas)
    arrays = {name: readonly(array) for name, array in examples.lay_out(shared=False)[0].items()}
    return Posed(problem, arrays, flat)


def orders(n: int, epochs: int) -> list[np.ndarray]:
    return [np.random.default_rng(k).permutation(n).astype(np.int32) for k in range(epochs)]


class Driven:
    """Replicas on streams, to each of which segments are given at random."""

    def __init__(self, posed: Posed, backend: Any, batch: int = BATCH, seed: int = 0) -> None:
        workers = posed.problem.layout.workers
        self.posed, self.backend, self._random = posed, backend, random.Random(seed)
        self.launcher = ModuleLauncher(posed.problem, posed.arrays, backend, batch=batch)
        self.launcher.flat.copy_(torch.from_numpy(posed.flat))
        self.streams = [backend.stream() for _ in range(workers)]
        self.replicas = [self.launcher.replica(k, stream, batch) for k, stream in enumerate(self.streams)]

    def wait(self) -> None:
        for stream in self.streams:
            stream.record().synchronize()

    def epoch(self, rows: np.ndarray, step: float | None = None, together: int = TOGETHER) -> None:
        locked = self.posed.problem.discipline == "locked"
        size = self.launcher.granule * (1 if locked else together)
        self.launcher.rows = torch.from_numpy(rows).to(self.backend.device)
        step = step or STEPS[self.posed.problem.layout.rule]
        if self.backend.device.type == "cuda":
            torch.cuda.synchronize()  # it was made on another stream
        before = None
        for first in range(0, len(rows), size):
            number = self._random.randrange(len(self.streams))
            stream = self.streams[number]
            if locked and before is not None:
                stream.after(before)
            visits = Visits(first, min(size, len(rows) - first), len(rows), 0, step)
            stream.run(partial(self.replicas[number], visits))
            before = stream.record()
        self.wait()

    def run(self, epochs: int = 2, **options: Any) -> np.ndarray:
        for rows in orders(self.posed.n, epochs):
            self.epoch(rows, **options)
        return self.flat()

    def flat(self) -> np.ndarray:
        return self.launcher.flat.cpu().numpy().copy()


def close(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray], device: Any) -> None:
    tolerance = (2e-4, 5e-6) if isinstance(device, StandIn) else (5e-3, 1e-4)
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], *tolerance, err_msg=name)


# ---- modules and data


def dense_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 12)).astype(np.float32)
    return X, (X @ rng.normal(size=(12, 3))).argmax(axis=1)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 3))


def normed() -> nn.Module:
    torch.manual_seed(0)  # and no bias whose gradient is zero, but for rounding
    return nn.Sequential(nn.Linear(12, 20, bias=False), nn.BatchNorm1d(20), nn.Tanh(), nn.Linear(20, 3))


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(40, 6, sparse=True)
        nn.init.normal_(self.table.weight, std=0.3)
        self.out = nn.Linear(6, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.table(words).sum(dim=1)))


def words() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 20, (150, 4)), rng.integers(0, 3, 150)


KINDS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "dense": lambda: (network(), dense_data()),
    "batch norm": lambda: (normed(), dense_data()),
    "Embedding": lambda: (Embedded(), words()),
}


# ---- one replica


#: Every kind of module with every rule; sparse gradients have one.
PAIRS = [(kind, rule) for kind in KINDS for rule in STEPS if kind != "Embedding" or rule == "sgd"]


@pytest.mark.parametrize(("kind", "rule"), PAIRS)
def test_one_replica_is_the_cpus_worker(device: Any, kind: str, rule: str) -> None:
    """Captured, with a short last minibatch and a step for each, taken from the place of its first row; rows that
    nothing names stay bit for bit.
    """
    model, data = KINDS[kind]()
    mine = trained(model, data, rule)
    close(mine, trained(model, data, rule, "cpu"), device)
    name, start = next(iter(model.state_dict().items()))
    assert not np.allclose(mine[name], start, atol=1e-3)
    if kind == "Embedding":
        np.testing.assert_array_equal(mine[name][20:], start[20:])


@pytest.mark.parametrize("kind", ["batch norm", "dense"])
def test_what_cannot_be_captured_runs_eagerly(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same end, after one warning."""
    ends = []
    for captures in (True, False):
        monkeypatch.setattr(streams, "connect", lambda captures=captures: StandIn(captures=captures))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            ends.append(trained(*KINDS[kind](), "adam", workers=2, discipline="locked"))
        assert len(said) == (not captures)
    assert re.search(r"cannot be captured .* runs eagerly: .*operation not permitted", str(said[0].message))
    for name, array in ends[0].items():
        np.testing.assert_array_equal(array, ends[1][name])


class Nowhere(StandIn):
    """A device whose tensors have no numbers: looking at one, which is what waits for a device, is an error."""

    device = torch.device("meta")


@pytest.mark.parametrize(("kind", "rule"), PAIRS)
def test_whole_minibatches_wait_for_nothing(kind: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    landed = []
    for name in ("_fused_sgd_", "_fused_adam_"):  # which are not for such tensors
        monkeypatch.setattr(torch, name, lambda weights, *_, lr, **options: landed.append(lr.device.type))
    posed = pose(*KINDS[kind](), rule=rule)
    driven = Driven(posed, Nowhere())
    rows = orders(9 * BATCH, 1)[0]
    driven.epoch(rows)
    assert landed == ["meta"] * (3 + 9) * (rule != "adagrad")  # rehearsed, and run


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Strides of all gradients that land, from now on."""
    found: list[tuple[int, ...]] = []
    whole = on_device.update

    def noting(rule: str, moved: Any, grads: list[torch.Tensor], step: torch.Tensor, betas: Any) -> None:
        found.extend(grad.stride() for grad in grads)
        whole(rule, moved, grads, step, betas)

    monkeypatch.setattr(on_device, "update", noting)
    return found


class Twins(nn.Module):
    """Two parameters with one gradient, in the same memory; and one whose gradient is one number, repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(12, 3)), nn.Parameter(torch.ones(12, 3) / 8)
        self.c, self.single = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.tensor(0.5))
        self.one = nn.Parameter(torch.zeros(1))
        self.unused = nn.Parameter(torch.ones(5))
        self.frozen = nn.Parameter(torch.full((3,), 0.25), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (
            x @ (self.a + self.b) * self.single
            + (self.c.sum() + self.one.expand(2, 3).sum()) * torch.arange(3.0)
            + self.frozen
        )


@pytest.mark.parametrize("rule", STEPS)
def test_gradients_that_share_memory_and_parameters_without_any(
    device: Any, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strides = watched(monkeypatch)
    mine = trained(Twins(), dense_data(), rule)
    assert set(strides) == {(1,)}  # or kernels of a GPU refuse
    close(mine, trained(Twins(), dense_data(), rule, "cpu"), device)
    assert (mine["unused"] == 1).all()
    assert (mine["frozen"] == 0.25).all()


# ---- several replicas


class Sum(nn.Module):
    """Its output's gradient does not depend on its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w


def mean_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return output.mean()


@pytest.mark.parametrize("discipline", ["hogwild", "locked"])
def test_every_minibatch_lands_once(device: Any, discipline: str) -> None:
    """All numbers are sums of few powers of two, so whatever the order, and however short the last, sums are exact."""
    if discipline == "hogwild" and not isinstance(device, StandIn):
        pytest.skip("of plain additions that race, some are lost")
    X = np.random.default_rng(0).integers(-8, 9, (210, 5)).astype(np.float32)
    posed = pose(Sum(), (X, np.zeros(len(X))), mean_of, workers=3, discipline=discipline)
    flat = Driven(posed, device, batch=4).run(epochs=3, step=0.125)
    means = [X[rows[k : k + 4]].mean(axis=0) for rows in orders(len(X), 3) for k in range(0, len(X), 4)]
    np.testing.assert_array_equal(flat[:5], -0.125 * np.sum(means, axis=0))


@pytest.mark.parametrize("kind", KINDS)
def test_captures_leave_no_trace(device: Any, kind: str) -> None:
    posed = pose(*KINDS[kind](), rule="sgd" if kind == "Embedding" else "adam", workers=4)
    driven = Driven(posed, device)
    np.testing.assert_array_equal(driven.flat(), posed.flat)
    if isinstance(device, StandIn):
        assert device.captured == 4
        while device.advance():
            pass
        np.testing.assert_array_equal(driven.flat(), posed.flat)


# ---- buffers


def test_buffers_are_a_replicas_own() -> None:
    posed = pose(normed(), dense_data(), workers=3)
    layout = posed.problem.layout
    flat = Driven(posed, StandIn()).run(together=1)
    slots = [layout.slot(flat, worker) for worker in range(3)]
    counts = [int(layout._buffers_in(layout.slot_buffers(slot))[-1]) for slot in slots]  # num_batches_tracked
    assert sum(counts) == 2 * -(-posed.n // BATCH)
    assert all(slot[0] == 1 for slot in slots)
    means = [layout.slot_buffers(slot)[: layout.buffers[0].end] for slot in slots]
    assert not np.allclose(means[0], means[1])


class Counting(nn.Module):
    """Puts new tensors in the places of its buffers; some are of other dtypes, one is used in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.zeros(12))
        self.register_buffer("seen", torch.tensor(1 << 40))
        self.register_buffer("precise", torch.tensor([1 / 3, 2 / 3], dtype=torch.float64))
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("none", torch.zeros(0))
        self.inner.register_buffer("same", self.mean)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(dim=0)
        self.seen = self.seen + len(x)
        self.precise = self.precise * 0.5
        self.flags = ~self.flags
        return self.inner(x - self.mean)


def test_buffers_that_a_module_replaces(device: Any) -> None:
    close(trained(Counting(), dense_data()), trained(Counting(), dense_data(), device="cpu"), device)


def test_momentum_of_zero(device: Any) -> None:
    ends = [trained(network(), dense_data(), "momentum", where, momentum=0.0) for where in ("cuda", "cpu")]
    close(*ends, device)


class Scaled(nn.Module):
    """Has a constant that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.full((12,), 0.5)
        self.inner = normed()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x * self.scale)


def test_everything_is_moved_to_the_device() -> None:
    """The constants of the module too."""
    posed = pose(Scaled(), dense_data())
    model, _ = unpack(posed.problem.program, posed.problem.layout, torch.zeros(len(posed.flat), device="meta"))
    tensors = [*model.parameters(), *model.buffers(), model.scale]
    assert len(tensors) == 5 + 3 + 1
    assert all(tensor.device.type == "meta" for tensor in tensors)


def test_sparse_rows_are_refused(device: Any) -> None:
    message = "^device cuda: a module needs dense inputs there; got sparse rows: train on the CPU$"
    with pytest.raises(InputError, match=message):
        trained(nn.EmbeddingBag(304, 2, mode="sum"), toy())


def test_sparse_gradients_of_other_rules_are_refused(device: Any) -> None:
    message = "^device cuda: sparse gradients need optimizer sgd; got adam: make them dense$"
    with pytest.raises(InputError, match=message):
        trained(*KINDS["Embedding"](), "adam")


# ---- a real device


@on_gpu
def test_on_a_gpu_graphs_on_many_streams_do_not_disturb_one_another(device: Any) -> None:
    """With a step of zero, momentum sums up gradients at the same parameters, whichever replica's: of the same
    minibatches, given to all replicas at once, all must have the same, and that of an eager replica.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2048, 256)).astype(np.float32), rng.integers(0, 10, 2048)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    posed = pose(model, (X, y), rule="momentum", workers=16)
    slots = []
    for captures in (True, False):
        driven = Driven(posed, device, batch=64)
        driven.launcher.rows = torch.arange(2048, dtype=torch.int32, device=device.device)
        torch.cuda.synchronize()
        for _ in range(8):
            for stream, replica in zip(driven.streams, driven.replicas):
                replica.replay = replica.replay if captures else None
                stream.run(partial(replica, Visits(0, 2048, 2048, 0, 0.0)))
        driven.wait()
        flat = driven.flat()
        slots += [posed.problem.layout.slot(flat, worker) for worker in range(16)]
    for slot in slots[1:]:
        np.testing.assert_allclose(slot, slots[0], rtol=1e-3, atol=1e-5)


@on_gpu
def test_on_a_gpu_what_waits_runs_eagerly(device: Any) -> None:
    class Waiting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x if float(x[0, 0]) < 1e9 else -x)

    with pytest.warns(HogwildWarning, match="runs eagerly"):
        mine = trained(Waiting(), dense_data())
    close(mine, trained(Waiting(), dense_data(), device="cpu"), device)
