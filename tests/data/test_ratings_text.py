"""Ratings from text: every format by a golden file, every mistake by its message, random files beside a twin."""

from __future__ import annotations

import glob
import gzip
import io
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.cache import Cache
from hogwild.data.ratings.source import open_ratings
from hogwild.data.ratings.text import parse_ratings
from hogwild.data.text import delimited
from hogwild.data.text.delimited import TextLayout
from hogwild.errors import HogwildWarning, InputError, UsageError


def named(ratings):
    """(user name, item name, value, time) of every rating, in order."""
    users = ratings.users if ratings.user_ids is None else ratings.user_ids.names(ratings.users)
    items = ratings.items if ratings.item_ids is None else ratings.item_ids.names(ratings.items)
    times = [None] * len(ratings) if ratings.times is None else ratings.times.tolist()
    return list(zip(users.tolist(), items.tolist(), ratings.values.tolist(), times, strict=True))


def read(text, values="required", **layout):
    stream = io.BytesIO(text if isinstance(text, bytes) else text.encode())
    return parse_ratings(stream, TextLayout(**layout), values=values)


COMMA = {"separator": ","}
BLANK = {"separator": "blank"}
WHOLE = [(9, 50, 4.0, 880606923), (2, 7, 2.5, 12), (9, 7, 1.0, 0)]
TEXT = [("u9", 50, 4.0, None), ("ü", 7, 2.5, None), ("u9", 7, 1.0, None)]

GOLDEN = {  # text, layout, ratings
    "MovieLens 100K": ("9\t50\t4\t880606923\n2\t7\t2.5\t12\n9\t7\t1\t0\n", {}, WHOLE),
    "MovieLens 1M": ("9::50::4::880606923\n2::7::2.5::12\n9::7::1::0\n", {"separator": "::"}, WHOLE),
    "MovieLens 20M": ("userId,movieId,rating,timestamp\n9,50,4.0,880606923\n2,7,2.5,12\n9,7,1.0,0\n", COMMA, WHOLE),
    "Windows": ("userId,movieId,rating,timestamp\r\n9,50,4.0,880606923\r\n2,7,2.5,12\r\n9,7,1,0\r\n", COMMA, WHOLE),
    "old Macintosh": ("userId,movieId,rating,timestamp\r9,50,4.0,880606923\r2,7,2.5,12\r9,7,1,0\r", COMMA, WHOLE),
    "byte order mark": ("\ufeffuser,movie,rating,at\n9,50,4.0,880606923\n2,7,2.5,12\n9,7,1.0,0\n", COMMA, WHOLE),
    "no final newline": ("9 50 4 880606923\n2 7 2.5 12\n9 7 1 0", BLANK, WHOLE),
    "comments and blank lines": (
        "# x y\n\n% z\n9|50|4|880606923\n\n2|7|2.5|12\n\n9|7|1|0\n",
        {"separator": "|"},
        WHOLE,
    ),
    "times cut off": ("9,50,4,880606923.9\n2,7,2.5,1.2e1\n9,7,1,0.5\n", COMMA, WHOLE),
    "columns in another order": (
        "item_id;stars;date;user_id\n50;4;880606923;9\n7;2.5;12;2\n7;1;0;9\n",
        {"separator": ";", "columns": "item,rating,time,user"},
        WHOLE,
    ),
    "more columns than are needed": ("9,50,4,880606923,x y\n2,7,2.5,12,\n9,7,1,0,z\n", COMMA, WHOLE),
    "fields in quotes": ('"9";"50";"4";"880606923"\n"2";"7"; 2.5;"12"\n9;7;1;0\n', {"separator": ";"}, WHOLE),
    "strings": ("u9 50 4\nü 7 2.5\nu9 7 1\n", BLANK, TEXT),
    "leading zeros": ("07 007 1\n7 7 2\n", BLANK, [("07", "007", 1.0, None), ("7", "7", 2.0, None)]),
    "large and negative numbers": (
        "-5 999999999999999999 1\n3000000000 0 -2e-1\n",
        BLANK,
        [(-5, 999999999999999999, 1.0, None), (3000000000, 0, float(np.float32(-0.2)), None)],
    ),
    "pairs": ("9 50\n2 7\n", BLANK, [(9, 50, 1.0, None), (2, 7, 1.0, None)]),
    "tags": (
        "userId,movieId,tag,timestamp\n9,50,fun,3\n",
        COMMA | {"columns": "user,item,-,time", "header": True},
        [(9, 50, 1.0, 3)],
    ),
    "dates": ("9,50,4,1970-01-03\n2,7,2,2005-09-06\n", COMMA, [(9, 50, 4.0, 2), (2, 7, 2.0, 13032)]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_formats(name, tmp_path):
    text, layout, expected = GOLDEN[name]
    path = tmp_path / "ratings"
    path.write_bytes(text.encode())
    ratings = open_ratings(path, layout=TextLayout(**layout))
    ratings._check()
    assert named(ratings) == expected
    for ids in (ratings.user_ids, ratings.item_ids):
        assert ids.names().tolist() == sorted(ids.names().tolist())
    assert named(read(text, **layout)) == expected


ERRORS = {
    "too few fields": ("1 2 3\n4 5\n", r":2: 2 fields in '4 5', expected user,item,rating separated by single blanks"),
    "another separator": (
        "1\t2\t3\n4,5,6\n",
        r":2: 1 field in '4,5,6', .* separated by tabs; --columns and --separator",
    ),
    "runs of blanks": ("1 2 3\n4  5 6\n", r":2: runs of blanks: make each of them one blank with tr -s ' '"),
    "a rating that is no number": ("1 2 3\n\n4 5 x\n", r":3: bad rating 'x': expected a number"),
    "nan": ("1 2 3\n4 5 nan\n", r":2: bad rating 'nan': expected a finite number"),
    "beyond float32 by a hair": (
        "1 2 3\n4 5 340282356779733661637539395458142568448.0\n",
        r":2: bad rating '3402823567.*: expected a finite number within",
    ),
    "an empty rating": ("1,2,3\n4,5,\n", r":2: bad rating '': expected a finite number"),
    "an empty user": ("1,2,3\n,5,6\n", r":2: bad user '': it is empty"),
    "NUL": ("1,2,3\n4,a\0b,6\n", r":2: binary data \(a zero byte\), expected text"),
    "UTF-16": ("1,2,3\n4,5,6\n".encode("utf-16"), r":1: binary data \(a zero byte\), expected text in UTF-8"),
    "a bad time": ("1,2,3,4\n4,5,6,x\n", r":2: bad time 'x': expected a whole number"),
    "a bad date": ("1,2,3,2005-09-06\n4,5,6,2005-13-06\n", r":2: bad time '2005-13-06': expected a date"),
    "a quote that is not closed": ('1,2,3\n"4,5,6\n', r":2: 1 field in "),
    "not UTF-8": (b"1 2 3\nb\xe9 5 6\n", r":2: bad user 'b.*xe9': it is not UTF-8"),
    "nothing": ("", r"no ratings in it"),
    "a header only": ("user,item,rating\n", r":2: no ratings in it"),
    "another order": ("item_id,user_id,rating\n1,2,3\n", r":1: columns named item_id,user_id,rating: say .*--columns"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_mistakes_are_named_with_their_line(name, tmp_path):
    text, message = ERRORS[name]
    text = text if isinstance(text, bytes) else text.encode()
    separator = next((mark for mark in "\t, " if mark.encode() in text), None)
    path = tmp_path / "bad.txt"
    path.write_bytes(text)
    with pytest.raises(InputError, match=r"bad\.txt.*" + message):
        open_ratings(path, layout=TextLayout(separator=separator))
    assert str(path) not in map(os.path.realpath, glob.glob("/proc/self/fd/*"))


def test_layouts_that_are_wrong(tmp_path):
    for wrong in ("user,rating", "user,item,stars", "user,user,item", "1"):
        with pytest.raises(UsageError, match=f"columns {wrong}: expected user,item,rating,time in any order"):
            read("1\t2\t3\n", columns=wrong)
    for wrong in ("", "ab", '"', "ü"):
        with pytest.raises(UsageError, match="expected one character, '::', tab or blank"):
            read("1\t2\t3\n", separator=wrong)
    with pytest.raises(InputError, match=":1: 2 fields in '1.*2', expected user,item,rating separated by tabs"):
        read("1\t2\n", columns="user,item,rating")


@pytest.mark.parametrize(("name", "separator"), [("a.csv.gz", ","), ("a.dat", "::"), ("a.TXT", " "), ("a.data", "\t")])
def test_the_name_tells_the_separator(tmp_path, name, separator):
    text = separator.join("123").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert named(open_ratings(tmp_path / name)) == [(1, 2, 3.0, None)]


def test_an_empty_rating_is_enough_to_predict():
    text = "1,2,3\n4,5,\n"
    assert read(text, values="optional", **COMMA).values.tolist() == [3.0, 0.0]
    assert read("a,b,\n", values="optional", **COMMA).values.tolist() == [0.0]


# -- many chunks ------------------------------------------------------------------------------------------------------

IDS = st.one_of(st.integers(-3, 12), st.sampled_from(["a", "b c", "é", "012", "x:y", 'q"']))


@given(
    st.lists(st.tuples(IDS, IDS, st.integers(-20, 20), st.integers(-5, 10**10)), min_size=1, max_size=60),
    st.sampled_from(["\t", ",", ";", "|"]),
    st.sampled_from([64, 100, 1 << 20]),
)
@settings(max_examples=150, deadline=None)
def test_any_blocks_beside_a_slow_reader(rows, separator, block):
    text = "".join(f"{separator.join(map(str, (u, i, v / 4, t)))}\n" for u, i, v, t in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "BLOCK", block)
        found = named(read(text, separator=separator))
    whole = [all(str(row[side]) == _as_int(str(row[side])) for row in rows) for side in (0, 1)]
    expected = [
        (u if whole[0] else str(u), i if whole[1] else str(i), float(np.float32(v / 4)), t) for u, i, v, t in rows
    ]
    assert found == expected


def _as_int(text):
    try:
        return str(int(text))
    except ValueError:
        return None


def test_a_line_of_a_later_block_is_counted(monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 64)
    with pytest.raises(InputError, match=":501: bad rating"):
        read("1 2 3\n" * 500 + "1 2 x\n", **BLANK)
    with pytest.raises(InputError, match=":501: bad item"):
        read(b"1 2 3\n" * 500 + b"1 \xff 3\n", **BLANK)
    with pytest.raises(InputError, match=":501: bad user '': it is empty"):
        read("1,2,3\n" * 500 + ",2,3\n", **COMMA)
    assert len(read("1,2,3\n" + "x" * 200 + ",2,3\n", **COMMA)) == 2


def test_streams_and_pipes(tmp_path):
    text, layout, expected = GOLDEN["MovieLens 20M"]
    assert named(open_ratings(io.BytesIO(text.encode()), layout=TextLayout(**layout))) == expected
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for wrong in ("", "1,2,x\n"):
        writer = threading.Thread(target=pipe.write_text, args=(text + wrong,))
        writer.start()
        if wrong:
            with pytest.raises(InputError, match=r"pipe.csv:5: 3 fields in '1,2,x'"):
                open_ratings(pipe)
        else:
            assert named(open_ratings(pipe)) == expected
        writer.join()


def test_the_last_of_repeated_ratings_counts(tmp_path):
    path = tmp_path / "twice.txt"
    path.write_text("1 2 3\n1 3 4\n1 2 5\n1 2 1\n")
    for cache in (None, Cache(tmp_path / "cache"), Cache(tmp_path / "cache")):
        with pytest.warns(HogwildWarning, match=r"twice.txt: 2 ratings of a user and item that come again later"):
            assert named(open_ratings(path, cache=cache)) == [(1, 3, 4.0, None), (1, 2, 1.0, None)]
    assert len(open_ratings(path, repeats="keep")) == 4


def test_names_of_a_model(tmp_path):
    (tmp_path / "train.txt").write_text("1 a 3\n2 b 4\n")
    train = open_ratings(tmp_path / "train.txt")
    known = {"users": train.user_ids, "items": train.item_ids}
    path = tmp_path / "test.txt"
    path.write_text("2 a 1\n0 a 2\n1 c 3\n")
    kept = open_ratings(path, **known, unknown="keep")
    assert (kept.users.tolist(), kept.items.tolist(), kept.shape) == ([1, -1, 0], [0, 0, -1], (2, 2))
    with pytest.warns(HogwildWarning, match="2 ratings of users or items that are not known were left out"):
        assert named(open_ratings(path, **known)) == [(2, "a", 1.0, None)]
    path.write_text("7 z 1\n")
    with pytest.raises(InputError, match="all its ratings are of users or items that are not known"):
        open_ratings(path, **known)


def test_options_that_are_wrong():
    for option in ("unknown", "values", "repeats"):
        with pytest.raises(UsageError, match=f"{option}='x': expected one of"):
            open_ratings("synthetic:ratings", **{option: "x"})
    with pytest.raises(UsageError, match="got int"):
        open_ratings(3)
