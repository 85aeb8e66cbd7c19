"""`scripts/bench_targets.py`: lines of what is asked, from rows alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.bench_targets import TARGETS, best, main

Row = dict[str, Any]
CELL = {"section": "scaling", "family": "rcv1", "discipline": "tiered", "objective_ratio": 1.0}
KERNEL = {"section": "kernel", "family": "rcv1", "order": "file", "status": "ok"}
CTR = KERNEL | {"family": "ctr", "order": "shuffled"}
AGAINST = {"section": "against", "what": "epoch", "order": "shuffled"}
TO_LOSS = {"section": "against", "what": "time to loss", "loss": "hinge"}
DEFAULT = {"section": "against", "what": "default fit to loss", "family": "rcv1"}
WIDE = {
    "section": "wide",
    "family": "ctr",
    "kind": "l2",
    "features": 1 << 24,
    "workers": 1,
    "numbering": "by popularity",
}
COMPLETION = {"section": "completion", "rank": 32}
ROWS: list[Row] = [
    KERNEL | {"loop": "kernel", "seconds": 1.0},
    KERNEL | {"loop": "kernel", "order": "shuffled", "seconds": 1.25},
    KERNEL | {"loop": "naive fastmath twin", "seconds": 2.0},
    CTR | {"loop": "kernel with prefetch", "seconds": 1.0},
    CTR | {"loop": "kernel without prefetch", "seconds": 1.2},
    AGAINST | {"solver": "hogwild", "seconds": 1.0},
    AGAINST | {"solver": "scikit-learn SGD", "seconds": 6.0},
    TO_LOSS | {"solver": "hogwild", "seconds": 1.0},
    TO_LOSS | {"solver": "snapml", "seconds": 1.5},
    DEFAULT | {"solver": "hogwild", "seconds": 1.0, "seconds_with_search": 2.0},
    DEFAULT | {"solver": "scikit-learn SGD", "seconds": 3.0, "seconds_with_search": 3.0},
    DEFAULT | {"solver": "hogwild", "family": "ctr", "seconds": 1.0, "seconds_with_search": 1.5},
    DEFAULT | {"solver": "Vowpal Wabbit", "family": "ctr", "seconds": 6.0, "seconds_with_search": 6.0},
    WIDE | {"faster": 2.5},
    WIDE | {"numbering": "own", "faster": 1.0},
    WIDE | {"features": 1 << 20, "faster": 4.0},
    {"section": "startup", "host": "threads", "part": "again", "seconds": 0.04},
    {"section": "startup", "host": "processes", "part": "again", "seconds": 0.6},
    CELL | {"discipline": "hogwild", "workers": 16, "seconds": 12.0},
    CELL | {"workers": 16, "seconds": 0.9, "speedup": 8.5, "share_of_streaming": 0.3},
    COMPLETION | {"kind": "serial", "workers": 1, "seconds": 1.0},
    COMPLETION | {"kind": "cornac", "workers": 1, "seconds": 1.6},
    COMPLETION | {"kind": "hogwild", "workers": 2, "speedup": 1.5},
    COMPLETION | {"kind": "blocks", "workers": 2, "speedup": 1.9},
]
EXPECTED = {
    "one worker against SGDClassifier, an epoch, both shuffling": ("6.00x", "yes"),
    "one worker against snapml, SVM: time to the same held-out loss": ("1.50x", "no"),
    "one worker, defaults, against SGDClassifier's: time to the same held-out loss, interpolated": ("3.00x", "yes"),
    "2^24 weights: defaults, search included, against a pass of Vowpal Wabbit: time to its held-out loss": (
        "4.00x",
        "no",
    ),
    "2^24 weights, l2: one worker's epoch by popularity against the user's numbering": ("2.50x", "yes"),
    "one worker against the fast-math twin, file order": ("2.00x", "yes"),
    "one worker, shuffled against file order": ("0.80x", "yes"),
    "2^24 weights: with weight prefetch against without, shuffled": ("1.20x", "no"),
    "16 workers, tiered against hogwild": ("13.33x", "yes"),
    "16 workers, tiered, against one, objective within 1 %": ("8.50x", "yes"),
    "16 workers, tiered, share of the streaming rate": ("30.0%", "no"),
    "matrix completion, rank 32: one worker against cornac on one core": ("1.60x", "yes"),
    "matrix completion, rank 32: two workers against one": ("1.90x", "yes"),
    "data ready to first update, processes": ("0.600 s", "no"),
    "data ready to first update, threads": ("0.040 s", "yes"),
}


def lines(rows: list[Row]) -> dict[str, tuple[str, str]]:
    return {name: (measured, met) for name, _, measured, met in (target.line(rows) for target in TARGETS)}


def test_lines_of_what_was_measured() -> None:
    missing = lines([])
    assert len(missing) == len(TARGETS)
    assert set(missing.values()) == {("-", "-")}
    assert {name: line for name, line in lines(ROWS).items() if line != ("-", "-")} == EXPECTED


@pytest.mark.parametrize("worse", [{"objective_ratio": 1.02}, {"objective_ratio": None}, {"status": "failed: x"}])
def test_a_faster_run_with_a_worse_objective_does_not_count(worse: Row) -> None:
    cell, name = CELL | {"workers": 2, "speedup": 1.9}, "two workers, tiered, against one, objective within 1 %"
    assert lines([cell | {"objective_ratio": 1.005}])[name] == ("1.90x", "yes")
    assert lines([cell | worse])[name] == ("-", "-")


def test_a_faster_fit_with_a_worse_loss_does_not_count() -> None:
    name = "a fit of two classes beyond the cache against SGDClassifier, held-out loss as low"
    theirs = {"section": "estimators", "data": "rcv1", "solver": "SGDClassifier", "seconds": 6.0, "held_out": 0.2}
    ours = theirs | {"solver": "HogwildClassifier", "seconds": 1.0}
    assert lines([ours, theirs])[name] == ("6.00x", "yes")
    assert lines([ours | {"held_out": 0.21}, theirs])[name] == ("-", "-")


def test_on_a_gpu_what_has_learned_counts() -> None:
    measure = best("ratio", worse=0.02, part="p", kind=("a", "b"))
    good = {"part": "p", "kind": "a", "ratio": 2.5, "worse": 0.01, "status": "ok"}
    others = [
        good | {"ratio": 9.0, "worse": 0.03},
        good | {"ratio": 9.0, "worse": None},
        good | {"ratio": 9.0, "kind": "c"},
        good | {"ratio": 9.0, "status": "failed: x"},
        good | {"ratio": None},
        good | {"ratio": 1.0, "kind": "b"},
    ]
    assert (measure([*others, good]), measure(others), measure(others[:5])) == (2.5, 1.0, None)


def test_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    main([str(path)])
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["target", "asked", "measured", "met"]
    assert first.split()[-4:] == [">=", "5.00x", "6.00x", "yes"]
    with pytest.raises(SystemExit, match="hogwild bench --json"):
        main([])
