"""What a run must know to go on where another stopped: the same data, the same options, a directory it can write.

The one decision: a checkpoint is refused, in one line, unless going on gives what an unbroken run would have given.
Data are known again by a hash of their shape and of a sample of the rows, so it costs milliseconds at any size.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import RESUMABLE, TrainConfig
from hogwild.data.examples import Rows
from hogwild.errors import InputError, OutputError, UsageError
from hogwild.model_file import has_checkpoint, load_checkpoint

SAMPLED_ROWS, SAMPLED = 4096, 1 << 20  # at most so many rows, with about so many nonzeros, are hashed

Saved = tuple[dict[str, np.ndarray], dict[str, Any]]  # arrays, and everything else


def fingerprint(rows: Rows) -> str:
    """A hash of shape and of a sample of the rows: tells data apart without reading all of them."""
    sample = rows.select(rows.spread(SAMPLED, SAMPLED_ROWS)).compact()
    arrays = (sample.begin, sample.indices, sample.values, sample.targets, sample.weights)
    return fingerprint_of((len(rows), rows.width, rows.nnz), [array for array in arrays if array is not None])


def fingerprint_of(shape: tuple[int, ...], arrays: Sequence[np.ndarray]) -> str:
    """A hash of whole numbers and of arrays."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(np.array(shape, dtype=np.int64).tobytes())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def make_directory(directory: Path) -> None:
    """Make the checkpoint directory, and find out before the first epoch, not after it, that it cannot be written.

    Raises
    ------
    OutputError
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise OutputError(f"{directory}: cannot write a checkpoint: {error.strerror or error}") from error


def load_saved(
    directory: Path | None, asked: TrainConfig, print_of_data: str, size: int, workers: int = 1
) -> Saved | None:
    """The checkpoint to go on from, checked against what is asked; None if there is none yet.

    Raises
    ------
    UsageError
        Without a directory; with another number of workers where each has a replica that goes on.
    InputError
        One line that says why the checkpoint is not one of this run.
    """
    if directory is None:
        raise UsageError("resume needs the checkpoint directory (--checkpoint DIR)")
    if not has_checkpoint(directory):
        return None
    arrays, header = load_checkpoint(directory)
    where = f"{directory}: cannot resume"
    if header.get("problem") != asked.problem or "flat" not in arrays:
        raise InputError(f"{where}: not a checkpoint of this problem")
    try:
        before = TrainConfig.from_json(header["config"])
    except UsageError as error:
        raise InputError(f"{where}: its options are of another version: {error}") from error
    if changed := asked.differences(before):
        was = ", ".join(f"{name} was {getattr(before, name)!r}" for name in changed)
        raise InputError(f"{where} with other options: {was} (only {', '.join(RESUMABLE)} may change)")
    if header["fingerprint"] != print_of_data:
        raise InputError(f"{where}: the training data are not those of the checkpoint")
    if arrays["flat"].shape != (size,):
        raise InputError(f"{where}: it holds {len(arrays['flat'])} parameters, expected {size}")
    if "replicas" in arrays and len(arrays["replicas"]) != workers:
        had = len(arrays["replicas"])
        raise UsageError(
            f"{where} with {workers} workers: under exchange {asked.exchange} the {had} of before each have a replica "
            f"that goes on: give workers={had} (--workers {had})"
        )
    return arrays, header
