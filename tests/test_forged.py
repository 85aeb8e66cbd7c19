"""Model files and checkpoints whose checksum is right and whose contents are not: one line, whatever is forged."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild import model_file
from hogwild.errors import HogwildError, InputError
from hogwild.model_file import CHECKPOINT_NAME, load_model
from tests.runs import QUIET, toy

VALUES = [None, True, -1, 0, 1.5, 2**63, 10**400, float("nan"), float("inf"), "x", "a\nb", [], ["x"], [[1]], [1, 2], {},
          {"x": 1}]  # fmt: skip


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


def test_forged_checkpoints(tmp_path: Path) -> None:
    rows = toy(300)
    options: dict[str, Any] = {**QUIET, "schedule": "adaptive", "patience": 9, "average": True}
    hogwild.train(rows, checkpoint=tmp_path, epochs=2, **options).finish()
    arrays, header = read(tmp_path / CHECKPOINT_NAME)
    refused = total = 0
    for what, some, forged in forgeries(arrays, header):
        write(tmp_path / CHECKPOINT_NAME, some, forged)
        total += 1
        refused += outcome(
            lambda: hogwild.train(rows, checkpoint=tmp_path, epochs=2, resume=True, **options).close(), what
        )
    assert refused > 0.6 * total


def models() -> dict[str, Any]:
    from hogwild.model import LinearModel
    from hogwild.recommender import CompletionModel
    from hogwild.segmentation import Segmentation

    rng = np.random.default_rng(0)
    parts = [rng.normal(size=shape).astype(np.float32) for shape in ((4, 2), (3, 2), 4, 3)]
    return {
        "linear": LinearModel(np.ones((3, 8)), np.zeros(3), "log", labels=[1, 2, 3], history=[{"epoch": 1}]),
        "completion": CompletionModel(*parts),
        "cuts": Segmentation(np.eye(2)[[0, 1, 1, 0]], 1.0, 1.0, shape=(2, 2)),
    }


@pytest.mark.parametrize("problem", ["linear", "completion", "cuts"])
def test_forged_models(tmp_path: Path, problem: str) -> None:
    path = tmp_path / "model"
    models()[problem].save(path)
    arrays, header = read(path)
    uses = {"linear": lambda model: model.predict(np.ones((2, model.width))), "cuts": lambda model: model.labels,
            "completion": lambda model: model.predict(np.arange(2), np.arange(2))}  # fmt: skip

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
