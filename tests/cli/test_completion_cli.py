"""``hogwild train`` on ratings, ``predict``, ``evaluate``, ``recommend`` and ``similar``; a line for every mistake."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hogwild.__main__ import main
from hogwild.cli.models import named
from hogwild.data.ratings.container import Ids, Ratings
from tests.cli.conftest import rows_of
from tests.test_problems import ratings

QUICK = "--host threads --workers 1 --epochs 20 --rank 8"


@pytest.fixture(scope="module")
def stars(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ratings]:
    """A file of ``user<tab>item<tab>stars`` with names, and all ratings; every fifth of them is not in the file."""
    data = ratings(24_000, rank=2)
    path = tmp_path_factory.mktemp("stars") / "stars.tsv"
    lines = (f"u{u}\ti{i}\t{v:.3f}\n" for u, i, v in zip(data.users, data.items, data.values))
    path.write_text("".join(line for k, line in enumerate(lines) if k % 5))
    return path, data


@pytest.fixture(scope="module")
def model(stars: tuple[Path, Ratings]) -> Path:
    path = stars[0].with_name("model")
    assert main(f"train {stars[0]} --problem completion {QUICK} -q --out {path}".split()) == 0
    return path


def test_a_run_and_everything_it_writes(hogwild: Callable, stars: tuple[Path, Ratings], tmp_path: Path) -> None:
    result = hogwild(
        f"train {stars[0]} --problem completion {QUICK} --l2 0.03 --holdout 0.1 --json {tmp_path / 'rows'}",
    )
    assert result.status == 0
    assert "19,200 ratings of 300 users x 200 items" in result.out
    assert "held out 1,920 ratings" in result.out
    assert "loss squared-error, rank 8" in result.out
    assert ", test rmse" in result.out
    assert "Mupd/s" in result.out
    rows = rows_of(tmp_path / "rows")
    assert [row["epoch"] for row in rows] == list(range(21))
    assert rows[-1]["test_rmse"] < 0.8 * rows[0]["test_rmse"]


def test_predictions_of_pairs(hogwild: Callable, stars: tuple[Path, Ratings], model: Path, tmp_path: Path) -> None:
    data = stars[1]
    held = np.arange(0, len(data), 5)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"u{data.users[k]}\ti{data.items[k]}\n" for k in held))
    result = hogwild(f"predict {model} {pairs}")
    assert result.status == 0, result.err
    found = np.array(result.out.split(), float)
    assert len(found) == len(held)
    assert np.corrcoef(found, data.values[held])[0, 1] > 0.7
    with_values = tmp_path / "held.tsv"
    with_values.write_text("".join(f"u{data.users[k]}\ti{data.items[k]}\t{data.values[k]}\n" for k in held))
    facts = hogwild(f"evaluate {model} {with_values} --json").facts()
    assert facts["ratings"] == len(held)
    assert facts["rmse"] == pytest.approx(float(np.sqrt(np.mean((found - data.values[held]) ** 2))), rel=1e-4)


def test_users_that_the_model_does_not_know(hogwild: Callable, model: Path, tmp_path: Path) -> None:
    (tmp_path / "seen.tsv").write_text("".join(f"new\ti{i}\t{i % 5}\n" for i in range(9)))
    result = hogwild(f"recommend {model} new other -n 3 --seen {tmp_path / 'seen.tsv'}")
    assert "1 of 2 users are not known" in result.err
    assert len(result.out.splitlines()) == 6


def test_recommendations_leave_out_what_was_seen(
    hogwild: Callable, stars: tuple[Path, Ratings], model: Path, tmp_path: Path
) -> None:
    seen = {tuple(line.split("\t")[:2]) for line in stars[0].read_text().splitlines()}
    result = hogwild(f"recommend {model} u1 u2 -n 5 --seen {stars[0]}")
    assert result.status == 0, result.err
    lines = [line.split("\t") for line in result.out.splitlines()]
    assert [line[0] for line in lines] == ["u1"] * 5 + ["u2"] * 5
    assert not {tuple(line[:2]) for line in lines} & seen
    assert [float(line[2]) for line in lines[:5]] == sorted((float(line[2]) for line in lines[:5]), reverse=True)
    titles = stars[0].with_name("titles.csv")
    titles.write_text("item,title\n" + "".join(f"i{i},Film {i}\n" for i in range(200)))
    titled = hogwild(f"recommend {model} u1 u2 -n 5 --seen {stars[0]} --titles {titles}").out
    assert titled == "".join(f"{line}\tFilm {line.split()[1][1:]}\n" for line in result.out.splitlines())
    hogwild(f"recommend {model} -n 1 --out {tmp_path / 'all'}").shown()
    everyone = (tmp_path / "all").read_text().splitlines()
    assert len({line.split("\t")[0] for line in everyone}) == len(everyone) == 300


def test_names_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, names in (("a\u2028b\n\n c \n", ["a\u2028b", "c"]), ("", [])):  # nobody, not everybody
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert named(["-"], Ids(["c", "x"]), 2).tolist() == names


def test_similar_items(hogwild: Callable, model: Path) -> None:
    lines = [line.split("\t") for line in hogwild(f"similar {model} i7 -n 3").out.splitlines()]
    assert len(lines) == 3
    assert {line[0] for line in lines} == {"i7"}
    titles = model.with_name("title.tsv")
    titles.write_text(f"{lines[0][1]}\tThe\x1b film\n")
    titled = [line.split("\t") for line in hogwild(f"similar {model} i7 -n 3 --titles {titles}").out.splitlines()]
    assert titled == [[*lines[0], r"The\x1b film"], *([*line, line[1]] for line in lines[1:])]
    assert "i7" not in {line[1] for line in lines}
    result = hogwild(f"similar {model} nothing")
    assert (result.status, result.err.count("\n")) == (1, 1)
    assert "nothing" in result.err


def test_choices_instead_of_stars(hogwild: Callable, stars: tuple[Path, Ratings], tmp_path: Path) -> None:
    result = hogwild(
        f"train {stars[0]} --problem completion {QUICK} --loss bpr --holdout 0.2 --epochs 40 --step 0.06 --json "
        f"{tmp_path / 'rows'} --out {tmp_path / 'm'}",
    )
    assert result.status == 0, result.err
    assert "chosen of 3 from 0.01 to 0.04: ndcg at 10 0." in result.out
    rows = rows_of(tmp_path / "rows")
    assert f"epochs {rows[-1]['epoch']}, chosen with l2 (at most 40)" in result.out
    assert rows[-1]["objective"] < rows[0]["objective"]
    assert {"test_auc", "test_precision_at_10", "test_ndcg_at_10"} <= set(rows[-1])
    facts = hogwild(f"evaluate {tmp_path / 'm'} {stars[0]} --json").facts()
    assert 0 <= facts["auc"] <= 1


def test_side_features(hogwild: Callable, stars: tuple[Path, Ratings], tmp_path: Path) -> None:
    features = tmp_path / "items.csv"
    features.write_text("item,kind\n" + "".join(f"i{i},{'ab'[i % 2]}\n" for i in range(203)))
    rest = f"--problem completion {QUICK} --epochs 2 --holdout 0.1 --out {tmp_path / 'm'}"
    result = hogwild(f"train {stars[0]} --item-features {features} {rest}")
    assert result.status == 0, result.err
    assert f"{features}: 2 features of items; 3 items have no ratings" in result.out
    shown = hogwild(f"recommend {tmp_path / 'm'} u1 -n 500").out.splitlines()
    assert {"i200", "i201", "i202"} <= {line.split("\t")[1] for line in shown}
    wrong = hogwild(f"train {stars[0]} --user-features {features} {rest}")
    assert wrong.status == 1
    assert wrong.err == f"hogwild: error: {features}: none of its users is in the ratings; the first is 'i0'\n"
    assert hogwild("train rows.svm --problem linear --item-features x").status == 2


def test_stores_generated_ratings_and_facts(hogwild: Callable, stars: tuple[Path, Ratings], tmp_path: Path) -> None:
    hogwild(f"convert {stars[0]} {tmp_path / 'store'} --problem completion").shown()
    result = hogwild(f"train {tmp_path / 'store'} {QUICK}")  # the store says what it holds
    assert result.status == 0, result.err
    assert "19,200 ratings" in result.out
    facts = hogwild(f"info {tmp_path / 'store'} --json").facts()
    assert facts["omega"] == 2
    assert facts["delta"] <= facts["rho"] <= 2 * facts["delta"]
    made = hogwild(f"train 'synthetic:ratings?users=200&items=100&ratings=3000' {QUICK} --order blocks")
    assert made.status == 0, made.err
    wrong = hogwild(f"train {tmp_path / 'store'} {QUICK} --problem linear")
    assert wrong.status != 0
    assert wrong.err.count("\n") == 1
