"""TrainConfig: every mistake is one line that names the option, and nothing heavy is imported to find it."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest

from hogwild import methods as module
from hogwild.config import RESUMABLE, SHORT_RUN, TrainConfig, options_of, usual_host
from hogwild.errors import UsageError
from hogwild.methods import PROBLEMS
from hogwild.problems.linear import kernel as linear

BAD: list[dict[str, Any]] = [
    {"l2": math.nan},
    {"l2": True},
    {"l2": 10**400},
    {"loss": "huber", "loss_param": -1.0},
    {"exchange": "mean"},
    {"loss": "bpr"},
]
BAD_TOGETHER: list[dict[str, Any]] = [
    {"schedule": "optimal", "l2": 0.0},
    {"schedule": "optimal", "l2": (0.0, 1e-5)},
    {"schedule": "optimal", "step": 1.0},
    {"schedule": "constant", "decay": 0.5},
    {"schedule": "epoch", "power": 0.5},
    {"discipline": "serial", "workers": 2},
    {"adagrad": True, "schedule": "inverse"},
    {"loss_param": 1.0},
    {"class_weight": "balanced", "loss": "squared-error"},
    {"problem": "cuts", "exchange": "server"},
    {"in_flight": 64},
    {"host": "streams"},
    {"device": "cuda", "discipline": "serial"},
    {"device": "cuda", "problem": "cuts"},
    {"device": "cuda", "host": "simulator"},
    {"device": "cuda", "problem": "completion", "order": "blocks"},
    {"device": "cuda", "workers": 33},
    {"device": "cuda", "problem": "module", "in_flight": 64},
    {"exchange": "averaging", "adagrad": True},
    {"exchange": "averaging", "discipline": "locked"},
]


@pytest.mark.parametrize("options", BAD + BAD_TOGETHER, ids=lambda options: str(options)[:60])
def test_mistakes_are_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        TrainConfig(**options)
    assert any(name in str(caught.value) for name in options)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_option_has_a_range(problem: str) -> None:
    refused = 0
    for name, field in options_of(problem).items():
        told = field.metadata["option"]
        if told.choices:
            bad = ["no such", ["log"]]
        elif str(field.type) == "bool":
            bad = [2, "yes"]
        elif told.least is not None:
            bad = [math.nan, "big", True, told.least - 1e-9, *[told.least] * told.strict]
            bad += [] if told.most == math.inf else [told.most * 2 + 1]
        else:
            continue
        for value in bad:
            with pytest.raises(UsageError, match=name):
                TrainConfig(**{"problem": problem, name: value})
            refused += 1
    assert refused > 50


def test_unknown_options_are_named() -> None:
    with pytest.raises(UsageError, match=r"^unknown option epoch, lr of problem 'linear': did you mean epochs\?$"):
        TrainConfig.from_json({"epoch": 3, "lr": 0.1, "l2": 0.0})
    with pytest.raises(UsageError, match="'linear'; it belongs to problem fm or ffm or completion$"):
        TrainConfig(rank=3)


def test_json_and_back() -> None:
    config = TrainConfig(
        loss="huber",
        loss_param=0.5,
        l1=1e-3,
        step=0.25,
        workers=3,
        patience=2,
        target=-1.5,
        seed=7,
        exchange="averaging",
    )
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_workers_of_a_gpu_are_streams() -> None:
    for problem in ("linear", "completion"):
        config = TrainConfig(problem=problem, device="cuda", in_flight=1000)
        assert (config.host, config.discipline, config.in_flight) == ("streams", "atomic", 1000)
        assert TrainConfig.from_json(config.to_json()) == config
    assert TrainConfig(problem="module", device="cuda").discipline == "hogwild"


def test_numpy_numbers_become_python_ones() -> None:
    options = {"epochs": np.int64(3), "l2": np.float32(0.5), "step": np.float64(0.25), "adagrad": np.bool_(True)}
    config = TrainConfig(**options, workers=np.int32(2), seed=np.array(5), loss=np.str_("hinge"))
    assert config == TrainConfig(epochs=3, l2=0.5, step=0.25, adagrad=True, workers=2, seed=5, loss="hinge")
    assert type(config.epochs) is int
    json.dumps(config.to_json())
    with pytest.raises(UsageError, match="epochs"):
        TrainConfig(epochs=np.float64(3.0))


def test_names_are_those_of_the_kernels() -> None:
    """The literals exist twice so that a typing mistake is found before numba is imported."""
    assert set(module.DISCIPLINES) == set(linear.DISCIPLINES)


# ---- the problems


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_is_not_given_is_the_problems_own(problem: str) -> None:
    config = TrainConfig(problem=problem)
    assert TrainConfig(problem=problem, **dict.fromkeys(config.to_json().keys() - {"problem"})) == config
    assert TrainConfig.from_json(config.to_json()) == pickle.loads(pickle.dumps(config)) == config
    assert dataclasses.replace(config, epochs=3) == TrainConfig(problem=problem, epochs=3)
    assert set(RESUMABLE) - {"renumber"} <= config.to_json().keys()


def test_workers_of_a_short_run_are_threads() -> None:
    assert usual_host("auto", 2, 2 * SHORT_RUN - 1) == usual_host("auto", 1) == "threads"
    assert usual_host("auto", 2, 2 * SHORT_RUN) == usual_host("auto", 2) == "processes"
    assert usual_host("processes", 2, 0) == "processes"
    assert usual_host("threads", 2) == "threads"
