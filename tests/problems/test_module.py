"""Modules: one worker is a plain torch loop, rules are torch's, and rows that no minibatch names are not touched."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import hogwild
from hogwild.kernels.order import shuffle_blocks
from hogwild.problems.module import kernel as modules
from hogwild.problems.module.layout import Layout, pack, unpack

SENTINEL = np.float32(-7.25)
QUIET: dict[str, Any] = {"workers": 1, "host": "threads", "epochs": 3, "batch": 16, "schedule": "constant"}
TORCH: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr),
    "momentum": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9),
    "adagrad": lambda p, lr: torch.optim.Adagrad(p, lr),
    "adam": lambda p, lr: torch.optim.Adam(p, lr),
}


def dense_data(n: int = 150, width: int = 12, classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, width, generator=generator)
    return X, (X @ torch.randn(width, classes, generator=generator)).argmax(dim=1)


def network(seed: int = 0, width: int = 12, classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, 20), nn.ReLU(), nn.Linear(20, classes))


def batches(n: int, batch: int, epochs: int, seed: int = 0) -> list[torch.Tensor]:
    """The minibatches of a run with one worker."""
    found = []
    for epoch in range(epochs):
        rows = np.empty(n, np.int32)
        shuffle_blocks(rows, n, 1, 1, seed, epoch)
        found += [torch.from_numpy(rows[k : k + batch].astype(np.int64)) for k in range(0, n, batch)]
    return found


def plain(model: nn.Module, data: Any, optimizer: torch.optim.Optimizer, loss: Any = functional.cross_entropy) -> None:
    X, y = data
    for rows in batches(len(y), QUIET["batch"], QUIET["epochs"]):
        optimizer.zero_grad()
        loss(model(X[rows]), y[rows]).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("name", "discipline"),
    [
        ("sgd", "serial"),
        ("momentum", "locked"),
        ("adagrad", "atomic"),
        ("adam", "hogwild"),
    ],
)
def test_one_worker_is_a_plain_loop(name: str, discipline: str) -> None:
    data, step = dense_data(), {"sgd": 0.1, "momentum": 0.05, "adagrad": 0.05, "adam": 0.01}[name]
    theirs = network()
    plain(theirs, data, TORCH[name](theirs.parameters(), step))
    options = {"optimizer": name, "step": step, "discipline": discipline}
    ours = hogwild.train_module(network(), "cross-entropy", data, **QUIET | options).finish().state_dict()
    for key, value in theirs.state_dict().items():
        fused = torch.backends.cpu.get_cpu_capability() != "DEFAULT"  # else torch rounds twice
        if name == "sgd" and fused:
            torch.testing.assert_close(ours[key], value, rtol=0, atol=0)
        torch.testing.assert_close(ours[key], value, rtol=2e-5, atol=2e-6)


class Embedded(nn.Module):
    def __init__(self, features: int, dim: int, sparse: bool, bag: bool = True) -> None:
        super().__init__()
        torch.manual_seed(1)
        kind: Any = nn.EmbeddingBag(features, dim, mode="sum", sparse=sparse) if bag else None
        self.table = kind or nn.Embedding(features, dim, sparse=sparse)
        nn.init.normal_(self.table.weight, std=0.1)
        self.out = nn.Linear(dim, 2)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found = self.table(*inputs)
        return self.out(torch.tanh(found if found.dim() == 2 else found.sum(dim=1)))


def sparse_data(n: int = 120, features: int = 50, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Rows that name the first half of the features only."""
    from scipy.sparse import csr_matrix, random

    rng = np.random.default_rng(seed)
    X = random(n, features // 2, 0.2, "csr", np.float32, rng)
    return csr_matrix((X.data, X.indices, X.indptr), shape=(n, features)), rng.integers(0, 2, n)


def same_training(models: list[nn.Module], data: Any, **options: Any) -> None:
    states = [hogwild.train_module(m, "cross-entropy", data, **QUIET | options).finish().state_dict() for m in models]
    for key, value in states[1].items():
        torch.testing.assert_close(states[0][key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "dim"), [("sgd", 5), ("adagrad", 32)])  # rules that leave other rows alone in torch
def test_sparse_gradients_are_the_dense_ones(name: str, dim: int) -> None:
    same_training([Embedded(50, dim, sparse) for sparse in (True, False)], sparse_data(), optimizer=name, step=0.2)


@pytest.mark.parametrize(("name", "bag"), [("momentum", True), ("adam", True), ("sgd", False), ("adagrad", False)])
def test_only_the_rows_that_are_named_are_written(name: str, bag: bool) -> None:
    """All numbers of the others, what the optimiser keeps for them included, stay as they were set."""
    rng = np.random.default_rng(0)
    data = sparse_data() if bag else (rng.integers(0, 25, (120, 4)), rng.integers(0, 2, 120))
    run = hogwild.train_module(Embedded(50, 8, True, bag), "cross-entropy", data, **QUIET, optimizer=name, step=0.1)
    next(run)
    layout, flat = run.problem.layout, run.engine.job.flat
    _, *parts, _ = layout.trained(flat, layout.slot(flat, 0))[0]
    arrays = [part for part in parts if part.size]
    for array in arrays:
        array.reshape(50, 8)[25:] = SENTINEL
    before = [array.copy() for array in arrays]
    run.finish()
    for array, old in zip(arrays, before):
        assert (array.reshape(50, 8)[25:] == SENTINEL).all()
        assert (array.reshape(50, 8)[:25] != old.reshape(50, 8)[:25]).any()


class Twice(Embedded):
    """Calls its layer twice, for two halves of the batch."""

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        half = len(offsets) // 2
        cut = int(offsets[half])
        first = self.table(indices[:cut], offsets[:half], weights[:cut])
        second = self.table(indices[cut:], offsets[half:] - cut, weights[cut:])
        return self.out(torch.tanh(torch.cat([first, second])))


def test_a_layer_that_is_called_twice() -> None:
    """Is moved once a minibatch, by the sum of both gradients."""
    same_training([Twice(50, 32, True), Embedded(50, 32, True)], sparse_data(), optimizer="adagrad", step=0.2)


# ---- the kernels and their twins


def twin(rule: str, w: Any, g: Any, first: Any, second: Any, t: int, step: float, b1: float, b2: float) -> None:
    """One update of whole arrays in float64, in place."""
    if rule == "sgd":
        w -= step * g
    elif rule == "momentum":
        first[:] = b1 * first + g
        w -= step * first
    elif rule == "adagrad":
        first += g * g
        w -= step * g / (np.sqrt(first) + 1e-10)
    else:
        first[:] = b1 * first + (1 - b1) * g
        second[:] = b2 * second + (1 - b2) * g * g
        w -= step / (1 - b1**t) * first / (np.sqrt(second / (1 - b2**t)) + 1e-8)


@pytest.mark.parametrize(
    ("rule", "dim", "atomic"),
    [("sgd", 3, 0), ("sgd", 16, 1), ("momentum", 3, 1), ("adagrad", 16, 0), ("adam", 3, 0), ("adam", 48, 1)],
)
def test_rows_against_numpy(rule: str, atomic: int, dim: int) -> None:
    rng = np.random.default_rng(0)
    n, kept, numbers = 20, modules.KEPT[rule], tuple(np.float32(x) for x in (0.1, 0.9, 0.99))
    w = rng.normal(size=n * dim).astype(np.float32)
    state = [np.zeros(n * dim if k < kept else 0, np.float32) for k in (0, 1)]
    wide = [array.astype(np.float64).reshape(-1, dim) for array in (w, *(np.zeros(n * dim),) * 2)]
    wide = [array.copy() for array in wide]
    counts, places = np.zeros(1, np.float32), np.full(n, -1, np.int32)
    for t in (1, 2, 3):
        indices, grads = rng.integers(0, n, 9), rng.normal(size=(9, dim)).astype(np.float32)
        full = np.zeros((n, dim))
        np.add.at(full, indices, grads)
        rows = np.unique(indices)
        parts = [array[rows] for array in wide]
        twin(rule, parts[0], full[rows], parts[1], parts[2], t, *(float(number) for number in numbers))
        for array, part in zip(wide, parts):
            array[rows] = part
        modules.rows(modules.RULES[rule], atomic)(
            w,
            indices,
            grads.reshape(-1),
            *state,
            counts,
            places,
            np.empty(9 * dim, np.float32),
            np.empty(9, np.int64),
            dim,
            *numbers,
        )
        np.testing.assert_allclose(w.reshape(-1, dim), wide[0], rtol=1e-4, atol=1e-5)
        assert (places == -1).all()


# ---- the layout


class Odd(nn.Module):
    """Tied and frozen parameters, and buffers of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.b.weight = self.a.weight
        self.a.bias.requires_grad_(False)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("big", torch.tensor([2**40 + 3, -5]))
        self.register_buffer("fine", torch.linspace(0, 1, 20, dtype=torch.float64), persistent=False)
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("coarse", torch.tensor([1.5, -2.0, 3.25]).bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.b(torch.relu(self.a(x))))


def test_everything_has_a_place_of_its_own() -> None:
    model = Odd()
    layout = Layout.of(model, "adam", 3)
    assert [place.name for place in layout.places] == ["a.weight", "a.bias", "b.bias", "norm.weight", "norm.bias"]
    flat = np.zeros(layout.size, np.float32)
    mark = 1.0
    for place in layout.places:
        assert place.begin % 16 == 0
        flat[place.begin : place.end] += mark
    for worker in range(3):
        for _, _, *state in layout.trained(flat, layout.slot(flat, worker)):
            for part in state:
                assert part.ctypes.data % 64 == flat.ctypes.data % 64
                part += mark
    for worker in range(3):
        layout.slot_buffers(layout.slot(flat, worker))[:] += mark
    assert flat.max() == mark, "two things lie in one place"


def test_a_module_without_its_parameters_and_back() -> None:
    model = Odd()
    layout = Layout.of(model, "sgd", 1)
    flat, program = np.zeros(layout.size, np.float32), pack(model, functional.mse_loss)
    for view, parameter in zip(layout.views(flat), model.parameters()):
        view.copy_(parameter.detach())
    layout.read_buffers(model, numbers := np.zeros(layout.buffers_size, np.float32))
    again, loss = unpack(program, layout, flat)
    assert loss is functional.mse_loss
    assert again.a.weight is again.b.weight
    assert not again.a.bias.requires_grad
    for buffer in again.buffers():
        buffer.zero_()
    layout.write_buffers(again, numbers)
    for (name, value), (_, expected) in zip(again.named_buffers(), model.named_buffers()):
        assert value.dtype == expected.dtype, name
        assert torch.equal(value, expected), name
    flat[0] = 5.0
    assert again.b.weight[0, 0] == 5.0
    again.b.weight.data[0, 1] = 6.0
    assert flat[1] == 6.0


def test_buffers_are_those_of_the_first_worker_that_has_worked() -> None:
    model = Odd()
    layout = Layout.of(model, "sgd", 3)
    flat = np.zeros(layout.size, np.float32)
    for worker, mean in ((1, 2.0), (2, 3.0)):
        own = copy.deepcopy(model)
        own.norm.running_mean.fill_(mean)
        own.norm.num_batches_tracked.fill_(2**30 + worker)
        layout.read_buffers(own, layout.slot_buffers(layout.slot(flat, worker)))
        layout.slot(flat, worker)[0] = 1.0
    layout.write_buffers(model, layout.model_buffers(flat))
    assert (model.norm.running_mean == 2.0).all()
    assert model.norm.num_batches_tracked == 2**30 + 1
