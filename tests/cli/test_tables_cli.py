"""Tables on the command line: train, test, predict, evaluate, info and convert, and what is refused."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same 600 rows as clicks.csv and clicks.parquet; the label follows the site."""
    folder = tmp_path_factory.mktemp("clicks")
    random = np.random.default_rng(0)
    site = random.integers(0, 20, 600)
    table = pa.table(
        {
            "click": np.where((site % 2 == 1) ^ (random.random(600) < 0.05), "yes", "no"),
            "site": [f"site {k}" for k in site],
            "price": random.gamma(2, 3, 600).round(2),
            "time": (1_700_000_000 + random.integers(0, 10**7, 600)).astype("datetime64[s]"),
            "id": np.arange(600),
        }
    )
    pyarrow.csv.write_csv(table, folder / "clicks.csv")
    pq.write_table(table, folder / "clicks.parquet")
    return folder


TRAIN = "--label click --ignore id,time --epochs 2 -w 1"


def test_from_training_to_predictions(clicks: Path, tmp_path: Path, hogwild: Any) -> None:
    model, text, packed = tmp_path / "m", clicks / "clicks.csv", clicks / "clicks.parquet"
    done = hogwild(f"train {text} {TRAIN} --test {packed} --out {model}")
    assert done.status == 0, done.err
    assert "categorical: site\nnumeric: price\nleft out: time, id\n" in done.out
    again = hogwild(f"train {text} {TRAIN} --holdout 0.2")  # from the cache
    assert "categorical: site\nnumeric: price\nleft out: time, id\n" in again.out
    measured = [hogwild(f"evaluate {model} {data} --json").facts() for data in (text, packed)]
    assert measured[0] == measured[1]
    assert measured[0]["accuracy"] > 0.9
    assert measured[0]["labels"] == ["no", "yes"]
    assert "yes 0.9" in hogwild(f"evaluate {model} {packed}").out
    lines = [hogwild(f"predict {model} {data}").out for data in (text, packed)]
    assert lines[0] == lines[1]
    assert set(lines[0].split()) == {"no", "yes"}
    facts = hogwild(f"info {text} --label click --json").facts()
    assert facts["rows"] == 600
    assert set(facts["targets"]["labels"]) == {"no", "yes"}
    assert f"{'labels':<21}no, yes\n" in hogwild(f"inspect {model}").out
    store = tmp_path / "store"
    hogwild(f"convert {packed} {store} --label click --ignore id,time --hash-bits 18").shown()
    assert hogwild(f"evaluate {model} {store} --json").facts() == measured[0]


@pytest.mark.parametrize("problem", ["linear", "ffm --rank 2 --step 1 --l2-factors 1e-3"])
def test_dates_buckets_and_crosses(problem: str, clicks: Path, tmp_path: Path, hogwild: Any) -> None:
    made = "--label click --ignore id --bucket price:5 --cross site*price,price*time.hour"
    model, store = tmp_path / "m", tmp_path / "store"
    run = f"--problem {problem} --epochs 2 -w 1"
    trained = hogwild(f"train {clicks / 'clicks.csv'} {made} {run} --out {model}")
    said = "categorical: site\ndate: time\nbucket: price\ncross: site*price, price*time.hour\nleft out: id\n"
    assert said in trained.out, trained.err
    lines = [hogwild(f"predict {model} {clicks / name} --proba").out for name in ("clicks.csv", "clicks.parquet")]
    assert lines[0] == lines[1]
    hogwild(f"convert {clicks / 'clicks.parquet'} {store} {made}").shown()
    of_store, of_text = (hogwild(f"evaluate {model} {data} --json").facts() for data in (store, clicks / "clicks.csv"))
    assert of_store == of_text
    facts = hogwild(f"inspect {model} -n 900 --names {clicks / 'clicks.csv'} --json").facts()
    names = {name for group in facts["heaviest"] for side in ("positive", "negative") for name, _ in group[side]}
    assert {"time.weekday=Mon", "site=site 3"} <= names
    assert any(name.startswith("site*price=site 3,..") for name in names)


def test_predict_needs_no_label_and_takes_a_stream(
    clicks: Path, tmp_path: Path, hogwild: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "m"
    hogwild(f"train {clicks / 'clicks.parquet'} {TRAIN} -q --out {model}").shown()
    table = pq.read_table(clicks / "clicks.parquet").drop(["click", "id", "time"])
    pyarrow.csv.write_csv(table, tmp_path / "new.csv")
    expected = hogwild(f"predict {model} {clicks / 'clicks.csv'}").out
    assert hogwild(f"predict {model} {tmp_path / 'new.csv'}").out == expected
    with open(tmp_path / "new.csv") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert hogwild(f"predict {model} -").out == expected
    refused = hogwild(f"evaluate {model} {tmp_path / 'new.csv'}")
    assert refused.err == (
        f"hogwild: error: {tmp_path}/new.csv: no column click, which the model was trained with; its columns are site, "
        "price\n"
    )


def test_what_does_not_go_together_is_one_line(
    clicks: Path, tmp_path: Path, svm: Path, hogwild: Any, refused: Any
) -> None:
    model, plain, text = tmp_path / "m", tmp_path / "plain", clicks / "clicks.csv"
    hogwild(f"train {text} {TRAIN} -q --out {model}").shown()
    hogwild(f"train {svm} --epochs 1 -w 1 -q --out {plain}").shown()
    needs_label = "a table needs --label COLUMN, in Python label=; its columns are click, site, price, time, id"
    cases = {
        f"train {text}": needs_label,
        f"train {text} --label clik": "no column clik (--label): did you mean click?",
        f"train {text} --label click --numeric site": "column site holds text, which cannot be numeric",
        f"train {text} --label click --text site,site": "column site is named in text and in text",
        f"train {svm} --label click": "no column click (--label); its columns are 1 1:1",
        f"train {text} --problem completion --label click": "--label needs --problem linear or fm or ffm",
        f"predict {model} {svm}": "no column site, price, which the model was trained with; its columns are 1 1:1",
        f"predict {plain} {text}": "a table, but the model's features are none of its columns",
        f"evaluate {plain} {text}": "a table, but the model's features are none of its columns",
    }
    for words, said in cases.items():
        assert said in refused(words), words


def test_ctrl_c_while_a_table_is_read_leaves_nothing(tmp_path: Path, spawn: Any) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("click,site,price\n" + "yes,a,1\nno,b,2\n" * 3_000_000)  # seconds of reading
    here = tmp_path / "here"
    here.mkdir()
    process = spawn("train", path, "--out", here / "m", "--cache", here, "--label", "click")
    while not any(here.iterdir()) and process.poll() is None:  # until it writes what it reads
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert list(here.iterdir()) == []
