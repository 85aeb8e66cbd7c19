"""Writes rows as svmlight text."""

from __future__ import annotations

from pathlib import Path

from hogwild.data.rows.container import Rows, shortest


def write_svmlight(path: Path, rows: Rows, zero_based: bool = False) -> None:
    """Write the shortest decimals that read back as the same float32."""
    base = 0 if zero_based else 1
    with path.open("w", encoding="ascii", newline="\n") as file:
        for i, (first, last) in enumerate(zip(rows.begin.tolist(), rows.end.tolist())):
            pairs = zip(rows.indices[first:last].tolist(), rows.values[first:last])
            file.write(shortest(rows.targets[i]) + "".join(f" {u + base}:{shortest(x)}" for u, x in pairs) + "\n")
