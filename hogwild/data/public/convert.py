"""Converts the files of a data set to the store that is trained on, compared with the card before it gets its name.

Counts are compared while the store is still temporary, so data that do not match the card are never in the data
directory. All parts of a set get the card's width, so that a model of the training rows fits the test rows.

A graph is kept as its DIMACS file, since graphs have no stores.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.graphs.text import read_dimacs
from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import Card, CardPart
from hogwild.data.rows.store import Sink, StoreWriter
from hogwild.data.text.lines import numbered_lines
from hogwild.errors import InputError, OutputError

MANY = 10_000  # distinct labels beyond which counting stops


def convert_part(
    card: Card,
    part: CardPart,
    paths: list[Path],
    labels: list[Path],
    place: Path,
    origin: dict[str, Any],
    progress: BytesRead | None = None,
) -> dict[str, Any]:
    """Make ``place`` from the files ``paths``, replacing what is there.

    Parameters
    ----------
    card, part : Card, CardPart
    paths : list of Path
        Text, plain or compressed, in order.
    labels : list of Path
        The files of ``card.labels``.
    place : Path
        Path in an existing directory.
    origin : dict
        Stored in a store's meta data as ``dataset``.
    progress : function, optional
        Called now and then with the bytes done and their total, for one file after another.

    Returns
    -------
    dict
        The counts found, ``rows``, ``nonzeros`` ..., which agree with those on the card.

    Raises
    ------
    InputError
        If a file breaks a rule of its format, or the counts differ from the card's; nothing is made then.
    OutputError
    """
    if card.problem == "cuts":
        return _graph(card, part, paths, place, progress)
    if card.problem == "completion":
        return _ratings(card, part, paths, place, origin, progress)
    return _rows(card, part, paths, labels, place, origin, progress)


def compare(card: Card, part: CardPart, found: dict[str, Any]) -> None:
    """Raise InputError if the counts found differ from those that the card states."""
    rows = "ratings" if card.problem == "completion" else "rows"
    exact = {rows: part.rows, "nonzeros": part.nonzeros, "vertices": card.vertices, "arcs": card.arcs}
    wrong = [
        f"{found[name]:,} {name} and not {expected:,}"
        for name, expected in exact.items()
        if expected is not None and name in found and found[name] != expected
    ] + [
        f"{found[name]:,} {name}, more than {limit:,}"
        for name, limit in (("classes", card.classes), ("users", card.users), ("items", card.items))
        if limit is not None and found.get(name, 0) > limit
    ]
    if wrong:
        raise InputError(f"not the data of the card: {', '.join(wrong)}")


# -- rows -------------------------------------------------------------------------------------------------------------


class _Counted:
    """A sink that also collects the labels that pass through."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.labels: set[float] = set()

    def append(self, lengths: Any, indices: Any, values: Any, targets: Any, weights: Any = None) -> None:
        self.sink.append(lengths, indices, values, targets, weights)
        if len(self.labels) < MANY:
            self.labels.update(np.unique(targets).tolist())


def _rows(
    card: Card,
    part: CardPart,
    paths: list[Path],
    labels: list[Path],
    place: Path,
    origin: dict[str, Any],
    progress: BytesRead | None,
) -> dict[str, Any]:
    from hogwild.data.text.svmlight import parse_svmlight

    repairs = {"unsorted_rows": 0, "duplicate_rows": 0, "query_rows": 0}
    positive = read_qrels(labels, card.topic) if card.format == "lyrl2004" else None
    meta = {"source": origin["source"], "parser": f"catalogue, {card.format}", "dataset": origin}
    with StoreWriter(place, meta, overwrite=True) as writer:
        counted, width = _Counted(writer), 0
        for path in paths:
            if positive is None:
                summary = parse_svmlight(path, counted, width=card.features, progress=progress)
            else:
                text: Any = _Labelled(path, positive, progress)
                summary = parse_svmlight(text, counted, width=card.features)
            width = max(width, summary.width)
            for name in repairs:
                repairs[name] += int(getattr(summary, name))
        found = {"rows": writer.rows, "nonzeros": writer.nnz, "features": width}
        if card.task != "regression":
            found["classes"] = len(counted.labels)
        compare(card, part, found)
        writer.close(width, warnings=repairs)
    return found


def read_qrels(paths: list[Path], topic: str) -> dict[bytes, bool]:
    """Return whether each document, by number as text, has ``topic``: RCV1-v2 lines ``TOPIC DOCUMENT 1``.

    Raises
    ------
    InputError
        The message names the file and the line.
    """
    wanted, found, number = topic.encode(), {}, 0
    for path in paths:
        for number, line in numbered_lines(str(path)):
            words = line.split()
            if len(words) != 3:
                raise InputError(f"{path}:{number}: expected a topic, a document and 1")
            if words[0] == wanted:
                found[words[1]] = True
            else:
                found.setdefault(words[1], False)
    if True not in found.values():
        raise InputError(f"{', '.join(map(str, paths))}: no document of topic {topic} in {number:,} lines")
    return found


class _Labelled:
    """Text ``DOCUMENT feature:value ...`` as svmlight text, each document's number replaced by its label."""

    def __init__(self, path: Path, positive: dict[bytes, bool], progress: BytesRead | None) -> None:
        self.name = str(path)  # name in the parser's errors
        self.blocks = self._blocks(path, positive, progress)
        self.rest = b""

    @staticmethod
    def _blocks(path: Path, positive: dict[bytes, bool], progress: BytesRead | None) -> Iterator[bytes]:
        block: list[bytes] = []
        for number, line in numbered_lines(str(path), progress):
            document, _, features = line.partition(b" ")
            if document not in positive:
                what = document[:20].decode("latin-1")
                raise InputError(f"{path}:{number}: document {what!r} is not in the file of labels")
            block.append((b"1 " if positive[document] else b"-1 ") + features)
            if len(block) == 1024:
                yield b"\n".join(block) + b"\n"
                block = []
        yield b"\n".join(block) + b"\n"

    def read(self, size: int) -> bytes:
        if not self.rest:
            self.rest = next(self.blocks, b"")
        data, self.rest = self.rest[:size], self.rest[size:]
        return data


# -- ratings and graphs -----------------------------------------------------------------------------------------------


def _ratings(
    card: Card, part: CardPart, paths: list[Path], place: Path, origin: dict[str, Any], progress: BytesRead | None
) -> dict[str, Any]:
    from hogwild.data.ratings.container import last_of_repeats
    from hogwild.data.ratings.store import save_ratings
    from hogwild.data.ratings.text import parse_ratings

    [path] = paths
    ratings, repeats = last_of_repeats(parse_ratings(path, card.layout, progress=progress))
    users, items = ratings.shape
    found = {"ratings": len(ratings), "users": users, "items": items}
    compare(card, part, found)
    meta = {"source": origin["source"], "parser": f"catalogue, {card.format}", "dataset": origin}
    save_ratings(ratings, place, meta | ({"warnings": {"repeats": repeats}} if repeats else {}), overwrite=True)
    return found


def _graph(card: Card, part: CardPart, paths: list[Path], place: Path, progress: BytesRead | None) -> dict[str, Any]:
    [path] = paths
    graph = read_dimacs(str(path), progress)
    problem = next((line.split() for _, line in numbered_lines(str(path)) if line.startswith(b"p")), [])
    found = {"vertices": graph.n_vertices, "arcs": int(problem[3])}
    compare(card, part, found)
    temporary = place.with_name(f".{place.name}.part")
    try:
        shutil.copyfile(path, temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except OSError as error:
        raise OutputError(f"{place}: cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return found
