"""A cut graph: what ``run.model`` holds and ``hogwild.load`` returns for the problem ``cuts``.

The labels are the largest shares, ``x.argmax``, and the values before and after that rounding are both kept: the first
is what was minimised and the second what the user gets. The model is immutable and consists of plain arrays and facts
that do not depend on how it was trained, like a linear model. A file holds the shares; for two labels, those of the
second only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.graphs.container import Graph
from hogwild.data.ids import Ids
from hogwild.errors import InputError, UsageError
from hogwild.model_file import outcome, usable, write_atomically
from hogwild.problems.cuts.objective import CutEvaluator
from hogwild.problems.trained import TrainedModel, origin_in

TEXT = (".tsv", ".txt")


@dataclass(frozen=True, eq=False)
class Segmentation(TrainedModel):
    """Labels of the vertices of a graph, and the relaxed labels from which they were rounded.

    Attributes
    ----------
    x : array of float32, shape (n, D)
        Each vertex's shares of the labels, a row of the simplex.
    objective, cut_value : float
        Value of the relaxed cut, and of the rounded one.
    offset : float
        The energy that the graph represents is ``cut_value + offset``.
    shape : tuple of int, optional
        Shape of the grid that the first vertices form.
    ids, label_ids : Ids, optional
        Names of vertices and labels, if these are not their numbers.
    config, fingerprint, history, version :
        As in :class:`hogwild.problems.trained.TrainedModel`.
    labels : array of int32, shape (n,)
        The label with the largest share; ties go to the first.

    See Also
    --------
    Graph : what is cut.

    Examples
    --------
    >>> import hogwild
    >>> graph = hogwild.open_graph("synthetic:grid?side=8")
    >>> cut = hogwild.train(graph, problem="cuts", workers=1).finish()
    >>> cut.grid().shape
    (8, 8)
    """

    x: np.ndarray
    objective: float
    cut_value: float
    offset: float = 0.0
    shape: tuple[int, ...] | None = None
    ids: Ids | None = None
    label_ids: Ids | None = None
    labels: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        x = np.array(self.x, dtype=np.float32, order="C")
        if x.ndim != 2 or x.shape[1] < 2:
            raise InputError(f"x: expected shares of two or more labels for each vertex, got shape {x.shape}")
        if not np.isfinite(x).all():
            raise InputError(f"x: vertex {int(np.argmin(np.isfinite(x).all(axis=1)))} has a share that is not finite")
        shape = None if self.shape is None else tuple(int(side) for side in self.shape)
        if shape is not None and not 0 < int(np.prod(shape)) <= len(x):
            raise InputError(f"a grid of {shape} needs as many vertices as points; got {len(x)} vertices")
        for name, ids, count in (("ids", self.ids, len(x)), ("label_ids", self.label_ids, x.shape[1])):
            if ids is not None and len(ids) != count:
                raise InputError(f"{name}: expected {count}, got {len(ids)}")
        labels = x.argmax(axis=1).astype(np.int32)
        for array in (x, labels):
            array.flags.writeable = False
        for name, value in {"x": x, "labels": labels, "shape": shape}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, graph: Graph, x: np.ndarray, **more: Any) -> Segmentation:
        """The segmentation of ``graph`` by shares ``x``, with values computed; ``more`` are config, fingerprint, ..."""
        facts = CutEvaluator(graph)(x)
        return cls(
            x,
            facts["objective"],
            facts["cut_value"],
            graph.offset,
            graph.shape,
            graph.ids,
            graph.label_ids,
            **more,
        )

    def __repr__(self) -> str:
        summary = f"{len(self):,} vertices, {self.n_labels} labels, cut value {self.cut_value:.6g}"
        return f"<Segmentation: {summary}{outcome(self.history)}>"

    def __len__(self) -> int:
        """Number of vertices."""
        return len(self.labels)

    @property
    def n_labels(self) -> int:
        """Number of labels to choose from."""
        return int(self.x.shape[1])

    @property
    def energy(self) -> float:
        """``cut_value + offset``: the objective of the labelling problem from which the graph was made."""
        return self.cut_value + self.offset

    def grid(self) -> np.ndarray:
        """The labels as a picture, (shape) int32.

        Raises
        ------
        UsageError
            If the graph is not a grid.
        """
        if self.shape is None:
            raise UsageError("the graph is no grid: its labels have no picture")
        return self.labels[: int(np.prod(self.shape))].reshape(self.shape)

    def label_of(self, vertices: Any) -> np.ndarray:
        """Labels of the vertices with these names, by the labels' names.

        Raises
        ------
        InputError
            If no vertex has one of the names.
        """
        vertices = np.atleast_1d(np.asarray(vertices))
        if self.ids is None and vertices.size and vertices.dtype.kind not in "iuO":
            raise UsageError("vertices of this graph have no names: ask for them by number, from 0")
        numbers = np.asarray(vertices if self.ids is None else self.ids.lookup(vertices))
        wrong = (numbers < 0) | (numbers >= len(self))
        if wrong.any():
            raise InputError(f"no vertex is called {vertices[wrong][0]!s}")
        labels = self.labels[numbers]
        return labels if self.label_ids is None else self.label_ids.names(labels)

    def save_labels(self, path: str | Path) -> None:
        """Write the labels: ``.npy``, int32, in the grid's shape if there is one; ``.tsv`` or ``.txt``, with names.

        Raises
        ------
        UsageError
            If the file name has another ending.
        OutputError
            If the file cannot be written; no partial file is left.
        """
        path = Path(path)
        if path.suffix == ".npy":
            out = BytesIO()
            np.save(out, self.labels if self.shape is None else self.grid(), allow_pickle=False)
            write_atomically(path, out.getvalue())
        elif path.suffix in TEXT:
            write_atomically(path, self.label_lines())
        else:
            raise UsageError(
                f"{path}: labels are written to .npy, {' or '.join(TEXT)}, not {path.suffix or 'no ending'}"
            )

    def label_lines(self) -> bytes:
        """Lines of a vertex's name and its label's, separated by a tab."""
        vertices = range(len(self)) if self.ids is None else self.ids.names()
        labels = self.labels if self.label_ids is None else self.label_ids.names(self.labels)
        return "".join(f"{vertex}\t{label}\n" for vertex, label in zip(vertices, labels)).encode()

    def to_file(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """``(arrays, header)`` of a model file."""
        arrays = {"x": self.x if self.n_labels > 2 else self.x[:, 1]}
        for name, ids in (("ids", self.ids), ("label_ids", self.label_ids)):
            if ids is not None:
                arrays |= ids.arrays(f"{name}.")
        header = {
            "problem": "cuts",
            "vertices": len(self),
            "labels": self.n_labels,
            "objective": self.objective,
            "cut_value": self.cut_value,
            "offset": self.offset,
            "shape": None if self.shape is None else [*self.shape],
            **self.origin(),
        }
        return arrays, header

    @classmethod
    def from_file(cls, arrays: dict[str, np.ndarray], header: dict[str, Any], where: str | Path) -> Segmentation:
        """Restore the model that :meth:`to_file` converted.

        Raises
        ------
        InputError
            If something is missing or does not fit; the message names ``where``.
        """
        with usable(where):
            x = arrays["x"]
            if x.ndim == 1:
                x = np.column_stack((1.0 - x, x))
            ids, label_ids = (Ids.from_arrays(arrays, f"{name}.") for name in ("ids", "label_ids"))
            shape = header["shape"]
            segmentation = cls(
                x,
                float(header["objective"]),
                float(header["cut_value"]),
                float(header["offset"]),
                None if shape is None else tuple(shape),
                ids,
                label_ids,
                **origin_in(header),
            )
            expected = int(header["vertices"]), int(header["labels"])
        if segmentation.x.shape != expected:
            raise InputError(
                f"{where}: damaged: holds shares of shape {segmentation.x.shape}, its header says {expected}"
            )
        return segmentation
