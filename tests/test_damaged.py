"""Model files that lack something, or hold it in another type or shape: one line, naming the file."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hogwild import model_file
from hogwild.errors import HogwildError, InputError
from hogwild.model_file import MODEL, load_model, read_file


def damaged(path: Path) -> Iterator[str]:
    """Write the model file again without each field and each array, and with each of another type or shape."""
    arrays, header = read_file(path, MODEL)
    for name in header:
        model_file._write(path, MODEL, arrays, {key: header[key] for key in header if key != name})
        yield f"no {name}"
        model_file._write(path, MODEL, arrays, header | {name: [1]})
        yield f"{name} is a list"
    for name, array in arrays.items():
        model_file._write(path, MODEL, {key: arrays[key] for key in arrays if key != name}, header)
        yield f"no array {name}"
        for other in (array.astype(np.int8), array.reshape(-1)[:-1].copy(), array[..., None]):
            model_file._write(path, MODEL, arrays | {name: other}, header)
            yield f"{name} {other.dtype}{other.shape}"


def module() -> Any:
    """A module with a tied weight and a buffer of whole numbers."""
    import torch

    made = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    made[2].weight = made[0].weight
    return made


def models() -> dict[str, Any]:
    from hogwild.problems.completion.model import CompletionModel
    from hogwild.problems.cuts.model import Segmentation
    from hogwild.problems.linear.model import LinearModel
    from hogwild.problems.module.model import ModuleModel

    rng = np.random.default_rng(0)
    parts = [rng.normal(size=shape).astype(np.float32) for shape in ((4, 2), (3, 2), 4, 3)]
    return {
        "linear": LinearModel(parts[0], parts[2], "softmax", labels=range(4)),
        "completion": CompletionModel(*parts),
        "cuts": Segmentation(np.eye(2)[[0, 1, 1, 0]], 1.0, 1.0, shape=(2, 2)),
        "module": ModuleModel.of(module(), history=[{"epoch": 1}]),
    }


@pytest.mark.parametrize("problem", ["linear", "completion", "cuts", "module"])
def test_damaged_models(tmp_path: Path, problem: str) -> None:
    path = tmp_path / "model"
    models()[problem].save(path)
    refused = 0
    for what in damaged(path):
        try:
            model = load_model(path)
            if problem == "module":
                model.into(module())
        except InputError as error:
            assert "\n" not in str(error), what
            refused += 1
        except HogwildError as error:
            raise AssertionError(what) from error
    assert refused > 8


@pytest.mark.parametrize(
    "header",
    [
        {"coef": {"dtype": "F32", "shape": [2**63, 2], "data_offsets": [0, 4]}},
        {"__metadata__": {"hogwild": "[" * 100_000}},
    ],
)
def test_odd_tensors_and_headers(tmp_path: Path, header: dict[str, Any]) -> None:
    text = json.dumps({"__metadata__": {"hogwild": '{"sha256": "0", "kind": "model"}'}, **header}).encode()
    (tmp_path / "model").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4 * ("coef" in header)))
    with pytest.raises(InputError, match="model: (not a hogwild model|damaged)"):
        load_model(tmp_path / "model")
