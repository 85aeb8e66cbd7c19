"""The recipes of ``docs/extend.md``: a toy of each kind is added to a copy of the package, in the files they name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "hogwild"

LOSS = {  # half the squared error under another name
    "kernels/losses.py": [
        ("SOFTMAX = 10 ", "TOY = 12\nSOFTMAX = 10 "),
        ('    "poisson": Loss(', '    "toy": Loss(TOY, NUMBERS),\n    "poisson": Loss('),
        ("    if code == SQUARED_ERROR:  # (p - y)^2 / 2\n", "    if code in (SQUARED_ERROR, TOY):\n"),
        ("    if code == SQUARED_ERROR:  # p - y\n", "    if code in (SQUARED_ERROR, TOY):\n"),
    ],
}
DISCIPLINE = {  # atomic updates under another name
    "problems/linear/kernel.py": [
        ('"tiered": 6}\n', '"tiered": 6, "toy": 7}\n'),
        ("ROUND_ROBIN, TIERED = DISCIPLINES", "ROUND_ROBIN, TIERED, TOY = DISCIPLINES"),
        ("1 if discipline == ATOMIC else None", "1 if discipline in (ATOMIC, TOY) else None"),
    ],
    "methods.py": [('"round-robin")\n', '"round-robin", "toy")\n')],
}
EXCHANGE = {  # it forgets what the replicas learnt
    "exchanges/toy.py": """
        from hogwild.exchanges.averaging import Averaging

        class Toy(Averaging):
            def meet(self, flat, arrays, rows):
                flat[:] = 0
        """,
    "methods.py": [
        (
            '    "none": ExchangeRow(""),\n',
            '    "none": ExchangeRow(""),\n    "toy": ExchangeRow("hogwild.exchanges.toy:Toy"),\n',
        )
    ],
}
METHOD = {
    "compare/run/methods.py": [
        ('    Method("hogwild", ', '    Method("toy", "lock-free", "hogwild"),\n    Method("hogwild", ')
    ]
}
TRAIN = """
import hogwild
rows = hogwild.open_data("synthetic:rcv1?rows=60&features=40&nnz=4")
def trained(**options):
    run = hogwild.train(rows, epochs=1, step=0.1, host=options.pop("host", "threads"), **options)
    run.finish()
    return run.history[-1]["objective"], run
"""


def added(folder: Path, changes: dict[str, list[tuple[str, str]] | str], program: str) -> str:
    """Copy the package, make the changes, and run a program with it; without the JIT, since nothing has to be fast."""
    shutil.copytree(PACKAGE, folder / "hogwild", ignore=shutil.ignore_patterns("__pycache__"))
    for name, change in changes.items():
        path = folder / "hogwild" / name
        if isinstance(change, str):
            path.write_text("\n".join(line[8:] for line in change.splitlines()) + "\n")
            continue
        text = path.read_text()
        for old, new in change:
            assert text.count(old) == 1, f"{name}: {old!r} is there {text.count(old)} times: mend this test"
            text = text.replace(old, new)
        path.write_text(text)
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN + program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_loss(tmp_path: Path) -> None:
    """One file serves the trainer, the evaluator and the options."""
    added(
        tmp_path,
        LOSS,
        """
a, b = trained(loss="toy", workers=1)[0], trained(loss="squared-error", workers=1)[0]
assert a == b, (a, b)
""",
    )


def test_a_discipline(tmp_path: Path) -> None:
    added(
        tmp_path,
        DISCIPLINE,
        """
a, b = trained(discipline="toy", workers=1)[0], trained(discipline="serial", workers=1)[0]
assert a == b, (a, b)
assert trained(discipline="toy", workers=2)[1].history[-1]["updates"] == 60
""",
    )


@pytest.mark.parametrize("host", ["threads", "simulator"])
def test_an_exchange(tmp_path: Path, host: str) -> None:
    """One file and one row, for all hosts, and for comparisons too."""
    added(
        tmp_path,
        EXCHANGE,
        f"""
objective, run = trained(exchange="toy", workers=3, host={host!r})
assert (run.history[-1]["replicas"], run.history[-1]["updates"]) == (3, 60)
assert objective == run.history[0]["objective"] > trained(exchange="averaging", workers=3, host={host!r})[0]
from hogwild.compare.run.methods import METHODS
assert METHODS["toy"].exchange == "toy"
""",
    )


def test_a_method_to_compare(tmp_path: Path) -> None:
    added(
        tmp_path,
        METHOD,
        """
from hogwild.compare.run.methods import chosen, usual
assert "toy" in usual("linear")
assert [method.name for method in chosen(["toy"])] == ["serial", "toy"]
""",
    )
