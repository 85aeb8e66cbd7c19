"""Every mistake that the command line finds by itself: one line that says what to do, status 1 or 2, nothing written.

What the library finds (in data, options, models) has its tests there; of that a row or two stand here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hogwild.errors import InputError, naming
from hogwild.problems.completion.model import CompletionModel
from hogwild.problems.cuts.model import Segmentation
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.module.model import ModuleModel
from tests.compare.rows import about, write

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
        "edges.tsv": "1\t2\n",
        "bad.max": "p max 2 1\nn 1 s\nn 2 t\na 1 9 3\n",
        "t.csv": "click,site\nyes,a\nno,b\n",
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
    "data fetsh": (2, "fetch"),
    "train --los log": (2, "--loss"),
    "train --epochs many": (2, "--epochs"),
    "train --step big": (2, "--step big: expected a number or 'auto'"),
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
    f"train {RATINGS} --columns item,user,rating": (2, "whose columns are known: remove --columns"),
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
    "predict linear t.csv": (1, "t.csv: a table, but the model's features are none of its columns"),
    "evaluate linear bad.svm": (1, "bad.svm:2: bad"),
    "predict ratings bad.tsv": (1, "bad.tsv:2: "),
    "train one.svm --holdout 0.01": (1, "one.svm: cannot hold out 0.01 of 10 rows"),
    # outputs that cannot be written, or would overwrite
    "train d.svm --out d.svm": (2, "--out d.svm would overwrite d.svm: choose another name"),
    "train d.svm --out new --json ./new": (2, "--json ./new would overwrite new"),
    "train d.svm --checkpoint new --out new": (2, "--out new would overwrite new: choose another name"),
    "train edges.tsv --problem cuts --terminals t.csv --out t.csv": (2, "--out t.csv would overwrite t.csv"),
    "predict linear d.svm -o linear": (2, "--out linear would overwrite linear"),
    "predict linear d.svm -o link": (2, "--out link would overwrite d.svm"),
    "train synthetic:rcv1?rows=9 --test d.svm -o d.svm": (2, "would overwrite"),
    "train d.svm --hash-bits 31": (2, "'--hash-bits'"),
    "recommend ratings -o ratings": (2, "would overwrite"),
    "train d.svm --json nowhere/rows": (1, "--json nowhere/rows: cannot write there"),
    # comparisons
    "compare d.svm --methods hogwyld": (2, "no method 'hogwyld': did you mean hogwild?"),
    "compare d.svm --l2 auto": (2, "--l2: a comparison is of one objective: give one number"),
    "compare d.svm --problem fm": (2, "--l2-factors: a comparison is of one objective"),
    "compare d.svm --test d.svm --holdout 0.1": (2, "--test and --holdout both name the rows to test on"),
    "compare d.svm --device tpu": (2, "device='tpu': expected one of cpu, cuda"),
    "compare d.svm --problem module": (2, "--problem module: expected one of"),
    "compare d.svm --steps 1 --methods hogwild -w 1 --out other": (2, "--out other holds another comparison"),
    "compare one.svm --out new": (1, "one.svm: all 8 rows have the label 1"),
    "compare d.svm --steps 1 --out d.svm": (1, "--out d.svm"),
}


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


@pytest.mark.parametrize(
    ("name", "said", "shown"),
    [
        ("a", "a9a.svm: bad", "a: a9a.svm: bad"),
        ("a", "a:2: bad", "a:2: bad"),
        ("state", "state/meta.json: bad", "state/meta.json: bad"),
    ],
)
def test_an_error_names_the_data_once(name: str, said: str, shown: str) -> None:
    with pytest.raises(InputError) as error, naming(name):
        raise InputError(said)
    assert str(error.value) == shown


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
