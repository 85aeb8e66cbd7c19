"""The rows of a comparison on disk: finished cells are kept, what a killed run left half-written is not.

A cell's rows are written at once when it has ended, each with the number of rows (``cell_rows``), so only the end of
the file can be incomplete; it is cut off on opening, and that cell runs again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

from hogwild.compare.report.results import ROWS, Row, read_rows
from hogwild.errors import OutputError, UsageError
from hogwild.rows_file import RowsFile


class Ledger:
    """``rows.jsonl`` in a directory, created if missing.

    Attributes
    ----------
    head : dict
        The first row, of phase "optimum"; empty in a new directory.
    cells : dict
        Rows of every finished cell by the cell's name.

    Raises
    ------
    UsageError
        If the directory holds rows of a comparison other than ``identity``.
    InputError
        If a line before the last is no row.
    OutputError
        If it cannot be read or written.
    """

    def __init__(self, directory: str | Path, identity: str) -> None:
        path = Path(directory, ROWS)
        with contextlib.ExitStack() as stack:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = RowsFile(str(path), append=True, option="--out")  # locked, without a torn last line
                stack.callback(self._file.close)
                lines = path.read_bytes().splitlines(keepends=True)
                if lines and identity.encode() not in lines[0]:
                    raise UsageError(f"--out {directory} holds another comparison: name another directory")
                self.head, *rows = read_rows(path) if lines else [Row()]
                cells = {name: [*cell] for name, cell in itertools.groupby(rows, key=lambda row: row["cell"])}
                self.cells = {name: cell for name, cell in cells.items() if len(cell) == cell[0]["cell_rows"]}
                kept = len(lines[:1]) + sum(map(len, self.cells.values()))
                os.truncate(path, sum(map(len, lines[:kept])))
            except OSError as error:
                raise OutputError(f"--out {directory}: {error.strerror or error}") from None
            self.close = stack.pop_all().close

    def begin(self, head: Row) -> None:
        """Write the first row."""
        self.head = head
        self._file.write(head)

    def add(self, rows: list[Row]) -> None:
        """Write the rows of a cell that has ended."""
        self.cells[rows[0]["cell"]] = rows
        self._file.write(*rows)
