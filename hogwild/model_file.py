"""Model files and checkpoints: safetensors, with everything that is not an array as JSON in its metadata.

A file is either complete or absent: it is written under a temporary name beside its target, flushed to disk, and
renamed over it (after a power failure the file before may be back). A digest over the JSON and all arrays detects a
damaged file. Loading runs no code from the file (no pickle). Writing needs memory for two copies of the arrays.

Layout: tensors ``coef`` (1 or K, width) and ``intercept`` (1 or K,), float32, in the user's numbering of the features;
one item of metadata, ``hogwild``, the JSON header: sha256, kind, schema, loss, labels, and so on. With hashed features
the header has ``hash_bits``, and the numbering is that of the buckets. Any safetensors reader can read the file, and
equal models make equal files.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from hogwild.errors import InputError, OutputError, reason_of
from hogwild.methods import PROBLEMS, located
from hogwild.rows_file import plain

MODEL, CHECKPOINT = "model", "checkpoint"
SCHEMA = {MODEL: 1, CHECKPOINT: 2}  # raised when a reader of the old one would misunderstand the new one
HISTORY_ROWS = 50
CHECKPOINT_NAME = "checkpoint.safetensors"


def save_model(model: Any, path: str | Path) -> None:
    """Write ``model`` to exactly ``path``; an existing file is replaced at the end or left as it was.

    Raises
    ------
    OutputError
        If it cannot be written; no partial file is left.
    """
    arrays, header = model.to_file()
    header = header | {"history": header["history"][-HISTORY_ROWS:]}
    _write(Path(path), MODEL, arrays, plain(header))  # null for NaN, so that any JSON reader accepts it


def save_checkpoint(directory: str | Path, state: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Make ``state`` and ``header`` (JSON; NaN allowed) the current checkpoint of ``directory``, created if need be.

    The previous checkpoint stays until this one is complete and on disk.

    Raises
    ------
    OutputError
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for partial in directory.glob(f".{CHECKPOINT_NAME}.*.tmp"):  # of a run that was killed while writing
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{directory}: cannot write a checkpoint: {error.strerror}") from error
    _write(directory / CHECKPOINT_NAME, CHECKPOINT, state, plain(header, nan=True))


def load_model(path: str | Path) -> Any:
    """Read the model file of any problem; ``hogwild.load`` is this function.

    Raises
    ------
    InputError
        One line naming the file, if it is missing, no model, of a newer version, or damaged.

    See Also
    --------
    LinearModel, FMModel, CompletionModel, Segmentation, ModuleModel : what it returns.

    Examples
    --------
    >>> import hogwild, tempfile
    >>> model = hogwild.train("synthetic:rcv1?rows=500&features=200&nnz=10", l2=1e-4, workers=1).finish()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.hogwild")
    ...     hogwild.load(f"{folder}/model.hogwild").coef_.shape
    (1, 200)
    """
    path = Path(path)
    arrays, header = read_file(path, MODEL)
    problem = str(header.get("problem"))
    if problem not in PROBLEMS:
        raise InputError(f"{path}: a model of problem {problem!r}: this version knows {', '.join(PROBLEMS)}")
    return located(PROBLEMS[problem].model).from_file(arrays, header, path)


def has_checkpoint(directory: str | Path) -> bool:
    """Whether :func:`load_checkpoint` would find a file to read."""
    return (Path(directory) / CHECKPOINT_NAME).is_file()


def load_checkpoint(directory: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return ``(state, header)`` of the current checkpoint.

    Raises
    ------
    InputError
        If there is none, or it is damaged or of a newer version.
    """
    return read_file(Path(directory) / CHECKPOINT_NAME, CHECKPOINT)


def _write(path: Path, kind: str, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    from safetensors.numpy import save

    arrays = {name: np.array(array, order="C") for name, array in arrays.items()}  # copied, so digest and file agree
    text = json.dumps(dict(kind=kind, schema=SCHEMA[kind], **header))
    write_atomically(path, save(arrays, metadata={"hogwild": _sealed(text, arrays)}))


def read_file(path: Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    from safetensors import safe_open

    try:
        if not path.is_file():
            path.stat()  # raises where there is nothing
            raise InputError(f"{path}: not a hogwild {kind} but a {'directory' if path.is_dir() else 'special file'}")
        with safe_open(path, "numpy") as file:
            text: str = (file.metadata() or {}).get("hogwild", "null")
            header = json.loads(text)
            arrays = {name: file.get_tensor(name) for name in file.keys()} if header else {}
            if any(array.dtype.kind not in "biuf" for array in arrays.values()):
                raise TypeError("an array that is not of real numbers")
    except (InputError, MemoryError):
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # bad format, types NumPy lacks, absurd sizes, endless nesting
        raise InputError(f"{path}: not a hogwild {kind}, or damaged or cut short") from error
    if not isinstance(header, dict):
        raise InputError(f"{path}: not a hogwild {kind} but a safetensors file of something else")
    if text != _sealed("{" + text[len(_sealed("{", {})) :], arrays):
        raise InputError(f"{path}: damaged: its contents do not match their checksum")
    del header["sha256"]
    stored, schema = header.pop("kind"), header.pop("schema")
    if (stored, schema) != (kind, SCHEMA[kind]):
        hint = ": continue it with --resume" if stored == CHECKPOINT != kind else ""
        wanted = f"expected a {kind} of format {SCHEMA[kind]}"
        raise InputError(f"{path}: a {stored} of format {schema}, {wanted}{hint}")
    return arrays, header


def _sealed(text: str, arrays: dict[str, np.ndarray]) -> str:
    """The JSON object ``text`` with a first item added: SHA-256 over it and each array, name and shape included."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return f'{{"sha256": "{digest.hexdigest()}", {text[1:]}'


def write_atomically(path: Path, content: bytes) -> None:
    """Put all of ``content`` at ``path``, as :func:`replacing` does."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """Yield a stream whose content lies at ``path`` once it is complete and on disk; a symbolic link is followed.

    Raises
    ------
    OutputError
        The previous content is then untouched.
    """
    try:
        target = Path(os.path.realpath(path))
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is a directory" if stat.S_ISDIR(mode) else "not a regular file")
        if mode is not None and not os.access(target, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))  # a rename would circumvent the protection
        temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.tmp")
        try:
            with open(temporary, "xb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:  # including Ctrl-C
            temporary.unlink(missing_ok=True)
            raise
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error


def package_version() -> str:
    return str(sys.modules[__name__.partition(".")[0]].__version__)  # the package is loaded: this module is in it


def outcome(history: list[dict[str, Any]]) -> str:
    """``, epoch 3, objective 0.2046``: where training ended, for a model's line; nothing if there is no history."""
    last = history[-1] if history else {}
    kept = next((row for row in history if row.get("epoch") == last.get("kept_epoch")), last)
    objective = kept.get("objective")
    return f", epoch {kept.get('epoch')}, objective {objective:.6g}" if isinstance(objective, float) else ""


@contextlib.contextmanager
def usable(where: str | Path) -> Iterator[None]:
    """Within this block, what a model file lacks or holds amiss becomes one line that begins with ``where``."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:  # InputError, too
        raise InputError(f"{where}: not a usable hogwild model: {reason_of(error)}") from error
