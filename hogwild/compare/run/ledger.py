"""The rows of a comparison on disk: finished cells are kept, those a killed run left half-written are not.

A cell's rows are written at once when it has ended, each with the number of rows (``cell_rows``), so that complete
cells are recognised on opening; the others are cut off and run again.
"""

from __future__ import annotations

import json
from pathlib import Path

from hogwild.compare.report.results import ROWS, Row
from hogwild.errors import OutputError, UsageError
from hogwild.model_file import DirectoryLock
from hogwild.rows_file import RowsFile

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
        self.directory = Path(directory)
        self.path = self.directory / ROWS
        self.head: Row | None = None
        self.cells: dict[str, list[Row]] = {}
        self._lock: DirectoryLock | None = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(self.directory, f"--out {directory}", "a comparison")
            if self.path.exists() and self.path.stat().st_size:
                self._take_over(identity)
            self._file = RowsFile(str(self.path), append=self.head is not None, option="--out")
        except OSError as error:
            self._unlock()
            raise OutputError(f"--out {directory}: {error.strerror or error}") from None
        except BaseException:
            self._unlock()
            raise

    def _take_over(self, identity: str) -> None:
        rows = _whole_rows(self.path)
        if not rows and _is_torn(self.path):
            return
        if not rows or rows[0].get("comparison") != identity:
            raise UsageError(
                f"--out {self.directory} holds another comparison (of other data, options or version): name another "
                "directory, or remove it"
            )
        cells: dict[str, list[Row]] = {}
        for row in rows[1:]:
            cells.setdefault(str(row.get("cell")), []).append(row)
        self.head = rows[0]
        self.cells = {name: members for name, members in cells.items() if len(members) == members[0].get("cell_rows")}
        partial = self.path.with_suffix(".partial")
        file = RowsFile(str(partial), option="--out")
        file.write_all([self.head, *(row for members in self.cells.values() for row in members)])
        file.close()
        partial.replace(self.path)

    def begin(self, head: Row) -> None:
        """Write the first row."""
        self.head = head
        self._file.write(head)

    def add(self, rows: list[Row]) -> None:
        """Write the rows of a cell that has ended."""
        self.cells[rows[0]["cell"]] = rows
        self._file.write_all(rows)

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        finally:
            self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()


def _is_torn(path: Path) -> bool:
    """Return whether a killed run left only part of the first row of a comparison."""
    content = path.read_bytes()
    return content.startswith(OPENING[: len(content)]) and b"\n" not in content


def _whole_rows(path: Path) -> list[Row]:
    """Return every line that is a row; a cell with a damaged line lacks that row, and is run again."""
    rows: list[Row] = []
    for line in path.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
    return rows
