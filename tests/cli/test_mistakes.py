"""Every mistake that the command line finds by itself: one line that says what to do, status 1 or 2, nothing written.

What the library finds (in data, options, models) has its tests there; of that a row or two stand here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hogwild.problems.completion.model import CompletionModel
from hogwild.problems.cuts.model import Segmentation
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.module.model import ModuleModel
from tests.compare.rows import about, write

MODULE = """
import torch
def model(): return torch.nn.Linear(4, 2)
def data(): return torch.randn(64, 4), torch.arange(64) % 2
def breaks():
    raise KeyError("what is missing")
def leaves():
    raise SystemExit(3)
NOTHING = 3
"""
RATINGS, GRID = "synthetic:ratings?users=9&items=9&ratings=30", "synthetic:grid?side=8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, models, programs and a comparison, good ones and bad ones, by the names that the table has."""
    here = tmp_path_factory.mktemp("mistakes")
    texts = {
        "d.svm": "".join(f"{1 + k % 2} {1 + k % 9}:1\n" for k in range(60)),
        "one.svm": "1 1:1\n1 2:1\n" * 5,
        "bad.svm": "1 1:1\n2 1:x\n",
        "bad.tsv": "1\t2\t3\n1\t2\tx\n",
        "bad.max": "p max 2 1\nn 1 s\nn 2 t\na 1 9 3\n",
        "empty.max": "",
        "edges.tsv": "1\t2\n",
        "t.csv": "click,site\nyes,a\nno,b\n",
        "m.py": MODULE,
        "syntax.py": "def model():\n    return (\n",
        "imports.py": "\n\nimport there_is_no_such_module\n",
    }
    for name, text in texts.items():
        (here / name).write_text(text)
    (here / "link").symlink_to("d.svm")
    factors = np.ones((3, 2), np.float32)
    models = {
        "linear": LinearModel([1.0, -2.0], [0.25], "log", labels=[3, 7]),
        "model.npz": LinearModel([1.0], [0.0], "squared-error"),
        "line": LinearModel([1.0], [0.0], "squared-error"),
        "ratings": CompletionModel(factors, factors, np.zeros(3), np.zeros(3), 3.5),
        "choices": CompletionModel(factors, factors, np.zeros(3), np.zeros(3), 0.0, loss="bpr"),
        "cut": Segmentation(np.eye(2, dtype=np.float32), 1.0, 2.0),
        "module": ModuleModel({"w": np.ones(2, np.float32)}, names=["w"]),
    }
    for name, model in models.items():
        model.save(here / name)
    write(here / "other", about())
    return here


MISTAKES: dict[str, tuple[int, str]] = {
    # the words themselves
    "trian": (2, "train"),
    "cache cleer": (2, "clear"),
    "train --los log": (2, "--loss"),
    "train --epochs many": (2, "--epochs"),
    "train --step big": (2, "--step big: expected a number or 'auto'"),
    "train --format csw": (2, "--format csw: expected one of svmlight, csv"),
    "train --problem cut": (
        2,
        "--problem cut: expected one of linear, fm, ffm, completion, cuts (modules: hogwild.train_module",
    ),
    "predict linear": (2, "DATA"),
    "inspect linear -n 0": (2, "--count"),
    "export linear --to vw -o x": (2, "error: --to vw: expected one of npz, python, onnx"),
    "export cut --to onnx -o x": (2, "--to onnx needs a linear model; got Segmentation: take npz"),
    "export cut --to python -o x.py": (2, "--to python needs a model of rows or ratings; got Segmentation: take npz"),
    "export linear --to python -o class.py": (2, "--to python writes a new module NAME.py, and NAME.npz; got class.py"),
    "export linear --to python -o x": (2, "--to python writes a new module NAME.py, and NAME.npz; got x: name it so"),
    "export linear --to python -o numbers.py": (2, "a new module NAME.py, and NAME.npz; got numbers.py"),
    "export model.npz --to python -o model.py": (2, "--out model.npz would overwrite model.npz: choose another name"),
    "train-module m.py:model": (2, "No such command 'train-module'"),
    "import x --from npz -o y": (2, "No such command 'import'"),
    "bench d.svm": (2, "No such command 'bench'"),
    "export linear --to npz": (2, "Missing option '--out' / '-o' (see hogwild export --help)"),
    "simulate d.svm --host threads": (2, "No such option"),
    "compare d.svm --workers 0": (2, "--workers 0: expected numbers above 0 up to 1024, such as 1,2,4"),
    "compare d.svm --steps 0,1": (2, "--steps 0,1: expected numbers above 0, such as 0.1,0.01"),
    "compare d.svm --eps 0.1,nan,0.5": (2, "--eps 0.1,nan,0.5: expected numbers above 0 up to 1"),
    "compare d.svm --workers two": (2, "--workers two: expected numbers"),
    "convert d.svm d.svm": (1, "d.svm exists: choose another name, or give --overwrite"),
    # options that do not go together
    "train d.svm --out -": (2, "--out -: a model goes to a file: name it"),
    "train d.svm --resume": (2, "--resume goes on from a checkpoint: name its directory with --checkpoint DIR"),
    "train d.svm --holdout 1.5": (2, "--holdout 1.5: expected a fraction between 0 and 1"),
    f"train {RATINGS} --holdout-by time": (2, "--holdout-by time: nothing is held out: give --holdout FRACTION too"),
    f"train {RATINGS} --holdout-by tme": (2, "expected one of row, user, time: did you mean time?"),
    "train d.svm --holdout 0.1 --holdout-by user": (2, "--holdout-by needs --problem completion; got linear"),
    "train d.svm --test d.svm --keep best": (2, "--keep best needs rows held out of DATA"),
    "train d.svm --columns user,item": (2, "--columns needs --problem completion or cuts; got linear"),
    "train d.svm --meet here:1": (2, "--meet is for several machines: give --machines P too"),
    "train d.svm --machines 2": (2, "--machines 2: say where they meet, --meet HOST:PORT of machine 0"),
    f"train {RATINGS} --hash-bits 8": (2, "--hash-bits needs --problem linear or fm or ffm; got completion"),
    f"train {RATINGS} --test {RATINGS} --holdout 0.1": (2, "--test and --holdout both name the rows to test on"),
    f"train {GRID} --holdout 0.1": (2, "--holdout needs --problem linear or fm or ffm or completion; got cuts"),
    "convert bad.max store": (2, "bad.max: graphs are not kept in stores: train on the file itself"),
    "predict linear d.svm --proba --decision": (2, "--proba and --decision ask for different outputs"),
    "predict line d.svm --proba": (2, "no probabilities"),
    f"predict ratings {RATINGS} --proba": (2, "--proba and --decision are for linear models"),
    "evaluate linear d.svm --seen d.svm": (2, "--seen needs a model of ratings; linear is linear"),
    "evaluate line d.svm --plot x.png": (2, "--plot needs a model of two labels; line is none"),
    "evaluate linear d.svm --plot x.txt": (2, "--plot x.txt: expected a name that ends in .png, .svg, .pdf"),
    "evaluate linear d.svm --plot none/x.png": (1, "--plot none/x.png: cannot write there: No such file"),
    "inspect cut --names d.svm": (2, "--names needs a linear model; cut is none"),
    "report other other": (2, "a report of 2 directories needs a place of its own: give --out DIR"),
    # names that are empty: an unset variable in a script
    "train ''": (2, "'': an argument is empty: expected a value for it"),
    "train d.svm --out=": (2, "an argument is empty"),
    # files that are not there, or something else
    "train rcv2": (1, "rcv2: No such file or directory: did you mean rcv1?"),
    "train linear": (1, "linear: a hogwild model, not data: name the data"),
    "inspect d.svm": (1, "d.svm: not a hogwild model"),
    "inspect none": (1, "none: No such file"),
    "inspect linear --names none": (1, "No such file"),
    "recommend linear": (1, "linear: expected a model of ratings; got a linear model"),
    "labels linear": (1, "linear: expected a cut, whose labels hogwild labels prints; got a linear model"),
    "predict cut d.svm": (1, "cut: expected a linear model; got a cut, whose labels hogwild labels prints"),
    "predict module d.svm": (1, "got a torch module, which hogwild.load opens in Python"),
    "similar ratings name": (1, "names need to be whole numbers, as in the ratings trained on; got 'name'"),
    f"evaluate ratings {RATINGS} --seen {RATINGS}": (2, "seen needs a model that ranks, of loss log or bpr"),
    f"evaluate choices {RATINGS} --seen {RATINGS}": (1, "nothing is left to rank: seen holds all of these ratings"),
    "train empty.max": (1, "empty.max:1: a flow problem needs lines p max VERTICES ARCS, n VERTEX s and n VERTEX t"),
    "train edges.tsv --problem cuts": (1, "edges.tsv.terminals: no such file; edges.tsv needs lines VERTEX LABEL"),
    "predict linear t.csv": (1, "t.csv: a table, but the model's features are none of its columns"),
    "evaluate linear d.svm": (1, "d.svm: row 1 has label 1"),
    "evaluate linear bad.svm": (1, "bad.svm:2: bad"),
    "predict ratings bad.tsv": (1, "bad.tsv:2: "),
    "train bad.max": (1, "bad.max:4: "),
    "train one.svm --holdout 0.01": (1, "one.svm: cannot hold out 0.01 of 10 rows"),
    # outputs that cannot be written, or would overwrite
    "train d.svm --out d.svm": (2, "--out d.svm would overwrite d.svm: choose another name"),
    "train d.svm --out new --json ./new": (2, "--json ./new would overwrite new"),
    "predict linear d.svm -o linear": (2, "--out linear would overwrite linear"),
    "predict linear d.svm -o link": (2, "--out link would overwrite d.svm"),
    "train synthetic:rcv1?rows=9 --test d.svm -o d.svm": (2, "would overwrite"),
    "train d.svm --hash-bits 31": (2, "'--hash-bits'"),
    "recommend ratings -o ratings": (2, "would overwrite"),
    "train d.svm --json nowhere/rows": (1, "--json nowhere/rows: cannot write there"),
    # comparisons, and programs of a user
    "compare d.svm --methods hogwyld": (2, "method 'hogwyld': expected some of serial"),
    "compare d.svm --l2 auto": (2, "--l2: a comparison is of one objective: give one number"),
    "compare d.svm --problem fm": (2, "--l2-factors: a comparison is of one objective"),
    "compare d.svm --test d.svm --holdout 0.1": (2, "--test and --holdout both name the rows to test on"),
    "compare d.svm --problem module": (2, "--problem module and --model FILE.py:NAME belong together; got module"),
    "compare --model m.py:model": (2, "a module is compared on data of its own"),
    "compare m.py:data --model m.py": (2, "--model m.py: expected FILE.py:NAME"),
    "compare m.py:data --model m.py:model --problem linear": (2, "belong together; got m.py:model"),
    "compare m.py:data --model m.py:model --format csv": (2, "--format does not go with --model"),
    "compare m.py:data --model none.py:model": (1, "none.py: No such file"),
    "compare m.py:data --model m.py:more": (1, "m.py: no function more in it: it has model, data, breaks, leaves"),
    "compare m.py:data --model m.py:NOTHING": (1, "no function NOTHING in it"),
    "compare m.py:data --model syntax.py:model": (1, "syntax.py, line 2: SyntaxError"),
    "compare m.py:data --model imports.py:model": (1, "imports.py, line 3: ModuleNotFoundError"),
    "compare m.py:data --model m.py:breaks --out new": (1, "m.py, line 6: KeyError: 'what is missing'"),
    "compare m.py:leaves --model m.py:model --out new": (1, "m.py, line 8: SystemExit: 3"),
    "compare m.py:data --model m.py:model --loss cross_entropy": (2, "cross-entropy, mse, bce or FILE.py:NAME"),
    "compare d.svm --steps 1 --methods hogwild -w 1 --out other": (2, "--out other holds another comparison"),
    "compare one.svm --out new": (1, "one.svm: all 8 rows have the label 1"),
    "compare d.svm --steps 1 --out d.svm": (1, "--out d.svm"),
}


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_one_line(hogwild: Callable, folder: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.chdir(folder)
    before = contents(folder)
    result = hogwild(words)
    status, message = MISTAKES[words]
    assert re.fullmatch(r"(hogwild: warning: [^\n]+\n)*hogwild: error: [^\n]+\n", result.err), result.err
    assert message in result.err
    assert result.status == status
    after = contents(folder)
    assert after == before
