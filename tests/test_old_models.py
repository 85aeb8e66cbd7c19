"""Model files of version 0.1.0 load for ever and predict what they did then.

That version wrote them, and ``predictions.json``, at commit d8d521c with ``tests/fixtures/make_models.py``; what they
are asked stays here. None is written again, since a later version would only prove that it reads its own.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hogwild

FOLDER = Path(__file__).with_name("fixtures") / "models"
RECORDED: dict[str, dict[str, Any]] = json.loads((FOLDER / "predictions.json").read_text())
COLUMNS = np.sin(np.arange(240.0)).reshape(40, 6).astype(np.float32)
TEXT = b"".join(b"%d 7:1 %d:0.5 %d:2\n" % (i % 2, 1000 + i % 9, 10**12 + i % 4) for i in range(40))
TABLE = pa.table(
    {
        "colour": [("red", "green", "blue")[i % 3] for i in range(40)],
        "size": [i * 0.5 for i in range(40)],
        "words": [f"{'cheap' if i % 4 else 'dear'} thing" for i in range(40)],
        "sold": [("no", "yes")[i % 5 < 2] for i in range(40)],
    }
)


def answers(name: str, model: Any) -> dict[str, Any]:
    """What a model predicts."""
    if name.startswith("linear"):
        hashed = hogwild.open_data(io.BytesIO(TEXT), hash_bits=6)
        data = {"linear-hashed": hashed, "linear-table": TABLE}.get(name, COLUMNS)
        found = {"margins": model.decision_function(data), "predicted": model.predict(data)}
        return found | ({"probabilities": model.predict_proba(data)} if model.loss in ("log", "softmax") else {})
    if name.startswith("completion"):
        users = ["user1", "user2"]
        recommended, scores = model.recommend(users, n=3)
        return {"ratings": model.predict(users, ["item3", "item7"]), "items": recommended, "scores": scores}
    if name.startswith("cuts"):
        return {"labels": model.label_of(np.arange(36)), "energy": model.energy}
    import torch
    from torch.nn import BatchNorm1d, Linear, ReLU, Sequential

    module = model.into(Sequential(Linear(6, 4), BatchNorm1d(4), ReLU(), Linear(4, 3))).eval()
    with torch.no_grad():
        return {"output": module(torch.from_numpy(COLUMNS)).numpy()}


def test_no_model_has_gone() -> None:
    assert {path.stem for path in FOLDER.glob("*.safetensors")} == set(RECORDED)
    assert len(RECORDED) >= 12


@pytest.mark.parametrize("name", RECORDED)
def test_a_model_of_0_1_0_predicts_what_it_did(name: str) -> None:
    model: Any = hogwild.load(FOLDER / f"{name}.safetensors")
    assert model.version == "0.1.0"
    found = answers(name, model)
    assert set(found) == set(RECORDED[name])
    for question, answer in RECORDED[name].items():
        if np.asarray(answer).dtype.kind == "f":
            np.testing.assert_allclose(found[question], answer, rtol=1e-5, atol=1e-6, err_msg=question)
        else:
            assert np.asarray(found[question]).tolist() == answer, question
