"""`export` and `import`: a model through another program's file predicts the same, and mistakes are one line."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hogwild.data.rows.source import open_data
from hogwild.problems.linear.model import LinearModel


@pytest.fixture
def model(svm: Path, tmp_path: Path) -> Path:
    width = open_data(svm).width
    LinearModel(np.linspace(-1, 1, width), [0.1], "log", labels=[1, 2]).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["liblinear", "npz", "sklearn", "onnx"])
def test_a_model_goes_out_and_comes_back(hogwild: Callable, svm: Path, model: Path, tmp_path: Path, name: str) -> None:
    for package in {"sklearn": ["skops"], "onnx": ["onnx", "skl2onnx"]}.get(name, []):
        pytest.importorskip(package, reason=f"{package} is not installed")
    file, back = tmp_path / "file", tmp_path / "back"
    result = hogwild("export", model, "--to", name, "-o", file)
    assert (result.status, result.err) == (0, "")
    assert result.out.splitlines()[0] == f"{file}: {model} for {name}"
    result = hogwild("import", file, "--from", name, "-o", back)
    assert (result.status, result.err) == (0, "")
    assert result.out == f"{back}: {open_data(svm).width} features, labels 1 2, log loss\n"
    for option in ((), ("--proba",)):
        assert hogwild("predict", back, svm, *option).out == hogwild("predict", model, svm, *option).out
    assert hogwild("info", back).status == 0
    assert hogwild("export", model, "--to", name, "-o", file, "-q").out == ""


def test_vowpal_wabbit_there_and_back(hogwild: Callable, svm: Path, model: Path, tmp_path: Path) -> None:
    result = hogwild("export", model, "--to", "vw", "-o", tmp_path / "file")
    assert result.status == 0
    assert f"make VW's model of it: vw -d {tmp_path / 'file'} -b 18 --sgd -l 0.5 --power_t 0" in result.out
    assert "it predicts the probability of 2" in result.out
    readable = "Version 9\nbits:18\noptions: --link logistic\n:0\n"
    weights = np.linspace(-1, 1, open_data(svm).width)
    readable += "".join(f"{j}:{w:.9g}\n" for j, w in enumerate(weights, 1)) + "116060:0.1\n"
    (tmp_path / "text").write_text(readable)
    result = hogwild("import", tmp_path / "text", "--from", "vw", "--labels", "1,2", "-o", tmp_path / "back")
    assert (result.status, result.err) == (0, "")
    found, expected = (
        np.loadtxt(io.StringIO(hogwild("predict", name, svm, "--decision").out)) for name in (tmp_path / "back", model)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["export", "MODEL", "--to", "liblinea", "-o", "x"], 2, "--to liblinea: expected one of sklearn, vw, libl"),
        (["import", "MODEL", "--from", "Scikit_learn", "-o", "x"], 2, "did you mean sklearn?"),
        (["export", "none", "--to", "npz", "-o", "x"], 1, "none: "),
        (["export", "bad", "--to", "npz", "-o", "x"], 1, "bad: not a hogwild model"),
        (["export", "MODEL", "--to", "npz", "-o", "MODEL"], 2, "would overwrite"),
        (["export", "MODEL", "--to", "npz", "-o", "none/x"], 1, "--out none/x: cannot write there"),
        (["export", "MODEL", "--to", "npz"], 2, "Missing option '--out' / '-o' (see hogwild export --help)"),
        (["export", "MODEL", "-o", "x"], 2, "Missing option '--to' (see hogwild export --help)"),
        (["export", "MODEL", "--to", "npz", "--bare", "-o", "x"], 2, "--bare means nothing to --to npz"),
        (["import", "bad", "--from", "liblinear", "-o", "x"], 1, "bad:1: not a LIBLINEAR model: expected solver_type"),
        (["import", "bad", "--from", "vw", "-o", "x", "--labels", "a,b"], 2, "--labels a,b: expected numbers"),
        (["import", "bad", "--from", "vw", "-o", "x", "--loss", "logistic"], 2, "loss 'logistic': expected one of log"),
        (["import", "bad", "--from", "liblinear", "-o", "bad"], 2, "would overwrite"),
    ],
)
def test_mistakes_are_one_line(
    hogwild: Callable,
    model: Path,
    words: list[str],
    status: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_text("nothing of the kind\n")
    before = sorted(tmp_path.iterdir())
    result = hogwild(*[model if word == "MODEL" else word for word in words])
    assert result.status == status
    assert result.err.startswith("hogwild: error: ")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_refusals_name_the_file_and_say_what_to_do(hogwild: Callable, tmp_path: Path) -> None:
    LinearModel(np.ones(4), [0.0], "log", labels=[0, 1], normalize="l2").save(tmp_path / "scaled")
    result = hogwild("export", tmp_path / "scaled", "--to", "liblinear", "-o", tmp_path / "file")
    assert result.status == 1
    assert result.err.startswith(f"hogwild: error: {tmp_path / 'scaled'}: rows are scaled to length one")
    assert result.err.endswith("or scale the rows yourself and add --bare\n")
    assert not (tmp_path / "file").exists()
    assert hogwild("export", tmp_path / "scaled", "--to", "liblinear", "--bare", "-o", tmp_path / "file").status == 0


def test_help_fits_80_columns(hogwild: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("export", "import"):
        text = hogwild(command, "--help").out
        assert f"hogwild {command}" in text
        assert max(map(len, text.splitlines())) <= 80
