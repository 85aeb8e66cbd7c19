"""Cards and names: what a card must hold, which name means which data, and that the real cards are sound."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hogwild.data.public.catalogue import (
    cards,
    data_folder,
    find,
    is_fetched,
    located,
    look_up,
    near,
    place,
)
from hogwild.data.rows.source import convert, open_data
from hogwild.errors import InputError, UsageError
from tests.downloads import FEATURES, ROWS, SVM, catalogue_of, write_card
from tests.runs import line_of

REAL = cards()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of one set, ``tiny``, of a train and a test part, the first of them here."""
    write_card(
        tmp_path / "cards",
        "tiny",
        {"train": {"url": "http://x/tiny"}, "test": {"url": "http://x/tiny.t"}},
        aliases=["tiny.svm"],
        features=FEATURES,
    )
    catalogue_of(tmp_path, monkeypatch)
    (tmp_path / "text").write_text(SVM)
    (tmp_path / "data" / "tiny").mkdir(parents=True)
    convert(tmp_path / "text", tmp_path / "data" / "tiny" / "train")
    return tmp_path


# -- the real cards ---------------------------------------------------------------------------------------------------


def test_there_is_a_card_for_each_set_of_the_plan() -> None:
    wanted = "rcv1 rcv1-multiclass news20 real-sim webspam-unigram webspam-trigram url kdda kddb a9a w8a covtype \
        avazu-app avazu-site criteo epsilon bvz-tsukuba lb07-bunny-sml"
    films = {f"movielens-{size}" for size in ("100k", "1m", "10m", "20m", "25m", "32m")}
    assert films | set(wanted.split()) <= set(REAL)


def test_names_and_aliases_mean_one_set_each() -> None:
    names = [word for card in REAL.values() for word in (card.name, *card.aliases)]
    assert len(names) == len(set(names))
    assert names == [name.lower() for name in names]
    assert list(REAL) == sorted(REAL)


# -- what a card must be ----------------------------------------------------------------------------------------------


def test_cards_are_consistent() -> None:
    for name, card in cards().items():
        assert card.name == name
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name)
        assert card.problem == {"svmlight": "linear", "ratings": "completion", "dimacs": "cuts"}[card.format]
        assert card.parts
        assert all((card.title, card.licence, card.citation, card.source, card.homepage))
        assert {"linear": card.features, "completion": card.users, "cuts": card.vertices}[card.problem]
        for part in card.parts:
            assert re.fullmatch(r"https?://\S+/[A-Za-z0-9][\w.+-]*", part.url)
            assert re.fullmatch("[0-9a-f]{32}", part.md5 or "0" * 32)


# -- names ------------------------------------------------------------------------------------------------------------


def test_look_up(own: Path) -> None:
    for name, role in (("tiny", None), ("TINY", None), ("tiny.svm", None), ("tiny:test", "test")):
        card, found = look_up(name)
        assert (card.name, found) == ("tiny", role)
    with pytest.raises(UsageError, match="tinny: no such data set: did you mean tiny\\?"):
        look_up("tinny")
    with pytest.raises(UsageError, match="expected one of train, test"):
        look_up("tiny:tset")
    assert near("tinyy") == ": did you mean tiny?"
    assert near("something else") == ""


def test_a_name_is_where_its_data_lie(own: Path) -> None:
    assert located("tiny") == located("tiny:train") == str(own / "data" / "tiny" / "train")
    for other in ("rows.svm", "../tiny", "/tiny", "./tiny", "synthetic:rcv1", "tiny:tset", "", "-", "tiny/train"):
        assert located(other) == other
    said = f"that data set is not fetched into {own / 'data'}: hogwild data fetch tiny:test"
    assert line_of(InputError, located, "tiny:test") == f"tiny:test: no such file, and {said}"


def test_a_file_of_that_name_wins(own: Path) -> None:
    Path("tiny").write_text("1 1:1\n-1 2:1\n")
    assert find("tiny") is None
    assert located("tiny") == "tiny"
    assert len(open_data("tiny")) == 2
    os.remove("tiny")
    assert len(open_data("tiny")) == ROWS
    os.symlink("nowhere", "tiny")  # what the user meant, even if it leads nowhere
    assert located("tiny") == "tiny"


def test_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOGWILD_DATA", "relative")
    assert data_folder() == tmp_path / "relative"
    monkeypatch.setenv("HOGWILD_DATA", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert data_folder() == tmp_path / "share" / "hogwild"
    assert not is_fetched(place(REAL["a9a"], "train"))
