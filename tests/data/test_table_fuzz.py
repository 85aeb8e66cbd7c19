"""Damaged tables end in one line or in rows, never in a crash or an exception of another kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MUTATIONS = 100  # of each file

CHILD = """
import faulthandler, random, sys, warnings
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.csv, pyarrow.feather, pyarrow.parquet
import hogwild
from hogwild.errors import HogwildError

faulthandler.enable()
warnings.simplefilter("ignore")
path, count = Path(sys.argv[1]), int(sys.argv[2])
n = 400
table = pa.table({
    "y": pa.array(["no", "yes"] * (n // 2)), "number": pa.array([None if k % 7 == 0 else k / 3 for k in range(n)]),
    "site": pa.array([f"site {k % 11}" for k in range(n)]).dictionary_encode(),
    "text": pa.array([f'red "{k % 5}", new\\nand old' for k in range(n)]), "whole": pa.array(range(n), pa.int32()),
})
writers = {
    "csv": lambda: pyarrow.csv.write_csv(table, path), "parquet": lambda: pyarrow.parquet.write_table(table, path),
    "feather": lambda: pyarrow.feather.write_feather(table, str(path), chunksize=100),
    "arrow": lambda: pyarrow.feather.write_feather(table, str(path), compression="uncompressed"),
    "pq": lambda: pyarrow.parquet.write_table(table, path, use_dictionary=False, compression="none", row_group_size=90),
}
writers[path.suffix[1:]]()
whole, ended = path.read_bytes(), {"rows": 0, "refused": 0}
for seed in range(count):
    source, content = random.Random(seed), bytearray(whole)
    for _ in range(source.choice((1, 1, 3, 30))):
        at = source.randrange(len(content))
        length = source.choice((1, 1, 4, 64))
        kind = source.randrange(4)
        if kind == 0:
            content[at : at + length] = source.randbytes(length)
        elif kind == 1:
            del content[at : at + length]
        elif kind == 2:
            content[at:at] = content[source.randrange(len(content)) :][:length]
        else:
            content[at] ^= 1 << source.randrange(8)
    if seed % 10 == 0:
        content = content[: source.randrange(len(content))]
    path.write_bytes(content)
    print("seed", seed, end=" ", flush=True)
    try:
        rows = hogwild.open_table(path, "y", hash_bits=source.choice((None, 10)))
        assert np.isfinite(rows.values).all() and rows.targets.max(initial=0) < len(rows.table["label_names"])
        assert (rows.indices < rows.width).all() and (rows.indices >= 0).all()
        ended["rows"] += 1
    except (HogwildError, MemoryError) as error:
        assert "\\n" not in str(error), error
        ended["refused"] += 1
print(ended)
"""


@pytest.mark.parametrize("kind", ["csv", "parquet", "pq", "feather", "arrow"])
def test_damaged_tables(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path / f"t.{kind}"), str(MUTATIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-20:] + done.stderr[-3000:]
    assert "'refused': 0" not in done.stdout
