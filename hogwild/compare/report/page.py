"""A report's files: one self-contained page, and the numbers for other programs.

It is made from rows alone, and the same rows give the same bytes: the date, the directory it is written to and the
user's settings do not enter. Files appear complete or not at all. Verdict and tables need nothing else; the files need
pandas, jinja2, plotly and itables, which the extra ``report`` brings. The page's tables are plain HTML, which
DataTables, from itables, makes sortable and searchable.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hogwild.compare.report.cells import place
from hogwild.compare.report.results import ComparisonResult, frame, load
from hogwild.compare.report.tables import Table, facts_of, notes_of, tables
from hogwild.compare.report.verdict import choice, noise_floor, verdict
from hogwild.errors import HogwildWarning, OutputError
from hogwild.model_file import write_atomically
from hogwild.rows_file import plain, printable

#: Compressed bytes of the rows in the page, which has 6 MB with plotly's 4.8 and the 0.7 of DataTables.
MOST_ROWS = 250_000
SORTABLE = {
    "paging": False,
    "info": False,
    "order": [],
    "language": {"search": "", "searchPlaceholder": "filter"},
    "layout": {"topStart": None, "topEnd": "search"},
}
NEEDS = "the page and the figures need pandas, jinja2, plotly and itables: pip install 'hogwild[report]'"


@dataclass(frozen=True)
class Report:
    """Result of writing a report.

    Attributes
    ----------
    verdict : list of str
        Sentences, the most important first: which method to use, then what leaving the locks out has brought.
    tables : list of Table
    files : list of Path
        Everything that was written.
    """

    verdict: list[str]
    tables: list[Table]
    files: list[Path]


def write_report(directories: Sequence[str | Path], out: str | Path) -> Report:
    """Make the report of one or more comparisons; without pandas, which the files need, only verdict and tables.

    Parameters
    ----------
    directories : sequence of path
        Directories that hold a ``rows.jsonl``.
    out : path
        Directory of the report; created if missing, and may be one of the sources.

    Raises
    ------
    InputError
        If a directory holds no rows of a comparison.
    OutputError
        If a file cannot be written.
    """
    sources = load(directories)
    sentences = [
        f"{source.label}: {text}" if len(sources) > 1 else text
        for source in sources
        for text in filter(None, (choice(source), noise_floor(source), *verdict(source)))
    ]
    report = Report(sentences, tables(sources), [])
    try:
        import itables  # noqa: F401  (of the extra)
        import jinja2  # noqa: F401
        import pandas
        import plotly  # noqa: F401
    except ImportError:
        warnings.warn(NEEDS, HogwildWarning, stacklevel=2)
        return report
    summary = {
        "verdict": sentences,
        "comparisons": [
            {"label": source.label, "about": source.head, "notes": [*notes_of(source)]} for source in sources
        ],
        "tables": [vars(table) for table in report.tables],
    }
    frames = {source.label: frame(source.groups) for source in sources}
    contents = {
        "summary.json": json.dumps(plain(summary), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "tables.tex": "\n".join(
            pandas.DataFrame(table.rows, columns=list(table.columns)).to_latex(
                index=False, escape=True, caption=table.title
            )
            for table in report.tables
        ),
        "evaluations.csv": pandas.concat(frames, names=["comparison", "row"]).to_csv(),
        "report.html": page(sources, report),
    }
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_atomically(Path(out, name), content.encode())
            report.files.append(Path(out, name))
    except OSError as error:
        raise OutputError(f"{out}: cannot write the report there: {error.strerror or error}") from None
    return report


def downloads(source: ComparisonResult, most: int) -> dict[str, str]:
    """Return the rows, of at most so many bytes compressed, and the plan with all that was known of data, machine and
    versions, as addresses by the files' names.
    """
    rows = gzip.compress(source.path.read_bytes(), mtime=0)
    files = {f"{source.label}.jsonl.gz": rows} if len(rows) <= most else {}
    files[f"{source.label}-plan.json"] = json.dumps(plain(source.head), indent=1).encode()
    return {
        name: f"data:application/octet-stream;base64,{base64.b64encode(content).decode()}"
        for name, content in files.items()
    }


def datatables() -> tuple[str, str]:
    """Return the style and the script of DataTables; the script ends by making the page's tables sortable."""
    folder = resources.files("itables").joinpath("html")
    script = folder.joinpath("dt_bundle.js").read_text(encoding="utf-8")
    name = re.search(r"export\{.*?([\w$]+) as default", script)
    assert name is not None
    make = f"document.querySelectorAll('table').forEach(table => new {name[1]}(table, {json.dumps(SORTABLE)}))"
    return folder.joinpath("dt_bundle.css").read_text(encoding="utf-8"), f"{script}\n;{make}"


def page(sources: Sequence[ComparisonResult], report: Report) -> str:
    """Return the self-contained page."""
    from jinja2 import Environment, StrictUndefined

    from hogwild.compare.report.figures import explorable

    def split(cell: str) -> tuple[str, str]:
        """Split a figure from its quartiles, which are shown below it."""
        parts = re.fullmatch(r"(.+?) (\[.+?\])(.*)", cell)
        return (parts[1] + parts[3], parts[2]) if parts else (cell, "")

    def shown(value: Any) -> Any:
        """Show control characters of names as escapes, as the screen does; HTML, of a type of its own, is left."""
        return printable(value) if type(value) is str else value

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=shown
    )
    text = resources.files("hogwild.compare.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    paths = (Path(str(source.head.get("data") or "data")) for source in sources)
    names = dict.fromkeys(str(Path(*path.parts[-2:])) for path in paths)
    return environment.from_string(text).render(
        title=f"{' and '.join(names)}: methods compared",
        split=split,
        place=place,
        report=report,
        figures=explorable(sources),
        facts=[facts_of(source.head) for source in sources],
        downloads=dict(item for each in sources for item in downloads(each, MOST_ROWS // len(sources)).items()),
        datatables=datatables(),
    )
