"""Files that were given for something else, and names that no file has: the end of the message says what would do."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import pytest

import hogwild
from hogwild.cli.sources import check_readable, check_writable
from hogwild.errors import HogwildError, InputError, OutputError

RATINGS = "it looks like ratings: --problem completion$"
COLUMN = "name its label column with --label COLUMN, and --format csv$"


def said(call, *given):
    with pytest.raises(HogwildError) as caught:
        call(*given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "end"),
    [
        ("u.data", "196\t242\t3\t881250949\n186\t302\t3\t891717742\n", RATINGS),
        ("ratings.dat", "1::1193::5::978300760\n1::661::3.5::978302109\n", RATINGS),
        ("ratings.txt", "# a comment\nuser item rating\na b 4\nc d 5\n", RATINGS),
        (
            "ratings.csv",
            "userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n",
            "; for ratings, --problem completion$",
        ),
        ("clicks.txt", "click,site,price\n1,a,0.5\n0,b,2\n", f"; it looks like a table: {COLUMN}"),
        ("dense.txt", "1;2.5;3\n0;3.5;4\n", f"; it looks like a table: put a line of names above, {COLUMN}"),
        ("dense.csv", "1,2.5,3\n0,3.5,4\n", "its columns are 1, 2.5, 3; a line of names belongs above$"),
        ("blanks.txt", "1.5 2 3 4\n0 3 4 5\n", "a table parted by blanks: put commas there, and name its label column"),
        ("flow.txt", "c graph\np max 4 5\nn 1 s\n", "it looks like a graph: --problem cuts$"),
        ("rows.bin", "PAR1\x15\x04", "a Parquet file: --format parquet --label COLUMN$"),
        ("bad.svm", "+1 1:0.5 2:1\n-1 5:2 3\n", "missing colon in '3': expected index:value$"),
        ("labels.svm", "1,2 5:2 3:1\n-1,3 2:1\n", "several labels '1,2', expected one$"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_what_a_file_looks_like(tmp_path: Path, name: str, text: str, end: str, packed: bool) -> None:
    if name.endswith(".csv"):
        pytest.importorskip("pyarrow")
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    if name == "rows.bin" and packed:
        end = "expected a number|binary data"
    message = said(hogwild.open_data, path)
    assert re.search(end, message), message


def test_rows_that_were_given_for_ratings(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("+1 1:0.5 2:1\n-1 5:2\n")
    assert said(hogwild.open_ratings, path).endswith("; it looks like svmlight text: it is for --problem linear")
    path.write_text("1\t2\t3\n4\t5\tx\n")
    assert said(hogwild.open_ratings, path).endswith("bad rating 'x': expected a number")


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("train.svm", "train.svm: did you mean train.svm.gz?"),
        ("train.svm.xz", "train.svm.xz: did you mean train.svm.gz?"),
        ("TRAIN.SVM.GZ", "TRAIN.SVM.GZ: did you mean train.svm.gz?"),
        ("ratigns.csv", "ratigns.csv: did you mean Ratings.csv?"),
        ("folder/x", "folder/x: there is no directory folder: did you mean folders?"),
        ("none/of/these", "none/of/these: there is no directory none"),
        ("covtyp", "covtyp: did you mean covtype?"),
        ("quite-other", "quite-other"),
    ],
)
def test_a_name_that_is_nearly_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, end: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.svm.gz").touch()
    (tmp_path / "Ratings.csv").touch()
    (tmp_path / "folders").mkdir()
    hint = end[len(name) :]
    for opened in (hogwild.open_data, hogwild.open_ratings, hogwild.open_graph):
        message = said(opened, name)
        assert message.startswith(f"{name}: no such file{hint}"), message
        assert hint or "did you mean" not in message
    with pytest.raises(InputError) as caught:
        check_readable(name)
    assert str(caught.value) == f"{name}: No such file or directory{hint}"
    if "/" in name:
        where = os.path.dirname(name)
        with pytest.raises(OutputError, match=f"--out {name}: cannot write there: there is no directory {where}$"):
            check_writable("--out", name)


@pytest.mark.parametrize("name", ["a9a", "a9a.gz", "covtype"])
def test_a_file_that_is_nearly_called_as_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOGWILD_DATA", str(tmp_path / "data"))
    (tmp_path / f"{name.removesuffix('.gz')}.bz2").touch()
    for opened in (hogwild.open_data, check_readable):
        hint = f"did you mean {name.removesuffix('.gz')}.bz2?"
        assert re.match(f"{name}: [Nn]o such file.*{re.escape(hint)}", said(opened, name))
