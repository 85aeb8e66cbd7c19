"""``train_module``: any ``torch.nn.Module`` on every core at once, without locks.

The run that it returns is the one that ``hogwild.train`` returns: rows, checkpoints, stopping, Ctrl-C and all. The one
decision is the host. A step of a module is Python, for which threads hand one another the interpreter's lock; torch
gives it back while it computes. On two cores two threads did 0.9 times the samples of two processes on a network of
dense layers, and 0.5 times, less than one worker alone, on an embedding of sparse rows, whose steps are short. So more
than one worker means processes, unless threads are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import nn

from hogwild import machine
from hogwild.cases.module import LOSSES, NamedLoss, Posed
from hogwild.config import TrainConfig
from hogwild.errors import InputError, UsageError
from hogwild.hosts import fork_server
from hogwild.hosts.job import Pool
from hogwild.model_file import has_checkpoint, load_checkpoint
from hogwild.problems.module_data import Examples, take_data
from hogwild.training import Run, resolve

if TYPE_CHECKING:
    from hogwild.module_model import ModuleModel
    from hogwild.options import ModuleOptions


def train_module(
    model: nn.Module | Callable[[], nn.Module],
    loss: str | Callable[..., torch.Tensor],
    data: Any,
    test: Any = None,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    pool: Pool | None = None,
    name: str = "",
    **options: Unpack[ModuleOptions],
) -> Run[ModuleModel]:
    """Train a module on all cores without locks.

    Parameters
    ----------
    model : nn.Module or function
        With float32 parameters on the CPU; it is left as it is, and ``run.model.into(model)`` puts the result there. Of
        a function the module it makes, under torch's seed ``seed``. Parameters without ``requires_grad`` are not
        touched, tied ones stay tied. Buffers (batch norm's) are each worker's own; the model's are their mean over the
        workers, and the field ``buffer_spread`` of a row tells how far apart they were.
    loss : str or function
        ``cross-entropy``, ``mse``, ``bce`` (with logits), or ``loss(output, target)``: the batch's mean.
    data : (X, y), Rows, Dataset or function
        Tensors or arrays, several inputs as ``(X1, X2, y)``; float64 becomes float32. ``Rows``, or a scipy matrix as
        ``X``: the module is given ``(indices, offsets, per_sample_weights)``, as ``nn.EmbeddingBag`` takes them; labels
        of Rows are numbered for cross-entropy and bce. A Dataset of items ``(x, y)``, or a DataLoader or a function
        that makes one, of which the dataset and the ``collate_fn`` count: batches and their order are ours.
    test : the same, optional
        Evaluated after every epoch; never trained on.
    checkpoint, resume, pool :
        As of :func:`hogwild.train`. Of several workers only as many can go on from a checkpoint as wrote it.
    name : str
        Name of the data in the rows of measurements.
    **options
        Those of ``TrainConfig``: ``workers``, ``discipline`` ("auto", "serial", "hogwild", "atomic", "locked": one lock
        around a whole step), ``host``, ``epochs``, ``seed``, ``step``, ``schedule``, ``order``, ``patience``,
        ``target``, ``average``, ... and:

        optimizer : "sgd", "momentum", "adagrad" or "adam"
            As ``torch.optim`` has them. Of a sparse gradient (``nn.EmbeddingBag(sparse=True)``) only the rows that a
            minibatch names are read and written; momentum then decays only with them, as in ``SparseAdam``.
        state : "local" or "shared"
            Whether each worker has an optimiser's state to itself, or all race on one.
        batch : int
            Examples in a minibatch. ``step`` is for its mean gradient; None takes 0.1 for sgd, 0.01 for momentum and
            adagrad, 0.001 for adam.
        momentum, betas : float, pair of float
            Of "momentum", and of "adam".

    Raises
    ------
    UsageError, InputError
        One line, before anything is started: the first minibatch is tried out.
    """
    named = _name_of(loss)
    config = TrainConfig.from_json(_with_host(options, pool) | {"problem": "module", "loss": named})
    posed, tested = pose(model, loss, data, test, config.seed)
    if resume and checkpoint is not None:
        _check_workers(Path(checkpoint), resolve(config, len(posed), pool).workers)
    return Run(posed, tested, config, checkpoint, resume, pool, name)


def pose(
    model: nn.Module | Callable[[], nn.Module],
    loss: str | Callable[..., torch.Tensor],
    data: Any,
    test: Any = None,
    seed: int = 0,
) -> tuple[Posed, Examples | None]:
    """A module on its data, and what to test on: what is trained, and what a comparison is of.

    The parameters are those of :func:`train_module`; of a function the module it makes under torch's seed ``seed``.

    Raises
    ------
    UsageError, InputError
        For what is no module, no loss or no data.
    """
    fork_server.preload("hogwild.problems.module")  # else every worker imports torch
    named = _name_of(loss)
    module = _module(model, seed)
    examples = take_data(data, named)
    tested = None if test is None else take_data(test, named, examples)
    factory = None if isinstance(model, nn.Module) else model
    return Posed(module, NamedLoss(loss) if isinstance(loss, str) else loss, examples, factory), tested


def _name_of(loss: Any) -> str:
    """The loss in a config."""
    if isinstance(loss, str) and loss not in LOSSES:
        raise UsageError(f"loss={loss!r}: expected one of {', '.join(LOSSES)}, or a function")
    if not callable(loss) and not isinstance(loss, str):
        raise UsageError(f"loss: expected a name or a function of (output, target), got {type(loss).__name__}")
    return loss if isinstance(loss, str) else "custom"


def _with_host(options: Mapping[str, Any], pool: Pool | None) -> dict[str, Any]:
    """The options with the host filled in."""
    if unknown := sorted({"problem"} & set(options)):
        raise UsageError(f"unknown option {unknown[0]}: train_module has one problem")
    if options.get("host") is not None or options.get("device") == "cuda" or pool is not None:
        return {key: value for key, value in options.items() if key != "host" or value is not None}
    serial = options.get("discipline") == "serial"
    workers = options.get("workers") or (1 if serial else machine.physical_cores())
    return {**options, "host": "threads" if workers == 1 else "processes"}


def _module(model: Any, seed: int) -> nn.Module:
    if isinstance(model, nn.Module):
        return model
    if not callable(model):
        raise UsageError(f"model: expected an nn.Module or a function that makes one, got {type(model).__name__}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = model()
    if not isinstance(made, nn.Module):
        raise UsageError(f"model: the function returned {type(made).__name__}, expected an nn.Module")
    return made


def _check_workers(directory: Path, asked: int | None) -> None:
    """Refuse to go on with another number of workers, each of which has something of its own in the checkpoint."""
    if not has_checkpoint(directory):
        return
    header = load_checkpoint(directory)[1]
    workers = header.get("history", [{}])[-1].get("workers") if header.get("problem") == "module" else None
    if workers is not None and asked != workers:
        raise InputError(
            f"{directory}: cannot resume with {asked} workers: the {workers} of before each have buffers and optimiser "
            f"state of their own that go on: give workers={workers} (--workers {workers})"
        )
