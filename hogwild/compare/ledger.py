"""The rows of a comparison on disk: what is finished is kept, what a killed run left half-written is not.

A cell's rows are written in one piece when it has ended, each with the number of rows there are (``cell_rows``), so
that on opening it shows which cells are complete; the others are cut off and run again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hogwild.errors import OutputError, UsageError
from hogwild.json_rows import RowsFile

ROWS = "rows.jsonl"
Row = dict[str, Any]


class Ledger:
    """``rows.jsonl`` in a directory, made if it is missing.

    Attributes
    ----------
    about : dict or None
        The first row, of phase "optimum".
    cells : dict
        Rows of every finished cell by its name.

    Raises
    ------
    UsageError
        If the directory holds rows of another comparison than ``identity``.
    OutputError
        If it cannot be read or written.
    """

    def __init__(self, directory: str | Path, identity: str) -> None:
        self.directory, self.path = Path(directory), Path(directory, ROWS)
        self.about: Row | None = None
        self.cells: dict[str, list[Row]] = {}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size:
                self._take_over(identity)
        except OSError as error:
            raise OutputError(f"--out {directory}: {error.strerror or error}") from None
        self._file = RowsFile(str(self.path), append=self.about is not None, option="--out")

    def _take_over(self, identity: str) -> None:
        rows = _whole_rows(self.path)
        if not rows or rows[0].get("comparison") != identity:
            raise UsageError(
                f"--out {self.directory} holds another comparison (of other data, options or version): name another "
                "directory, or remove it"
            )
        self.about, cells = rows[0], {}  # type: ignore[var-annotated]
        for row in rows[1:]:
            cells.setdefault(row["cell"], []).append(row)
        self.cells = {name: found for name, found in cells.items() if len(found) == found[0]["cell_rows"]}
        partial = self.path.with_suffix(".partial")
        file = RowsFile(str(partial), option="--out")
        for row in [self.about, *(row for found in self.cells.values() for row in found)]:
            file.write(row)
        file.close()
        partial.replace(self.path)

    def begin(self, about: Row) -> None:
        """Write the first row."""
        self.about = about
        self._file.write(about)

    def add(self, found: list[Row]) -> None:
        """Keep the rows of a cell that has ended."""
        self.cells[found[0]["cell"]] = found
        self._file.write_all(found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _whole_rows(path: Path) -> list[Row]:
    """The rows up to the first line that is none."""
    rows: list[Row] = []
    for line in path.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    return rows
