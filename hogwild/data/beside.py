"""Suggests the name in a directory that a missing name may stand for; called only after an error."""

from __future__ import annotations

import itertools
import os

from hogwild.errors import nearest

NAMES = 5000  # names of a directory that are looked at
PACKED = (".gz", ".bz2", ".xz")


def beside(folder: str, base: str) -> str:
    """Return ``: did you mean data.gz?`` for the name ``base`` in a directory; empty if no name is similar."""
    try:
        with os.scandir(folder or os.curdir) as entries:
            found = {entry.name: os.path.join(folder, entry.name) for entry in itertools.islice(entries, NAMES)}
    except OSError:
        found = {}
    if same := sorted(each for each in found if _bare(each) == _bare(base)):
        return f": did you mean {found[same[0]]}?"
    return nearest(base, (), 0.75, {each.lower(): path for each, path in found.items()})


def _bare(name: str) -> str:
    return name.lower().removesuffix(next((end for end in PACKED if name.lower().endswith(end)), ""))
