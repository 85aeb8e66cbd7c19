"""Model files and checkpoints: round trips, damage in every region, and writes that are all or nothing."""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
from pathlib import Path

import numpy as np
import pytest

import hogwild
from hogwild.errors import InputError, OutputError
from hogwild.model_file import (
    CHECKPOINT_NAME,
    HISTORY_ROWS,
    has_checkpoint,
    load_checkpoint,
    load_model,
    save_checkpoint,
    save_model,
)
from hogwild.problems.linear.model import LinearModel
from tests.runs import line_of


def build(classes=2, seed=0, width=20, rows=60):
    rng = np.random.default_rng(seed)
    parts = classes if classes > 2 else 1
    return LinearModel(
        coef_=rng.normal(size=(parts, width)).astype(np.float32),
        intercept_=rng.normal(size=parts).astype(np.float32),
        loss="log",
        loss_param=0.25,
        labels=[float(k) - 0.5 for k in range(classes)],
        normalize="l2",
        config={"l1": 0.0, "l2": 1e-5, "seed": np.int64(3), "data": Path("a/b"), "step": None},
        fingerprint="sha256:0123",
        history=[
            {"epoch": k, "objective": np.float64(1) / (k + 1), "test_auc": np.nan, "status": "ok"} for k in range(rows)
        ],
    )


def same(a, b):
    return (
        np.array_equal(a.coef_, b.coef_)
        and np.array_equal(a.intercept_, b.intercept_)
        and (a.loss, a.loss_param, a.labels, a.normalize) == (b.loss, b.loss_param, b.labels, b.normalize)
        and (a.fingerprint, a.version) == (b.fingerprint, b.version)
    )


@pytest.mark.parametrize("classes", [0, 2, 5])
def test_round_trip(tmp_path, classes):
    model, path = build(classes), tmp_path / "a model.v1"  # no extension is added
    save_model(model, path)
    assert os.listdir(tmp_path) == ["a model.v1"]
    found = hogwild.load(str(path))
    assert found.coef_.dtype == found.intercept_.dtype == np.float32
    assert found.config == {"l1": 0.0, "l2": 1e-5, "seed": 3, "data": "a/b", "step": None}
    assert same(model, found)
    assert found.history == [
        {"epoch": k, "objective": 1 / (k + 1), "test_auc": None, "status": "ok"} for k in range(60 - HISTORY_ROWS, 60)
    ]
    X = np.random.default_rng(1).normal(size=(9, 20))
    np.testing.assert_array_equal(found.decision_function(X), model.decision_function(X))


def test_equal_models_make_equal_files_that_safetensors_reads(tmp_path):
    from safetensors import safe_open

    for name in "ab":
        build().save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with safe_open(tmp_path / "a", "numpy") as file:
        header = json.loads(file.metadata()["hogwild"], parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
        assert sorted(file.keys()) == ["coef", "intercept"]
        assert file.get_tensor("coef").shape == (1, 20)
    assert header["kind"] == "model"
    assert header["width"] == 20


@pytest.fixture
def saved(tmp_path):
    save_model(build(rows=1), tmp_path / "model")
    return tmp_path / "model"


def refused(path):
    """The one line of the InputError that loading ``path`` ends in."""
    line = line_of(InputError, load_model, path)
    assert str(path) in line
    return line


def test_every_flipped_byte_is_noticed(saved):
    whole = saved.read_bytes()
    header = struct.unpack("<Q", whole[:8])[0] + 8
    good = load_model(saved)
    text_end = whole.rindex(b"}", 0, header) + 1
    for at in range(len(whole)):
        flip = (0x01, 0x20, 0x80)[at % 3]
        saved.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
        if text_end <= at < header and whole[at] ^ flip in b" \t\r\n":
            assert same(load_model(saved), good)  # blanks that pad the header mean nothing
        else:
            refused(saved)


def test_every_truncation_is_noticed(saved):
    whole = saved.read_bytes()
    for length in [*range(0, 100), *range(100, len(whole), 17), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        line = refused(saved)
        assert length < 60 or "damaged or cut short" in line
    saved.write_bytes(whole + b"\0")
    refused(saved)


def test_other_files(tmp_path, saved):
    from safetensors.numpy import save_file

    text, empty, foreign = tmp_path / "data.svm", tmp_path / "empty", tmp_path / "foreign.safetensors"
    text.write_text("+1 1:0.5 2:0.25\n" * 100)
    empty.touch()
    save_file({"coef": np.ones((1, 3), np.float32)}, foreign, metadata={"format": "pt"})
    assert refused(text).endswith("data.svm: not a hogwild model, or damaged or cut short")
    assert "not a hogwild model" in refused(empty)
    assert "not a hogwild model but a safetensors file of something else" in refused(foreign)
    assert "a directory" in refused(tmp_path)
    assert "special file" in refused(Path("/dev/null"))
    assert "No such file" in refused(tmp_path / "absent")
    assert "Not a directory" in refused(saved / "below")
    save_file({"coef": np.ones(3)}, foreign, metadata={"hogwild": "[1, 2"})
    assert "damaged" in refused(foreign)
    save_file({"coef": np.ones(3)}, foreign, metadata={"hogwild": "[1, 2]"})
    assert "something else" in refused(foreign)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable(saved):
    saved.chmod(0)
    assert "Permission denied" in refused(saved)


def forged(path, change):
    """Write a model file whose checksum is right but whose contents are changed."""
    from safetensors import safe_open
    from safetensors.numpy import load_file, save

    from hogwild import model_file

    with safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["hogwild"])
    del header["sha256"]
    change(header)
    arrays = load_file(path)
    path.write_bytes(save(arrays, metadata={"hogwild": model_file._sealed(json.dumps(header), arrays)}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header.update(width=21), "20 features, its header says 21"),
        (lambda header: header.update(labels=[1.0, 2.0, 3.0]), "1 rows for 3 labels"),
        (lambda header: header.update(schema=2), "a model of format 2, expected a model of format 1"),
        (
            lambda header: header.update(kind="checkpoint"),
            "a checkpoint of format 1, .*: continue it with --resume",
        ),
    ],
)
def test_headers_that_do_not_fit(saved, change, message):
    forged(saved, change)
    with pytest.raises(InputError, match=message):
        load_model(saved)


@pytest.mark.parametrize("call", ["replace", "fsync", "fchmod"])
def test_a_failed_write_changes_nothing(saved, monkeypatch, call):
    before, names = saved.read_bytes(), os.listdir(saved.parent)

    def fail(*arguments, **keywords):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OutputError, match=f"{saved}: cannot be written: No space left on device"):
            save_model(build(seed=9), saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == names


def test_contents_are_on_disk_before_the_rename(saved, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append((Path(a).parent, Path(b))), replace(a, b))[1])
    save_model(build(seed=9), saved)
    assert calls == ["fsync", (saved.parent, saved)]


def test_links_modes_and_odd_targets(tmp_path):
    model, real, link = build(), tmp_path / "real", tmp_path / "link"
    save_model(model, real)
    assert stat.S_IMODE(real.stat().st_mode) & 0o600 == 0o600
    real.chmod(0o640)
    link.symlink_to("real")
    save_model(build(seed=4), link)
    assert link.is_symlink()
    assert not same(load_model(real), model)
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    dangling = tmp_path / "dangling"
    dangling.symlink_to("later")
    save_model(model, dangling)
    assert (tmp_path / "later").is_file()
    for target, message in {
        tmp_path: "is a directory",
        tmp_path / "none" / "model": "No such file or directory",
        real / "model": "Not a directory",
        Path("/dev/null"): "not a regular file",
        tmp_path / ("x" * 300): "File name too long",
    }.items():
        with pytest.raises(OutputError, match=message) as caught:
            save_model(model, target)
        assert str(target) in str(caught.value)
    save_model(model, tmp_path / ("x" * 255))
    assert not list(tmp_path.glob(".*"))


def state(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "parameters": rng.normal(size=100).astype(np.float32),
        "mean": rng.normal(size=(3, 4)),
        "none": np.zeros((0, 5), np.float32),
        "scalar": np.array(3, dtype=np.int64),
        "every other": np.arange(10)[::2],
        "flags": np.array([True, False]),
    }


def test_checkpoint_round_trip(tmp_path):
    directory = tmp_path / "new" / "checkpoints"
    assert not has_checkpoint(directory)
    left = directory / f".{CHECKPOINT_NAME}.0123abcd.tmp"  # a run killed while it wrote
    with pytest.raises(InputError, match="No such file"):
        load_checkpoint(directory)
    for epoch in range(3):
        save_checkpoint(directory, state(epoch), {"epoch": epoch, "objective": np.nan, "clock": np.float64(1.5)})
        if epoch == 1:
            left.write_bytes(b"half")
    assert has_checkpoint(directory)
    assert os.listdir(directory) == [CHECKPOINT_NAME]
    arrays, header = load_checkpoint(directory)
    assert list(arrays) == sorted(state())
    for name, array in state(2).items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array, strict=True)
    assert sorted(header) == ["clock", "epoch", "objective"]
    assert header["epoch"] == 2
    assert np.isnan(header["objective"])
    assert header["clock"] == 1.5
    with pytest.raises(InputError, match="--resume"):
        load_model(directory / CHECKPOINT_NAME)
