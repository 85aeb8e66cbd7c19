"""Measures what README and the manual show, by the command line a user has, and writes it between their markers.

Everything is a command of ``hogwild`` whose rows are kept in ``reproduced/``; the tables are computed from those rows
alone. A table between ``<!-- NAME -->`` and ``<!-- /NAME -->`` in one of the ``PAGES`` is replaced, and nothing
else is touched.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import paper_graphs

from hogwild.compare.report.cells import duration, percent
from hogwild.compare.report.figures import curves_of
from hogwild.compare.report.results import ComparisonResult, Group, load
from hogwild.compare.report.tables import tables
from hogwild.compare.report.verdict import target, verdict
from hogwild.machine import physical_cores
from hogwild.methods import DISCIPLINES

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/measured.md")
Row = dict[str, Any]

RCV1 = "synthetic:rcv1?rows=200000"
FAMILIES = {
    RCV1: "rcv1",
    "synthetic:uniform?rows=400000": "uniform",
    "synthetic:ctr?rows=200000&features=16777216": "ctr",
}
#: The full sets of Netflix and KDD have ratings=100198805&shift=106 and ratings=252800275.
NETFLIX = (
    "synthetic:ratings?users=480189&items=17770&ratings=10000000&rank=16&zipf=1.5&shift=208&user_shift=350&noise=0.8"
)
#: Methods of the section against, as they are called outside.
PROGRAMS = {
    "sklearn-sgd": "scikit-learn SGD",
    "liblinear": "LIBLINEAR",
    "snapml": "snapml",
    "vowpal-wabbit": "Vowpal Wabbit",
}

# name: (training data, test data, options)
REAL = {
    "RCV1": ("rcv1/train.svm.gz", "rcv1/test.svm.gz", []),
    "IMDB, rows of length one": ("imdb/train_counts.svm.gz", "imdb/test_counts.svm.gz", ["--normalize", "l2"]),
    "Amazon employee access": ("amazon-employee/train.svm.gz", "amazon-employee/test.svm.gz", []),
    "a9a": ("libsvm/a9a.gz", "libsvm/a9a.t.gz", []),
}
BEYOND = "beyond the cache"
MADE = {
    BEYOND: ("synthetic:rcv1?rows=400000", None, ["--epochs", "5", "--seeds", "3"]),
    "dense": ("synthetic:dense?rows=20000", None, []),
}
SIMULATED = {
    "RCV1, 19,341 rows": ("rcv1/train.svm.gz", []),
    "IMDB, rows of length one": ("imdb/train_counts.svm.gz", ["--normalize", "l2"]),
    "IMDB, raw counts": ("imdb/train_counts.svm.gz", []),
    "a9a": ("libsvm/a9a.gz", []),
    "w8a": ("libsvm/w8a.gz", []),
    "Amazon employee access, 26,215 rows, 205,298 features": ("amazon-employee/train.svm.gz", []),
    "mushrooms, 8,124 rows": ("libsvm/mushrooms.gz", []),
    "synthetic tf-idf, 40,000 rows": ("synthetic:rcv1?rows=40000", []),
    "synthetic binary": ("synthetic:rcv1?rows=40000&values=binary", []),
    "synthetic counts": ("synthetic:rcv1?rows=40000&values=counts", []),
}
METHODS = "serial,hogwild,tiered,atomic,aig,locked,round-robin,averaging,one-shot-averaging,sklearn-sgd,liblinear"
RATINGS = "ml-1m/ratings.tsv.gz"
Figures = tuple[float | None, float | None, float | None]  # seconds, and errors in training and in test


@dataclasses.dataclass(frozen=True)
class StandIn:
    """A set of the paper's table 2: its figures of Hogwild and of round-robin, and generated data of 1 % its size.

    The stand-ins keep Omega and, as far as possible at their size, Delta and rho (Jumbo: 0.1 %).
    """

    problem: str
    figures: tuple[Figures, Figures]
    data: str | Callable[[Path], str]  # a name, or a function that writes a file and returns its name
    options: tuple[str, ...] = ()
    test: str | None = None


PAPER_EPOCHS = 20
PROTOCOL = ("--epochs", f"{PAPER_EPOCHS}", "--schedule", "epoch", "--decay", "0.9", "--seeds", "1", "--timeout", "60")
PROTOCOL += ("--workers", str(physical_cores()), "--eps", "1e-1,1e-2")
ERRORS = {
    "linear": "root of the mean hinge loss",
    "completion": "RMSE",
    "cuts": "value of the rounded cut, an edge",
}
HELD_OUT = ("--holdout", "0.1")
PAPER = {
    "RCV1": StandIn(
        "linear",
        ((9.5, 0.297, 0.339), (61.8, 0.297, 0.339)),
        "synthetic:rcv1?rows=7813",
        ("--loss", "hinge", "--l2", "1e-5"),
        "synthetic:rcv1?rows=231&skip=7813",
    ),
    "Netflix": StandIn(
        "completion",
        ((301.0, 0.754, 0.928), (2569.1, 0.754, 0.927)),
        "synthetic:ratings?users=48019&items=1777&ratings=1001988&rank=16&zipf=1.5&shift=370.8&user_shift=774.3&noise=0.8",
        ("--rank", "30", "--l2", "0.1", *HELD_OUT),
    ),
    "KDD": StandIn(
        "completion",
        ((877.5, 19.5, 22.6), (7139.0, 19.5, 22.6)),
        "synthetic:ratings?users=100099&items=62496&ratings=2528003&rank=16&shift=82.92&user_shift=44.49&noise=0.8&scale=100",
        ("--rank", "30", "--l2", "0.1", *HELD_OUT),
    ),
    "Jumbo": StandIn(
        "completion",
        ((9453.5, 0.031, 0.013), (None, None, None)),
        "synthetic:ratings?users=316228&items=316228&ratings=2000000&rank=10&zipf=0&user_zipf=0&noise=0&values=real",
        ("--rank", "10", *HELD_OUT),
    ),
    "DBLife": StandIn("cuts", ((230.0, 10.6, None), (413.5, 10.5, None)), paper_graphs.dblife),
    "Abdomen": StandIn("cuts", ((1181.4, 3.99, None), (7467.25, 3.99, None)), paper_graphs.abdomen),
}

#: Data of exchanges, virtual time of a row, and rows between two messages of gossip.
EXCHANGES = {
    "rcv1": ("synthetic:rcv1?rows=20000", "0.2us", 250),
    "rcv1 x10": ("synthetic:rcv1?rows=20000", "2us", 100),
    "categories x10": ("synthetic:ctr?rows=20000&features=25000", "2us", 100),
    "clicks": ("synthetic:ctr?rows=10000&features=100000", "0.2us", 1000),
}
TRADING = (
    "serial,averaging,averaging:mean=rows,averaging:period=0.25,gossip:period={often},gossip:period={often},home=0,"
    "server:push=1000"
)


def main() -> None:
    """Measure, then print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("HOGWILD_TEST_DATA"), help="folder of real data")
    parser.add_argument("--out", type=Path, default=ROOT / "reproduced", help="where the rows are kept")
    parser.add_argument("--only", default="", help="some of bench,compare,simulate,completion,paper,exchanges")
    parser.add_argument("--write", action="store_true", help="put the tables and the figure into the pages")
    options = parser.parse_args()
    began = time.monotonic()
    work = Work(options.out, options.data)
    parts = {
        "bench": bench,
        "compare": compare,
        "simulate": simulate,
        "completion": completion,
        "paper": paper,
    }
    more = {"exchanges": exchanges}
    chosen = [name for name in parts | more if name in (options.only.split(",") if options.only else parts)]
    tables: dict[str, str] = {}
    for name in chosen:
        tables |= (parts | more)[name](work)
    for name, text in tables.items():
        print(f"\n<!-- {name} -->\n{text}\n<!-- /{name} -->")
    if options.write:
        write(tables, options.out)
    print(f"\n{(time.monotonic() - began) / 60:.1f} minutes", file=sys.stderr)


class Work:
    """Commands of ``hogwild`` and where their results lie."""

    def __init__(self, out: Path, data: Path | None) -> None:
        self.out, self.data = out, None if data is None else Path(data)
        out.mkdir(parents=True, exist_ok=True)

    def run(self, *arguments: str) -> None:
        """One command; what it prints is shown."""
        print("+ hogwild " + " ".join(arguments), file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "hogwild", *arguments], check=True, cwd=self.out)

    def place(self, name: str | None) -> str | None:
        """The path of real data, the name of generated data or their file, or None if they are not there."""
        if name is None or name.startswith("synthetic:") or os.path.isabs(name):
            return name
        path = None if self.data is None else (self.data / name).resolve()
        return None if path is None or not path.exists() else str(path)

    def compare(self, kind: str, title: str, data: str, test: str | None, *options: str) -> ComparisonResult | None:
        """A comparison, run or taken over from before; None without its data."""
        found, tests = self.place(data), self.place(test)
        if found is None or (test is not None and tests is None):
            print(f"{title}: no {data}: left out (--data DIR)", file=sys.stderr)
            return None
        folder = folder_of(kind, title)
        self.run("compare", found, *(["--test", tests] if tests else []), "--out", folder, *options)
        return dataclasses.replace(load([self.out / folder])[0], label=title)


def folder_of(kind: str, title: str) -> str:
    """Where a comparison's results lie."""
    return f"{kind}-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}"


# ---- hogwild bench


def bench(work: Work) -> dict[str, str]:
    """The machine: disciplines on three shapes of data, and on one of them other programs."""
    rows = measured(work, "bench", [*FAMILIES]) + beside(work, "beside", RCV1)
    return {"headline": headline(rows), "others": others(rows), "disciplines": disciplines(rows)}


def measured(work: Work, kind: str, data: list[str], *options: str) -> list[Row]:
    """The rows of a benchmark, run or taken over from before."""
    path, partial = work.out / f"{kind}.jsonl", f"{kind}.partial"
    if not path.exists():
        work.run("bench", *data, *options, "--json", partial)
        (work.out / partial).replace(path)
    return [json.loads(line) | {"section": "scaling"} for line in path.read_text().splitlines()]


def beside(work: Work, kind: str, *words: str) -> list[Row]:
    """The rows of other programs, run or taken over from before."""
    path = work.out / f"{kind}.jsonl"
    if not path.exists():
        command = [sys.executable, str(ROOT / "scripts" / "bench" / "against.py"), *words]
        print("+ " + " ".join(command[1:]), file=sys.stderr, flush=True)
        path.write_bytes(subprocess.run(command, check=True, cwd=work.out, stdout=subprocess.PIPE).stdout)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["method"] != "serial"]  # which has been measured beside others


def find(rows: Iterable[Row], **fields: Any) -> Row:
    """The first good row with these fields; empty if there is none."""
    for row in rows:
        if row.get("status", "ok") == "ok" and all(row.get(name) == value for name, value in fields.items()):
            return row
    return {}


def seconds(row: Row) -> float | None:
    return row.get("seconds")


def over(slow: float | None, fast: float | None) -> str:
    return "–" if not slow or not fast else f"{slow / fast:.3g}x"


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} s"


def alone(row: Row) -> Row:
    """One serial worker in the same interleaved rounds."""
    return {"seconds": row["seconds"] * row["speedup"]} if row.get("speedup") else {}


HEAD = ["| one machine, the same data | hogwild | the other | |", "|---|--:|--:|--:|"]


def headline(rows: list[Row]) -> str:
    """The first screen's table: an epoch, a second core, and other programs on the logistic loss."""
    cell = {"section": "scaling", "data": RCV1}
    ours, theirs = (find(rows, method=name, **cell) for name in ("serial", "sklearn-sgd"))
    tiered = find(rows, method="tiered", workers=2, **cell)
    size = f"{ours.get('rows', 0):,} rows x {ours.get('nonzeros', 0) / max(ours.get('rows', 1), 1):.0f} nonzeros"
    equal = f"`tiered`, objective / serial {tiered.get('objective_ratio') or 0:.4f}"
    return "\n".join(
        [
            *HEAD,
            ratio_line(f"one core against scikit-learn `SGDClassifier`, an epoch of {size}", ours, theirs, bold=True),
            ratio_line(f"two cores against one, the same rows ({equal})", tiered, alone(tiered), bold=True),
            *against(rows, "log", "logistic"),
        ]
    )


def others(rows: list[Row]) -> str:
    """What the headline leaves out: the paper's own discipline, and other programs on the hinge loss."""
    hogwild = find(rows, section="scaling", data=RCV1, method="hogwild", workers=2)
    name = "two cores, textbook lock-free (`hogwild`), against one"
    return "\n".join([*HEAD, ratio_line(name, hogwild, alone(hogwild), bold=True), *against(rows, "hinge", "SVM")])


def against(rows: list[Row], loss: str, name: str) -> list[str]:
    """A line a program: time to the same held-out loss."""
    mine = find(rows, section="against", loss=loss, method="hogwild")
    pairs = [(program, find(rows, section="against", loss=loss, method=method)) for method, program in PROGRAMS.items()]
    title = f"{name}: time to the same held-out loss"
    return [ratio_line(f"one core against {program}, {title}", mine, row) for program, row in pairs if row]


def ratio_line(name: str, mine: Row, other: Row, bold: bool = False) -> str:
    ratio = over(seconds(other), seconds(mine))
    return f"| {name} | {shown(seconds(mine))} | {shown(seconds(other))} | {f'**{ratio}**' if bold else ratio} |"


def disciplines(rows: list[Row]) -> str:
    """Speed of every discipline over one serial worker, an epoch."""
    cells = {(row["data"], row["method"], row["workers"]): row for row in rows if row["section"] == "scaling"}
    columns = [(data, count) for data in FAMILIES for count in sorted({key[2] for key in cells})]
    heads = [f"{FAMILIES[data]}, {count}" for data, count in columns]
    lines = ["| discipline | " + " | ".join(heads) + " | objective / serial |", "|---|" + "--:|" * (len(heads) + 1)]
    for name in DISCIPLINES[1:]:
        speedups = [cells.get((data, name, count), {}).get("speedup") for data, count in columns]
        figures = [f"{speedup:.2f}x" if speedup else "–" for speedup in speedups]
        quality = cells.get((RCV1, name, max(count for _, count in columns)), {}).get("objective_ratio")
        lines.append(f"| `{name}` | {' | '.join(figures)} | {'–' if quality is None else f'{quality:.4f}'} |")
    return "\n".join(lines)


# ---- hogwild compare


def compare(work: Work) -> dict[str, str]:
    """Every method on real data, on data beyond the cache, on dense data."""
    sources, cores = [], str(physical_cores())
    for title, (data, test, more) in {**REAL, **MADE}.items():
        source = work.compare("compare", title, data, test, "--methods", METHODS, "--workers", cores, *more)
        if source is not None:
            sources.append(source)
    said = [f"* {source.label}: {verdict(source)[0]}" for source in sources]
    beyond = next((source for source in sources if source.label == BEYOND), sources[-1])
    return {
        "compare": comparison_table(sources),
        "verdicts": "\n".join(said),
        "verdict": "```text\n" + textwrap.fill(verdict(beyond)[0], 118) + "\n```",
    }


def comparison_table(sources: list[ComparisonResult]) -> str:
    """Seconds to a target, a line a method, a column a data set: the hardest target that serial always reaches."""
    keys: dict[tuple[str, int], None] = {}
    tables, heads = [], []
    for source in sources:
        table = {(group.method, group.workers): group for group in source.groups}
        most = max((workers for _, workers in table), default=1)
        table = {key: group for key, group in table.items() if key[1] == most or group.kind in ("serial", "outside")}
        eps = target(source, table.get(("serial", 1))) or max(source.eps)
        cache = source.head.get("cache_megabytes") or math.inf
        where = "in the cache" if source.head["megabytes"] <= cache else "beyond it"
        heads.append(f"{source.label}: {source.head['nnz'] / 1e6:.3g} M nonzeros, {where}; to {percent(eps)}")
        tables.append((table, eps))
        keys |= dict.fromkeys(table)
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "--:|" * len(sources)]
    for key in keys:
        cells = [to_target(table.get(key), eps) for table, eps in tables]
        lines.append(f"| `{key[0]}`, {key[1]} worker{'s' * (key[1] > 1)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def to_target(group: Group | None, eps: float) -> str:
    """Median seconds to the target, and the share of runs that got there if it is not all."""
    if group is None:
        return "–"
    share = group.share(eps)
    return duration(group.median(f"train_seconds to {eps:g}")) + f" ({share:.0%})" * (share < 1) if share else "never"


# ---- simulated workers


def simulate(work: Work) -> dict[str, str]:
    """What 4, 16 and 64 tiered workers do to the objective, at one worker's best step."""
    lines = ["| data (seeds of one worker) | W = 4 | 16 | 64 |", "|---|--:|--:|--:|"]
    short = ["--epochs", "5", "--holdout", "0"]
    for title, (data, more) in SIMULATED.items():
        tuned = work.compare("tuned", title, data, None, "--methods", "serial", "--seeds", "1", *short, *more)
        if tuned is not None:
            step = next(group.first["step"] for group in tuned.groups if group.first["step"])
            options = [
                "--host",
                "simulator",
                "--delay",
                "random",
                "--workers",
                "4,16,64",
                "--methods",
                "serial,tiered",
                "--seeds",
                "3",
                "--steps",
                repr(step),
            ]
            source = work.compare("simulated", title, data, None, *options, *short, *more)
            if source is not None:
                lines.append(f"| {title} {' | '.join(simulated_cells(source))} |")
    return {"simulated": "\n".join(lines)}


def simulated_cells(source: ComparisonResult) -> Iterator[str]:
    """The spread of one worker's seeds, then the ratio of medians for each number of workers."""
    found = {(group.method, group.workers): group for group in source.groups}
    alone = [run["rows"][-1]["objective"] for run in found["serial", 1].runs]
    median = statistics.median(alone)
    yield f"({min(alone) / median:.2f}–{max(alone) / median:.2f})"
    for workers in (4, 16, 64):
        group = found.get(("tiered", workers))
        values = [] if group is None else [run["rows"][-1]["objective"] for run in group.runs]
        yield f"{statistics.median(values) / median:.3f}" if values and None not in values else "–"


# ---- ratings, and the paper


def completion(work: Work) -> dict[str, str]:
    """Matrix completion: millions of updates a second, and errors, beside cornac's."""
    data = [name for name in (NETFLIX, work.place(RATINGS)) if name is not None]
    rows: list[Row] = []
    for rank in ("32", "64"):
        more = "--problem", "completion", "--rank", rank
        measured_rows = measured(work, f"ratings-{rank}", data, *more, "--penalty", "per-rating")
        rows += measured_rows + beside(work, f"cornac-{rank}", *data, *more)
    return {"completion": completion_table(rows)}


def completion_table(rows: list[Row]) -> str:
    """A line a way to train, a column a data set and rank."""
    cells = {(row["data"], row["rank"], row["method"], row["workers"]): row for row in rows if row.get("method")}
    columns = sorted({key[:2] for key in cells}, key=lambda column: (column[0] != NETFLIX, column))
    heads = []
    for data, rank in columns:
        count = find(rows, data=data, rank=rank).get("ratings", 0)
        name = "shaped like Netflix's" if data == NETFLIX else "MovieLens 1M"
        heads.append(f"{name}, {count / 1e6:.1f} M ratings, rank {rank}")
    lines = [f"| M updates a second (held-out RMSE) | {' | '.join(heads)} |", "|---|" + "--:|" * len(columns)]
    for method in ("serial", "hogwild", "blocks", "tiered", "cornac"):
        for workers in sorted({key[3] for key in cells if key[2] == method}):
            texts = []
            for data, rank in columns:
                row = cells.get((data, rank, method, workers), {})
                rate, error = row.get("ratings_per_second"), row.get("held_out")
                texts.append("–" if rate is None else f"{rate / 1e6:.0f} ({'–' if error is None else f'{error:.4f}'})")
            lines.append(f"| `{method}`, {workers} worker{'s' * (workers > 1)} | {' | '.join(texts)} |")
    return "\n".join(lines)


def paper(work: Work) -> dict[str, str]:
    """The table of the Hogwild paper on stand-ins, by its protocol: every method takes the step that serial stands."""
    lines = [
        "| data | whose | Hogwild s | train | test | RR s | train | test | RR/HW |",
        "|---|---|" + "--:|" * 7,
    ]
    for name, stand_in in PAPER.items():
        data = stand_in.data if isinstance(stand_in.data, str) else stand_in.data(work.out.resolve() / f"{name}.tsv")
        about = (name, data, stand_in.test, *PROTOCOL, "--problem", stand_in.problem, *stand_in.options)
        tuned = work.compare("paper-step", *about, "--methods", "serial")
        if tuned is None:
            continue
        step = repr(largest_that_converges(tuned))
        source = work.compare("paper", *about, "--methods", "serial,hogwild,round-robin", "--steps", step)
        if source is None:
            continue
        lines.append(paper_line(name, "paper", *stand_in.figures))
        found = {group.method: group for group in source.groups}
        ours = (paper_outcome(stand_in, source, found.get(method)) for method in ("hogwild", "round-robin"))
        lines.append(paper_line(name, "here", *ours))
    errors = "; ".join(f"{name}: {ERRORS[stand_in.problem]}" for name, stand_in in PAPER.items())
    notes = (
        f"Paper: Recht, Re, Wright, Niu (2011), tables 1 and 2, ten threads. Here: stand-ins of 1 % their size, "
        f"{physical_cores()} workers. Seconds are of {PAPER_EPOCHS} epochs of training.",
        f"Train and test: {errors}. The paper does not say how it scaled the errors of cuts and of RCV1, so these "
        "columns tell methods apart, not machines.",
    )
    return {"paper": "\n".join(lines) + "".join(f"\n\n{textwrap.fill(note, 118)}" for note in notes)}


def largest_that_converges(source: ComparisonResult) -> float:
    """The largest step whose trial ended well and within a twentieth of the way of the best one."""
    trials = source.of_phase("tuning")
    ends = {run["step"]: run["last objective"] for run in trials if run["step"] and "last objective" in run}
    if not ends:
        return min(source.head["step_grid"])
    best = min(ends.values())
    return max(step for step, end in ends.items() if end - best <= 0.05 * max(source.start - best, 0.0))


def paper_outcome(stand_in: StandIn, source: ComparisonResult, group: Group | None) -> Figures:
    """Seconds of all epochs, extrapolated if runs were stopped earlier, and errors, of one method."""
    if group is None:
        return None, None, None

    def error(part: str) -> float | None:
        fields = {"linear": f"{part}_loss", "completion": f"{part}_rmse", "cuts": "cut_value"}
        last = group.of(f"last {fields[stand_in.problem]}")
        if last is None or (part, stand_in.problem) == ("test", "cuts"):
            return None
        if stand_in.problem == "cuts":
            return last.median / source.head["edges"]
        return math.sqrt(last.median) if stand_in.problem == "linear" else last.median

    epoch = group.of("epoch_seconds")
    return epoch and PAPER_EPOCHS * epoch.median, error("train"), error("test")


def paper_line(name: str, whose: str, hogwild: Figures, round_robin: Figures) -> str:
    """A line of the table, with the ratio of seconds."""
    cells = [
        "–" if value is None else f"{value:.3g}" if value < 1e3 else f"{value:,.0f}"
        for value in (*hogwild, *round_robin)
    ]
    slow, fast = round_robin[0], hogwild[0]
    return f"| {name} | {whose} | {' | '.join(cells)} | {f'{slow / fast:.1f}' if slow and fast else '–'} |"


def exchanges(work: Work) -> dict[str, str]:
    """Which exchange is sooner over which link, by the simulator's clock; printed, and in none of the pages."""
    sources = []
    for name, (data, row, often) in EXCHANGES.items():
        options = ["--host", "simulator", "--delay", "round-robin:quantum=50", "--holdout", "0", "--no-intercept"]
        options += ["--link", f"latency=0.2ms,bandwidth=1Gbit,row={row}", "--methods", TRADING.format(often=often)]
        options += ["--workers", "4,16", "--epochs", "16", "--seeds", "3", "--eps", "1e-2,1e-3", "--l2", "1e-5"]
        source = work.compare("exchanges", name, data, None, *options)
        if source is not None:
            sources.append(source)
    for table in tables(sources)[:1]:
        print("\n".join(" | ".join(row) for row in (table.columns, *table.rows)))
    return {}


# ---- the pages


def write(tables: dict[str, str], out: Path) -> None:
    """Put the tables between the pages' markers, and the figure beside this script."""
    pages = {path: path.read_text() for path in (ROOT / name for name in PAGES)}
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not any(pattern.search(text) for text in pages.values()):
            raise SystemExit(f"{' and '.join(PAGES)} have no <!-- {name} --> ... <!-- /{name} -->")
        for path, text in pages.items():
            pages[path] = pattern.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    for path, text in pages.items():
        path.write_text(text)
    folder = out / folder_of("compare", BEYOND)
    if folder.exists():
        draw(load([folder]), ROOT / "scripts" / "comparison.svg")


def draw(sources: list[ComparisonResult], path: Path) -> None:
    """Write the figure of README: distance from the optimum against seconds, every method."""
    from matplotlib.figure import Figure  # without pyplot: no window and no state

    figure = Figure(figsize=(7.1, 4.5), layout="constrained")
    panel = figure.subplots()
    for curve in curves_of(sources):
        at, dashes = curve.points["train_seconds"], {"dot": ":", "dashdot": "-.", "dash": "--"}.get(curve.line, "-")
        panel.loglog(at, curve.points["median"], dashes, color=curve.colour, label=curve.name, nonpositive="mask")
        panel.fill_between(at, curve.points["low"], curve.points["high"], color=curve.colour, alpha=0.15, linewidth=0)
    panel.yaxis.set_major_formatter(lambda value, _: percent(value))
    panel.set(xlabel="seconds of training", ylabel="distance from the optimum")
    panel.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
