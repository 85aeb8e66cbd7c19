"""Model files of version 0.1.0 load for ever and predict what they did then.

``tests/fixtures/make_models.py`` says what they are and wrote them, with that version.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild

FIXTURES = Path(__file__).with_name("fixtures")
RECORDED: dict[str, dict[str, Any]] = json.loads((FIXTURES / "models" / "predictions.json").read_text())


def makers() -> Any:
    spec = importlib.util.spec_from_file_location("make_models", FIXTURES / "make_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_model_has_gone() -> None:
    assert {path.stem for path in (FIXTURES / "models").glob("*.safetensors")} == set(RECORDED)
    assert len(RECORDED) >= 12


@pytest.mark.parametrize("name", RECORDED)
def test_a_model_of_0_1_0_predicts_what_it_did(name: str) -> None:
    model: Any = hogwild.load(FIXTURES / "models" / f"{name}.safetensors")
    assert model.version == "0.1.0"
    found = makers().answers(name, model)
    assert set(found) == set(RECORDED[name])
    for question, answer in RECORDED[name].items():
        if np.asarray(answer).dtype.kind == "f":
            np.testing.assert_allclose(found[question], answer, rtol=1e-5, atol=1e-6, err_msg=question)
        else:
            assert found[question] == answer, question
