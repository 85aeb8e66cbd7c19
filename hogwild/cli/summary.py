"""What a training run of the command line says about itself: before it starts, and when it has ended."""

from __future__ import annotations

import math
from typing import Any

from hogwild.config import TrainConfig
from hogwild.methods import parse_exchange

EXACT, RACE = "reproducible to the last bit", "they race, so two runs differ"


def workers_of(config: TrainConfig, chosen: bool = False) -> str:
    """Describe the workers, with defaults filled in; ``chosen``: host "auto" has settled on one."""
    workers = config.workers or 1
    if config.device != "cuda":
        why = {"threads": ": a short run", "processes": ": a long run"} if chosen and config.compiled else {}
        return "1 worker" if workers == 1 else f"{workers} workers ({config.host}{why.get(config.host, '')})"
    streams = f"{workers} CUDA stream{'s' * (workers != 1)}"
    if config.problem == "module":
        return streams
    many = f"{config.in_flight:,}" if config.in_flight else "as many as the step allows"
    return f"{streams}, examples in flight: {many}"


def describe_run(config: TrainConfig, reason: str = "", note: str = "", host: str = "") -> str:
    """Describe the run that is about to start, with defaults filled in; ``host`` is what was asked for."""
    step = f"step {config.step:.4g}, " if config.step else ""  # the optimal schedule sets its own
    alone = (config.workers or 1) == 1 and config.device == "cpu"
    exact = alone or config.discipline == "round-robin" or config.host == "simulator"
    repeat = EXACT if exact else RACE
    name = config.discipline
    if config.machines > 1:
        own = " with rows of their own" if config.own_rows else ""
        name = f"{config.exchange} of {config.machines} machines{own}; here {name}"
        numbers = parse_exchange(config.exchange)[1]
        within = numbers.get("period", 0 if numbers else math.inf) < math.inf
        repeat = "when machines trade varies, so two runs differ" if within else repeat if alone else RACE
    elif config.exchange != "none":
        name = config.exchange if config.group == 1 else f"{config.exchange}, in each group {name},"
        repeat = repeat if exact else "which rows a worker gets varies, so two runs differ"
    if config.host == "simulator":
        repeat = f"delay {config.delay}, one core plays them all; {repeat}"
    goal = f"{config.loss} loss, l2 {config.l2:g}, l1 {config.l1:g}"
    if config.problem == "completion":
        goal = f"rank {config.rank}, {config.loss} loss, l2 {config.l2:g} {config.penalty}"
    elif config.problem == "cuts":
        goal = "smallest cut, relaxed to the simplex"
    return (
        f"{goal}; {step}{config.schedule} schedule, "
        f"{config.order} order, seed {config.seed}\n{name} on {workers_of(config, host == 'auto')}: {repeat}"
        + (f"\n{config.discipline} because {reason}" if reason else "")
        + (f"\n{note}" if note else "")
    )


def summary(last: dict[str, Any], interrupted: int | None, total: float) -> str:
    """Return the closing lines on quality and speed; ``total`` is the time in seconds since the command started."""
    parts = [f"objective {last['objective']:.6g}"]
    names = {"test_accuracy": "test accuracy", "test_auc": "test AUC", "test_rmse": "test RMSE"}
    names |= {"test_ndcg_at_10": "test NDCG at 10"}
    parts += [f"{name} {last[field]:.4f}" for field, name in names.items() if last.get(field) is not None]
    parts += [f"cut value {last['cut_value']:.6g}"] if last.get("cut_value") is not None else []
    parts += [f"train accuracy {last['train_accuracy']:.4f}"] if last.get("train_accuracy") is not None else []
    line = f"{'interrupted' if interrupted else 'done'} after epoch {last['epoch']}: {', '.join(parts)}"
    training = "to play all workers on one core" if last["host"] == "simulator" else "training"
    times = f"{last['train_seconds']:.2f} s {training}, {total:.2f} s in all"
    if last.get("verdict") not in (None, "settled"):
        line += f"\nnot settled: {last['verdict']}"
    if last.get("kept_epoch") not in (None, last["epoch"]):
        line += (
            f"\nthe model is that of epoch {last['kept_epoch']}, whose held-out loss was lowest (--keep last: the last)"
        )
    if last.get("nonzeros_per_second"):
        times += f", {last['nonzeros_per_second'] / 1e6:.1f} million nonzeros a second in the last epoch"
    elif last.get("updates_per_second"):
        times += f", {last['updates_per_second'] / 1e6:.1f} million updates a second in the last epoch"
    if last.get("replicas"):
        times += f"\n{last['replicas']} replicas sent {last['messages']:,} messages, {last['bytes_sent'] / 1e6:.3g} MB"
        if last["virtual_seconds"] is not None:
            times += f", in {last['virtual_seconds']:.3g} virtual seconds"
    return f"{line}\n{times}"
