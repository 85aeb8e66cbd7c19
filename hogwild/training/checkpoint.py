"""Checks before a run continues from a checkpoint: the same data, the same options, a writable directory.

A checkpoint is refused, in one line, unless continuing gives what an unbroken run would have given. Data are recognised
by a hash of their shape and of a sample of the rows, which costs milliseconds at any size.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import RESUMABLE, TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError, OutputError, UsageError
from hogwild.model_file import has_checkpoint, load_checkpoint
from hogwild.rows_file import lock_directory

SHOWN = 3  # options that differ, named in an error

KEPT = "exchange_replicas"  # the replicas of an exchange that keeps them from epoch to epoch


def fingerprint(rows: Rows) -> str:
    """Hash the shape and a sample of the rows, to tell data apart without reading all of them."""
    return fingerprint_of((len(rows), rows.width, rows.nnz), rows.sample_arrays())


def fingerprint_of(shape: tuple[int, ...], arrays: Sequence[np.ndarray]) -> str:
    """Hash integers and arrays."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(np.array(shape, dtype=np.int64).tobytes())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def fingerprint_of_json(value: Any) -> str:
    """Hash a value of JSON types."""
    return fingerprint_of((), [np.frombuffer(json.dumps(value, sort_keys=True).encode(), np.uint8)])


def hold_directory(directory: Path) -> int:
    """Lock the checkpoint directory for this run, and detect before the first epoch that it cannot be written.

    Returns the descriptor that holds the lock until it is closed.

    Raises
    ------
    OutputError
    UsageError
        If another run holds it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
        return lock_directory(directory, str(directory), "the checkpoint of another run")
    except OSError as error:
        raise OutputError(f"{directory}: cannot write a checkpoint: {error.strerror or error}") from error


def load_saved(directory: Path | None, asked: TrainConfig) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the checkpoint to continue from, of a run with these options; empty if there is none yet.

    Raises
    ------
    UsageError
        Without a directory.
    InputError
        One line that says why this run cannot continue from the checkpoint.
    """
    if directory is None:
        raise UsageError("resume needs the checkpoint directory (--checkpoint DIR)")
    if not has_checkpoint(directory):
        return {}, {}
    arrays, header = load_checkpoint(directory)
    before = TrainConfig.from_json(header["config"])
    if changed := asked.differences(before):
        was = ", ".join(f"{name} was {getattr(before, name, None)!r}" for name in changed[:SHOWN])
        raise InputError(
            f"{directory}: cannot resume with other options: {was} (only {', '.join(RESUMABLE)} may change)"
        )
    return arrays, header


def chosen_before(
    directory: str | Path | None, *names: str, path: Sequence[float] | None = None
) -> dict[str, Any] | None:
    """The options that the run of a checkpoint has and chose, by ``names``; None if there is nothing to go on from.

    Raises
    ------
    InputError
        If its ``l2`` is not one of ``path``, where that is given.
    """
    if directory is None or not has_checkpoint(directory):
        return None
    config = load_checkpoint(directory)[1]["config"]
    if path is not None and config["l2"] not in path:
        was = f"l2 was {config['l2']!r}, which is not to choose now"
        raise InputError(f"{directory}: cannot resume with other options: {was}")
    return {name: config.get(name) for name in names}


def check_data(
    directory: Path | None,
    arrays: dict[str, np.ndarray],
    header: dict[str, Any],
    data: str,
    size: int,
    config: TrainConfig,
) -> None:
    """Raise an error unless a checkpoint is of the ``data`` of this fingerprint, so many numbers, and as many replicas
    as it keeps.

    Raises
    ------
    InputError
    UsageError
        With another number of workers when each keeps its own replica.
    """
    where = f"{directory}: cannot resume"
    if header["fingerprint"] != data:
        raise InputError(f"{where}: the training data are not those of the checkpoint")
    if len(arrays["flat"]) != size:  # each worker of a module has some of its own
        raise InputError(f"{where}: it holds {len(arrays['flat'])} parameters, expected {size}: give as many workers")
    if KEPT in arrays and (had := len(arrays[KEPT])) != config.replicas:
        raise UsageError(
            f"{where} with {config.replicas} workers: under exchange {config.exchange} the {had} of before have "
            f"replicas that go on: give workers={had} (--workers {had})"
        )
