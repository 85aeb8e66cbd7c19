"""The layout of a module in the one flat array, and its transfer to workers without its parameters.

    | parameters | of worker 0: its buffers and optimiser state | of worker 1 | ...

Every array starts on a cache line. Each worker's own data lie in the flat array too, in a slot for each. So a
checkpoint of the flat array is complete, the replacement of a killed worker continues with its state, and the parent
can read the buffers (batch norm's running means) that each worker keeps for itself. A buffer of any type lies there
byte for byte: slots are never averaged.

A module is pickled once, without its parameters: a worker puts views of the flat array in their places, and a parameter
that occurs twice (tied weights) is one object there as well. Classes and functions of the user's main script are
pickled by value (cloudpickle), since a worker does not import that script.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import cloudpickle
from torch import nn

from hogwild.errors import InputError, UsageError, reason_of
from hogwild.kernels.tiers import FLOATS
from hogwild.problems.module.kernel import KEPT

WORKED = FLOATS  # numbers at the start of a slot, of which the first says whether its worker has done anything


def padded(count: int) -> int:
    """Round ``count`` up to whole cache lines."""
    return -(-count // FLOATS) * FLOATS


class Place(NamedTuple):
    """One parameter."""

    name: str  # the first of its names
    shape: tuple[int, ...]
    begin: int  # in the flat array
    trained: bool  # else frozen: stored, but never written

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def end(self) -> int:
        return self.begin + self.size

    @property
    def dim(self) -> int:
        """Length of a row, the unit that an entry of a sparse gradient names."""
        return int(np.prod(self.shape[1:], dtype=np.int64))


class Buffer(NamedTuple):
    """One buffer, and the float32 numbers that its bytes take the place of."""

    shape: torch.Size
    kind: torch.dtype
    begin: int  # among the buffers

    @property
    def end(self) -> int:
        return self.begin + padded(-(-self.shape.numel() * self.kind.itemsize // 4))


class Trained(NamedTuple):
    """One trained parameter and the optimiser's state for it, as views of the flat array or tensor."""

    place: Place
    weights: Any  # (size,)
    first: Any  # (size,), or empty
    second: Any  # (size,), or empty
    counts: Any  # (1,), or empty


@dataclass(frozen=True)
class Layout:
    """Positions of all parts in the flat array; made by :meth:`of`."""

    places: tuple[Place, ...]
    buffers: tuple[Buffer, ...]
    rule: str  # one of kernel.RULES
    workers: int

    @classmethod
    def of(cls, model: nn.Module, rule: str, workers: int) -> Layout:
        """The layout of ``model`` for ``workers`` workers.

        Raises
        ------
        InputError
            If a parameter or buffer cannot be trained here; the message names it.
        """
        places, begin = [], 0
        for name, parameter in model.named_parameters():
            if parameter.device.type != "cpu" or parameter.dtype != torch.float32:
                raise InputError(
                    f"parameter {name} needs float32 on the CPU; got {parameter.dtype} on {parameter.device}: use "
                    "model.float().cpu()"
                )
            places.append(Place(name, tuple(parameter.shape), begin, parameter.requires_grad))
            begin += padded(places[-1].size)
        if not any(place.trained and place.size for place in places):
            raise InputError("the model has no parameters to train: expected one that requires a gradient")
        buffers, begin = [], 0
        for buffer in model.buffers():
            buffers.append(Buffer(buffer.shape, buffer.dtype, begin))
            begin = buffers[-1].end
        return cls(tuple(places), tuple(buffers), rule, workers)

    @property
    def parameters_size(self) -> int:
        return self.places[-1].begin + padded(self.places[-1].size)

    @property
    def buffers_size(self) -> int:
        return self.buffers[-1].end if self.buffers else 0

    @property
    def slot_size(self) -> int:
        """Length of one worker's slot."""
        kept = KEPT[self.rule]
        states = sum(kept * padded(place.size) + padded(kept > 0) for place in self.places if place.trained)
        return WORKED + self.buffers_size + states

    @property
    def size(self) -> int:
        return self.parameters_size + self.workers * self.slot_size

    def slot(self, flat: Any, worker: int) -> Any:
        """The slot of one worker, a view of the array or tensor."""
        begin = self.size - (self.workers - worker) * self.slot_size
        return flat[begin : begin + self.slot_size]

    def slot_buffers(self, slot: Any) -> Any:
        return slot[WORKED : WORKED + self.buffers_size]

    def trained(self, flat: Any, area: Any) -> list[Trained]:
        """The trained parameters in order, with the optimiser's state in a worker's slot ``area``."""
        begin = WORKED + self.buffers_size

        def take(size: int) -> Any:
            nonlocal begin
            first, begin = begin, begin + padded(size)
            return area[first : first + size]

        kept = KEPT[self.rule]
        return [
            Trained(
                place,
                flat[place.begin : place.end],
                take(place.size if kept > 0 else 0),
                take(place.size if kept > 1 else 0),
                take(int(kept > 0)),
            )
            for place in self.places
            if place.trained
        ]

    def views(self, flat: Any) -> list[torch.Tensor]:
        """The parameters as tensors that share memory with ``flat``, an array or a tensor, but no version counter."""
        array = torch.as_tensor(flat)
        return [array[p.begin : p.end].view(p.shape).data for p in self.places]

    def read_buffers(self, model: nn.Module, numbers: Any) -> None:
        """Write the model's buffers to ``numbers`` (buffers_size,) float32, an array, or a tensor on their device."""
        if self.buffers:
            torch._foreach_copy_(self._buffers_in(numbers), [buffer.detach() for buffer in self._buffers_of(model)])

    def write_buffers(self, model: nn.Module, numbers: Any) -> None:
        """Set the model's buffers, in place, to what :meth:`read_buffers` wrote."""
        if self.buffers:
            with torch.no_grad():
                torch._foreach_copy_(self._buffers_of(model), self._buffers_in(numbers))

    def _buffers_of(self, model: nn.Module) -> list[torch.Tensor]:
        """The buffers that have a place; a module that has put tensors in their places may have more."""
        return [*model.buffers()][: len(self.buffers)]

    def _buffers_in(self, numbers: Any) -> list[torch.Tensor]:
        """Views of the numbers as buffers."""
        array = torch.as_tensor(numbers)
        each = [(array[one.begin : one.end].view(one.kind), one.shape) for one in self.buffers]
        return [part[: shape.numel()].view(shape) for part, shape in each]

    def model_buffers(self, flat: np.ndarray) -> np.ndarray:
        """The buffers of the model as a whole: those of the first worker that has done something."""
        slots = [self.slot(flat, worker) for worker in range(self.workers)]
        return self.slot_buffers(next((slot for slot in slots if slot[0]), slots[0])).copy()


# ---- a module without its parameters


class _Packer(cloudpickle.Pickler):
    def __init__(self, file: Any, numbers: dict[int, int]) -> None:
        super().__init__(file)
        self._numbers = numbers  # numbers of parameters by the id of their object

    def persistent_id(self, thing: Any) -> int | None:
        return self._numbers.get(id(thing)) if isinstance(thing, nn.Parameter) else None


class _Unpacker(pickle.Unpickler):
    """Puts parameters in their places, and all other packed tensors on a device."""

    def __init__(self, file: Any, parameters: Sequence[nn.Parameter], device: torch.device) -> None:
        super().__init__(file)
        self._parameters, self._device = parameters, device

    def persistent_load(self, number: int) -> nn.Parameter:
        return self._parameters[number]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return partial(_load, device=self._device)
        return super().find_class(module, name)


def _load(data: bytes, device: torch.device) -> Any:
    """Load a tensor's storage as torch pickles it."""
    return torch.load(io.BytesIO(data), map_location=device, weights_only=False)


def pack(model: nn.Module, loss: Any) -> bytes:
    """Pickle model and loss without the model's parameters.

    Raises
    ------
    UsageError
        If they cannot be pickled.
    """
    file = io.BytesIO()
    try:
        _Packer(file, {id(p): number for number, p in enumerate(model.parameters())}).dump((model, loss))
    except Exception as error:  # pickling runs the user's code
        raise UsageError(f"the model or the loss cannot be sent to workers: {reason_of(error)}") from error
    return file.getvalue()


def unpack(program: bytes, layout: Layout, flat: Any) -> tuple[nn.Module, Any]:
    """Restore a separate model and the loss, with the parameters in ``flat``: an array, or a tensor on any device."""
    views = layout.views(flat)
    parameters = [nn.Parameter(view, place.trained) for view, place in zip(views, layout.places)]
    model, loss = _Unpacker(io.BytesIO(program), parameters, views[0].device).load()
    return model, loss
