"""``train_module`` on both hosts: it learns, stops, resumes, survives, is kept in a file, and refuses in one line."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import hogwild
from hogwild.errors import InputError, TrainingError, UsageError
from tests.runs import line_of, resumed, toy, when

QUIET: dict[str, Any] = {"workers": 1, "host": "threads", "epochs": 4, "batch": 32, "step": 0.1}


def data(n: int = 600, width: int = 10, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, width)).astype(np.float32)
    return X, (X @ rng.standard_normal((width, classes))).argmax(axis=1)


class Slow(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds * self.training)
        return x


def network(*more: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 24), *more, nn.ReLU(), nn.Linear(24, 3))


def begun(model: Any, examples: Any = None, test: Any = None, loss: Any = "cross-entropy", **options: Any) -> Any:
    """A run on ``data()``, unless there are other ``examples``."""
    return hogwild.train_module(model, loss, data() if examples is None else examples, test, **QUIET | options)


@pytest.mark.parametrize(("discipline", "host"), [("locked", "processes"), ("atomic", "threads")])
def test_two_workers_learn(pools: Callable, discipline: str, host: str) -> None:
    options = {"optimizer": "adam", "step": 0.01, "epochs": 6, "discipline": discipline}
    model = network(nn.BatchNorm1d(24))  # whose running means are each worker's own
    run = hogwild.train_module(model, "cross-entropy", data(), data(seed=0), pool=pools(host), batch=32, **options)
    rows = list(run)
    last = rows[-1]
    assert (last["problem"], last["host"], last["workers"], last["discipline"]) == ("module", host, 2, discipline)
    assert (last["updates"], last["workers_lost"], last["status"]) == (600, 0, "ok")
    assert last["samples_per_second"] > 0
    assert last["objective"] < 0.7 * rows[0]["objective"]
    assert last["train_accuracy"] == last["test_accuracy"] > 0.7
    assert run.model.arrays["1.running_mean"].any()


def test_the_users_module_is_left_alone_until_it_is_asked_for() -> None:
    model = network(nn.BatchNorm1d(24))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(threads + 1)
    run = begun(model)
    run.finish()
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    run.model.into(model)
    assert model.state_dict()["1.num_batches_tracked"] == 4 * 19
    X, y = (torch.from_numpy(part) for part in data())
    found = functional.cross_entropy(model.eval()(X), y)
    assert found.item() == pytest.approx(run.history[-1]["objective"], rel=1e-5)


# ---- stopping, resuming, dying


@pytest.mark.parametrize(
    ("options", "inside"),
    [
        ({"optimizer": "adam"}, True),
        ({"optimizer": "momentum", "order": "file", "schedule": "inverse"}, False),
    ],
    ids=str,
)
def test_resumed_is_the_same_to_the_bit(tmp_path: Path, options: dict[str, Any], inside: bool) -> None:
    """Buffers, noise and optimiser state too."""
    model = network(nn.BatchNorm1d(24), nn.Dropout(0.3), *[Slow(1e-3)] * inside)
    resumed(functools.partial(begun, model, step=0.01, **options), tmp_path, 4, 2, 0 if inside else None)


def test_what_cannot_be_resumed(tmp_path: Path) -> None:
    begun(network(), checkpoint=tmp_path).finish()
    again = {"checkpoint": tmp_path, "resume": True}
    with pytest.raises(InputError, match="it holds [0-9]+ parameters, expected"):
        begun(network(), workers=2, **again)
    for model, seed in ((network(), 1), (network(nn.Linear(24, 24)), 0)):
        with pytest.raises(InputError, match="the training data are not those"):
            begun(model, data(seed=seed), **again)
    marked = nn.Identity()  # of a buffer of another type the bytes would say something else
    marked.register_buffer("mark", torch.zeros(3))
    begun(network(marked), checkpoint=tmp_path).finish()
    with pytest.raises(InputError, match="the training data are not those"):
        begun(network(marked.double()), **again)


def test_a_killed_worker() -> None:
    """Is replaced, and at most its minibatch is lost."""
    options = {"optimizer": "adam", "epochs": 1, "workers": 2, "batch": 8}
    run = hogwild.train_module(network(Slow(0.03)), "cross-entropy", data(), host="processes", **options)
    next(run)
    when(lambda: run.progress().rows_done > 60, lambda: os.kill(run.engine.pool.pids[1], signal.SIGKILL))
    row = next(run)
    assert (row["status"], row["workers_lost"]) == ("ok", 1)
    assert 600 - 8 <= row["updates"] <= 600


def test_a_worker_that_fails_in_training_only() -> None:
    class Fails(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training and torch.is_grad_enabled() and len(x) == 24:  # the last of an epoch
                raise ValueError("cannot do 24\nat all")
            return super().forward(x)

    model = nn.Sequential(Fails(10, 3))
    line = line_of(TrainingError, begun(model, host="processes").finish)
    assert "ValueError: cannot do 24 at all (test_module_training.py, line" in line


# ---- data


def test_whatever_holds_the_same_examples_trains_alike() -> None:
    X, y = data()
    tensors = torch.from_numpy(X), torch.from_numpy(y)
    given: list[Any] = [
        (X, y),
        tensors,
        (X.astype(np.float64), y.astype(np.uint8)),
        TensorDataset(*tensors),
    ]
    states = [begun(network, each).finish().arrays for each in given]
    for state in states[1:]:
        for name, array in state.items():
            np.testing.assert_array_equal(array, states[0][name])


def test_several_inputs_and_real_targets() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(10, 1)

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return self.out(x) * scale[:, None]

    X, _ = data()
    scale = np.linspace(1, 2, len(X))
    y = 3 * X[:, 0] * scale
    run = begun(Two(), (X, scale, y), (X, scale, y), "mse")
    run.finish()
    assert run.history[-1]["test_rmse"] == pytest.approx(np.sqrt(run.history[-1]["test_loss"]), rel=1e-4)
    assert run.history[-1]["test_rmse"] < 0.5


class Bags(nn.Module):
    def __init__(self, dim: int, *more: nn.Module) -> None:
        super().__init__()
        self.bag, self.more = nn.EmbeddingBag(304, dim, mode="sum", sparse=True), nn.Sequential(*more)

    def forward(self, *entries: torch.Tensor) -> torch.Tensor:
        return self.more(self.bag(*entries))


def test_rows_are_bags_of_features(pools: Callable) -> None:
    rows, model = toy(), Bags(16, nn.Linear(16, 1))  # labels -1 and 1
    options = {"pool": pools("processes"), "step": 0.3, "optimizer": "adagrad", "epochs": 8}
    run = hogwild.train_module(model, "bce", rows, rows, **options)
    run.finish()
    last = run.history[-1]
    assert last["train_accuracy"] == last["test_accuracy"] > 0.85
    assert run.engine.job.done()[1] == rows.nnz


def test_labels_of_rows_are_numbered_as_in_training() -> None:
    rows, model = toy(classes=3), nn.EmbeddingBag(304, 3, mode="sum")
    run = begun(model, rows, rows.select(np.flatnonzero(rows.targets > 0)))
    first = next(run)
    run.close()
    assert set(run._case._test.target) == {1, 2}  # type: ignore[attr-defined]
    assert first["test_loss"] != first["train_loss"]
    with pytest.raises(InputError, match="row 0 has the label -1, unknown in training"):
        begun(model, rows, toy().select([1, 0]))
    with pytest.raises(InputError, match="for two labels, the rows have 3"):
        begun(model, rows, loss="bce")


def test_a_function_makes_the_model_under_the_seed() -> None:
    torch.manual_seed(7)
    states = [begun(lambda: nn.Linear(10, 3)).finish().arrays]
    torch.manual_seed(0)  # QUIET's
    states += [begun(nn.Linear(10, 3)).finish().arrays]
    np.testing.assert_array_equal(states[0]["weight"], states[1]["weight"])


# ---- the model file


def test_a_model_file_holds_the_state(tmp_path: Path) -> None:
    model = network(nn.BatchNorm1d(24))
    trained = begun(model).finish()
    trained.save(tmp_path / "model")
    again = hogwild.load(tmp_path / "model")
    fresh = again.into(network(nn.BatchNorm1d(24)))
    for name, value in trained.module.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value), name
        assert again.state_dict()[name].dtype == value.dtype
    assert again.config["problem"] == "module"
    size = sum(array.size for array in again.arrays.values())
    assert repr(again).startswith(
        f"<ModuleModel: {size} parameters in {len(again.arrays)} arrays, epoch 4, objective 0"
    )
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    with pytest.raises(InputError, match="of another module"):
        again.into(network())
    with pytest.raises(UsageError, match="holds the state and no module"):
        _ = again.module
    assert pickle.loads(pickle.dumps(again)).config == again.config


# ---- misuse


def _with(model: nn.Module, change: Callable[[Any], Any]) -> nn.Module:
    change(model)
    return model


X, Y = data()
MISUSE: dict[str, tuple[Any, Any, Any, str]] = {
    "no parameters": (nn.ReLU(), "mse", (X, X), "no parameters to train"),
    "float64": (
        network().double(),
        "cross-entropy",
        (X, Y),
        "0.weight needs float32 on the CPU",
    ),
    "wrong shape": (nn.Linear(9, 3), "cross-entropy", (X, Y), "fails on the first 32 examples: RuntimeError: mat1"),
    "lengths": (network(), "cross-entropy", (X, Y[1:]), "X: expected a row for each of 599 targets"),
    "no data": (network(), "mse", (X[:0], X[:0]), "no examples"),
    "what data": (network(), "mse", 3, "data needs (X, y) or Rows; got int"),
    "strings": (network(), "mse", (X, np.array(["a"] * len(X))), "y needs numbers"),
    "bfloat16": (network(), "mse", (torch.zeros(4, 10).bfloat16(), Y[:4]), "X: cannot be made an array"),
    "a dataset": (
        network(),
        "mse",
        DataLoader(TensorDataset(torch.zeros(4, 10))),
        "got DataLoader: stack a Dataset",
    ),
    "loss": (network(), "crossentropy", (X, Y), "expected one of cross-entropy, mse, bce, or a function"),
    "a poor factory": (lambda: 3, "mse", (X, Y), "the function returned int"),
    "unpicklable": (
        _with(network(), lambda m: setattr(m, "lock", threading.Lock())),
        "cross-entropy",
        (X, Y),
        "cannot be sent to workers",
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of lazy modules, and of shapes that torch spreads
@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_one_line(case: str) -> None:
    model, loss, examples, expected = MISUSE[case]
    assert expected in line_of((UsageError, InputError), begun, model, examples, loss=loss)


def test_test_data_are_tried_before_training_too() -> None:
    with pytest.raises(InputError, match="fails on test examples 0 to 63: RuntimeError"):
        begun(network(), (X, Y), (X[:, :9], Y))
    with pytest.raises(InputError, match="test data have no examples"):
        begun(network(), (X, Y), (X[:0], Y[:0]))


def test_train_says_where_modules_are_trained() -> None:
    with pytest.raises(UsageError, match="hogwild.train_module"):
        hogwild.train(toy(), problem="module", host="threads")
