"""Stores and archives made amiss at random, for the fuzz campaign: what was read has to be what a reader may use.

A store is damaged as it lies, or forged: its arrays and its meta.json are changed and its checksums made anew. One that
opens has to keep kernels within its arrays. An archive holds members with names that lead elsewhere, links, devices and
two of one name, and may be damaged as well; what is unpacked lies in the folder and is what went in.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz import mutate

NUMBERS = [-1, 0, 1, 7, 10**8, 2**31 - 1, -(2**31)]
VALUES = [None, True, -1, 0, 1.5, 2**63, float("nan"), "x", [], {}, [1, 2], {"x": 1}]
NAMES = [
    "a.txt",
    "a.txt",
    "b.txt",
    "../up.txt",
    "/tmp/absolute.txt",
    "c/d.txt",
    "x" * 300 + ".txt",
    "e\n.txt",
    ".txt",
    "",
]
TEXT = b"+1 1:0.5 3:2\n-1 2:1\n" * 9


def make_stores(folder: Path) -> None:
    """A good store of rows and one of ratings."""
    from hogwild.data.ratings.container import RATINGS, Ids, Ratings
    from hogwild.data.rows.store import save_store
    from tests.runs import toy

    save_store(toy(60), folder / "rows")
    names = Ids(["a", "b", "c"]), Ids([5, 6])
    ratings = Ratings([0, 1, 2], [1, 0, 1], [3.0, 1.0, 2.0], (3, 2), None, *names)
    save_store(ratings, folder / "ratings", kind=RATINGS)


def store(source: random.Random, folder: Path) -> str:
    """How opening a store that is damaged or forged ended: read, refused, or what is wrong."""
    kind = source.choice(["rows", "rows", "ratings"])
    path = folder / "case"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder / kind, path)
    for _ in range(source.randint(1, 2)):
        (_damage if source.random() < 0.4 else _forge)(path, source)
    return _outcome(lambda: _open(kind, path), path)


def _damage(path: Path, source: random.Random) -> None:
    """Change the bytes of a file, swap it for another, or put a directory or nothing in its place."""
    file, other = (source.choice(sorted(path.iterdir())) for _ in range(2))
    if not file.is_file() or not other.is_file():
        return
    what = source.randrange(6)
    if what < 4:
        file.write_bytes(mutate(file.read_bytes(), source, "store"))
    elif what == 4:
        file.write_bytes(other.read_bytes())
    else:
        file.unlink()
        if source.random() < 0.5:
            file.mkdir()


def _forge(path: Path, source: random.Random) -> None:
    """A field of meta.json or an array changed."""
    try:
        meta = json.loads((path / "meta.json").read_bytes())
        names = sorted(meta["arrays"])
        if source.random() < 0.4:
            _forge_field(meta, source)
        else:
            _forge_array(path / f"{source.choice(names)}.npy", meta, source)
        (path / "meta.json").write_text(json.dumps(meta))
    except Exception:
        return  # it was damaged before, and NumPy's reader raises what it likes


def _forge_field(meta: dict[str, Any], source: random.Random) -> None:
    holder = meta if source.random() < 0.7 else meta["arrays"]
    name = source.choice([*sorted(holder), *(["hash_bits", "table", "kind", "warnings"] if holder is meta else [])])
    if source.random() < 0.3:
        holder.pop(name, None)
    else:
        holder[name] = source.choice([*VALUES, *NUMBERS])


def _forge_array(file: Path, meta: dict[str, Any], source: random.Random) -> None:
    array = np.load(file).reshape(-1)
    what = source.randrange(5)
    if what < 3 and array.size:
        array[source.randrange(array.size)] = source.choice(NUMBERS) if array.itemsize > 1 else 255
    elif what == 3:
        array = source.choice([array[:-1], np.append(array, array[-1:]), array.astype(np.float64)])
    else:
        array = np.array([{}, []], object) if source.random() < 0.5 else np.asfortranarray(np.tile(array, (2, 1)))
    np.save(file, array, allow_pickle=True)
    if source.random() < 0.8:
        meta["arrays"][file.stem] = {"dtype": array.dtype.str, "length": len(array)}


def _open(kind: str, path: Path) -> str:
    """Open a store; what is wrong with what opens is raised."""
    from hogwild.data.ratings.source import open_ratings
    from hogwild.data.rows.source import open_data

    data: Any = (open_ratings if kind == "ratings" else open_data)(path)
    try:
        data._check()
    except ValueError as error:
        return str(error) if "finite" not in str(error) else ""  # values are not looked at
    return "" if repr(data) else "no name"


def download(source: random.Random, folder: Path) -> str:
    """How unpacking an archive with odd members, perhaps damaged, ended."""
    from hogwild.data.public.fetch import unpack

    data = source.choice([_zip, _tar])(source)
    if source.random() < 0.5:
        data = mutate(data, source, "download") or b"\0"
    path, inside = folder / "case", folder / "unpacked"
    path.write_bytes(data)
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    before = set(os.listdir(folder))

    def use() -> str:
        unpack(path, "a.txt", inside / "text")
        if set(os.listdir(folder)) != before:
            return f"left {set(os.listdir(folder)) - before}"
        return "" if TEXT.startswith((inside / "text").read_bytes()[:4]) else "other contents"

    return _outcome(use, path)


def _zip(source: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", source.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])) as file:
        for _ in range(source.randint(0, 4)):
            info = zipfile.ZipInfo(source.choice(NAMES) or "f")
            info.external_attr = source.choice([0o100644, 0o120777, 0o040755]) << 16  # a file, a link, a directory
            file.writestr(info, TEXT)
    return out.getvalue()


def _tar(source: random.Random) -> bytes:
    out = io.BytesIO()
    kinds = [tarfile.REGTYPE] * 4 + [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE]
    how = source.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    with tarfile.open(fileobj=out, mode=source.choice(["w", "w:gz", "w:bz2", "w:xz"]), format=how) as file:
        for _ in range(source.randint(0, 4)):
            info = tarfile.TarInfo(source.choice(NAMES))
            info.type, info.linkname = source.choice(kinds), source.choice(["/etc/passwd", "a.txt", "../../x"])
            info.size = len(TEXT) if info.isreg() else 0
            file.addfile(info, io.BytesIO(TEXT) if info.isreg() else None)
    return out.getvalue()


def _outcome(call: Callable[[], str], path: Path) -> str:
    from hogwild.errors import InputError

    try:
        return call() or "read"
    except InputError as error:
        said = str(error)
        return "refused" if "\n" not in said and said.startswith(str(path)) else f"message {said!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


MADE = {"store": store, "download": download}
