"""What a model of any problem says of the run that made it, and how that and the model itself go to a file and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hogwild.errors import UsageError
from hogwild.model_file import package_version, save_model


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedModel:
    """The part that all models have.

    Attributes
    ----------
    config : dict
        Options of the run that made it.
    fingerprint : str
        Fingerprint of the training data.
    history : list of dict
        The last rows of measurements of that run.
    version : str
        Version of the package that made it.
    """

    config: dict[str, Any] = field(default_factory=dict, repr=False)
    fingerprint: str = ""
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)
    version: str = field(default_factory=package_version)

    def save(self, path: str | Path) -> None:
        """Write a model file (:func:`hogwild.model_file.save_model`)."""
        save_model(self, path)

    def predict_one(self, row: Any) -> Any:
        """Answer for one row; models that have no rows to predict refuse."""
        raise UsageError(f"predict_one needs a model of rows or ratings; got {type(self).__name__}: it predicts no row")

    def origin(self) -> dict[str, Any]:
        """These facts, as the header of a model file has them."""
        return {name: getattr(self, name) for name in ("config", "fingerprint", "version", "history")}


def origin_in(header: dict[str, Any]) -> dict[str, Any]:
    """The facts of :meth:`TrainedModel.origin` in a model file's header."""
    return {
        "config": dict(header["config"]),
        "fingerprint": str(header["fingerprint"]),
        "version": str(header["version"]),
        "history": [dict(row) for row in header["history"]],
    }
