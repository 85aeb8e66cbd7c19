"""A trained module: what ``run.model`` holds and ``hogwild.load`` returns for the problem ``module``.

A file holds the state, not the module. It is a safetensors file of the ``state_dict`` that other tools can read, and
opening it runs none of the user's code; to get the module, make it anew and put the state :meth:`ModuleModel.into` it.
Tied weights are kept once, under their first name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.errors import InputError, UsageError
from hogwild.model_file import outcome, usable
from hogwild.problems.trained import TrainedModel, origin_in

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class ModuleModel(TrainedModel):
    """The state of a module after training.

    Attributes
    ----------
    arrays : dict of str to array
        Arrays by their names in the ``state_dict``, each once; read-only.
    tied : dict of str to str
        Names in the ``state_dict`` that stand for an array of another name.
    names : list of str
        All names, in the order of the ``state_dict``.
    config, fingerprint, history, version :
        As in :class:`hogwild.problems.trained.TrainedModel`.

    See Also
    --------
    train_module : makes one.

    Examples
    --------
    >>> import hogwild, torch
    >>> module = torch.nn.Linear(4, 2)
    >>> X, y = torch.rand(64, 4), torch.randint(0, 2, (64,))
    >>> model = hogwild.train_module(module, "cross-entropy", (X, y), epochs=1, workers=1).finish()
    >>> model.into(module) is module
    True
    """

    arrays: dict[str, np.ndarray]
    tied: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    _module: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for array in self.arrays.values():
            array.flags.writeable = False

    def __repr__(self) -> str:
        count = sum(array.size for array in self.arrays.values())
        return f"<ModuleModel: {count:,} parameters in {len(self.arrays)} arrays{outcome(self.history)}>"

    @classmethod
    def of(cls, module: nn.Module, **origin: Any) -> ModuleModel:
        """The model of ``module``, which is kept, not copied; ``origin`` is config, fingerprint and history."""
        import torch

        arrays: dict[str, np.ndarray] = {}
        tied: dict[str, str] = {}
        names: list[str] = []
        seen: dict[int, str] = {}  # names by the id of their tensor
        for name, tensor in module.state_dict(keep_vars=True).items():
            if not isinstance(tensor, torch.Tensor):
                continue  # a module's extra state, which only the module can read
            names.append(name)
            if id(tensor) in seen:
                tied[name] = seen[id(tensor)]
                continue
            seen[id(tensor)] = name
            arrays[name] = tensor.detach().numpy().copy()
        return cls(arrays, tied, names, _module=module, **origin)

    @property
    def module(self) -> nn.Module:
        """The trained module itself, in evaluation mode.

        Raises
        ------
        UsageError
            If the model comes from a file, which holds the state only.
        """
        if self._module is None:
            raise UsageError("the file holds the state and no module: make the module and call model.into(module)")
        trained: nn.Module = self._module
        return trained

    def state_dict(self) -> dict[str, Tensor]:
        """The state as torch has it, copied."""
        import torch

        state = {name: torch.from_numpy(array.copy()) for name, array in self.arrays.items()}
        return {name: state[self.tied.get(name, name)] for name in self.names}

    def into(self, module: nn.Module) -> nn.Module:
        """Put the state into a module of the same kind, and return it.

        Raises
        ------
        InputError
            If names or shapes differ; one line.
        """
        try:
            module.load_state_dict(self.state_dict())
        except (RuntimeError, AttributeError) as error:
            raise InputError(f"the model is of another module: {' '.join(str(error).split())[:400]}") from error
        return module

    def to_file(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """``(arrays, header)`` of a model file."""
        header = {
            "problem": "module",
            "parameters": sum(array.size for array in self.arrays.values()),
            "dtypes": {},  # what earlier versions look for
            "tied": self.tied,
            "names": self.names,
            **self.origin(),
        }
        return self.arrays, header

    @classmethod
    def from_file(cls, arrays: dict[str, np.ndarray], header: dict[str, Any], where: str | Path) -> ModuleModel:
        """Restore the model that :meth:`to_file` converted.

        Raises
        ------
        InputError
            If something is missing or does not fit; the message names ``where``.
        """
        with usable(where):
            tied = {str(name): str(first) for name, first in header["tied"].items()}
            names = [str(name) for name in header["names"]]
            lacking = sorted({tied.get(name, name) for name in names} - set(arrays))
            if lacking:
                raise InputError(f"no array {lacking[0]}")
            return cls(arrays, tied, names, **origin_in(header))
