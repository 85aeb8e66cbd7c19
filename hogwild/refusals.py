"""Which options cannot be combined: the one place that says so, a sentence each.

``TrainConfig`` asks :func:`refuse` when each option has passed its own check and the problem's defaults are filled in.
What depends on the data is refused by the problem's case.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

from hogwild.methods import (
    AMONG_MACHINES,
    BETWEEN_WORKERS,
    DISCIPLINES,
    EXCHANGES,
    MOST_STREAMS,
    REAL_HOSTS,
    STREAMS,
    parse_delay,
    parse_exchange,
)


def reasons(config: Any) -> Iterator[str]:
    """Yield why options that all problems have cannot be combined, if so."""
    of_device = _on_gpu if config.device == "cuda" else _on_cpu
    parts = _of_loss_and_steps, _of_replicas, _of_machines, _of_simulator, of_device
    return chain.from_iterable(part(config) for part in parts)


def _of_loss_and_steps(config: Any) -> Iterator[str]:
    if config.decay is not None and config.schedule not in ("auto", "epoch", "round"):
        yield f"decay belongs to schedule epoch or round, not to {config.schedule!r}"
    if config.power is not None and config.schedule != "inverse":
        yield f"power belongs to schedule inverse, not to {config.schedule!r}"


def _of_replicas(config: Any) -> Iterator[str]:
    """Reasons of exchanges, links and disciplines."""
    if config.discipline == "serial" and (config.workers or 1) > 1 and config.exchange == "none":
        yield f"discipline='serial' has one worker, got workers={config.workers}: choose {DISCIPLINES[1:]}"
    if config.link and config.host != "simulator":
        yield f"link={config.link!r} needs host='simulator' (hogwild simulate); got host={config.host!r}"
    if config.exchange == "none":
        return
    if config.machines == 1 and parse_exchange(config.exchange)[0] not in BETWEEN_WORKERS:
        yield (
            f"exchange={config.exchange!r} passes blocks of items between machines: give machines, or order='blocks', "
            "which keeps the workers of one machine to users and items of their own"
        )
        return
    sums = config.sums
    name, numbers = parse_exchange(config.exchange, sums)
    beyond = EXCHANGES[name].sums or numbers.get("outer", 1) > 1 or numbers.get("momentum", 0) > 0
    if not sums and (beyond or numbers.get("mean", "rows") != "rows"):
        yield (
            f"exchange={config.exchange!r} is no mean of whole replicas, so it leads out of a simplex: choose "
            "averaging with mean=rows"
        )
    yield from _of_averaging(config)
    yield from _without_effect(config)
    if config.discipline not in ("auto", "serial") and config.machines == 1 and numbers.get("group", 1) == 1:
        yield (
            f"exchange={config.exchange!r}: every worker has a replica to itself, so discipline={config.discipline!r} "
            "has nothing to settle: leave discipline out"
        )
    yield from _of_groups(config)


def _of_groups(config: Any) -> Iterator[str]:
    """Reasons of replicas on which several workers race."""
    name, numbers = parse_exchange(config.exchange)
    group, said = numbers.get("group", 1), f"exchange={config.exchange!r}"
    if group == 1:
        return
    if config.host != "simulator":
        yield f"{said}: group needs host='simulator' (hogwild simulate); got host={config.host!r}"
    if config.workers is not None and config.workers % group:
        yield f"{said}: groups of {group:g} take a multiple of {group:g} workers, got workers={config.workers}"
    if config.discipline in ("serial", "round-robin"):
        yield (
            f"{said}: the {group:g} workers of a group race on one replica, and discipline={config.discipline!r} lets "
            "nobody race: choose another one, or leave it out"
        )
    for key in ("share", "bound", "warm"):
        if key in numbers and numbers[key] != EXCHANGES[name].numbers[key].default:
            yield f"{said}: {key} makes a replica wait, and a group's workers go on while one trades: leave {key} out"


_RACE = "whose workers do not stop to wait"
_KEPT = "whose checkpoints hold the model only"
#: Parameters of exchanges between machines: what they can be, and why nothing else.
BETWEEN_MACHINES: dict[str, dict[str, tuple[tuple[Any, ...], str]]] = {
    "averaging": {
        "by": (("direct",), "who have to do without one that dies in a round"),
        "share": ((1,), _RACE),
        "threshold": ((0,), _KEPT),
        "momentum": ((0,), _KEPT),
    },
    "gossip": {"own": ((1,), _RACE), "home": ((1,), _KEPT)},
    "server": {
        "bound": ((math.inf,), _RACE),
        "warm": ((0,), _RACE),
        "rule": (("plain", "scaled", "soft"), _KEPT),
    },
}


def _of_machines(config: Any) -> Iterator[str]:
    """Reasons of what several machines cannot do."""
    if config.machines == 1:
        return
    name, numbers = parse_exchange(config.exchange, config.sums)
    if name not in AMONG_MACHINES:
        known = ", ".join(AMONG_MACHINES)
        yield f"exchange={config.exchange!r}: machines trade by {known}: choose one of these"
    if name == "rotation":
        yield from _of_rotation(config)
    for key, (usual, reason) in BETWEEN_MACHINES.get(name, {}).items():
        if numbers[key] not in usual:
            yield f"exchange={config.exchange!r}: {key} is not for machines, {reason}: leave {key} out"
    if config.device != "cpu" or config.host not in ("auto", *REAL_HOSTS):
        yield f"machines={config.machines}: their workers are {' or '.join(REAL_HOSTS)}, not {config.host!r}"
    if not config.distributed:
        yield f"machines={config.machines}: problem {config.problem!r} is trained on one machine"
    if config.discipline == "round-robin" or config.order == "blocks":
        yield f"machines={config.machines}: an order that fixes who is next (round-robin, blocks) is for one machine"


def _of_rotation(config: Any) -> Iterator[str]:
    said = f"exchange={config.exchange!r}"
    if not config.rotates:
        yield f"{said} passes blocks of items round, of which problem {config.problem!r} has none: choose averaging"
    if config.order != "shuffled":
        yield f"{said} has an order of its own, in which blocks meet: leave order={config.order!r} out"


def _of_averaging(config: Any) -> Iterator[str]:
    name, numbers = parse_exchange(config.exchange)
    if name != "averaging":
        return
    threshold, share = numbers["threshold"] > 0, numbers["share"] < 1
    if math.isinf(numbers["period"]) and (threshold or share):
        yield f"exchange={config.exchange!r}: threshold and share are for rounds within an epoch: give a period"
    if threshold and (share or numbers["by"] != "direct"):
        yield (f"exchange={config.exchange!r}: with a threshold not all replicas begin a round: leave share and by out")


#: Parameters of an exchange that another one must be set for, and to what.
NEEDED = {
    "server": {
        "rate": ("rule", ("adagrad", "revision")),
        "soft": ("rule", ("soft",)),
        "scale": ("rule", ("plain",)),
    },
}


def _without_effect(config: Any) -> Iterator[str]:
    """Parameters that would be passed over."""
    name, numbers = parse_exchange(config.exchange)
    for key, (other, values) in NEEDED.get(name, {}).items():
        if numbers[key] != EXCHANGES[name].numbers[key].default and numbers[other] not in values:
            wanted = " or ".join(values)
            yield f"exchange={config.exchange!r}: {key} is for {other}={wanted}, got {other}={numbers[other]}"


def _of_simulator(config: Any) -> Iterator[str]:
    law, numbers = parse_delay(config.delay)
    if not config.simulated and config.host == "simulator":
        real = " or ".join(REAL_HOSTS)
        yield f"host='simulator' plays the linear problem, not {config.problem!r}: choose {real}"
    if config.delay != "round-robin" and config.host != "simulator":
        yield f"delay={config.delay!r} is for host='simulator' (hogwild simulate), not {config.host!r}"
    if config.gradient_delay and config.host == "simulator":
        yield (
            f"gradient_delay={config.gradient_delay!r} is real time, which host='simulator' has none of: choose host "
            f"{' or '.join(REAL_HOSTS)}"
        )
    if law != "round-robin" and config.discipline == "round-robin":
        yield f"delay={config.delay!r}: discipline 'round-robin' has turns of its own: leave delay out"
    if config.workers is not None and numbers.get("delay", 0) > config.workers - 1:
        yield f"delay={config.delay!r} needs workers={numbers['delay'] + 1:g} or more, got workers={config.workers}"


def _on_cpu(config: Any) -> Iterator[str]:
    if config.in_flight is not None:
        yield "in_flight is for device='cuda': on the CPU as many examples are in hand as workers"


def _on_gpu(config: Any) -> Iterator[str]:
    kernels = config.on_gpu
    if not kernels:
        yield f"problem {config.problem!r} has no kernels for device='cuda': leave device out"
    if config.discipline not in kernels:
        yield f"device='cuda' has disciplines {', '.join(kernels)}, not {config.discipline!r}"
    if config.host != STREAMS:
        yield f"device='cuda' has no host {config.host!r}: leave host out"
    if config.exchange != "none":
        yield f"device='cuda' has no exchange {config.exchange!r}: leave exchange out"
    if config.order == "blocks":
        yield "device='cuda' has no order 'blocks': leave order out"
    if config.gradient_delay:
        yield "device='cuda' has no gradient_delay: leave it out"
    if (config.workers or 1) > MOST_STREAMS:
        yield f"device='cuda' has {MOST_STREAMS} streams at most, got workers={config.workers}"
