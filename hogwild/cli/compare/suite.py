"""``hogwild compare --suite NAME``, and the progress of any comparison up to its report."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hogwild import machine
from hogwild.cli.bench import parse_workers
from hogwild.cli.data.sources import Sources, check_writable
from hogwild.cli.display import Display, bar, clock
from hogwild.cli.options import parse_numbers
from hogwild.errors import UsageError, nearest
from hogwild.screen import Screen

if TYPE_CHECKING:
    from hogwild.compare.run.exchanges import Exchanges
    from hogwild.compare.run.harness import Comparison, ComparisonProgress
    from hogwild.compare.run.suite import Suite

COMMON = ("suite", "scale", "methods", "workers", "seeds", "epochs", "timeout", "dry_run", "cache", "no_cache", "seed",
          "out", "quiet")  # fmt: skip
#: The suites, and the options that can be combined with each; the suite determines the rest.
SUITES = {"paper": (*COMMON, "oversubscribe", "host"), "exchanges": (*COMMON, "steps", "link")}


def begin_suite(given: dict[str, Any], usual: Mapping[str, inspect.Parameter]) -> int:
    """Run those experiments of a suite that are not done yet; return the exit status.

    ``usual`` holds the parameters of compare, which tell what was asked.
    """
    check_suite(given, usual)
    return begin_paper(given) if given["suite"] == "paper" else begin_exchanges(given)


def begin_exchanges(given: dict[str, Any]) -> int:
    """Compare exchanges by the simulator's clock."""
    from hogwild.compare.run.exchanges import Exchanges, ExchangesPlan, folders
    from hogwild.compare.run.methods import listed

    asked = {name: given[name] for name in ("scale", "epochs", "seeds") if given[name] is not None}
    asked |= {"link": given["link"]} if given["link"] else {}
    asked |= {"methods": tuple(listed(given["methods"]))} if given["methods"] else {}
    asked |= {"replicas": parse_workers(given["workers"])} if given["workers"] else {}
    asked |= {"steps": parse_numbers("--steps", given["steps"], 0.0)} if given["steps"] != "auto" else {}
    plan = ExchangesPlan(first_seed=given["seed"], **asked)
    display = Display(sys.stdout if given["dry_run"] else Screen(sys.stdout), given["quiet"])
    asked = {"timeout": given["timeout"]} if given["timeout"] is not None else {}
    suite = Exchanges(plan, Sources.take(given).cache(), shlex.join(["hogwild", *sys.argv[1:]]), **asked)
    if given["dry_run"]:
        for name, data, link, methods in suite.listed():
            display.say(f"{name:<15} {data}, {link}: {', '.join(methods)}")
        replicas = ", ".join(map(str, plan.replicas))
        display.say(f"{plan.epochs} epochs each; serial on 1 worker, others on {replicas}")
        return 0
    check_writable("--out", given["out"], directory=True)
    return follow(suite, given["out"], display, folders(given["out"]))


def begin_paper(given: dict[str, Any]) -> int:
    """Run the paper's experiments."""
    from hogwild.compare.run.methods import chosen
    from hogwild.compare.run.suite import RIVALS, Suite, SuitePlan
    from hogwild.hosts import fork_server

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
    """Raise UsageError for an unknown suite, or an option that a suite determines itself."""
    suite = given["suite"]
    if suite not in SUITES:
        raise UsageError(f"--suite {suite}: expected {', '.join(SUITES)}{nearest(suite, SUITES)}")
    for name, parameter in usual.items():
        if name not in SUITES[suite] and given[name] != parameter.default:
            option = "DATA" if name == "data" else f"--{name.replace('_', '-')}"
            whose = "the paper's" if suite == "paper" else "its own"
            raise UsageError(f"{option} does not go with --suite {suite}, whose data and options are {whose}")


def follow(
    comparison: Comparison | Suite | Exchanges, out: str, display: Display, sources: Sequence[Path] = ()
) -> int:  # fmt: skip
    """Run the comparison, show the report, and return the exit status; its rows are in ``out`` or in ``sources``."""
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
        report = write_report(sources or [Path(out)], Path(out))
    show_report(display, report)
    display.finish()
    return 0


def progress_line(progress: ComparisonProgress) -> str:
    """Return the live line of a comparison."""
    if not progress.total:
        return progress.label
    left = "" if progress.left is None else f"  about {clock(progress.left)} left"
    return f"{bar(progress.done / progress.total)} {progress.done}/{progress.total} runs{left}  {progress.label}"
