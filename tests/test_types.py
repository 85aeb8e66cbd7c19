"""What a user's type checker sees: options and models have types, and a misspelt option is an error."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

import hogwild
from hogwild.config import CompletionOptions, CutsOptions, FMOptions, LinearOptions, ModuleOptions, config_class

ROOT = Path(__file__).resolve().parents[1]

USER = """
import hogwild
import torch
X, y = [[0.0], [1.0]], [0, 1]
run = hogwild.train((X, y), loss="log", epochs=2)
reveal_type(run.model)  # LinearModel
reveal_type(hogwild.train(X, problem="completion", rank=4).finish())  # CompletionModel
reveal_type(hogwild.train(X, problem="cuts").finish())  # Segmentation
hogwild.train((X, y), looss="log")  # error: Unexpected keyword argument "looss"
hogwild.train((X, y), epochs="two")  # error: No overload variant
hogwild.train((X, y), problem="cutts")  # error: No overload variant
run.model.predit(X)  # error: "LinearModel" has no attribute "predit"
run.finnish()  # error: has no attribute "finnish"
reveal_type(hogwild.train_module(torch.nn.Linear(1, 1), "mse", (X, y)).model)  # ModuleModel
hogwild.train_module(torch.nn.Linear(1, 1), "mse", (X, y), stepp=1.0)  # error: Unexpected keyword argument "stepp"
reveal_type(hogwild.load("m"))  # LinearModel | hogwild.problems.completion.model.CompletionModel
reveal_type(hogwild.HogwildClassifier().fit(X, y))  # HogwildClassifier
reveal_type(hogwild.HogwildRegressor().partial_fit(X, y))  # HogwildRegressor
class Films(hogwild.HogwildFactorizer): ...
reveal_type(Films().fit(X))  # Films
"""


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("linear", LinearOptions),
        ("fm", FMOptions),
        ("ffm", FMOptions),
        ("completion", CompletionOptions),
        ("cuts", CutsOptions),
        ("module", ModuleOptions),
    ],
)
def test_the_options_are_those_of_the_config(problem: str, options: type) -> None:
    kind = config_class(problem)
    hints = get_type_hints(kind)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.name != "problem"}
    if "l2_path" in fields:
        fields["l2"] |= str | tuple[float, ...]  # which end in l2_path
    if problem == "module":
        fields.pop("loss")  # an argument
    assert get_type_hints(options) == fields


@pytest.mark.slow
def test_what_mypy_says_to_a_user(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "user.py"
    file.write_text(USER)
    # What mypy found out about the package is kept, and scripts/test has called it before.
    cache = ROOT / ".mypy_cache"
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", cache, file]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    said: dict[int, str] = {}
    for line, text in re.findall(r"user.py:(\d+): (.*)", found):
        said[int(line)] = said.get(int(line), "") + text
    expected = {n: part.split("  # ")[1] for n, part in enumerate(USER.splitlines(), 1) if "  # " in part}
    assert said.keys() == expected.keys(), found
    for line, text in expected.items():
        assert text.removeprefix("error: ") in said[line], found


def test_a_run_and_its_model_are_one_line() -> None:
    X, y = np.eye(4, dtype=np.float32), [0, 1, 0, 1]
    run = hogwild.train((X, y), epochs=2, workers=1, step=1.0)
    assert "epoch 0 of 2, not begun" in repr(run)
    model = run.finish()
    assert re.fullmatch(r"<Run of linear, log: serial on 1 threads, epoch 2 of 2, objective 0\.\d+, ok>", repr(run))
    pattern = r"<LinearModel: log loss, 2 labels, 4 features, 4 of 4 weights not zero, epoch 2, objective 0\.\d+>"
    assert re.fullmatch(pattern, repr(model))


def test_only_public_names_are_listed() -> None:
    assert dir(hogwild) == sorted(hogwild.__all__)
