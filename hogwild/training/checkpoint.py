"""Checks before a run continues from a checkpoint: the same data, the same options, a writable directory.

A checkpoint is refused, in one line, unless continuing gives what an unbroken run would have given. Data are recognised
by a hash of their shape and of a sample of the rows, which costs milliseconds at any size.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import RESUMABLE, TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildError, InputError, OutputError, UsageError, reason_of
from hogwild.methods import DISCIPLINES
from hogwild.model_file import DirectoryLock, has_checkpoint, load_checkpoint

SAMPLED_ROWS, SAMPLED = 4096, 1 << 20  # at most this many rows, with about this many nonzeros, are hashed

KEPT = "exchange_replicas"  # the replicas of an exchange that keeps them from epoch to epoch
#: Types of what the header of every checkpoint holds.
TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("epoch", "chunk", "workers_lost", "epoch_updates", "epoch_nonzeros"), int),
    **dict.fromkeys(("epoch_seconds", "train_seconds", "wall_seconds"), (int, float)),
    **dict.fromkeys(("setup_seconds", "step"), (int, float, type(None))),
    **dict.fromkeys(("run", "fingerprint"), str),
    **dict.fromkeys(("config", "schedule"), dict),
    "history": list,
}

Saved = tuple[dict[str, np.ndarray], dict[str, Any]]  # arrays, and everything else


def fingerprint(rows: Rows) -> str:
    """Hash the shape and a sample of the rows, to tell data apart without reading all of them."""
    sample = rows.select(rows.spread(SAMPLED, SAMPLED_ROWS)).compact()
    arrays = (sample.begin, sample.indices, sample.values, sample.targets, sample.weights)
    return fingerprint_of((len(rows), rows.width, rows.nnz), [array for array in arrays if array is not None])


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


def hold_directory(directory: Path) -> DirectoryLock:
    """Lock the checkpoint directory for this run, and detect before the first epoch that it cannot be written.

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
        return DirectoryLock(directory, str(directory), "the checkpoint of another run")
    except OSError as error:
        raise OutputError(f"{directory}: cannot write a checkpoint: {error.strerror or error}") from error


def load_saved(directory: Path | None, asked: TrainConfig) -> Saved | None:
    """Return the checkpoint to continue from, of a run with these options; None if there is none yet.

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
        return None
    arrays, header = load_checkpoint(directory)
    where = f"{directory}: cannot resume"
    if header.get("problem") != asked.problem or "flat" not in arrays:
        raise InputError(f"{where}: not a checkpoint of this problem")
    with resumable(directory):
        check_header(header)
        try:
            before = TrainConfig.from_json(header["config"])
        except UsageError as error:
            raise InputError(f"{where}: its options are of another version: {error}") from error
    if changed := asked.differences(before):
        was = ", ".join(f"{name} was {getattr(before, name)!r}" for name in changed)
        raise InputError(f"{where} with other options: {was} (only {', '.join(RESUMABLE)} may change)")
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
    _, header = load_checkpoint(directory)
    with resumable(Path(directory)):
        saved = {name: header["config"][name] for name in names}
    if path is not None and saved["l2"] not in path:
        was = f"l2 was {saved['l2']!r}, which is not to choose now"
        raise InputError(f"{directory}: cannot resume with other options: {was}")
    return saved


def as_before(config: TrainConfig, saved: Saved) -> TrainConfig:
    """The config with the discipline that "auto" chose for as many workers before."""
    row = saved[1]["history"][-1]
    if config.discipline == "auto" and row.get("workers") == config.workers and row.get("discipline") in DISCIPLINES:
        return config.settled(discipline=row["discipline"])
    return config


def check_data(directory: Path | None, saved: Saved, print_of_data: str, size: int, config: TrainConfig) -> None:
    """Raise an error unless a checkpoint is of these data, so many parameters, and as many replicas as it keeps.

    Raises
    ------
    InputError
    UsageError
        With another number of workers when each keeps its own replica.
    """
    arrays, header = saved
    where = f"{directory}: cannot resume"
    if header["fingerprint"] != print_of_data:
        raise InputError(f"{where}: the training data are not those of the checkpoint")
    if arrays["flat"].shape != (size,):
        raise InputError(f"{where}: it holds {arrays['flat'].size} parameters, expected {size}")
    if KEPT in arrays and (had := next(iter(arrays[KEPT].shape), 0)) != config.replicas:
        raise UsageError(
            f"{where} with {config.replicas} workers: under exchange {config.exchange} the {had} of before have "
            f"replicas that go on: give workers={had} (--workers {had})"
        )


@contextlib.contextmanager
def resumable(directory: Path | None) -> Iterator[None]:
    """Within this block, an error about a checkpoint's contents becomes one line that names its directory."""
    try:
        yield
    except HogwildError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{directory}: cannot resume: the checkpoint is damaged: {reason_of(error)}") from error


def check_header(header: dict[str, Any]) -> None:
    """Raise KeyError or ValueError for a header that lacks something or holds it as another type."""
    for name, kind in TYPES.items():
        if not isinstance(header[name], kind):
            raise ValueError(f"{name} is {repr(header[name])[:40]}, of the wrong type")
    if not header["history"] or not all(isinstance(row, dict) for row in header["history"]):
        raise ValueError("history holds no rows")


def check_state(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Raise KeyError or ValueError unless a checkpoint's arrays match those that they are loaded into."""
    for name, array in expected.items():
        saved = arrays[name]
        if saved.shape != array.shape or saved.dtype != array.dtype:
            raise ValueError(
                f"{name} of shape {saved.shape}, {saved.dtype}, expected shape {array.shape}, {array.dtype}"
            )
