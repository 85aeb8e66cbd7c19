"""Files that were given for something else, and names that no file has: the end of the message says what would do."""

from __future__ import annotations

from pathlib import Path

import pytest

import hogwild
from hogwild.cli.sources import check_readable, check_writable
from hogwild.data.rows.source import stream_data
from hogwild.errors import InputError, OutputError
from tests.runs import line_of


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("u.data", "196\t242\t3\t881250949\n186\t302\t3\t891717742\n", True),
        ("bad.svm", "+1 1:0.5 2:1\n-1 5:2 3\n", False),
        ("bad.svm", "nan 1:0.5 2:1\n", False),
        ("bad.ffm", "1 0:1:1 2:1\n", False),
    ],
)
def test_what_is_no_svmlight_text_from_its_first_line_on(tmp_path: Path, name: str, text: str, hint: bool) -> None:
    (tmp_path / name).write_text(text)
    message = line_of(InputError, hogwild.open_data, tmp_path / name)
    assert message.startswith(f"{tmp_path / name}:{2 if text[0] == '+' else 1}: ")
    assert ("tables need --label COLUMN, ratings and graphs --problem" in message) is hint
    options = dict.fromkeys(("zero_based", "hash_bits", "separator"))
    streamed = line_of(InputError, list, stream_data(str(tmp_path / name), **options))  # which has no such options
    assert streamed == message.partition("; svmlight text")[0]


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("train.svm", "train.svm: did you mean train.svm.gz?"),
        ("ratigns.csv", "ratigns.csv: did you mean Ratings.csv?"),
        ("none/of/these", "none/of/these"),
        ("folders/train.sv", "folders/train.sv: did you mean folders/train.svm?"),
        ("covtyp", "covtyp: did you mean covtype?"),
    ],
)
def test_a_name_that_is_nearly_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, end: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.svm.gz").touch()
    (tmp_path / "Ratings.csv").touch()
    (tmp_path / "folders").mkdir()
    (tmp_path / "folders" / "train.svm").touch()
    hint = end[len(name) :]
    for opened in (hogwild.open_data, hogwild.open_ratings, hogwild.open_graph):
        message = line_of(InputError, opened, name)
        assert message.startswith(f"{name}: no such file{hint}"), message
        assert hint or "did you mean" not in message
    assert line_of(InputError, check_readable, name) == f"{name}: No such file or directory{hint}"
    if name.startswith("none"):
        with pytest.raises(OutputError, match=f"--out {name}: cannot write there: No such file or directory$"):
            check_writable("--out", name)
