"""The epoch loop as a library: its rows, its model, stopping and resuming bit for bit, many runs in one program."""

from __future__ import annotations

import _thread
import contextlib
import errno
import functools
import gc
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import hogwild
from hogwild import machine
from hogwild.config import RESUMABLE, TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.data.rows.store import save_store
from hogwild.errors import HogwildWarning, InputError, OutputError, TrainingError, UsageError
from hogwild.interchange import export_model
from hogwild.model_file import CHECKPOINT_NAME
from hogwild.problems.linear.case import LinearCase
from hogwild.problems.linear.problem import LinearProblem
from hogwild.training import run as training
from hogwild.training.checkpoint import fingerprint
from hogwild.training.engine import resolve, start_pool
from tests.runs import QUIET, line_of, living, long_epochs, resumed, same, slowed, start, toy, until, when

FIELDS = set(
    "run method problem loss l1 l2 discipline order exchange host device workers seed data step schedule epoch phase "
    "train_seconds wall_seconds setup_seconds objective train_loss train_accuracy updates nonzeros_per_second "
    "columns_scaled columns_centred "
    "replicas messages bytes_sent waited_seconds shards_torn deltas_left_out virtual_seconds "
    "staleness_mean staleness_max lost_updates in_flight workers_lost status "
    "verdict exact_seconds kept_epoch".split()
)
MACHINE = {"cpu", "cores", "load", "version_python", "version_numpy", "version_numba", "version_torch"}


@pytest.fixture(scope="module")
def rows() -> Rows:
    return toy()


def scripted(monkeypatch: pytest.MonkeyPatch, *objectives: float) -> None:
    """Have evaluations find these objectives, one after another."""
    values = iter(objectives)
    monkeypatch.setattr(LinearCase, "evaluate", lambda self, *_: dict.fromkeys(("objective", "loss"), next(values)))


def before_evaluations(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    evaluate = LinearCase.evaluate
    monkeypatch.setattr(LinearCase, "evaluate", lambda *arguments: (action(), evaluate(*arguments))[1])


# ---- rows


def test_rows_say_everything(rows: Rows) -> None:
    test = toy(300, seed=0)
    run = hogwild.train(rows, test, epochs=3, data="toys", **QUIET)
    found = list(run)
    assert [row["epoch"] for row in found] == [0, 1, 2, 3]
    assert found == run.history
    first, *rest = found
    tested = {"test_loss", "test_accuracy", "test_auc"}
    assert set(first) == FIELDS | tested | {name for name in first if name in MACHINE or name.startswith("version_")}
    assert set(first) >= MACHINE
    for row in rest:
        assert set(row) == FIELDS | tested
    for row in found:
        assert row == row | {"run": first["run"], "method": "serial", "l2": 1e-5, "host": "threads", "data": "toys"}
        assert row == row | {"schedule": "epoch", "workers_lost": 0, "status": "ok", "in_flight": None}
        json.dumps(row)
    assert len(first["run"]) >= 8
    assert first["objective"] == pytest.approx(math.log(2))
    assert found[-1]["train_accuracy"] == np.mean(run.model.predict(rows) == rows.targets)
    assert (first["updates"], first["nonzeros_per_second"], first["setup_seconds"]) == (0, None, None)
    for k, row in enumerate(rest):
        assert row["updates"] == len(rows)
        assert row["nonzeros_per_second"] > 0
        assert row["setup_seconds"] == rest[0]["setup_seconds"] > 0
        assert row["step"] == pytest.approx(0.5 * 0.9**k)
        assert row["train_loss"] < row["objective"] < found[k]["objective"]


def test_rows_every_few_epochs(rows: Rows) -> None:
    every = list(hogwild.train(rows, epochs=7, **QUIET))
    some = list(hogwild.train(rows, epochs=7, evaluate_every=3, **QUIET))
    assert [row["epoch"] for row in some] == [0, 3, 6, 7]
    assert [row["updates"] for row in some] == [0, 3 * len(rows), 3 * len(rows), len(rows)]
    assert all(row["status"] == "ok" for row in some)
    for name in ("objective", "step"):
        assert [row[name] for row in some] == [every[row["epoch"]][name] for row in some]


def test_clock_stands_still_during_evaluation(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    before_evaluations(monkeypatch, lambda: time.sleep(0.2))
    last = list(hogwild.train(rows, epochs=3, **QUIET))[-1]
    assert last["setup_seconds"] > 0.2  # the evaluation of epoch 0 comes before the first update
    assert 0 < last["train_seconds"] <= last["wall_seconds"] - 4 * 0.2  # of epochs 0 to 3


# ---- the library's face


def test_finish_and_what_comes_after(rows: Rows) -> None:
    run = hogwild.train(rows, epochs=2, **QUIET)
    model = run.finish()
    assert len(run.history) == 3
    assert list(run) == []
    assert np.array_equal(run.finish().coef_, model.coef_)
    run.close()
    run.close()
    assert (model.predict(rows) == rows.targets).mean() > 0.9
    assert model.config["step"] == 0.5
    closed = hogwild.train(rows, **QUIET)
    closed.close()
    with pytest.raises(RuntimeError, match="nothing is trained"):
        closed.finish()


@pytest.mark.parametrize("host", ["threads", "processes"])
def test_a_dropped_run_leaves_nothing(rows: Rows, host: str) -> None:
    import torch

    import hogwild.hosts.processes

    assert torch.__version__  # its import keeps the frames of who asked for it until the next collection
    gc.collect()
    gc.disable()  # reference counts must do
    before = living()
    try:
        run = hogwild.train(rows, epochs=10, step=0.5, workers=2, host=host)
        next(run)
        next(run)
        if host == "processes":
            pids = run.engine.pool.pids
        else:
            assert len(living() - before) == 2
        del run
        if host == "processes":
            assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))  # the server reaps them
        assert not living() - before
    finally:
        gc.enable()


def test_what_may_be_given_as_rows(rows: Rows, tmp_path: Path) -> None:
    X, y = rows.to_scipy()
    kinds = rows, (X, y), (X.toarray(), y), (X.tocoo(), y), save_store(rows, tmp_path / "rows")
    runs = [hogwild.train(data, epochs=1, **QUIET) for data in kinds]
    for run in runs:
        np.testing.assert_array_equal(run.finish().coef_, runs[0].model.coef_)
    assert [run.history[0]["data"] for run in (runs[0], runs[-1])] == ["memory", str(tmp_path / "rows")]
    runs[0].model.save(tmp_path / "model")
    export_model(runs[0].model, tmp_path / "model.npz", "npz")
    for name in ("model", "model.npz"):
        with pytest.raises(InputError, match=f"{name}: a hogwild model, not data: name the data"):
            hogwild.train(tmp_path / name)
    with pytest.raises(UsageError, match="expected a path, Rows or a pair"):
        hogwild.train(3)
    with pytest.raises(UsageError, match="not both"):
        hogwild.train(rows, config=TrainConfig(), epochs=3)


def test_one_after_another_and_two_at_once(rows: Rows) -> None:
    def objectives(_: Any = None) -> list[float]:
        return [row["objective"] for row in hogwild.train(rows, epochs=3, **QUIET)]

    one = objectives()
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(objectives, range(3))) == [one] * 3


def test_progress_can_be_watched(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    slowed(monkeypatch, LinearProblem, 1e-4)
    seen, stopping = [], threading.Event()
    with hogwild.train(rows, epochs=2, **QUIET) as run:
        assert run.progress() == training.EpochProgress(0, 0, len(rows), 0, 0.0)
        next(run)

        def watch() -> None:
            while not stopping.wait(0.002):
                seen.append(run.progress())

        watcher = threading.Thread(target=watch)
        watcher.start()
        list(run)
        stopping.set()
        watcher.join()
    within, chunk = [p for p in seen if 0 < p.rows_done < len(rows)], run.engine.job.order.chunk
    assert within
    for p in within:  # rows are counted first, and the worker goes on before nonzeros are
        assert (p.rows_done - chunk) * 8 <= p.nonzeros <= rows.nnz
        assert p.seconds > 0
    ordered = [(p.epoch, p.rows_done) for p in seen]
    assert ordered == sorted(ordered)
    last = run.progress()
    assert (last.epoch, last.rows_done, last.nonzeros) == (1, len(rows), rows.nnz)


# ---- workers


def test_defaults_of_workers(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "physical_cores", lambda: 3)
    assert hogwild.train(rows, step=0.5).config.workers == 3
    assert hogwild.train(rows, step=0.5).config.discipline in ("hogwild", "tiered")  # by what a merge takes here
    assert hogwild.train(rows, step=0.5, discipline="serial").config.workers == 1
    assert hogwild.train(rows, step=0.5, workers=1).config.discipline == "serial"
    two = hogwild.train((np.eye(2), [0, 1]), step=0.5, epochs=1)
    assert two.config.workers == 2  # never more than rows, unless that is asked for
    assert two.finish().width == 2
    with pytest.raises(InputError, match="3 workers for 2 rows"):
        hogwild.train((np.eye(2), [0, 1]), step=0.5, workers=3)


def test_more_workers_than_cores_are_a_warning(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "physical_cores", lambda: 1)
    with pytest.warns(HogwildWarning, match="9 workers share 1 core:") as caught:
        run = hogwild.train(rows, step=0.5, workers=9, epochs=1)
    assert caught[0].filename == __file__
    assert run.finish().width == rows.width
    assert hogwild.train(rows, step=0.5, workers=9, host="simulator").config.workers == 9


def test_runs_can_take_turns_with_a_pool(rows: Rows) -> None:
    options: Any = {"step": 0.5, "epochs": 3}
    alone = [row["objective"] for row in hogwild.train(rows, workers=1, **options)]
    other = toy(1500, 160, seed=3)
    with contextlib.closing(start_pool("threads", 1)) as pool:
        a, b = hogwild.train(rows, pool=pool, **options), hogwild.train(other, pool=pool, **options)
        both = [(x["objective"], y["objective"]) for x, y in zip(a, b, strict=True)]
        assert [x for x, _ in both] == alone
        with pytest.raises(UsageError, match="the pool has 1 workers .threads., expected 3"):
            hogwild.train(rows, pool=pool, workers=3, step=0.5)


# ---- stopping


def test_stop_from_another_thread(tmp_path: Path) -> None:
    rows = long_epochs(tmp_path)
    run = start(rows, workers=2, discipline="locked", epochs=3, target=1e9)  # part of an epoch, even if it suffices
    assert next(run)["status"] == "ok"
    when(lambda: run.progress().rows_done > 5000, run.stop)
    last = next(run)
    assert last["status"] == "interrupted"
    assert 0 < last["epoch"] < 1
    assert 5000 < last["updates"] < len(rows)
    assert last["updates"] / len(rows) == pytest.approx(last["epoch"], abs=1e-3)
    assert list(run) == []
    assert run.model.history[-1] is last


def test_stop_between_rows_and_before_the_first(rows: Rows) -> None:
    run = hogwild.train(rows, epochs=9, **QUIET)
    next(run), next(run)
    run.stop()
    last = list(run)
    assert [(row["epoch"], row["status"], row["updates"]) for row in last] == [(1, "interrupted", 0)]
    assert last[0]["objective"] == run.history[1]["objective"]
    run = hogwild.train(rows, epochs=9, **QUIET)
    run.stop()
    assert [row["epoch"] for row in run] == [0, 0]


def test_a_stop_while_evaluating_shows_in_the_last_row(
    rows: Rows, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Epochs were left out on request, though the last one is complete; the last of all says "ok" all the same."""
    options: dict[str, Any] = {"epochs": 4, "schedule": "adaptive", **QUIET}
    whole = hogwild.train(rows, **options).finish()
    last = 2
    before_evaluations(monkeypatch, lambda: run.engine.epoch == last and run.stop())
    for last, expected in ((2, ["ok", "ok", "interrupted"]), (4, ["ok", "ok"])):  # noqa: B007
        run = hogwild.train(rows, resume=True, checkpoint=tmp_path, **options)
        assert [row["status"] for row in run] == expected
    assert [row["epoch"] for row in run.history] == [0, 1, 2, 3, 4]
    assert np.array_equal(run.model.coef_, whole.coef_)


def test_ctrl_c_raises_at_once_and_leaves_the_model_of_the_last_row(tmp_path: Path) -> None:
    before = living()
    run = start(long_epochs(tmp_path), workers=2, epochs=5)
    next(run)
    when(lambda: run.progress().rows_done > 5000, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    assert [row["epoch"] for row in run.history] == [0]
    assert not run.model.coef_.any()
    assert list(run) == []
    assert not living() - before


def test_close_from_another_thread(tmp_path: Path) -> None:
    run = start(long_epochs(tmp_path), workers=2, epochs=5, host="processes", checkpoint=tmp_path / "state")
    thread = when(lambda: run.progress().rows_done > 5000, run.close)
    assert [row["epoch"] for row in run] == [0]
    thread.join()
    assert not (tmp_path / "state" / CHECKPOINT_NAME).exists()  # a chunk may have been left half done


@pytest.mark.parametrize("bad", [math.nan, 101.0])
def test_target_and_divergence(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float) -> None:
    scripted(monkeypatch, 1.0, 0.5, 0.3)
    assert len(list(hogwild.train(rows, target=0.3, epochs=9, keep="last", **QUIET))) == 3
    scripted(monkeypatch, 1.0, 99.0, bad)
    run = hogwild.train(rows, epochs=9, checkpoint=tmp_path, **QUIET)
    next(run), next(run)
    coef, state = run.model.coef_, sorted(tmp_path.iterdir())
    content = [path.read_bytes() for path in state]
    assert next(run)["status"] == "diverged"
    message = line_of(TrainingError, next, run)
    assert re.match(r"diverged in epoch 2 \(objective (nan|101)\): try a step below 0.5, ", message)
    assert np.array_equal(run.model.coef_, coef)
    assert coef.any()
    assert [path.read_bytes() for path in state] == content  # the checkpoint is of the epoch before, too
    assert list(run) == []


# ---- checkpoints and resuming


@pytest.mark.parametrize(
    ("options", "inside"),
    [
        ({"schedule": "round", "step": None}, False),
        ({"schedule": "adaptive", "tol": 0.9}, False),  # five epochs without such progress divide the step
        ({"schedule": "optimal", "step": None, "l2": 1e-2}, True),
        ({"l1": 1e-4, "normalize": "l2", "schedule": "rows", "order": "file", "intercept": False}, True),
        ({"classes": 3, "loss": "softmax", "adagrad": True}, True),
    ],
    ids=str,
)
def test_resumed_is_the_same_to_the_bit(tmp_path: Path, options: dict[str, Any], inside: bool) -> None:
    options = QUIET | options
    rows = toy(classes=options.pop("classes", 2))
    if inside:
        rows = rows.select(np.tile(np.arange(len(rows)), 200))  # an epoch of some tens of milliseconds
    adaptive = options.get("schedule") == "adaptive"
    total, some = (14, 7) if adaptive else (4, 2)  # before and after the second time that the step is divided
    begin = functools.partial(hogwild.train, rows, **options)
    whole, part, again = resumed(begin, tmp_path, total, some, 5000 if inside else None)
    assert again.config.step == whole.config.step
    end, found = part.history[-1], again.history[len(part.history) :]
    assert {row["run"] for row in again.history} == {end["run"]}
    assert found[0]["train_seconds"] > end["train_seconds"] - (end["exact_seconds"] or 0.0)  # which are done again
    assert found[0]["wall_seconds"] > end["wall_seconds"]
    assert not MACHINE & set(found[0])
    if adaptive:
        assert found[-1]["step"] < found[0]["step"]


def test_an_interruption_uses_up_no_patience(rows: Rows, tmp_path: Path) -> None:
    options = {"epochs": 9, "patience": 2, "tol": 0.01, "checkpoint": tmp_path, **QUIET}
    whole = hogwild.train(rows, **options | {"checkpoint": None})
    whole.finish()
    for _ in range(3):
        run = hogwild.train(rows, resume=True, **options)
        if not run.history:
            next(run)
        next(run)
        run.stop()
        run.finish()
    again = hogwild.train(rows, resume=True, **options)
    again.finish()
    same(whole, again)


def test_resuming_needs_a_directory(rows: Rows) -> None:
    with pytest.raises(UsageError, match="resume needs the checkpoint directory"):
        hogwild.train(rows, resume=True, **QUIET)


@pytest.fixture
def state(rows: Rows, tmp_path: Path) -> Path:
    """A checkpoint after one epoch."""
    hogwild.train(rows, epochs=1, checkpoint=tmp_path / "state", **QUIET).finish()
    return tmp_path / "state"


def refused(state: Path, rows: Rows, **options: Any) -> str:
    """The one line with which resuming is refused; no worker was started, and the checkpoint is as it was."""
    before, running = (state / CHECKPOINT_NAME).read_bytes(), living()
    options = QUIET | {"epochs": 3} | options
    message = line_of(InputError, hogwild.train, rows, checkpoint=state, resume=True, **options)
    assert message.startswith(str(state))
    assert not living() - running
    assert (state / CHECKPOINT_NAME).read_bytes() == before
    return message


def test_resume_with_other_options(rows: Rows, state: Path) -> None:
    message = refused(state, rows, l2=0.5, seed=3)
    changeable = ", ".join(RESUMABLE)
    assert message.endswith(f"with other options: seed was 0, l2 was 1e-05 (only {changeable} may change)")
    assert "step was 0.5" in refused(state, rows, step=None)
    assert refused(state, toy(seed=1)).endswith("the training data are not those of the checkpoint")
    run = hogwild.train(rows, checkpoint=state, resume=True, epochs=2, step=0.5, workers=2, host="processes")
    assert [(row["epoch"], row["workers"]) for row in run] == [(2, 2)]
    assert run.config.discipline in ("hogwild", "tiered")


def test_unwritable_checkpoint_directory(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found out before any worker is started."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(training, "start_pool", lambda *_: pytest.fail("workers were started"))
    for path in (tmp_path / "file", tmp_path / "file" / "state", Path("/proc/state")):
        line = line_of(OutputError, hogwild.train, rows, checkpoint=path, **QUIET)
        assert "cannot write a checkpoint" in line
        assert str(path) in line


def test_a_disk_that_fills_up(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row comes out, then one line; the checkpoint before is intact and the model is the newest."""
    run = hogwild.train(rows, epochs=5, checkpoint=tmp_path, **QUIET)
    next(run), next(run)
    content = (tmp_path / CHECKPOINT_NAME).read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    row = next(run)
    assert (row["epoch"], row["status"]) == (2, "ok")
    with pytest.raises(OutputError, match="cannot be written: No space left on device"):
        next(run)
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT_NAME]
    assert (tmp_path / CHECKPOINT_NAME).read_bytes() == content
    assert run.model.history[-1] == row
    assert list(run) == []
    monkeypatch.undo()
    again = hogwild.train(rows, epochs=2, checkpoint=tmp_path, resume=True, **QUIET)
    assert np.array_equal(again.finish().coef_, run.model.coef_)


def test_a_class_without_weight_is_named() -> None:
    columns = {"a": np.arange(60) % 7, "y": ["no", "yes", "maybe"] * 20, "w": [1.0, 0.0, 1.0] * 20}
    table, options = pa.table(columns), {"epochs": 1, "workers": 1, "l2": 0.01}
    with pytest.warns(HogwildWarning, match="all rows of a class have weight zero, .*: yes$") as caught:
        hogwild.train(hogwild.open_table(table, "y", weight="w"), **options).close()
    assert [each.filename for each in caught] == [__file__]
    two = table.filter(pc.field("y") != "no")
    with pytest.raises(InputError, match="all rows but those of class maybe have weight zero"):
        hogwild.train(hogwild.open_table(two, "y", weight="w"), **options)


def test_fingerprint_sees_every_kind_of_change(rows: Rows) -> None:
    X, y = rows.to_scipy()
    changed = X.copy()
    changed.data = changed.data.copy()
    changed.data[0] += 1
    flipped = y.copy()
    flipped[-1] = -flipped[-1]
    weights = np.ones(len(rows))
    kinds = [
        rows,
        Rows.from_scipy(changed, y),
        Rows.from_scipy(X, flipped),
        Rows.from_scipy(X, y, weights),
        Rows.from_scipy(X, y, width=999),
        rows.block(0, 1000),
        rows.select(np.arange(len(rows))[::-1]),
    ]
    assert len({fingerprint(kind) for kind in kinds}) == len(kinds)
    assert fingerprint(rows.select(np.arange(len(rows)))) == fingerprint(rows)


# ---- odd data


def test_odd_shapes() -> None:
    options: Any = {"epochs": 2, "l1": 1e-4, **QUIET}
    one = hogwild.train((np.ones((1, 3)), [2.5]), loss="squared-error", **options).finish()
    assert 0.1 < one.predict(np.ones((1, 3)))[0] <= 2.5
    with pytest.raises(InputError, match="no rows"):
        hogwild.train((np.empty((0, 3)), []), **options)
    with pytest.raises(InputError, match="all 3 rows have the label 7"):
        hogwild.train((np.eye(3), [7, 7, 7]), **options)


@pytest.mark.parametrize("options", [{"decay": 0.8}, {"adagrad": True}, {"exchange": "averaging"}])
def test_options_settle_the_schedule_of_a_long_epoch(options: dict[str, Any]) -> None:
    assert resolve(TrainConfig(), 10**6).schedule == "rows"
    assert resolve(TrainConfig(**options), 10**6).schedule == "epoch"
