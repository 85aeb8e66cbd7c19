"""Any ``torch.nn.Module`` on a device: replicas on streams that race on one flat array, with a CUDA graph per step.

A step is dozens of small kernels, which Python and torch launch at a fifth of the rate at which the device could run
them. So each replica's step is captured once and then replayed, on its own stream and in its own memory pool. Capturing
runs the step a few times without effect: what it writes, including the parameters, is copied before and restored after
it on the same stream, and the replica is not returned before the device has reached that point.

A short minibatch runs without a graph, and so do all of sparse rows. What else cannot be captured is refused, and
``launch="eager"`` asked for. Noise (dropout) comes from the device's own generator, which replays advance too: such
runs are not reproducible, and before torch 2.13, whose graphs share the generator's position, replicas may draw the
same numbers, of which a warning tells.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream
from hogwild.cuda.module.replica import DeviceReplica, of_arrays, of_rows
from hogwild.cuda.work import Launcher, Segment
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildWarning, UsageError
from hogwild.problems.module.layout import unpack
from hogwild.problems.module.problem import ModuleProblem, describe

OWN_NOISE = (2, 13)  # from this version of torch on each graph has a position of its own in the generator


class ModuleLauncher(Launcher):
    """See :class:`hogwild.cuda.work.Launcher`.

    Parameters
    ----------
    batch : int
        Rows of a minibatch; at most the number of rows.
    launch : str
        "graphs"; or "eager", each kernel by itself.

    Raises
    ------
    UsageError
        If the data cannot be trained on a device, with the reason.
    """

    problem: ModuleProblem

    def __init__(
        self,
        problem: ModuleProblem,
        arrays: Mapping[str, np.ndarray],
        backend: Backend,
        *,
        batch: int,
        launch: str = "graphs",
    ) -> None:
        if problem.kind == "items":
            raise UsageError(
                "device cuda: a Dataset is fetched item by item, on the CPU: give tensors or arrays (X, y), or Rows"
            )
        self.problem, self.backend, self.granule = problem, backend, batch
        self.arrays = {name: array for name, array in arrays.items() if name.startswith(("input", "target"))}
        if problem.kind == "sparse":
            ends = arrays["begin"], arrays["end"]
            self.rows = Rows(ends, arrays["indices"], arrays["values"], np.empty(0), 0, check=False)
        self._graphs = launch != "eager" and self.rows is None and batch <= len(arrays["target"])
        if self._graphs and problem.layout.workers > 1:
            warn_of_noise(problem)
        # by a copy, which waits: other streams would not wait for zeros set on the default stream
        self.flat = torch.zeros(problem.size).to(backend.device)

    def room(self) -> int:
        return self.granule * self.problem.layout.workers

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Segment], None]:
        """Return a function that runs a segment for one replica; makes its module and captures its step."""
        minibatch = of_arrays if self.rows is None else of_rows
        replica = DeviceReplica(self.problem, self.flat, number, self.granule, minibatch)
        stream.run(replica.begin)
        if self._graphs:
            some = self.part(0, self.granule)
            stream.run(lambda: replica.prepare(some))
            try:
                replica.replay = stream.capture(replica.step)
            except RuntimeError as error:
                raise UsageError(
                    f"the module's step cannot be captured as a CUDA graph ({describe(error)}): give launch='eager', "
                    "which runs several times slower"
                ) from error
            stream.run(replica.restore)
        stream.record().synchronize()
        return replica


def warn_of_noise(problem: ModuleProblem) -> None:
    """Warn if replicas of this module may drop out the same numbers, with this version of torch."""
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= OWN_NOISE:
        return
    model, _ = unpack(problem.program, problem.layout, np.zeros(problem.size, np.float32))
    for module in model.modules():
        share = module.p if isinstance(module, torch.nn.modules.dropout._DropoutNd) else vars(module).get("dropout", 0)
        if isinstance(share, float) and share > 0:
            what = (
                f"{type(module).__name__}: with torch {torch.__version__} several replicas' graphs share one position "
                "in the random numbers, and may drop out the same: use torch 2.13 or later, or launch='eager'"
            )
            warnings.warn(what, HogwildWarning, stacklevel=4)
            return
