"""``hogwild compare --suite NAME``, and the progress of any comparison up to its report."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hogwild.cli.bench import parse_workers
from hogwild.cli.data.sources import Sources, check_writable
from hogwild.cli.display import Display, bar, clock
from hogwild.cli.options import parse_numbers
from hogwild.errors import UsageError, nearest
from hogwild.screen import Screen

if TYPE_CHECKING:
    from hogwild.compare.run.harness import Comparison, ComparisonProgress
    from hogwild.compare.run.suites import Suite

TIMEOUTS = {"paper": 60.0, "exchanges": 600.0}  # seconds of training after which a run is stopped
COMMON = ("suite", "timeout", "dry_run", "cache", "no_cache", "out", "quiet")


def begin_suite(given: dict[str, Any], usual: Mapping[str, inspect.Parameter]) -> int:
    """Run those experiments of a suite that are not done yet; return the exit status.

    ``usual`` holds the parameters of compare, which tell what was asked.
    """
    name = given["suite"]
    if name not in TIMEOUTS:
        raise UsageError(f"--suite {name}: expected {', '.join(TIMEOUTS)}{nearest(name, TIMEOUTS)}")
    from hogwild.compare.run.suites import Suite

    options = asked(given, usual)
    display = Display(sys.stdout if given["dry_run"] else Screen(sys.stdout), given["quiet"])
    command = shlex.join(["hogwild", *sys.argv[1:]])
    suite = Suite(name, options, Sources.take(given).cache(), command, given["timeout"] or TIMEOUTS[name])
    if given["dry_run"]:
        for part in suite.parts:
            plan, link = part.plan, f", {part.base.link}" if part.base.link else ""
            display.say(f"{part.name:<15} {part.data}{link}: {', '.join(plan.methods)}")
        counts = ", ".join(map(str, plan.workers))
        display.say(f"{plan.epochs} epochs each; serial on 1 worker, others on {counts}")
        return 0
    check_writable("--out", given["out"], directory=True)
    if given["host"] == "processes" and name == "paper":
        from hogwild.hosts import fork_server

        fork_server.ensure_running()
    return follow(suite, given["out"], display)


def asked(given: dict[str, Any], usual: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Return the options that were given, as keywords of the suite's function; refuse what it determines itself."""
    from hogwild.compare.run.methods import listed
    from hogwild.compare.run.suites import SUITES

    parsers: dict[str, Callable[[Any], Any]] = {
        "methods": lambda text: tuple(listed(text)),
        "workers": parse_workers,
        "steps": lambda text: parse_numbers("--steps", text, 0.0),
    }
    known, found = inspect.signature(SUITES[given["suite"]]).parameters, dict[str, Any]()
    for name, parameter in usual.items():
        if name in COMMON or given[name] == parameter.default:
            continue
        if name not in known:
            option = "DATA" if name == "data" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} does not go with --suite {given['suite']}, whose data and options are its own")
        found[name] = parsers.get(name, lambda value: value)(given[name])
    return found


def follow(comparison: Comparison | Suite, out: str, display: Display) -> int:
    """Run the comparison, show the report, and return the exit status."""
    from hogwild.cli.compare.report import show_report
    from hogwild.compare.report.page import write_report

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


def progress_line(progress: ComparisonProgress) -> str:
    """Return the live line of a comparison."""
    if not progress.total:
        return progress.label
    left = "" if progress.left is None else f"  about {clock(progress.left)} left"
    return f"{bar(progress.done / progress.total)} {progress.done}/{progress.total} runs{left}  {progress.label}"
