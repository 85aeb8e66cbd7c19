"""Model files and checkpoints whose checksum is right and whose contents are not: one line, whatever is forged."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild import model_file
from hogwild.config import TrainConfig
from hogwild.errors import HogwildError, InputError
from hogwild.model_file import CHECKPOINT_NAME
from hogwild.models import load_model
from hogwild.training.checkpoint import resumable
from tests.runs import QUIET, toy

VALUES = [
    None,
    True,
    -1,
    0,
    1.5,
    2**63,
    10**400,
    float("nan"),
    float("inf"),
    "x",
    "a\nb",
    [],
    ["x"],
    [[1]],
    [1, 2],
    {},
    {"x": 1},
]


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["hogwild"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}
    del header["sha256"]
    return arrays, header


def write(path: Path, arrays: dict[str, np.ndarray], header: Any) -> None:
    from safetensors.numpy import save

    sealed = model_file._sealed(json.dumps(header), arrays)
    path.write_bytes(save(arrays, metadata={"hogwild": sealed}))


def forgeries(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Every field and array missing, and of every wrong type and size; also in what the fields hold."""
    for name in header:
        yield f"no {name}", arrays, {key: value for key, value in header.items() if key != name}
        for value in VALUES:
            yield f"{name}={value!r:.20}", arrays, header | {name: value}
        if isinstance(header[name], dict):
            for key in header[name]:
                for value in VALUES[::2]:
                    yield f"{name}.{key}={value!r:.20}", arrays, header | {name: header[name] | {key: value}}
        if isinstance(header[name], list) and header[name] and isinstance(header[name][0], dict):
            for key in ("epoch", "objective", "status"):
                for value in VALUES[::2]:
                    yield f"{name}.{key}={value!r:.20}", arrays, header | {name: [*header[name], {key: value}]}
    for name, array in arrays.items():
        yield f"no {name}", {key: value for key, value in arrays.items() if key != name}, header
        shorter = array.reshape(-1)[:-1].copy()
        for other in (array.astype(np.int8), array[..., None], shorter, np.array(3.0), np.zeros((0, 3), np.float32)):
            yield f"{name} {other.dtype}{other.shape}", arrays | {name: other}, header
        if array.dtype.kind == "i":
            yield f"{name} below zero", arrays | {name: np.full_like(array, -1)}, header
        if array.dtype.kind == "f":
            yield f"{name} of NaN", arrays | {name: np.full_like(array, np.nan)}, header


def outcome(call: Any, what: str) -> bool:
    """Whether ``call`` was refused, in one line; anything else than an error of ours fails."""
    try:
        call()
    except HogwildError as error:
        assert "\n" not in str(error), what
        return True
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    return False


def starts(problem: str) -> Any:
    """What starts a run of each problem, given a checkpoint, epochs and so on; quick, and with what it has to keep."""
    if problem == "linear":
        return partial(hogwild.train, toy(300), schedule="adaptive", patience=9, **QUIET)
    one: dict[str, Any] = {"host": "threads", "workers": 1}
    if problem == "replicas":
        return partial(hogwild.train, toy(300), exchange="one-shot-averaging", step=0.1, host="threads", workers=2)
    if problem == "completion":
        ratings = hogwild.open_ratings("synthetic:ratings?users=50&items=20&ratings=500")
        return partial(hogwild.train, ratings, problem="completion", rank=4, **one)
    if problem == "cuts":
        return partial(hogwild.train, hogwild.open_graph("synthetic:grid?side=6"), problem="cuts", **one)
    import torch

    X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    return partial(hogwild.train_module, model, "mse", (X, X[:, :1]), optimizer="adam", batch=16, **one)


#: Forgeries that hold nothing a run could not have left, so that it goes on; those of the options beside them.
HARMLESS = (
    "no sent",
    "schema=True",
    "step=1.5",
    "run=",
    "chunk=0",
    "workers_lost=0",
    "epoch_updates=0",
    "epoch_nonzeros=0",
    "epoch_seconds=",
    "train_seconds=",
    "wall_seconds=",
    "setup_seconds=",
    "schedule=",
    "schedule.step=1.5",
    "schedule.best=",
    "schedule.stale=1",
    "config.",
    "grid=[1, 2]",
    "no columns_",
    "columns_scaled=0",
    "columns_centred=0",
    "no mean",
    "no raw",
    "raw=[]",
    "raw={}",
    "no kept",
    "kept=0",
    "kept=1",
)


#: Of replicas, what is left out where it is not finite.
NOT_USED = [("replicas", "flat of NaN"), ("replicas", "mean of NaN"), ("linear", "mean of NaN")]


#: Fields of every checkpoint, which are read before the problem is known.
COMMON = (
    "config",
    "run",
    "epoch",
    "chunk",
    "history",
    "workers_lost",
    "epoch_updates",
    "epoch_nonzeros",
    "epoch_seconds",
    "train_seconds",
    "wall_seconds",
    "setup_seconds",
)


def is_refused_as_option(what: str, arrays: dict[str, Any], header: Any) -> bool:
    """Whether a forgery is of one option, and its reader alone refuses it, with an error of ours."""

    def read_options() -> None:
        with resumable(Path()):
            TrainConfig.from_json(header["config"])

    return what.startswith("config.") and outcome(read_options, what)


@pytest.mark.parametrize("problem", ["linear", "replicas", "completion", "cuts", "module"])
def test_forged_checkpoints(tmp_path: Path, problem: str) -> None:
    start, path = starts(problem), tmp_path / CHECKPOINT_NAME
    start(checkpoint=tmp_path, epochs=2).finish()
    arrays, header = read(path)
    every = list(forgeries(arrays, header))
    # Options are read by one function, so most of those that it refuses are given to it alone. What all problems have
    # is forged in full for the linear one.
    every = [one for at, one in enumerate(every) if not is_refused_as_option(*one) or at % 20 == 0]
    if problem not in ("linear", "module"):
        common = tuple(f"{name}{sign}" for name in COMMON for sign in "=.")
        every = [one for at, one in enumerate(every) if not one[0].startswith(common) or at % 4 == 0]
    if problem == "module":  # whose runs take longer to begin
        every = [one for one in every if "_" not in one[0] and not one[0].startswith("config")][::2]
    for what, some, forged in every:
        write(path, some, forged)
        refused = outcome(lambda: start(checkpoint=tmp_path, epochs=3, resume=True).finish(), what)
        harmless = what.startswith(HARMLESS) or re.fullmatch(r"raw\.\w+=[-\d.e+]+", what)  # as it may have been
        assert refused or harmless or (problem, what) in NOT_USED, what


def module() -> Any:
    """One with a tied weight, a buffer of whole numbers, and a parameter of which NumPy lacks the type."""
    import torch

    made = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    made[2].weight = made[0].weight
    made[2].bias = torch.nn.Parameter(made[2].bias.to(torch.bfloat16))
    return made


def models() -> dict[str, Any]:
    from hogwild.problems.completion.model import CompletionModel
    from hogwild.problems.cuts.model import Segmentation
    from hogwild.problems.linear.model import LinearModel
    from hogwild.problems.module.model import ModuleModel

    rng = np.random.default_rng(0)
    parts = [rng.normal(size=shape).astype(np.float32) for shape in ((4, 2), (3, 2), 4, 3)]
    return {
        "linear": LinearModel(np.ones((3, 8)), np.zeros(3), "log", labels=[1, 2, 3], history=[{"epoch": 1}]),
        "completion": CompletionModel(*parts),
        "cuts": Segmentation(np.eye(2)[[0, 1, 1, 0]], 1.0, 1.0, shape=(2, 2)),
        "module": ModuleModel.of(module(), {}, "", [{"epoch": 1}]),
    }


@pytest.mark.parametrize("problem", ["linear", "completion", "cuts", "module"])
def test_forged_models(tmp_path: Path, problem: str) -> None:
    path = tmp_path / "model"
    models()[problem].save(path)
    arrays, header = read(path)
    uses = {
        "linear": lambda model: model.predict(np.ones((2, model.width))),
        "cuts": lambda model: model.labels,
        "completion": lambda model: model.predict(np.arange(2), np.arange(2)),
        "module": lambda model: model.into(module()) and model.state_dict(),
    }

    def use() -> None:
        model = load_model(path)
        assert repr(model)
        uses[problem](model)

    refused = sum(write(path, some, forged) or outcome(use, what) for what, some, forged in forgeries(arrays, header))
    assert refused > 40


@pytest.mark.parametrize(
    "header",
    [
        {"coef": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}},
        {"coef": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}},
        {"coef": {"dtype": "C64", "shape": [], "data_offsets": [0, 8]}},
        {"coef": {"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 4]}},
        {"coef": {"dtype": "F32", "shape": [2**63, 2], "data_offsets": [0, 4]}},
        {"coef": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}},
        {"coef": {"dtype": "F32", "shape": [1], "data_offsets": [2**64 - 4, 2**64]}},
        {"__metadata__": {"hogwild": "[" * 100_000}},
        {"__metadata__": {"hogwild": '{"a":' * 100_000}},
        {"__metadata__": {"hogwild": "9" * 10_000}},
    ],
)
def test_odd_tensors_and_headers(tmp_path: Path, header: dict[str, Any]) -> None:
    text = json.dumps({"__metadata__": {"hogwild": '{"sha256": "0", "kind": "model"}'}, **header}).encode()
    (tmp_path / "model").write_bytes(
        struct.pack("<Q", len(text)) + text + bytes(8 if b"C64" in text else 4 if b"0, 4" in text else 0)
    )
    with pytest.raises(InputError, match="model: (not a hogwild model|damaged)"):
        load_model(tmp_path / "model")
