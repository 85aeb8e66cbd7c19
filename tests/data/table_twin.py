"""What a table's row should become, written with Python's dicts and integers: the twin of the compiled reader."""

from __future__ import annotations

import itertools
import re
from typing import Any

from tests import reference


def bucket(name: str, bits: int) -> int:
    """FNV-1a of the UTF-8 bytes, hashed as an index is."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 & 2**64 - 1
    return int(reference.bucket(state, bits))


def features(row: dict[str, Any], roles: dict[str, str], facts: dict[str, Any], crosses: list[str]) -> dict[str, float]:
    """Names and values of a row's features; None is a missing value, and a category is given as text.

    ``facts`` has the deviation of a number, the latest date and the deviation of ages, and the edges of buckets.
    """
    found: dict[str, float] = {}
    row = dict(row)
    for name, role in roles.items():
        value = row[name]
        if role == "numeric":
            found |= {f"{name}=": 1.0} if value is None else {name: value / facts[name]} if value else {}
        elif role == "date":
            parts = {"hour": "%-H", "weekday": "%a", "month": "%-m"}
            row |= {f"{name}.{part}": value and value.strftime(code) for part, code in parts.items()}
            found |= {f"{name}.{part}={row[f'{name}.{part}'] or ''}": 1.0 for part in parts}
            latest, deviation = facts[name]
            age = None if value is None else (latest - value).total_seconds() / 86_400 / deviation
            found |= {f"{name}.age=": 1.0} if age is None else {f"{name}.age": age} if age else {}
        elif role == "bucket":
            limits = ["", *map("{:g}".format, facts[name]), ""]
            at = None if value is None else sum(value >= edge for edge in facts[name])
            row[name] = None if at is None else f"{limits[at]}..{limits[at + 1]}"
            found[f"{name}={row[name] or ''}"] = 1.0
        elif role == "categorical":
            found[f"{name}={value or ''}"] = 1.0
        else:
            words = re.findall(r"\w+", (value or "").lower())
            for word in [*words, *map(" ".join, itertools.pairwise(words))]:
                found[f"{name}={word}"] = found.get(f"{name}={word}", 0.0) + 1.0
    for cross in crosses:
        found[f"{cross}={','.join(row[part] or '' for part in cross.split('*'))}"] = 1.0
    return found


def hashed(features: dict[str, float], bits: int) -> dict[int, float]:
    found: dict[int, float] = {}
    for name, value in features.items():
        found[bucket(name, bits)] = found.get(bucket(name, bits), 0.0) + value
    return found
