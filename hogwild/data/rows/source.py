"""From a name to rows: one function opens whatever a user may call data.

Everything readable takes one of three ways. A store is mapped where it is; text and synthetic sets are made into a
store in the cache and mapped from there; the rest (scipy's .npz, standard input, or anything without a cache) is held
in memory. Training, prediction and statistics see ``Rows`` and do not need to know which.

The cost is that the first opening of a text file writes its content once more to disk (see ``cache.py``).
"""

from __future__ import annotations

import contextlib
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hogwild import machine
from hogwild.data.bits import check_hashing
from hogwild.data.cache import Cache, Recipe, build, text_recipe
from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import located, suggestion
from hogwild.data.rows.container import Rows, check_offsets, chunks, fit_width
from hogwild.data.rows.store import Sink, StoreWriter, is_store, open_store, pour, read_meta
from hogwild.data.rows.synthetic import row_recipe
from hogwild.data.synthetic import PREFIX
from hogwild.data.tables.files import SUFFIXES as TABLES
from hogwild.data.tables.files import table_format
from hogwild.data.tables.plan import AskedColumns, check_plan
from hogwild.data.text.hashing import check_same, hashed_copy, hashed_recipe, warn_if_crowded
from hogwild.errors import HogwildWarning, InputError, UsageError, expected_one_of, reason_of

PARSER = 2  # version of svmlight.py's result for a text; part of a cache entry's key
FORMATS = ("svmlight", "npz", "store", "synthetic", *TABLES)
ROW_BYTES = 28  # most memory that a row of a matrix takes without entries: offsets here and in scipy, and a target
OTHERS = "; svmlight text was expected: tables need --label COLUMN, ratings and graphs --problem"
STREAM_BYTES = 4 << 20  # of text at a time: metrics of a block take milliseconds, whatever its size
BEYOND = ("error", "ignore")
LABELS = ("required", "optional")
REPAIRS = {
    "duplicate_rows": "rows with repeated features (summed)",
    "moved_rows": "rows with a feature in another field than before (the first field counts)",
    "repeats": "ratings of a user and item that come again later (the last one counts)",
}


def open_data(
    name: str | Path | BinaryIO,
    *,
    format: str | None = None,
    zero_based: bool = False,
    width: int | None = None,
    beyond: str = "error",
    targets: str | Path | None = None,
    labels: str = "required",
    hash_bits: int | None = None,
    columns: AskedColumns | None = None,
    plan: dict[str, Any] | None = None,
    separator: str | None = None,
    cache: Cache | None = None,
    workers: int | None = None,
    progress: BytesRead | None = None,
) -> Rows:
    """Open data by name.

    Parameters
    ----------
    name : str, Path or binary stream
        svmlight text (plain, .gz, .bz2, .xz), a store's directory, ``x.npz`` (``scipy.sparse.save_npz``), a table
        (:func:`hogwild.open_table`), a synthetic set such as ``synthetic:rcv1?rows=200000``, or, if no file has that
        name, a fetched set of the catalogue such as ``rcv1:test``. A stream is read as svmlight text into memory.
    format : str, optional
        One of ``FORMATS``; by default inferred from the name.
    zero_based : bool
        Features of svmlight text count from 0.
    width : int, optional
        Number of features, where it is not taken from the data: a test set has the width of its model.
    beyond : {"error", "ignore"}
        What to do with entries of features at or beyond ``width``. Ignored entries are counted in a HogwildWarning.
    targets : path, optional
        A .npy file with the targets of an .npz file; by default ``x.targets.npy`` or ``x.npy``.
    labels : {"required", "optional"}
        Whether targets must be present; missing ones are 0, which is enough to predict.
    hash_bits : int, optional
        Hash features to ``2**hash_bits`` buckets, 1 to 30; text may then have any indices below 2^64. A store is never
        hashed here: it must already be hashed (:func:`convert` does that). If None, a store may be hashed or not.
    columns : AskedColumns, optional
        Options for reading a table's columns.
    plan : dict, optional
        The plan of other rows or of a model (their ``table``) by which a table is read; other data are refused.
    separator : str, optional
        Of the columns of a table in text.
    cache : Cache, optional
        Where stores are made from text, tables and synthetic sets; without one they are made in memory.
    workers : int, optional
        Threads that parse text.
    progress : function, optional
        Called now and then with how much is done (bytes of text, or synthetic rows) and the total.

    Returns
    -------
    Rows
        The rows, with ``store`` set if they are mapped from one.

    Raises
    ------
    InputError
        One line that names the file: missing, unreadable, damaged or breaking a rule of its format.

    See Also
    --------
    open_table, open_ratings, open_graph : data of other kinds.

    Examples
    --------
    >>> import hogwild
    >>> rows = hogwild.open_data("synthetic:rcv1?rows=1000&features=500&nnz=10", cache=None)
    >>> len(rows), rows.width
    (1000, 500)
    """
    check_choices(beyond=(beyond, BEYOND), labels=(labels, LABELS))
    hash_bits = check_hashing(hash_bits, width)
    pinned = width if beyond == "error" else None  # text then reports the line; if ignored, it is cut off below
    options: dict[str, Any] = {"zero_based": zero_based, "width": pinned, "labels": labels, "hash_bits": hash_bits}
    options |= {"workers": workers, "progress": progress}
    title, kind = _named(name, format)
    if targets is not None and kind != "npz":
        raise UsageError(f"{title}: targets= goes with .npz; in {kind} data they are part of the rows")
    if kind in TABLES:
        options |= {"columns": columns, "plan": plan, "separator": separator}
    elif columns or separator is not None:
        raise UsageError(f"{title}: options of columns are for tables ({', '.join(TABLES)}); got {kind}")
    meta: dict[str, Any] = {}
    if kind == "store":
        rows, meta = open_store(title), read_meta(title)
        if hash_bits is not None:
            check_same(rows.hash_bits, hash_bits, title)
    elif kind == "npz":
        rows = _matrix(title, _targets_path(title, targets, labels))
        if hash_bits is not None:
            rows = hashed_copy(rows, hash_bits)
    else:
        rows, meta = build(cache, recipe_of(title if isinstance(name, str | os.PathLike) else name, kind, options))
    if len(rows) == 0:
        raise InputError(f"{title}: no rows in it")
    if plan is not None:
        check_plan(rows.table, plan, title)
    warn_of_repairs(title, meta)
    warn_if_crowded(title, rows)
    return fit_width(rows, width, beyond, title)


def convert(
    name: str | Path,
    destination: str | Path,
    *,
    format: str | None = None,
    zero_based: bool = False,
    width: int | None = None,
    targets: str | Path | None = None,
    hash_bits: int | None = None,
    columns: AskedColumns | None = None,
    separator: str | None = None,
    overwrite: bool = False,
    workers: int | None = None,
    progress: BytesRead | None = None,
) -> dict[str, Any]:
    """Make a store of any data, in bounded memory if they are text or synthetic; return its meta data.

    Parameters are those of ``open_data``; ``destination`` must not exist, unless it is a store and ``overwrite`` is
    set. With ``hash_bits``, a store that is not hashed yet is hashed.

    Raises
    ------
    InputError, OutputError
    """
    title, kind = _named(name, format)
    hash_bits, hashed_before = check_hashing(hash_bits, width), False
    if kind in ("npz", "store"):
        rows = open_data(title, format=kind, width=None if hash_bits else width, targets=targets, columns=columns)
        recipe, hashed_before = _copy(title, rows), rows.hash_bits is not None
        if hash_bits is not None and not hashed_before:
            recipe = hashed_recipe(recipe, hash_bits)
        elif hash_bits is not None:
            check_same(rows.hash_bits, hash_bits, title)
    else:
        options: dict[str, Any] = {"zero_based": zero_based, "width": width, "workers": workers, "progress": progress}
        options |= {"columns": columns, "plan": None, "separator": separator} if kind in TABLES else {}
        recipe = recipe_of(title, kind, options | {"hash_bits": hash_bits})
    with StoreWriter(destination, recipe.meta, overwrite) as writer:
        writer.close(**recipe.fill(writer) | ({"width": width} if width else {}))
    meta = read_meta(destination)
    if not hashed_before:  # otherwise opening it has already warned
        warn_of_repairs(title, meta)
        warn_if_crowded(title, open_store(destination))
    return meta


def title_of(stream: Any, noun: str) -> str:
    """Return the name of a binary stream, for messages; raise UsageError if it is none."""
    if not hasattr(stream, "read"):
        raise UsageError(f"expected the name of {noun} or a binary stream, got {type(stream).__name__}")
    return str(getattr(stream, "name", "stream"))


def check_choices(**options: tuple[str | None, Sequence[str]]) -> None:
    """Refuse an option whose value is none of its choices."""
    for option, (value, choices) in options.items():
        if value not in choices:
            raise UsageError(f"{option}={value!r}: {expected_one_of(choices, value)}")


def stream_data(
    name: str | BinaryIO, labels: str = "required", plan: dict[str, Any] | None = None, **options: Any
) -> Iterator[Rows]:
    """Yield the rows in order, in blocks of bounded size; text and tables are read once, and not kept.

    ``options`` are keywords of :func:`open_data`. A table is read by ``plan``, and a stream is one if there is a plan.
    """
    format, bits = options["format"], options["hash_bits"]
    title, kind = _named(name, format)
    if not isinstance(name, str):
        kind = format if format in TABLES else "svmlight" if plan is None or format else "csv"
    source: Any = title if isinstance(name, str) else name
    if kind in TABLES:
        from hogwild.data.tables.source import stream_table

        if plan is None:
            raise InputError(f"{title}: a table, but the model's features are none of its columns")
        yield from stream_table(source, plan, labels == "required", format, options["separator"])
    elif kind == "svmlight":
        from hogwild.data.text.svmlight import Svmlight

        text = Svmlight(zero_based=options["zero_based"], labels=labels, hash_bits=bits, chunk_bytes=STREAM_BYTES)
        yield from text.blocks(source)
        warn_of_repairs(title, {"warnings": _repairs(text)})
    else:
        rows = open_data(source, labels=labels, **options)
        for first, last in chunks(rows):
            yield rows.block(first, last)


def _named(name: str | Path | BinaryIO, format: str | None) -> tuple[str, str]:
    """Return the name of data for messages, which is where they lie unless they are a stream, and their format."""
    if not isinstance(name, str | os.PathLike):
        return title_of(name, "data"), "svmlight"
    title = located(os.fspath(name))
    kind = kind_of(title, format, FORMATS, "rcv1")
    return title, kind or ("npz" if title.lower().endswith(".npz") else table_format(title) or "svmlight")


def kind_of(name: str, format: str | None, formats: Sequence[str], example: str) -> str | None:
    """Return which of ``formats`` data have, by ``format`` or the kind of file; None if their name has to tell.

    ``example`` is a family of synthetic data, for an error.
    """
    if format is not None and format not in formats:
        raise UsageError(f"format={format!r}: {expected_one_of(formats, format)}")
    if format == "synthetic" or (format is None and name.startswith(PREFIX)):
        return "synthetic"
    head = b""
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISREG(mode):  # the writer of a named pipe would take the first close for the last
            with open(name, "rb") as file:
                head = file.read(4096)
    except FileNotFoundError:
        hint = suggestion(name) or f" (a synthetic set is named like {PREFIX}{example})"
        raise InputError(f"{name}: no such file{hint}") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise InputError(f"{name}: cannot be read: {reason_of(error)}") from None
    if b"hogwild.npy" in head[:64] or (head[8:9] == b"{" and b'"hogwild"' in head):  # .npz, safetensors
        raise InputError(f"{name}: a hogwild model, not data: name the data (hogwild.load reads models)")
    if stat.S_ISDIR(mode):
        if format not in (None, "store") or not is_store(name):
            raise InputError(f"{name}: a directory, but no store; expected a file")
        return "store"
    if format == "store":
        raise InputError(f"{name}: a file, but a store is a directory")
    return format


def recipe_of(source: Any, kind: str, options: dict[str, Any]) -> Recipe:
    """Return how a store is made of a text, a table or a synthetic set; ``options`` are those of :func:`open_data`."""
    bits = options["hash_bits"]
    if kind in TABLES:
        from hogwild.data.tables.source import table_recipe

        asked, labels = options["columns"] or AskedColumns(), options.get("labels", "required") == "required"
        reading = {name: options[name] for name in ("separator", "workers", "progress")}
        return table_recipe(source, asked, bits, options["plan"], format=kind, labels=labels, **reading)
    if kind == "synthetic":
        recipe = row_recipe(source, options["progress"])
        return recipe if bits is None else hashed_recipe(recipe, bits)
    kept = {option: options.get(option) for option in ("zero_based", "width", "labels")}
    if bits is not None:  # so that cache entries from before hashing existed stay valid
        kept["hash_bits"] = bits

    def parse(sink: Sink) -> dict[str, Any]:
        from hogwild.data.text.svmlight import Svmlight

        text = Svmlight(**options)
        try:
            for block in text.read(source):
                sink.append(*block)
        except InputError as error:
            raise InputError(f"{error}{OTHERS if ':1: ' in str(error) else ''}") from None
        facts = {} if bits is None else {"hash_bits": bits}
        return facts | {"width": text.width, "fields": text.fields, "warnings": _repairs(text)}

    return text_recipe(source, parse, {"format": "svmlight", **kept}, f"svmlight {PARSER}")


def _repairs(text: Any) -> dict[str, int]:
    """Return how many rows of a text were repaired, by ``REPAIRS``."""
    return {name: count for name in REPAIRS if (count := int(getattr(text, name, 0)))}


def _copy(source: str, rows: Rows) -> Recipe:
    meta = {"source": os.path.abspath(source), "options": {}}
    return Recipe(os.path.basename(source), {}, meta, lambda sink: pour(rows, sink))


def _matrix(name: str, path: str | None) -> Rows:
    """Return the rows of a matrix file and its targets; every way in which either can be broken gives one line."""
    X = load_npz(name)
    y = np.zeros(X.shape[0], np.float32)
    if path is not None:
        with readable(path) as file:
            y = np.load(file, allow_pickle=False)
    try:
        if np.shape(y)[:1] != X.shape[:1]:  # before allocating memory for what a file claims
            raise InputError(f"targets: expected one per row ({X.shape[0]}), got an array of shape {np.shape(y)}")
        return Rows.from_scipy(X, y)
    except InputError as error:
        raise InputError(f"{name}{f' (targets: {path})' if path else ''}: {error}") from None


@contextlib.contextmanager
def readable(path: str) -> Iterator[BinaryIO]:
    """Open a file; whatever a library cannot read in it gives one line."""
    try:
        with open(path, "rb") as file:  # given a name, numpy would leave a damaged file open
            yield file
    except MemoryError:
        raise
    except Exception as error:  # zip, zlib, refused pickles, bad headers, key errors: each library has its own
        raise InputError(f"{path}: cannot be read: {reason_of(error)}") from None


def load_npz(path: str) -> Any:
    """Return the scipy matrix in a file written by ``scipy.sparse.save_npz``."""
    import scipy.sparse

    with readable(path) as file:
        matrix = scipy.sparse.load_npz(file)
        if matrix.format in ("csr", "csc", "bsr"):  # scipy's compiled code follows wrong offsets out of the arrays
            check_offsets(matrix.indptr, len(matrix.indices))  # which check_format does not see if the last is wrong
            matrix.check_format()
        # more than a file can claim in a few bytes
        machine.check_memory(f"{matrix.shape[0]:,} rows", matrix.shape[0] * ROW_BYTES)
    return matrix


def _targets_path(name: str, targets: str | Path | None, labels: str) -> str | None:
    if targets is not None:
        if not os.path.isfile(targets):
            raise InputError(f"{os.fspath(targets)}: no such file (targets of {name})")
        return os.fspath(targets)
    stem = name[:-4] if name.lower().endswith(".npz") else name
    for path in (f"{stem}.targets.npy", f"{stem}.npy"):
        if os.path.isfile(path):
            return path
    if labels == "optional":
        return None
    raise InputError(f"{name}: no targets: expected {stem}.targets.npy beside it, or another .npy file to be named")


def warn_of_repairs(name: str, meta: dict[str, Any]) -> None:
    """Say how many rows or ratings of a text were repaired."""
    repairs = meta.get("warnings") or {}
    parts = [f"{repairs[key]:,} {text}" for key, text in REPAIRS.items() if repairs.get(key)]
    if parts:
        warnings.warn(f"{name}: {', '.join(parts)}", HogwildWarning, stacklevel=3)
