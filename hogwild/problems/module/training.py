"""``train_module``: any ``torch.nn.Module`` on every core at once, without locks.

The returned run is like that of ``hogwild.train``: rows, checkpoints, stopping, Ctrl-C and all. The two differ in the
default host. A step of a module is Python, for which threads pass the interpreter's lock back and forth; torch releases
it while it computes. On two cores two threads did 0.9 times the samples of two processes on a network of dense layers,
and 0.5 times, less than one worker alone, on an embedding of sparse rows, whose steps are short. So more than one
worker means processes, unless threads are requested.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import nn

from hogwild.config import TrainConfig
from hogwild.errors import UsageError
from hogwild.hosts import fork_server
from hogwild.hosts.pool import Pool
from hogwild.problems.module.case import LOSSES, Posed
from hogwild.problems.module.feed import Examples, take_data
from hogwild.training.run import Run, begin

if TYPE_CHECKING:
    from hogwild.config import ModuleOptions
    from hogwild.machines.cluster import Cluster
    from hogwild.problems.module.model import ModuleModel


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
    cluster: Cluster | None = None,
    **options: Unpack[ModuleOptions],
) -> Run[ModuleModel]:
    """Train a module on all cores without locks.

    Parameters
    ----------
    model : nn.Module or function
        A module with float32 parameters on the CPU, or a function that makes it, which is called under torch's seed
        ``seed``. The given module is left as it is; ``run.model.into(model)`` copies the result to it. Parameters
        without ``requires_grad`` are not touched, tied ones stay tied. Buffers (batch norm's) are each worker's own;
        the model has those of the first worker.
    loss : str or function
        ``cross-entropy``, ``mse``, ``bce`` (with logits), or ``loss(output, target)``: the batch's mean.
    data : (X, y) or Rows
        Tensors or arrays, several inputs as ``(X1, X2, y)``, or a TensorDataset; float64 becomes float32. ``Rows``, or
        a scipy matrix as ``X``: the module is given ``(indices, offsets, per_sample_weights)``, the arguments of
        ``nn.EmbeddingBag``; labels of Rows are numbered for cross-entropy and bce.
    test : the same, optional
        Evaluated after every epoch; never trained on.
    checkpoint, resume, pool :
        As in :func:`hogwild.train`. A checkpoint of several workers can be continued only by the same number.
    name : str
        Name of the data in the rows of measurements.
    cluster : Cluster, optional
        Machines that train together, as in :func:`hogwild.train`. They trade the parameters; the optimiser's state and
        the buffers are each machine's own, and the model's buffers are those of machine 0. Where machines have GPUs, or
        should wait for each other at each step, torch's ``DistributedDataParallel`` is the better tool.
    **options
        Options of :class:`hogwild.TrainConfig`, among them ``optimizer``, ``batch`` and ``momentum``,
        which only modules have. The disciplines are ``serial``, ``hogwild``, ``atomic`` and ``locked``,
        which is one lock around a whole step.

    Raises
    ------
    UsageError, InputError
        If an option, the module or the data cannot be used; one line, before any worker is started: the first minibatch
        is tried out.

    See Also
    --------
    ModuleModel : what the run ends with.

    Examples
    --------
    >>> import hogwild, torch
    >>> X, y = torch.rand(64, 4), torch.randint(0, 2, (64,))
    >>> run = hogwild.train_module(torch.nn.Linear(4, 2), "cross-entropy", (X, y), epochs=2, workers=1)
    >>> [row["epoch"] for row in run]
    [0, 1, 2]
    """
    met = {} if cluster is None else {"machines": cluster.machines}
    config = TrainConfig(problem="module", loss=_name_of(loss), **options, **met)
    posed, tested = pose(model, loss, data, test, config.seed)
    return begin(posed, tested, None, config, checkpoint, resume, pool, name, cluster)


def pose(
    model: nn.Module | Callable[[], nn.Module],
    loss: str | Callable[..., torch.Tensor],
    data: Any,
    test: Any = None,
    seed: int = 0,
) -> tuple[Posed, Examples | None]:
    """Pose a module on its data and test data, for training or a comparison.

    The parameters are those of :func:`train_module`; a function is called under torch's seed ``seed`` to make the
    module.

    Raises
    ------
    UsageError, InputError
        If an argument is not a module, a loss or data.
    """
    fork_server.preload("hogwild.problems.module.problem")  # otherwise every worker would import torch

    named = _name_of(loss)
    module = _module(model, seed)
    examples = take_data(data, named)
    tested = None if test is None else take_data(test, named, examples)
    return Posed(module, LOSSES[loss] if isinstance(loss, str) else loss, examples, named), tested


def _name_of(loss: Any) -> str:
    """The loss's name in a config."""
    if isinstance(loss, str) and loss not in LOSSES:
        raise UsageError(f"loss={loss!r}: expected one of {', '.join(LOSSES)}, or a function")
    if not callable(loss) and not isinstance(loss, str):
        raise UsageError(f"loss: expected a name or a function of (output, target), got {type(loss).__name__}")
    return loss if isinstance(loss, str) else "custom"


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
