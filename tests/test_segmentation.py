"""What is left of a cut: labels, files of them, and model files."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.data.graphs.source import open_graph
from hogwild.data.ids import Ids
from hogwild.errors import InputError, OutputError, UsageError
from hogwild.model_file import load_model
from hogwild.problems.cuts.model import Segmentation
from hogwild.problems.cuts.objective import CutEvaluator


def shares(n, labels, seed=0):
    """Rows of the simplex as problems make them: of two labels, the first is what the second leaves."""
    x = np.random.default_rng(seed).dirichlet(np.ones(labels), size=n).astype(np.float32)
    return np.column_stack((1 - x[:, 1], x[:, 1])) if labels == 2 else x


def of_grid(labels=2, names=False, **more):
    side = 6
    graph = open_graph(f"synthetic:grid?side={side}&labels={labels}")
    if names:
        graph.ids = Ids([f"v{i}" for i in range(graph.n_vertices)])
        graph.label_ids = Ids([f"l{i}" for i in range(labels)])
    return graph, Segmentation.of(graph, shares(graph.n_vertices, labels), **more)


@pytest.mark.parametrize("labels", [2, 4])
def test_labels_and_values(labels):
    graph, found = of_grid(labels, fingerprint="f")
    np.testing.assert_array_equal(found.labels, found.x.argmax(axis=1))
    assert found.labels.dtype == np.int32
    facts = CutEvaluator(graph)(found.x)
    assert (found.objective, found.cut_value) == (facts["objective"], facts["cut_value"])
    assert found.energy == found.cut_value + graph.offset
    assert found.grid().shape == (6, 6)
    assert len(found) == graph.n_vertices
    assert Segmentation(np.full((3, 2), 0.5), 0.0, 0.0).labels.tolist() == [0, 0, 0]  # ties go to the first
    with pytest.raises(ValueError, match="read-only"):
        found.labels[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        found.x[0] = 1
    with pytest.raises(UsageError, match="predict_one needs a model of rows or ratings; got Segmentation"):
        found.predict_one({})


@pytest.mark.parametrize(("labels", "names"), [(2, False), (3, True)])
def test_a_model_file_gives_back_all_of_it(tmp_path, labels, names):
    _, found = of_grid(labels, names=names, config={"step": 1.0}, fingerprint="f", history=[{"epoch": 1}])
    found.save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    np.testing.assert_array_equal(back.x, found.x)
    np.testing.assert_array_equal(back.labels, found.labels)
    for name in "objective cut_value offset shape ids label_ids config fingerprint history version".split():
        assert getattr(back, name) == getattr(found, name), name
    bare = Segmentation(shares(4, labels), 4.5, 5.25, history=[{"epoch": 2, "objective": 4.5}])
    assert repr(bare) == f"<Segmentation: 4 vertices, {labels} labels, cut value 5.25, epoch 2, objective 4.5>"
    arrays, header = bare.to_file()
    again = Segmentation.from_file(arrays, header, "x")
    assert (again.shape, again.ids) == (None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.ones(3)}, "x: expected shares of two or more labels"),
        ({"x": np.ones((3, 1))}, "x: expected shares of two or more labels"),
        ({"x": [[0, 1], [np.nan, 1]]}, "x: vertex 1 has a share that is not finite"),
        ({"shape": (3, 3)}, "a grid of \\(3, 3\\) needs as many vertices as points; got 4"),
        ({"ids": Ids(["a"])}, "ids: expected 4, got 1"),
    ],
)
def test_what_does_not_fit_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        Segmentation(**{"x": shares(4, 2), "objective": 0.0, "cut_value": 0.0} | given)


def test_labels_are_written(tmp_path):
    _, found = of_grid(3, names=True)
    found.save_labels(tmp_path / "a.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), found.grid())
    assert np.load(tmp_path / "a.npy").dtype == np.int32
    found.save_labels(tmp_path / "a.tsv")
    lines = (tmp_path / "a.tsv").read_text().splitlines()
    assert lines[:2] == [f"v{i}\tl{found.labels[i]}" for i in range(2)]
    assert len(lines) == len(found)
    bare = Segmentation(shares(4, 2), 0.0, 0.0)
    bare.save_labels(tmp_path / "b.npy")
    assert np.load(tmp_path / "b.npy").shape == (4,)
    bare.save_labels(tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text().splitlines()[3] == f"3\t{bare.labels[3]}"
    with pytest.raises(UsageError, match="c.png: labels are written to .npy, .tsv or .txt, not .png"):
        bare.save_labels(tmp_path / "c.png")
    with pytest.raises(OutputError, match="none/a.npy: cannot be written"):
        bare.save_labels(tmp_path / "none" / "a.npy")


def test_labels_by_name():
    _, found = of_grid(3, names=True)
    assert found.label_of(["v3", "v0"]).tolist() == [f"l{found.labels[3]}", f"l{found.labels[0]}"]
    with pytest.raises(InputError, match="no vertex is called v99"):
        found.label_of(["v99"])
    bare = Segmentation(shares(4, 2), 0.0, 0.0)
    assert bare.label_of(3).tolist() == [bare.labels[3]]
    for wrong in ([0, 4], [2**70]):
        with pytest.raises(InputError, match=f"no vertex is called {wrong[-1]}"):
            bare.label_of(wrong)
    for wrong in (["a"], [0.5], [True]):
        with pytest.raises(UsageError, match="by number"):
            bare.label_of(wrong)
    with pytest.raises(UsageError, match="the graph is no grid"):
        bare.grid()
