"""``hogwild compare --suite paper``, and how a comparison of either kind is followed to its report."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hogwild import machine
from hogwild.cli.bench import parse_workers
from hogwild.cli.display import Display, bar, clock
from hogwild.cli.sources import Sources, check_writable
from hogwild.errors import UsageError, nearest
from hogwild.screen import Screen

if TYPE_CHECKING:
    from hogwild.compare.harness import Comparison, Progress
    from hogwild.compare.suite import Suite

SUITES = ("paper",)
#: What goes with --suite; all else is the paper's.
OF_SUITE = ("suite", "scale", "methods", "workers", "seeds", "epochs", "timeout", "oversubscribe", "dry_run", "cache",
            "no_cache", "seed", "host", "out", "quiet")  # fmt: skip


def begin_suite(given: dict[str, Any], usual: Mapping[str, inspect.Parameter]) -> int:
    """Do the paper's experiments, as far as they are not done; returns the exit status.

    ``usual`` are the parameters of compare, which tell what was asked.
    """
    from hogwild.hosts import fork_server

    check_suite(given, usual)
    from hogwild.compare.methods import chosen
    from hogwild.compare.suite import RIVALS, Suite, SuitePlan

    names = RIVALS if given["methods"] is None else [name.strip() for name in given["methods"].split(",")]
    counts = (machine.physical_cores(),) if given["workers"] is None else parse_workers(given["workers"])
    if len(counts) != 1:
        raise UsageError(f"--workers {given['workers']}: expected one number, for a suite has one column of seconds")
    asked = {name: given[name] for name in ("scale", "epochs", "seeds", "timeout") if given[name] is not None}
    plan = SuitePlan(
        workers=counts[0], first_seed=given["seed"], methods=tuple(method.name for method in chosen(list(names))),
        host=given["host"], oversubscribe=given["oversubscribe"], **asked,
    )  # fmt: skip
    display = Display(sys.stdout if given["dry_run"] else Screen(sys.stdout), given["quiet"])
    sources = Sources.take(given)
    suite = Suite(plan, sources.cache(), shlex.join(["hogwild", *sys.argv[1:]]))
    if given["dry_run"]:
        for name, data, runs in suite.listed():
            display.say(f"{name:<8} {runs:>3} runs on {data}")
        display.say(
            f"{plan.epochs} epochs each, {', '.join(plan.methods)}; serial on 1 worker, others on {plan.workers}"
        )
        return 0
    check_writable("--out", given["out"], directory=True)
    if plan.host == "processes":
        fork_server.ensure_running()
    return follow(suite, given["out"], display)


def check_suite(given: dict[str, Any], usual: Mapping[str, inspect.Parameter]) -> None:
    """Raise UsageError for another suite, or an option that a suite decides itself."""
    if given["suite"] not in SUITES:
        raise UsageError(f"--suite {given['suite']}: expected {', '.join(SUITES)}{nearest(given['suite'], SUITES)}")
    for name, parameter in usual.items():
        if name not in OF_SUITE and given[name] != parameter.default:
            option = "DATA" if name == "data" else f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} does not go with --suite {given['suite']}, whose data and options are the paper's"
            )


def follow(comparison: Comparison | Suite, out: str, display: Display) -> int:
    """Run the comparison, show the report, and return the exit status."""
    from hogwild.cli.report import show_report
    from hogwild.compare.report import write_report

    try:
        with display.live(lambda: progress_line(comparison.progress)):
            comparison.run(out)
    except KeyboardInterrupt:
        progress = comparison.progress
        display.say(f"\ninterrupted: {progress.done} of {progress.total} runs are in {out}; the same command goes on")
        return 130
    with display.live(lambda: "drawing"):
        report = write_report([Path(out)], Path(out))
    show_report(display, report)
    display.finish()
    return 0


def progress_line(progress: Progress) -> str:
    """The live line of a comparison."""
    if not progress.total:
        return progress.label
    left = "" if progress.left is None else f"  about {clock(progress.left)} left"
    return f"{bar(progress.done / progress.total)} {progress.done}/{progress.total} runs{left}  {progress.label}"
