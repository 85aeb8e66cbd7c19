"""`predict` and `evaluate`: the same numbers as the library, from files and from standard input, in bounded memory."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hogwild.cli.models import number_lines
from hogwild.data.rows.source import open_data
from hogwild.metrics import evaluate
from hogwild.problems.linear.model import LinearModel


@pytest.fixture
def model(svm: Path, tmp_path: Path) -> tuple[Path, LinearModel]:
    """Least squares on the small file, as a classifier: right on all rows but a few."""
    X, y = open_data(svm).to_scipy()
    coef = np.linalg.lstsq(X.toarray(), np.where(y == 2, 1.0, -1.0) + np.linspace(-1, 1, len(y)), rcond=None)[0]
    made = LinearModel(coef, [0.1], "log", labels=[1, 2])
    made.save(tmp_path / "model")
    return tmp_path / "model", made


def numbers(text: str) -> np.ndarray:
    return np.loadtxt(io.StringIO(text), dtype=np.float32)


def test_predictions_are_the_librarys_whatever_holds_the_rows(
    hogwild: Callable, svm: Path, model: tuple[Path, LinearModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, linear = model
    rows, text = open_data(svm), svm.read_bytes()
    for option, function in (("", linear.predict), ("--proba", linear.predict_proba)):
        shown = hogwild(f"predict {path} {svm} {option}").shown()
        np.testing.assert_array_equal(numbers(shown), function(rows).astype(np.float32))
    packed, unlabelled = tmp_path / "small.svm.gz", tmp_path / "unlabelled"
    packed.write_bytes(gzip.compress(text))
    unlabelled.write_text("".join(line.partition(" ")[2] for line in svm.read_text().splitlines(keepends=True)))
    hogwild(f"convert {svm} {tmp_path / 'store'} -q").shown()
    expected = linear.decision_function(rows).astype(np.float32)
    for data in (svm, packed, tmp_path / "store", unlabelled, text, packed.read_bytes()):
        if isinstance(data, bytes):
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        shown = hogwild(f"predict {path} {'-' if isinstance(data, bytes) else data} --decision").shown()
        np.testing.assert_array_equal(numbers(shown), expected)


def test_output_file_is_replaced_when_complete(
    hogwild: Callable, svm: Path, model: tuple[Path, LinearModel], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_text("old")
    out.chmod(0o640)
    (tmp_path / "link").symlink_to(out)
    before = sorted(tmp_path.iterdir())
    broken = tmp_path / "broken.svm"
    broken.write_text("1 1:1\n1 x\n")
    result = hogwild(f"predict {model[0]} {broken} -o {tmp_path / 'link'}")
    assert result.status == 1
    assert result.err.startswith(f"hogwild: error: {broken}:2: ")
    assert out.read_text() == "old"
    assert hogwild(f"predict {model[0]} {svm} -o {tmp_path / 'link'}").out == ""
    assert len(out.read_text().split()) == 200
    assert (tmp_path / "link").is_symlink()
    assert out.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == sorted([*before, broken])


def test_unknown_features_are_ignored_and_counted_once(
    hogwild: Callable, svm: Path, model: tuple[Path, LinearModel], tmp_path: Path
) -> None:
    wide = tmp_path / "wide.svm"
    wide.write_text("".join(line.replace(" #", " 900:1 #") for line in svm.read_text().splitlines(keepends=True)))
    for command in ("predict", "evaluate"):
        result = hogwild(f"{command} {model[0]} {wide}")
        assert result.out == hogwild(f"{command} {model[0]} {svm}").out
        assert result.err.startswith("hogwild: warning: 200 ")
        assert result.err.count("\n") == 1


def test_repaired_rows_are_counted(hogwild: Callable, model: tuple[Path, LinearModel], tmp_path: Path) -> None:
    untidy = tmp_path / "untidy.svm"
    untidy.write_text("1 3:1 1:1\n2 1:1 1:2\n")
    said = f"{untidy}: 1 rows with repeated features (summed)"
    for command in ("predict", "evaluate"):
        assert hogwild(f"{command} {model[0]} {untidy}").err == f"hogwild: warning: {said}\n"


def test_evaluate_as_the_library_does(hogwild: Callable, svm: Path, model: tuple[Path, LinearModel]) -> None:
    path, linear = model
    facts = hogwild(f"evaluate {path} {svm} --json").facts()
    expected = evaluate(linear, [open_data(svm)])
    assert facts["f1"] == pytest.approx(dict(zip(["1", "2"], expected["f1"].values())))
    assert {name: facts[name] for name in ("rows", "accuracy", "auc", "log_loss")} == pytest.approx(
        {name: expected[name] for name in ("rows", "accuracy", "auc", "log_loss")}
    )
    shown = hogwild(f"evaluate {path} {svm}").shown()
    assert f"accuracy             {facts['accuracy']:.6g}\n" in shown
    assert "confusion" in shown


def test_the_calibration_curve_is_drawn(
    hogwild: Callable,
    svm: Path,
    model: tuple[Path, LinearModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    shown = hogwild(f"evaluate {model[0]} {svm} --plot {tmp_path / 'curve.svg'}").shown()
    assert shown == hogwild(f"evaluate {model[0]} {svm}").shown()
    drawn = (tmp_path / "curve.svg").read_text()
    for each in hogwild(f"evaluate {model[0]} {svm} --json").facts()["reliability"]:
        assert f"<!-- {each['rows']:,} -->" in drawn
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = hogwild(f"evaluate {model[0]} {svm} --plot {tmp_path / 'other.png'}")
    assert result.err == "hogwild: error: --plot needs matplotlib: pip install matplotlib\n"
    assert not (tmp_path / "other.png").exists()


MEMORY = """
import sys, threading, time
from hogwild.__main__ import main
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
def watch():
    global top
    while True:
        top = max(top, resident())
        time.sleep(0.005)
main(["predict", sys.argv[1], sys.argv[2], "-o", "/dev/null"])  # imports and compiles
base = top = resident()
threading.Thread(target=watch, daemon=True).start()
assert main(["predict", sys.argv[1], sys.argv[3], "-o", "/dev/null"]) == 0
print((top - base) >> 20)
"""


@pytest.mark.slow
def test_memory_is_bounded(svm: Path, model: tuple[Path, LinearModel], tmp_path: Path) -> None:
    large = tmp_path / "large.svm"
    large.write_bytes(svm.read_bytes() * 50_000)  # 220 MB of text, 10 million rows
    assert large.stat().st_size > 200 << 20
    command = [sys.executable, "-c", MEMORY, model[0], svm, large]
    used = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ}).stdout
    assert int(used) < 256  # MiB


def test_numbers_read_back_as_float32():
    rows = np.array([[0.0, -0.0, 1.5], [np.nan, np.inf, -np.inf], [1e-7, 999999.94, 1e6]])
    assert number_lines(rows) == b"0.0 -0.0 1.5\nnan inf -inf\n1e-07 999999.94 1e+06\n"
    values = np.exp(np.random.default_rng(0).uniform(-90, 80, 1000)).astype(np.float32)
    text = number_lines(values)
    assert (np.array(text.split(), np.float64).astype(np.float32) == values).all()
    assert number_lines(np.empty(0)) == b""
