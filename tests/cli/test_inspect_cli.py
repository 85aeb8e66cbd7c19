"""``hogwild inspect``: the facts of every kind of model, names of features, the picture, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pytest

from hogwild.data.ratings.container import Ids
from hogwild.problems.completion.model import CompletionModel
from hogwild.problems.cuts.model import Segmentation
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.module.model import ModuleModel

ALONE = "--host threads -w 1 -q"
HISTORY = [
    {"epoch": e, "train_seconds": e / 8, "objective": 1 / (1 + e), "test_loss": 2 / (1 + e), "status": "ok"}
    for e in range(20)
]


def kept(model: object, path: Path) -> Path:
    model.save(path)  # type: ignore[attr-defined]
    return path


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """Weights of five features, labels 3 and 7."""
    config = {"problem": "linear", "loss": "log", "l2": 1e-4, "step": 0.5, "adagrad": False, "rank": None, "tol": 0.01}
    model = LinearModel([0.0, 2.0, -3.0, 1.0, 0.5], [0.25], "log", labels=[3, 7], config=config, history=HISTORY)
    return kept(model, tmp_path / "linear")


def test_a_linear_model(hogwild: Callable, linear: Path) -> None:
    facts = hogwild(f"inspect {linear} --json -n 2").facts()
    assert (facts["labels"], facts["width"], facts["nonzero"], facts["density"]) == (["3", "7"], 5, 4, 0.8)
    assert facts["config"] == {"problem": "linear", "loss": "log", "l2": 1e-4, "step": 0.5, "tol": 0.01}
    sides = {"positive": [["feature 2", 2.0], ["feature 4", 1.0]], "negative": [["feature 3", -3.0]]}
    assert facts["heaviest"] == [{"label": None, **sides}]
    assert [row["epoch"] for row in facts["history"]] == list(range(20))
    shown = hogwild(f"inspect {linear}").shown()
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    start = lines.index("for 7 feature 2 (2), feature 4 (1), feature 5 (0.5)")
    assert lines[start + 1] == "for 3 feature 3 (-3)"
    assert "in the end epoch 19, train_seconds 2.375, objective 0.05, test_loss 0.1, status ok" in lines


def test_names_are_counted_by_line(hogwild: Callable, linear: Path, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_bytes(b"one\ntwo \nthr\x1bee\nvier\n" + b"\xff\n")
    result = hogwild(f"inspect {linear} --names {names}")
    assert result.status == 0
    assert result.out.index(" two (") < result.out.index(" vier (") < result.out.index(" thr\\x1bee (")
    assert "\\udcff" in result.out
    assert "\x1b" not in result.out
    names.write_text("one\ntwo\n")
    assert "feature 3" in hogwild(f"inspect {linear} --names {names}").out


def test_hashed_features_have_buckets(hogwild: Callable, refused: Callable, tmp_path: Path) -> None:
    model = kept(LinearModel(np.arange(1.0, 9.0), [0.0], "squared-error", hash_bits=3), tmp_path / "m")
    assert "raise the prediction bucket 7 (8), bucket 6 (7)" in hogwild(f"inspect {model} -n 2").out
    assert "features are hashed" in refused(f"inspect {model} --names {model}")


def test_several_classes(hogwild: Callable, tmp_path: Path) -> None:
    coef = np.arange(12.0).reshape(3, 4) * np.array([1, -1, 1, -1])
    model = kept(LinearModel(coef, [1.0, 2.0, 3.0], "softmax", labels=[1, 2, 5]), tmp_path / "m")
    facts = hogwild(f"inspect {model} -n 1 --json").facts()
    assert [group["label"] for group in facts["heaviest"]] == ["1", "2", "5"]
    assert facts["heaviest"][1]["positive"] == [["feature 3", 6.0]]
    assert facts["heaviest"][1]["negative"] == [["feature 4", -7.0]]
    assert "large for 5          feature 3 (10), feature 1 (8)\nsmall for 5 " in hogwild(f"inspect {model}").out


def test_a_table_is_read_for_its_names(hogwild: Callable, tmp_path: Path) -> None:
    site = np.arange(400) % 6
    columns = {
        "click": np.where(site < 3, "is_yes", "is_no"),
        "site": [f"s{k}.org" for k in site],
        "unit_size": site * 1.0,
    }
    table, model = tmp_path / "t.csv", tmp_path / "m"
    pyarrow.csv.write_csv(pyarrow.table(columns), table)
    hogwild(f"train {table} --label click --epochs 2 {ALONE} --out {model}").shown()
    facts = hogwild(f"inspect {model} --names {table} --json").facts()
    assert facts["columns"] == {"site": "categorical", "unit_size": "numeric"}
    assert {f"site=s{k}.org" for k in range(3)} <= {name for name, _ in facts["heaviest"][0]["positive"]}
    shown = hogwild(f"inspect {model}").out
    assert "for is_yes" in shown  # labels, and a numeric column's name, as they are
    assert "unit_size (-" in shown
    assert "site=s0.org" not in shown  # in the table only


def test_other_kinds_of_models(hogwild: Callable, tmp_path: Path) -> None:
    factors = np.ones((3, 2), np.float32)
    ids = Ids(["ann", "b\x1bb", "cy"])
    ratings = CompletionModel(factors, factors, [0.5, -1, 2], [0, 0, 1.5], 3.5, user_ids=ids, history=HISTORY)
    ratings = kept(ratings, tmp_path / "ratings")
    facts = hogwild(f"inspect {ratings} --json").facts()
    assert (facts["users"], facts["items"], facts["rank"], facts["mean"]) == (3, 3, 2, 3.5)
    assert facts["heaviest"][0]["positive"] == [["cy", 2.0], ["ann", 0.5]]
    assert facts["heaviest"][1] == {"label": "item", "positive": [["2", 1.5]], "negative": []}
    assert "b\\x1bb" in hogwild(f"inspect {ratings}").out

    x = np.eye(3, dtype=np.float32)[[0, 0, 1, 2]]
    cut = kept(Segmentation(x, 4.5, 5.25, shape=(2, 2)), tmp_path / "cut")
    facts = hogwild(f"inspect {cut} --json").facts()
    assert (facts["vertices"], facts["labels"], facts["cut_value"]) == (4, 3, 5.25)

    arrays = {"out.weight": np.zeros((4, 3), np.float32), "out.bias": np.zeros(4, np.float32)}
    module = kept(ModuleModel(arrays, names=list(arrays)), tmp_path / "module")
    facts = hogwild(f"inspect {module} --json").facts()
    assert facts["parameters"] == 16
    shown = " ".join(hogwild(f"inspect {module}").out.split())
    assert "out.weight 4 x 3 float32" in shown


def test_a_model_is_exported(hogwild: Callable, linear: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.npz"
    assert hogwild(f"export {linear} --to npz -o {file}").shown() == f"{file}: {linear} for npz\n"
    assert np.load(file)["coef"].tolist() == [[0.0, 2.0, -3.0, 1.0, 0.5]]
