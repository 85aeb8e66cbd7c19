"""Ratings from text: every format by a golden file, every mistake by its message, random files beside a twin."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import lzma
import os
import threading

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.cache import Cache
from hogwild.data.ratings import text as rating_text
from hogwild.data.ratings.ids import distinct
from hogwild.data.ratings.source import open_ratings
from hogwild.data.ratings.text import parse_ratings
from hogwild.errors import HogwildWarning, InputError, UsageError


def named(ratings):
    """(user name, item name, value, time) of every rating, in order."""
    users = ratings.users if ratings.user_ids is None else ratings.user_ids.names(ratings.users)
    items = ratings.items if ratings.item_ids is None else ratings.item_ids.names(ratings.items)
    times = [None] * len(ratings) if ratings.times is None else ratings.times.tolist()
    return list(zip(users.tolist(), items.tolist(), ratings.values.tolist(), times, strict=True))


def read(text, **options):
    return parse_ratings(io.BytesIO(text if isinstance(text, bytes) else text.encode()), **options)


WHOLE = [(9, 50, 4.0, 880606923), (2, 7, 2.5, 12), (9, 7, 1.0, 0)]
TEXT = [("u9", 50, 4.0, None), ("ü", 7, 2.5, None), ("u9", 7, 1.0, None)]

GOLDEN = {
    "MovieLens 100K": ("9\t50\t4\t880606923\n2\t7\t2.5\t12\n9\t7\t1\t0\n", WHOLE),
    "MovieLens 1M": ("9::50::4::880606923\n2::7::2.5::12\n9::7::1::0\n", WHOLE),
    "MovieLens 20M": ("userId,movieId,rating,timestamp\n9,50,4.0,880606923\n2,7,2.5,12\n9,7,1.0,0\n", WHOLE),
    "Windows": ("userId,movieId,rating,timestamp\r\n9,50,4.0,880606923\r\n2,7,2.5,12\r\n9,7,1.0,0\r\n", WHOLE),
    "byte order mark": ("\ufeffuserId,movieId,rating,timestamp\n9,50,4.0,880606923\n2,7,2.5,12\n9,7,1.0,0\n", WHOLE),
    "byte order mark, no header": ("\ufeff9;50;4.0;880606923\n2;7;2.5;12\n9;7;1.0;0\n", WHOLE),
    "no final newline": ("9 50 4 880606923\n2 7 2.5 12\n9 7 1 0", WHOLE),
    "blanks of any number": ("  9   50  4 880606923  \n2 \t7 2.5\t12\t\r\n\n9 7 1 0\n \n", WHOLE),
    "comments and blank lines": ("# x y\n\n9|50|4|880606923\n# 1|2|3|4\n2|7|2.5|12\n\n9|7|1|0\n#", WHOLE),
    "times cut off": ("9,50,4,880606923.9\n2,7,2.5,1.2e1\n9,7,1,0.5\n", WHOLE),
    "columns in another order": (
        "item_id;stars;date;user_id\n50;4;880606923;9\n7;2.5;12;2\n7;1;0;9\n",
        WHOLE,
    ),
    "more columns than are needed": ("9,50,4,880606923,x y\n2,7,2.5,12,\n9,7,1,0,z\n", WHOLE),
    "fields in quotes": ('"9";"50";"4";"880606923"\n"2" ; "7" ; 2.5;"12"\n9;7;1;0\n', WHOLE),
    "strings": ("u9 50 4\nü 7 2.5\nu9 7 1\n", TEXT),
    "strings with blanks": ("u 9, x 50 ,4\nü,7,2.5\n", [("u 9", "x 50", 4.0, None), ("ü", "7", 2.5, None)]),
    "quotes in quotes": ('"a,""b""";7;4\n"c";8;1\n', [('a,"b"', 7, 4.0, None), ("c", 8, 1.0, None)]),
    "leading zeros": ("07 007 1\n7 7 2\n", [("07", "007", 1.0, None), ("7", "7", 2.0, None)]),
    "large and negative numbers": (
        "-5 999999999999999999 1\n3000000000 0 -2e-1\n",
        [(-5, 999999999999999999, 1.0, None), (3000000000, 0, float(np.float32(-0.2)), None)],
    ),
    "numbers beyond 64 bits": ("99999999999999999999 1 1\n", [("99999999999999999999", 1, 1.0, None)]),
    "pairs": ("9 50\n2 7\n", [(9, 50, 1.0, None), (2, 7, 1.0, None)]),
    "pairs with a header": ("user,item\n9,50\n2,7\n", [(9, 50, 1.0, None), (2, 7, 1.0, None)]),
    "pairs of strings": ("user_1,item_2\nuser_1,item_4\n", [("user_1", f"item_{i}", 1.0, None) for i in (2, 4)]),
    "tags": ("userId,movieId,tag,timestamp\n9,50,fun,3\n", [(9, 50, 1.0, 3)]),
    "dates": ("9,50,4,1970-01-03\n2,7,2,2005-09-06\n", [(9, 50, 4.0, 2), (2, 7, 2.0, 13032)]),
    "a fourth column of words": ("9,50,4,abc\n2,7,2,def\n", [(9, 50, 4.0, None), (2, 7, 2.0, None)]),
    "Netflix": (
        "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n\n2:\n822109,1,1970-01-01\n",
        [(1488844, 1, 3.0, 13032), (822109, 1, 5.0, 12916), (822109, 2, 1.0, 0)],
    ),
    "Netflix's probe": ("1:\n30878\n264\n10:\n12\n", [(30878, 1, 1.0, None), (264, 1, 1.0, None), (12, 10, 1.0, None)]),
    "Netflix's qualifying": ("1:\n30878,2005-09-06\n10:\n12,1970-01-01\n", [(30878, 1, 1.0, 13032), (12, 10, 1.0, 0)]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_formats(name, tmp_path):
    text, expected = GOLDEN[name]
    path = tmp_path / "ratings.txt"
    path.write_bytes(text.encode())
    ratings = open_ratings(path)
    ratings._check()
    assert named(ratings) == expected
    for ids in (ratings.user_ids, ratings.item_ids):
        assert ids.names().tolist() == sorted(ids.names().tolist())
    assert named(read(text)) == expected


ERRORS = {
    "too few fields": ("1 2 3\n4 5\n", r":2: 2 fields in '4 5': expected 3 as in the first line, separated by blanks"),
    "too many fields": ("1,2,3\n4,5,6,7\n", r":2: 4 fields in '4,5,6,7': expected 3 .* separated by commas"),
    "another separator": ("1\t2\t3\n4,5,6\n", r":2: 1 field in '4,5,6': expected 3 .* separated by tabs"),
    "a rating that is no number": ("1 2 3\n\n4 5 x\n", r":3: bad rating 'x': expected a number"),
    "a rating with more behind it": ("1 2 3\n4 5 6x\n", r":2: bad rating '6x': expected a number"),
    "nan": ("1 2 3\n4 5 nan\n", r":2: bad rating 'nan': expected a finite number"),
    "inf": ("1 2 3\n4 5 -inf\n", r":2: bad rating '-inf': expected a finite number"),
    "beyond float32": ("1 2 3\n4 5 1e39\n", r":2: bad rating '1e39': beyond float32"),
    "beyond float32 by a hair": (
        "1 2 3\n4 5 340282356779733661637539395458142568448.0\n",
        r":2: bad rating '3402823567.*: beyond float32",
    ),
    "underscores": ("1 2 3\n4 5 1_0\n", r":2: bad rating '1_0': expected a plain decimal number"),
    "no rating": ("1,2,3\n4,5,\n", r":2: bad rating '': it is empty"),
    "an empty user": ("1,2,3\n,5,6\n", r":2: an empty id"),
    "an empty item": ("1,2,3\n4,,6\n", r":2: an empty id"),
    "an empty quoted item": ('1,2,3\n4,"",6\n', r":2: an empty id"),
    "NUL": ("1,2,3\n4,a\0b,6\n", r":2: binary data 'a\\x00b', expected text"),
    "UTF-16": ("1,2,3\n4,5,6\n".encode("utf-16"), r":1: (binary data|one field)"),
    "a bad time": ("1,2,3,4\n4,5,6,x\n", r":2: bad time 'x': expected a number"),
    "a bad date": ("1,2,3,2005-09-06\n4,5,6,2005-13-06\n", r":2: bad time '2005-13-06': expected a date"),
    "a quote that is not closed": ('1,2,3\n"4,5,6\n', r":2: a quoted field that does not end"),
    "text behind a quote": ('1,2,3\n"4"x,5,6\n', r":2: a quoted field that does not end"),
    "not UTF-8": (b"1 2 3\nb\xe9 5 6\n", r":2: id 'b\\xe9' is not UTF-8"),
    "one field": ("hello\n", r":1: one field 'hello', expected: user item rating"),
    "nothing": ("", r"no ratings in it"),
    "comments only": ("# a\n\n# b\n", r":3: no ratings in it"),
    "a header only": ("user,item,rating\n", r":1: no ratings in it"),
    "a movie only": ("1:\n2:\n", r":1: no ratings in it"),
    "a bad movie": ("1:\n5,3,2005-09-06\n-2:\n", r":3: bad movie '-2:': expected a whole number and a colon"),
    "a short Netflix line": ("1:\n5,3,2005-09-06\n7,3\n", r":3: 2 fields in '7,3'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_mistakes_are_named_with_their_line(name, tmp_path):
    text, message = ERRORS[name]
    path = tmp_path / "bad.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=r"bad\.txt.*" + message):
        open_ratings(path)


def test_the_first_of_several_mistakes_is_named():
    with pytest.raises(InputError, match=":2: bad rating 'x'"):
        read("1 2 3\n1 2 x\n1 2\n")
    with pytest.raises(InputError, match=":2: bad rating '1e39"):
        read("1 2 3\n1 2 1e39\n1 2\n")


def test_ratings_before_a_movie(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text("5,3,2005-09-06\n1:\n6,3,2005-09-06\n")
    with pytest.raises(InputError, match=r":1: a rating before any movie, expected a line such as 1:"):
        open_ratings(path, format="netflix")


def test_an_empty_rating_is_enough_to_predict():
    text = "1,2,3\n4,5,\n"
    assert read(text, values="optional").values.tolist() == [3.0, 0.0]


def test_numbers_are_rounded_correctly():
    words = [
        "3.4028234663852886e38",
        "1.00000005960464477539062500000001",
        "1.000000059604644775390625",
        "-1e-46",
        "+2.",
    ]
    words += [repr(float(x)) for x in np.random.default_rng(0).standard_normal(300)]
    found = read("".join(f"{row} 1 {word}\n" for row, word in enumerate(words))).values
    assert found.tolist() == [float(np.float32(float(word))) for word in words]


# -- many chunks ------------------------------------------------------------------------------------------------------

IDS = st.one_of(st.integers(-3, 12), st.sampled_from(["a", "b c", "é", "012", "x:y", 'q"']))


@given(
    st.lists(st.tuples(IDS, IDS, st.integers(-20, 20), st.integers(-5, 10**10)), min_size=1, max_size=60),
    st.sampled_from(["\t", ",", ";", "|"]),
    st.sampled_from([16, 40, 1 << 20]),
    st.integers(1, 3),
)
@settings(max_examples=150, deadline=None)
def test_any_chunks_beside_a_slow_reader(rows, separator, chunk, workers):
    text = "".join(f"{separator.join(map(str, (u, i, v / 4, t)))}\n" for u, i, v, t in rows)
    before, rating_text.CHUNK_BYTES = rating_text.CHUNK_BYTES, chunk
    try:
        found = named(read(text, workers=workers))
    finally:
        rating_text.CHUNK_BYTES = before
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


@pytest.mark.parametrize("chunk", [64, 150, 1 << 20])
def test_a_movie_goes_on_in_the_next_chunk(chunk, monkeypatch):
    monkeypatch.setattr(rating_text, "CHUNK_BYTES", chunk)
    random = np.random.default_rng(0)
    text, expected = "", []
    for movie in range(1, 8):
        text += f"{movie}:\n"
        for user in random.integers(1, 10**6, random.integers(0, 9)).tolist():
            text += f"{user},3,2005-09-06\n"
            expected.append((user, movie, 3.0, 13032))
    assert named(read(text)) == expected


def test_a_line_of_a_later_chunk_is_counted(monkeypatch):
    monkeypatch.setattr(rating_text, "CHUNK_BYTES", 64)
    with pytest.raises(InputError, match=":501: bad rating"):
        read("1 2 3\n" * 500 + "1 2 x\n")
    with pytest.raises(InputError, match=":501: id"):
        read(b"1 2 3\n" * 500 + b"1 \xff 3\n")


def test_days_are_those_of_the_calendar():
    days = [datetime.date(2000, 2, 28) + datetime.timedelta(step) for step in range(0, 3000, 7)]
    days += [datetime.date(1899, 12, 31), datetime.date(1, 1, 1), datetime.date(2100, 3, 1)]
    found = read("".join(f"1 {place} 1 {day}\n" for place, day in enumerate(days))).times
    assert found.tolist() == [(day - datetime.date(1970, 1, 1)).days for day in days]


@pytest.mark.parametrize("numbers", [[], [7], [5, -3, 5, 100], [0, 2**61], [-(2**62), 2**62], list(range(50, 0, -1))])
def test_compact_numbering(numbers):
    names, place = distinct(np.array(numbers, np.int64))
    assert names.tolist() == sorted(set(numbers))
    assert names[place].tolist() == numbers


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_archives(tmp_path, suffix, pack):
    text = GOLDEN["MovieLens 1M"][0].encode() * 300
    path = tmp_path / f"ratings.dat.{suffix}"
    path.write_bytes(pack(text))
    assert named(open_ratings(path, repeats="keep")) == WHOLE * 300
    path.write_bytes(pack(os.urandom(4000).hex().encode() + b"\n" + text)[:-20])
    with pytest.raises(InputError, match=r"the archive is (truncated|damaged)|one field"):
        open_ratings(path)


def test_a_truncated_archive_names_the_line(tmp_path):
    path = tmp_path / "ratings.gz"
    path.write_bytes(gzip.compress(b"1 2 3\n" * 10000)[:-9])
    with pytest.raises(InputError, match=r"ratings.gz:\d+: the archive is truncated"):
        open_ratings(path)


def test_a_directory_of_netflix(tmp_path):
    for movie in (2, 1):
        (tmp_path / f"mv_{movie:07}.txt").write_text(f"{movie}:\n{movie},3,2005-09-06\n5,4,2005-09-07\n")
    expected = [(1, 1, 3.0, 13032), (5, 1, 4.0, 13033), (2, 2, 3.0, 13032), (5, 2, 4.0, 13033)]
    assert named(open_ratings(tmp_path)) == expected
    (tmp_path / "mv_0000003.txt").write_text("3:\n3,3,2005-09-06\n5,4\n")
    with pytest.raises(InputError, match=r"mv_0000003.txt:3: 2 fields"):
        open_ratings(tmp_path)
    (tmp_path / "mv_0000003.txt").write_text("3,3,2005-09-06\n")
    with pytest.raises(InputError, match=r"mv_0000003.txt:1: a rating before any movie"):
        open_ratings(tmp_path)


def test_streams_and_pipes(tmp_path):
    text, expected = GOLDEN["MovieLens 20M"]
    assert named(open_ratings(io.BytesIO(text.encode()))) == expected
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    assert named(open_ratings(pipe)) == expected
    writer.join()


def test_matrices(tmp_path):
    matrix = scipy.sparse.coo_array(([4.0, 2.0, 0.5], ([2, 0, 1], [0, 1, 1])), shape=(4, 2))
    scipy.sparse.save_npz(tmp_path / "x.npz", matrix)
    ratings = open_ratings(tmp_path / "x.npz")
    assert ratings.shape == (4, 2)
    assert named(ratings) == [(2, 0, 4.0, None), (0, 1, 2.0, None), (1, 1, 0.5, None)]
    (tmp_path / "bad.npz").write_bytes(b"x")
    with pytest.raises(InputError, match="bad.npz: cannot be read"):
        open_ratings(tmp_path / "bad.npz")


def test_the_last_of_repeated_ratings_counts(tmp_path):
    path = tmp_path / "twice.txt"
    path.write_text("1 2 3\n1 3 4\n1 2 5\n1 2 1\n")
    for cache in (None, Cache(tmp_path / "cache"), Cache(tmp_path / "cache")):
        with pytest.warns(HogwildWarning, match=r"twice.txt: 2 ratings of a user and item that come again later"):
            assert named(open_ratings(path, cache=cache)) == [(1, 3, 4.0, None), (1, 2, 1.0, None)]
    assert len(open_ratings(path, repeats="keep")) == 4


def test_names_of_a_model(tmp_path):
    (tmp_path / "train").write_text("1 a 3\n2 b 4\n")
    train = open_ratings(tmp_path / "train")
    known = {"users": train.user_ids, "items": train.item_ids}
    path = tmp_path / "test"
    path.write_text("2 a 1\n3 a 2\n1 c 3\n")
    kept = open_ratings(path, **known, unknown="keep")
    assert (kept.users.tolist(), kept.items.tolist(), kept.shape) == ([1, -1, 0], [0, 0, -1], (2, 2))
    with pytest.warns(HogwildWarning, match="2 ratings of users or items that are not known were left out"):
        assert named(open_ratings(path, **known, unknown="drop")) == [(2, "a", 1.0, None)]
    with pytest.raises(InputError, match=r"test: user 3 is none of the 2 known ones \(1 such ratings\)"):
        open_ratings(path, **known)
    with pytest.raises(InputError, match=r"test: item c is none of the 2 known ones"):
        open_ratings(path, items=train.item_ids)
    path.write_text("7 z 1\n")
    with pytest.raises(InputError, match="all its ratings are of users or items that are not known"):
        open_ratings(path, **known, unknown="drop")


def test_options_and_names_that_are_wrong(tmp_path):
    for option in ("unknown", "values", "repeats", "format"):
        with pytest.raises(UsageError, match=f"{option}='x': expected one of"):
            open_ratings("synthetic:ratings", **{option: "x"})
    with pytest.raises(UsageError, match="got int"):
        open_ratings(3)
    with pytest.raises(InputError, match="no such file"):
        open_ratings(tmp_path / "none")
    with pytest.raises(InputError, match="no files mv_"):
        open_ratings(tmp_path, format="netflix")
    with pytest.raises(InputError, match="not a hogwild store"):
        open_ratings(tmp_path)
    (tmp_path / "x").write_text("1 2 3\n")
    with pytest.raises(InputError, match="a store is a directory"):
        open_ratings(tmp_path / "x", format="store")


@pytest.mark.slow
def test_movielens(real_data):
    ratings = open_ratings(real_data / "ml-1m" / "ratings.tsv.gz")
    assert (len(ratings), ratings.shape) == (1_000_209, (6040, 3706))
    assert ratings.item_ids.names(-1) == 3952
    ratings = open_ratings(real_data / "ml-100k" / "u.data")
    assert (len(ratings), ratings.shape) == (100_000, (943, 1682))
    assert ratings.times.min() > 8e8
