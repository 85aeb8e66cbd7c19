"""The rows of a comparison on disk: finished cells are kept, what a killed run left half-written is not.

A cell's rows are written at once when it has ended, each with the number of rows (``cell_rows``), so only the end of
the file can be incomplete; it is cut off on opening, and that cell runs again.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from hogwild.compare.report.results import ROWS, Row
from hogwild.errors import OutputError, UsageError
from hogwild.rows_file import RowsFile, lock_directory

OPENING = b'{"phase": "optimum"'  # how the file begins


class Ledger:
    """``rows.jsonl`` in a directory, created if missing.

    Attributes
    ----------
    head : dict or None
        The first row, of phase "optimum".
    cells : dict
        Rows of every finished cell by the cell's name.

    Raises
    ------
    UsageError
        If the directory holds rows of a comparison other than ``identity``.
    OutputError
        If it cannot be read or written.
    """

    def __init__(self, directory: str | Path, identity: str) -> None:
        self.path = Path(directory, ROWS)
        self.head: Row | None = None
        self.cells: dict[str, list[Row]] = {}
        with contextlib.ExitStack() as stack:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                stack.callback(os.close, lock_directory(self.path.parent, f"--out {directory}", "a comparison"))
                if self.path.exists():
                    self._take_over(identity)
                self._file = RowsFile(str(self.path), append=True, option="--out")
            except OSError as error:
                raise OutputError(f"--out {directory}: {error.strerror or error}") from None
            stack.callback(self._file.close)
            self.close = stack.pop_all().close

    def _take_over(self, identity: str) -> None:
        content = self.path.read_bytes()
        lines = content.splitlines(keepends=True)
        if content and not (b"\n" not in content and content.startswith(OPENING[: len(content)])):
            self.head = _row(lines[0])
            if self.head is None or self.head.get("comparison") != identity:
                raise UsageError(
                    f"--out {self.path.parent} holds another comparison (of other data, options or version): name "
                    "another directory, or remove it"
                )
        kept = 1 if self.head else 0
        cell: list[Row] = []
        for place, line in enumerate(lines[1:], 2):
            row = _row(line)
            if row is None:
                break
            cell.append(row)
            if len(cell) == row.get("cell_rows"):
                self.cells[row["cell"]] = cell
                cell = []
                kept = place
        os.truncate(self.path, sum(map(len, lines[:kept])))

    def begin(self, head: Row) -> None:
        """Write the first row."""
        self.head = head
        self._file.write(head)

    def add(self, rows: list[Row]) -> None:
        """Write the rows of a cell that has ended."""
        self.cells[rows[0]["cell"]] = rows
        self._file.write_all(rows)


def _row(line: bytes) -> Row | None:
    """Return the row of a whole line."""
    with contextlib.suppress(ValueError):
        row = json.loads(line)
        if isinstance(row, dict) and line.endswith(b"\n"):
            return row
    return None
