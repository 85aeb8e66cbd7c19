"""A report's files: one self-contained page, the figures, and the numbers for other programs.

It is made from rows alone, and the same rows give the same bytes: the date, the directory it is written to and the
user's settings do not enter. Files appear complete or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hogwild.compare.report.results import ComparisonResult, load
from hogwild.compare.report.summary import (
    Group,
    delay_points,
    groups,
    metric,
    not_ok,
    numbers,
    of_rule,
    own_rule,
    paired_ratio,
    serial,
    speedup,
    trials,
)
from hogwild.compare.report.tables import Table, facts_of, lost_share, tables, traded
from hogwild.compare.report.verdict import verdict
from hogwild.errors import OutputError
from hogwild.rows_file import printable

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # but line ends and tabs


@dataclass(frozen=True)
class Report:
    """Result of writing a report.

    Attributes
    ----------
    verdict : list of str
        Sentences, the most important first.
    tables : list of Table
    files : list of Path
        Everything that was written.
    """

    verdict: list[str]
    tables: list[Table]
    files: list[Path]


def write_report(sources: Sequence[str | Path], out: str | Path) -> Report:
    """Make the report of one or more comparisons.

    Parameters
    ----------
    sources : sequence of path
        Directories that hold a ``rows.jsonl``, or folders with one each.
    out : path
        Directory of the report; created if missing, and may be one of the sources.

    Raises
    ------
    InputError
        If a directory holds no rows of a comparison.
    OutputError
        If a file cannot be written.
    """
    from hogwild.compare.report.figures import FIGURES, draw, save, settings

    found = load(sources)
    verdicts = [verdict(source) for source in found]
    said = [
        f"{source.label}: {text}" if len(found) > 1 else text
        for source, texts in zip(found, verdicts)
        for text in texts
    ]
    made = traded(found) + tables(found)
    contents = {"summary.json": to_json(found, verdicts, said).encode()}
    figures = []
    with settings():
        for drawing in draw(found):
            contents[f"{drawing.name}.svg"] = save(drawing.figure, "svg")
            contents[f"{drawing.name}.png"] = save(drawing.figure, "png")
            svg = inline(contents[f"{drawing.name}.svg"].decode(), drawing.name)
            figures.append({"title": drawing.title, "caption": drawing.caption, "svg": svg, "name": drawing.name})
    names = list(dict.fromkeys(str(source.about.get("data") or "data") for source in found))
    title = f"{' and '.join(names)}: lock-free against locks"
    contents["report.html"] = page(title, said, made, figures, found).encode()
    return Report(said, made, _write(Path(out), contents, [name for name, *_ in FIGURES]))


def _write(out: Path, contents: dict[str, bytes], figures: list[str]) -> list[Path]:
    """Write every file under a temporary name and rename it; remove figures that only an earlier report had."""
    path = out
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            path = out / name
            partial = out / f"{name}.{os.getpid()}.tmp"
            try:
                partial.write_bytes(content)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        for name in figures:
            for kind in ("svg", "png"):
                if f"{name}.{kind}" not in contents:
                    with contextlib.suppress(FileNotFoundError):
                        (out / f"{name}.{kind}").unlink()
    except OSError as error:
        raise OutputError(f"{path}: cannot write the report there: {error.strerror or error}") from None
    return [out / name for name in contents]


def page(
    title: str,
    said: list[str],
    made: list[Table],
    figures: list[dict[str, str]],
    sources: Sequence[ComparisonResult],
) -> str:
    """Return the self-contained page."""
    from jinja2 import Environment, StrictUndefined

    def split(cell: str) -> tuple[str, str]:
        """Split a figure from its quartiles, which are shown below it."""
        found = re.fullmatch(r"(.+?) (\[.+?\])(.*)", cell)
        return (found[1] + found[3], found[2]) if found else (cell, "")

    def shown(value: Any) -> Any:
        """Show control characters of names as escapes, as the screen does; figures are left as they are."""
        return CONTROL.sub(lambda found: printable(found[0]), value) if type(value) is str else value

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=shown
    )
    text = resources.files("hogwild.compare.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(text).render(
        title=title,
        sources=sources,
        split=split,
        verdict=said,
        tables=made,
        figures=figures,
        facts=[facts_of(source.about) for source in sources],
        left_out=[(source.label, text) for source in sources for text in source.about.get("left_out") or []],
    )


def inline(svg: str, name: str) -> str:
    """Return an SVG file as an element of a page: sized by the page, with unique names and no outside references."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\s*|<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    opening, rest = svg.split(">", 1)
    svg = re.sub(r'\s(?:xmlns(?::xlink)?|width|height|version)="[^"]*"', "", opening) + ">" + rest
    svg = svg.replace('xlink:href="#', 'href="#')
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    return svg.strip()


def to_json(sources: Sequence[ComparisonResult], verdicts: list[list[str]], said: list[str]) -> str:
    """Return everything that was computed as JSON, for other programs."""
    found = {"verdict": said, "comparisons": [_comparison(*pair) for pair in zip(sources, verdicts)]}
    return json.dumps(numbers(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _comparison(source: ComparisonResult, said: list[str]) -> dict[str, Any]:
    found = groups(source)
    return {
        "label": source.label,
        "verdict": said,
        "about": source.about,
        "conditions": facts_of(source.about),
        "start": source.scale.start,
        "optimum": source.scale.optimum,
        "goal": source.goal,
        "eps": source.eps,
        "notes": source.notes,
        "rule": own_rule(found),
        "methods": [_group(source, group, serial(of_rule(found, group.rule))) for group in found],
        "tuning": [vars(each) | {"edge": each.edge} for each in trials(source)],
        "not_ok": [
            {name: row.get(name) for name in ("phase", "method", "workers", "seed", "step", "epoch", "status")}
            for row in not_ok(source)
        ],
        "delays": [vars(point) for point in delay_points(source)],
    }


def _group(source: ComparisonResult, group: Group, over: Group | None) -> dict[str, Any]:
    chosen = metric(source)
    return {
        "method": group.method,
        "kind": group.kind,
        "device": group.device,
        "workers": group.workers,
        "in_flight": group.last("in_flight"),
        "rule": group.rule,
        "step": group.step,
        "seeds": [run.seed for run in group.runs],
        "runs": len(group.runs),
        "ok": group.ended_well,
        "objective": group.last("objective"),
        "gap": group.final_gap,
        "best_gap": group.best_gap,
        **({chosen[0]: group.last(chosen[0])} if chosen else {}),
        "targets": [
            {
                "eps": eps,
                "share": group.share(eps),
                "seconds": group.reached(eps, "train_seconds"),
                "epochs": group.reached(eps, "epoch"),
                "serial_over_this": paired_ratio(over, group, eps, source.clock) if over else None,
            }
            for eps in source.eps
        ],
        "epoch_seconds": group.epoch_seconds,
        "wide": bool(group.epoch_seconds and group.epoch_seconds.wide),
        "setup_seconds": group.last("setup_seconds"),
        "speedup": speedup(group, over, source),
        "staleness_mean": group.over_epochs("staleness_mean"),
        "staleness_max": group.over_epochs("staleness_max"),
        "lost_share": lost_share(group),
    }
