"""Damage files at random and read them: the values of a slow twin, or one line of an InputError, and nothing else.

Each file is read in a child process with a time limit, many in one, so that a crash or a read without end is found as
well; text of svmlight is compared with the slow reader of the tests. Stores and archives are made
amiss by ``fuzz_made.py``. A case is known by the seed, the kind of file and its number; it is the same again for these.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import Campaign

COUNT, BATCH = 1200, 100  # cases, and how many of them in one process
LIMIT = 60.0  # seconds for a batch until it counts as one that does not end
MEMORY = 24 << 30  # bytes of address space
ROOT = Path(__file__).resolve().parents[2]
WORDS = [
    b"qid:3",
    b"0",
    b"-1",
    b"1e400",
    b"nan",
    b":",
    b"::",
    b",",
    b"#",
    b"%",
    b"\n",
    b"\r\n",
    b"\0",
    b"\xff",
    b" ",
    b"\t",
    b"9" * 20,
    b"2147483648",
    b"1.5",
    b"6E-1",
    b"symmetric",
    b"pattern",
    b"array",
    b'"',
    b"{",
    b"[" * 99,
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
    b"1:1",
]
SVMLIGHT = b"# c\n+1 1:0.5 3:2 # d\n-1 2:-1e-3\t4:.25\n\n  0.5\n-1 2:0 4:16777217\n"
RATINGS = b'user,item,rating,time\na,x,3,100\nb,y,4.5,200\n"c,d",x,1,300\n7,8,2,9\n'
TABLE = b'y,site,price,"a ""b"""\nyes,a,0.5,"red shoes\nnew"\nno,,2,x\nyes,"c,d",,\n' * 9
GRAPH = b"c graph\np max 4 5\nn 1 s\nn 4 t\na 1 2 3\na 1 3 2\na 2 4 2\na 3 4 3\na 2 3 1\n"


def seeds(kind: str, folder: Path) -> list[bytes]:
    """Good files of a kind."""
    if kind == "model":
        from hogwild.problems.linear.model import LinearModel

        LinearModel(np.ones((3, 8)), np.zeros(3), "log", labels=[1, 2, 3]).save(folder / "seed")
        return [(folder / "seed").read_bytes()]
    if kind == "checkpoint":
        import hogwild
        from hogwild.model_file import CHECKPOINT_NAME
        from tests.runs import QUIET, toy

        hogwild.train(toy(60), checkpoint=folder / "seed", epochs=1, **QUIET).finish()
        return [(folder / "seed" / CHECKPOINT_NAME).read_bytes()]
    if kind in ("parquet", "arrow"):
        return _tables(kind)
    packed = [pack(SVMLIGHT * 5) for pack in (gzip.compress, bz2.compress, lzma.compress)]
    return {
        "svmlight": [SVMLIGHT],
        "ratings": [RATINGS],
        "graph": [GRAPH],
        "csv": [TABLE],
        "archive": packed,
    }[kind]


def _tables(kind: str) -> list[bytes]:
    import pyarrow as pa
    from pyarrow import csv, feather, parquet

    table = csv.read_csv(pa.BufferReader(TABLE), parse_options=csv.ParseOptions(newlines_in_values=True))
    coded = table.set_column(1, "site", table["site"].dictionary_encode())
    sinks = [pa.BufferOutputStream() for _ in range(2)]
    if kind == "parquet":
        parquet.write_table(table, sinks[0], use_dictionary=False, compression="none", row_group_size=8)
        parquet.write_table(coded, sinks[1])
    else:
        feather.write_feather(table, sinks[0], compression="uncompressed", chunksize=8)
        feather.write_feather(coded, sinks[1])
    return [sink.getvalue().to_pybytes() for sink in sinks]


def mutate(data: bytes, source: random.Random, kind: str) -> bytes:
    """Some bytes changed, doubled, put in or left out."""
    found = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at, end = sorted((source.randint(0, len(found)), source.randint(0, len(found))))
        what = source.randrange(5)
        if what == 0 and at < len(found):
            found[at] = source.randrange(256)
        elif what == 1:
            del found[at : min(end, at + 12)]
        elif what == 2:
            found[at:at] = found[at : min(end, at + 40)]
        elif what == 3:
            found[at:at] = source.choice(WORDS)
        elif source.random() < 0.3:
            del found[at:]
    return bytes(found)


# -- reading one, in a child ------------------------------------------------------------------------------------------


def read(kind: str, path: Path) -> Any:
    """What the package makes of a file: what :func:`expected` says, or anything at all."""
    from hogwild.data.graphs.text import read_dimacs
    from hogwild.data.ratings.source import open_ratings
    from hogwild.data.rows.source import open_data
    from hogwild.data.tables.source import open_table
    from hogwild.data.text.delimited import TextLayout
    from hogwild.model_file import load_model

    if kind == "model":
        return repr(load_model(path))
    if kind == "checkpoint":
        from hogwild.model_file import load_checkpoint

        return load_checkpoint(path.parent)
    if kind == "ratings":
        return open_ratings(path, layout=TextLayout(separator=","))._check()
    if kind == "graph":
        return read_dimacs(str(path))
    if kind in TABLES:
        rows = open_table(path, "y", hash_bits=10)
        return rows._check()
    rows = open_data(path)
    rows._check()
    ends = zip(rows.begin.tolist(), rows.end.tolist(), rows.targets.tolist(), strict=True)
    pairs = list(zip(rows.indices.tolist(), rows.values.tolist(), strict=True))
    return [(target, pairs[first:last]) for first, last, target in ends]


def expected(kind: str, text: bytes) -> Any:
    """What the slow twin makes of a text, or the line of its first error; None where there is no twin."""
    from tests import readers

    if kind == "svmlight" and not text.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")):
        return readers.reference(text)
    return None


def judge(kind: str, path: Path, text: bytes) -> str:
    """How reading ended: ``read`` or ``refused``; anything else is a finding."""
    from hogwild.errors import InputError

    wanted, line = expected(kind, text), None
    try:
        found = read(kind, path)
    except InputError as error:
        said = str(error)
        if "\n" in said or not said.startswith(str(path)):
            return f"message {said!r}"
        line = said[len(str(path)) + 1 :].split(":")[0]
    except MemoryError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if line is not None:
        return (
            "refused" if wanted is None or line == str(wanted) else f"refused in line {line}, expected {wanted!r:.200}"
        )
    return "read" if wanted is None or found == wanted else f"values {found!r:.200}, expected {wanted!r:.200}"


def child(kind: str, seed: int, first: int, count: int, folder: Path) -> None:
    """Read cases and print how each ended; the number is printed before, so that a crash is known by it."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from fuzz_made import MADE, make_stores

    if kind in MADE:
        make_stores(folder)
        for number in range(first, first + count):
            print(number, end=" ", flush=True)
            print(MADE[kind](random.Random(f"{seed} {kind} {number}"), folder).replace("\n", " "), flush=True)
        return
    good = seeds(kind, folder)
    suffix = f".{kind}" if kind in TABLES else ".txt"
    for number in range(first, first + count):
        source = random.Random(f"{seed} {kind} {number}")
        text = mutate(source.choice(good), source, kind)
        path = folder / ("checkpoint.safetensors" if kind == "checkpoint" else f"case{suffix}")
        path.write_bytes(text)
        print(number, end=" ", flush=True)
        print(judge(kind, path, text).replace("\n", " "), flush=True)


# -- the campaign -----------------------------------------------------------------------------------------------------

TABLES = ("csv", "parquet", "arrow")
KINDS = ("svmlight", "ratings", "graph", "model", "checkpoint", "archive", *TABLES, "store", "download")


def batch(kind: str, campaign: Campaign, first: int, count: int) -> int:
    """Have cases read in a child; the number to go on with."""
    seed = campaign.asked.seed
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "child", kind, str(seed), str(first), str(count), folder]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err = f"no end within {LIMIT:g} s"
    last = first - 1
    for line in out.splitlines():
        number, _, how = line.partition(" ")
        last = int(number)
        campaign.tried[f"{kind} {how}" if how in ("read", "refused") else f"{kind} wrong"] += bool(how)
        if how not in ("read", "refused", ""):
            campaign.problem(f"{kind} seed {seed} number {number}: {how}")
    if process.returncode:
        last = max(last, first)
        campaign.problem(f"{kind} seed {seed} number {last}: status {process.returncode}: {err.strip()[-200:]}")
    return last + 1


def main(arguments: list[str]) -> int:
    """Run the campaign; 1 if anything was found."""
    campaign = Campaign("fuzz", arguments, COUNT)
    size = max(1, min(BATCH, -(-campaign.asked.count // len(KINDS))))
    at = dict.fromkeys(KINDS, 0)
    for _ in campaign.rounds():
        for kind in KINDS:
            at[kind] = batch(kind, campaign, at[kind], size)
    return campaign.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        sys.path.insert(0, str(ROOT))
        child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))
    else:
        sys.exit(main(sys.argv[1:]))
