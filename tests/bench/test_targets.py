"""Lines of what is asked, from rows alone."""

from __future__ import annotations

from typing import Any

from hogwild.bench.targets import TARGETS, targets


def lines(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {line["target"]: line for line in targets(rows)}


def test_nothing_measured() -> None:
    found = lines([])
    assert len(found) == len(TARGETS)
    assert all(line["measured"] is None and line["met"] is None for line in found.values())


def kernel(family: str, loop: str, order: str, seconds: float) -> dict[str, Any]:
    return {"section": "kernel", "family": family, "loop": loop, "order": order, "seconds": seconds, "status": "ok"}


def test_ratios_of_kernels() -> None:
    rows = [
        kernel("rcv1", "kernel", "file", 1.0), kernel("rcv1", "kernel", "shuffled", 1.25),
        kernel("rcv1", "naive fastmath twin", "file", 2.0), kernel("ctr", "kernel with prefetch", "shuffled", 1.0),
        kernel("ctr", "kernel without prefetch", "shuffled", 1.2),
    ]  # fmt: skip
    found = {name: (line["measured"], line["met"]) for name, line in lines(rows).items() if line["met"] is not None}
    assert found == {
        "one worker against the fast-math twin, file order": (2.0, True),
        "one worker, shuffled against file order": (0.8, True),
        "2^24 weights: with weight prefetch against without, shuffled": (1.2, False),
    }


def test_a_faster_run_with_a_worse_objective_does_not_count() -> None:
    cell = {"section": "scaling", "family": "rcv1", "discipline": "tiered", "workers": 2, "speedup": 1.9}
    name = "two workers, tiered, against one, objective within 1 %"
    assert lines([cell | {"objective_ratio": 1.005}])[name]["met"] is True
    assert lines([cell | {"objective_ratio": 1.02}])[name]["met"] is None
    assert lines([cell | {"objective_ratio": None}])[name]["met"] is None
    assert lines([cell | {"objective_ratio": 1.0, "status": "failed: x"}])[name]["met"] is None


def test_others_and_ceilings() -> None:
    rows: list[dict[str, Any]] = [
        {"section": "against", "what": "epoch", "order": "shuffled", "solver": "hogwild", "seconds": 1.0},
        {"section": "against", "what": "epoch", "order": "shuffled", "solver": "scikit-learn SGD", "seconds": 6.0},
        {"section": "against", "what": "time to loss", "loss": "hinge", "solver": "hogwild", "seconds": 1.0},
        {"section": "against", "what": "time to loss", "loss": "hinge", "solver": "snapml", "seconds": 1.5},
        {"section": "startup", "host": "threads", "part": "again", "seconds": 0.04},
        {"section": "startup", "host": "processes", "part": "again", "seconds": 0.6},
        {"section": "scaling", "family": "rcv1", "discipline": "hogwild", "workers": 16, "seconds": 12.0,
         "objective_ratio": 1.0},
        {"section": "scaling", "family": "rcv1", "discipline": "tiered", "workers": 16, "seconds": 0.9, "speedup": 8.5,
         "objective_ratio": 1.0, "share_of_streaming": 0.3},
    ]  # fmt: skip
    met = {name: line["met"] for name, line in lines(rows).items()}
    assert met["one worker against SGDClassifier, an epoch, both shuffling"] is True
    assert met["one worker against snapml, SVM: time to the same held-out loss"] is False
    assert met["data ready to first update, threads"] is True
    assert met["data ready to first update, processes"] is False
    assert met["16 workers, tiered against hogwild"] is True
    assert met["16 workers, tiered, against one, objective within 1 %"] is True
    assert met["16 workers, tiered, share of the streaming rate"] is False


def fit(solver: str, seconds: float, held_out: float) -> dict[str, Any]:
    return {"section": "estimators", "data": "rcv1", "solver": solver, "seconds": seconds, "held_out": held_out}


def test_a_faster_fit_with_a_worse_loss_does_not_count() -> None:
    name = "a fit of two classes beyond the cache against SGDClassifier, held-out loss as low"
    theirs = fit("SGDClassifier", 6.0, 0.2)
    assert lines([fit("HogwildClassifier", 1.0, 0.2), theirs])[name]["measured"] == 6.0
    assert lines([fit("HogwildClassifier", 1.0, 0.21), theirs])[name]["measured"] is None
