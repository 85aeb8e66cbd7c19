"""Checks before a run continues from a checkpoint: the same data, the same options, a writable directory.

A checkpoint is refused, in one line, unless continuing gives what an unbroken run would have given. Data are recognised
by a hash of their shape and of a sample of the rows, which costs milliseconds at any size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import RESUMABLE, TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildError, InputError, OutputError, UsageError
from hogwild.exchanges.trade import Counts
from hogwild.exclusive import Held
from hogwild.methods import DISCIPLINES
from hogwild.model_file import has_checkpoint, load_checkpoint

SAMPLED_ROWS, SAMPLED = 4096, 1 << 20  # at most this many rows, with about this many nonzeros, are hashed

WHOLE = ("epoch", "chunk", "workers_lost", "epoch_updates", "epoch_nonzeros")
SECONDS = ("epoch_seconds", "train_seconds", "wall_seconds")
KEPT = "exchange_replicas"  # the replicas of an exchange that keeps them from epoch to epoch
CUTS = ("block", "batch", "grid")  # ways to partition the data, where a problem has one
LARGEST, LARGEST_CUT = 2**53, 2**31 - 1

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


def hold_directory(directory: Path) -> Held:
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
        return Held(directory, str(directory), "the checkpoint of another run")
    except OSError as error:
        raise OutputError(f"{directory}: cannot write a checkpoint: {error.strerror or error}") from error


def load_saved(
    directory: Path | None, asked: TrainConfig, print_of_data: str, size: int, replicas: int = 1
) -> Saved | None:
    """Return the checkpoint to continue from, checked against the request; None if there is none yet.

    Raises
    ------
    UsageError
        Without a directory, or with another number of workers when each keeps its own replica.
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
    if header["fingerprint"] != print_of_data:
        raise InputError(f"{where}: the training data are not those of the checkpoint")
    if arrays["flat"].shape != (size,):
        raise InputError(f"{where}: it holds {arrays['flat'].size} parameters, expected {size}")
    if KEPT in arrays and (had := next(iter(arrays[KEPT].shape), 0)) != replicas:
        workers = had * asked.group
        raise UsageError(
            f"{where} with {replicas * asked.group} workers: under exchange {asked.exchange} the {workers} of before "
            f"have {had} replicas that go on: give workers={workers} (--workers {workers})"
        )
    return arrays, header


def as_before(config: TrainConfig, directory: str | Path | None) -> TrainConfig:
    """The config with the discipline that "auto" chose for as many workers before, if there is such a checkpoint."""
    if config.discipline != "auto" or directory is None or not has_checkpoint(directory):
        return config
    with contextlib.suppress(HogwildError, KeyError, IndexError, TypeError):  # a damaged one is named later
        row = load_checkpoint(directory)[1]["history"][-1]
        if row["workers"] == config.workers and row["discipline"] in DISCIPLINES:
            return dataclasses.replace(config, discipline=row["discipline"])
    return config


@contextlib.contextmanager
def resumable(directory: Path | None) -> Iterator[None]:
    """Within this block, an error about a checkpoint's contents becomes one line that names its directory."""
    try:
        yield
    except HogwildError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise InputError(f"{directory}: cannot resume: the checkpoint is damaged: {what}") from error


def check_header(header: dict[str, Any]) -> None:
    """Raise KeyError or ValueError for a header that is incomplete or that no run can have written."""
    for name in WHOLE:
        _expect(name, header[name], _is_whole(header[name], 0, LARGEST), "a whole number from 0")
    for name in SECONDS:
        _expect(name, header[name], _is_number(header[name]) and 0 <= header[name] < math.inf, "seconds")
    setup, step = header["setup_seconds"], header["step"]
    _expect("setup_seconds", setup, setup is None or (_is_number(setup) and 0 <= setup < math.inf), "seconds or none")
    sent = header.get("sent", [*Counts()])  # missing in checkpoints from before replicas traded
    good = isinstance(sent, list) and len(sent) == len(Counts._fields)
    good = good and all(_is_number(count) and 0 <= count < math.inf for count in sent)
    _expect("sent", sent, good, f"{len(Counts._fields)} numbers")
    for name, kind in (("run", str), ("fingerprint", str), ("config", dict), ("schedule", dict), ("history", list)):
        _expect(name, header[name], isinstance(header[name], kind), f"a {kind.__name__}")
    own = header["config"].get("schedule") == "optimal"  # this schedule computes its own step
    good = step is None if own else _is_number(step) and 0 < step < math.inf
    _expect("step", step, good, "none, of this schedule" if own else "a positive number")
    for name in CUTS:
        if name in header:
            parts = header[name] if name == "grid" else [header[name]]
            good = isinstance(parts, list) and len(parts) == 1 + (name == "grid")
            good = good and all(_is_whole(part, 1, LARGEST_CUT) for part in parts)
            _expect(name, header[name], good and math.prod(parts) <= LARGEST_CUT, "positive whole numbers")
    _expect("history", header["history"], bool(header["history"]), "at least one row")
    for row in header["history"]:
        _expect("history", row, isinstance(row, dict), "rows with names")
        _expect("epoch", row["epoch"], _is_number(row["epoch"]) and row["epoch"] >= 0, "a number from 0")
        _expect("objective", row["objective"], _is_number(row["objective"]), "a number")
        _expect("status", row["status"], isinstance(row["status"], str), "a word")
    epoch, last = header["epoch"], header["history"][-1]["epoch"]
    _expect("epoch", epoch, epoch <= last <= epoch + (header["chunk"] > 0), f"that of the last row, {last}")


def _expect(name: str, value: Any, good: bool, what: str) -> None:
    if not good:
        raise ValueError(f"{name} is {repr(value)[:40]}, expected {what}")


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value, -LARGEST, LARGEST)


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def check_state(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray], chunk: int, n_chunks: int) -> None:
    """Raise KeyError or ValueError unless a checkpoint's arrays match those that they are loaded into.

    Arrays that are all finite there must be finite here, except the flat array: an optimiser's sums in it may overflow.
    """
    for name, array in expected.items():
        found = arrays[name]
        if found.shape != array.shape or found.dtype != array.dtype:
            raise ValueError(
                f"{name} of shape {found.shape}, {found.dtype}, expected shape {array.shape}, {array.dtype}"
            )
        if name != "flat" and np.isfinite(array).all() and not np.isfinite(found).all():
            raise ValueError(f"{name} holds a number that is not finite")
        if array.dtype == np.int64 and (found < 0).any():  # counts
            raise ValueError(f"{name} holds a number below zero")
    if chunk >= max(n_chunks, 1):
        raise ValueError(f"chunk is {chunk}, expected one of {n_chunks}")
