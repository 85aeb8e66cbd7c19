"""Measures what README and the manual show, by the command line a user has, and writes it between their markers.

Everything is a ``hogwild compare`` whose rows are kept in ``reproduced/``; the tables are computed from those rows
alone. A table between ``<!-- NAME -->`` and ``<!-- /NAME -->`` in one of the ``PAGES`` is replaced, and nothing else is
touched.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paper_graphs

from hogwild.compare.report.cells import duration, percent, place, times
from hogwild.compare.report.figures import curves_of
from hogwild.compare.report.results import ComparisonResult, Group, load
from hogwild.compare.report.verdict import target, verdict
from hogwild.machine import physical_cores
from hogwild.methods import DISCIPLINES

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/measured.md")
CORES = str(physical_cores())

RCV1 = "synthetic:rcv1?rows=200000"
FAMILIES = {
    "rcv1": RCV1,
    "uniform": "synthetic:uniform?rows=400000",
    "ctr": "synthetic:ctr?rows=200000&features=16777216",
}
#: Ratings by name. The full sets of Netflix and KDD have ratings=100198805&shift=106 and ratings=252800275.
RATINGS = {
    "shaped like Netflix's": "synthetic:ratings?users=480189&items=17770&ratings=10000000&rank=16&zipf=1.5&shift=208"
    "&user_shift=350&noise=0.8",
    "MovieLens 1M": "ml-1m/ratings.tsv.gz",
}
#: Other programs, as they are called outside.
PROGRAMS = {
    "sklearn-sgd": "scikit-learn SGD",
    "liblinear": "LIBLINEAR",
    "snapml": "Snap ML",
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
PROTOCOL += ("--workers", CORES, "--eps", "1e-1,1e-2")
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


def main() -> None:
    """Measure, then print or write the tables."""
    parts = {each.__name__: each for each in (beside, disciplines, compare, simulate, completion, paper)}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("HOGWILD_TEST_DATA"), help="folder of real data")
    parser.add_argument("--out", type=Path, default=ROOT / "reproduced", help="where the rows are kept")
    parser.add_argument("--only", default=",".join(parts), help=f"some of {','.join(parts)}")
    parser.add_argument("--write", action="store_true", help="put the tables and the figure into the pages")
    options = parser.parse_args()
    if not {*options.only.split(",")} <= {*parts}:
        parser.error(f"--only {options.only}: expected some of {', '.join(parts)}")
    began = time.monotonic()
    work = Work(options.out, options.data)
    tables: dict[str, str] = {}
    for name in options.only.split(","):
        tables |= parts[name](work)
    for name, text in tables.items():
        print(f"\n<!-- {name} -->\n{text}\n<!-- /{name} -->")
    if options.write:
        write(tables, options.out)
    else:
        print("\nRatios here, and in brackets those of the pages, from the machine that they name:")
        print("\n".join(beside_the_pages(tables)))
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

    def place(self, name: str) -> str:
        """The path of real data; the name of generated data or of their file as it is."""
        return name if self.data is None or name.startswith("synthetic:") else str((self.data / name).resolve())

    def compare(self, kind: str, title: str, data: str, test: str | None, *options: str) -> ComparisonResult | None:
        """A comparison, run or taken over from before; None without its data."""
        files = [self.place(name) for name in (data, test) if name]
        if missing := [name for name in files if not name.startswith("synthetic:") and not Path(name).exists()]:
            print(f"{title}: no {missing[0]}: left out (--data DIR)", file=sys.stderr)
            return None
        folder = folder_of(kind, title)
        self.run("compare", files[0], *(["--test", *files[1:]] if test else []), "--out", folder, *options)
        return dataclasses.replace(load([self.out / folder])[0], label=title)


def folder_of(kind: str, title: str) -> str:
    """Where a comparison's results lie."""
    return f"{kind}-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}"


def table_of(heads: list[str], lines: list[list[str]]) -> str:
    """A table of Markdown whose first column is of words."""
    rows = [heads, ["---"] + ["--:"] * (len(heads) - 1), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def groups_of(source: ComparisonResult) -> dict[tuple[str, int], Group]:
    return {(group.method, group.workers): group for group in source.groups}


def words_of(method: str, workers: int) -> str:
    return f"`{method}`, {workers} worker{'s' * (workers > 1)}"


# ---- epochs, and other programs


def beside(work: Work) -> dict[str, str]:
    """One core beside other programs, and two cores beside one: the first screen's table, and the rest of it."""
    methods = ["--methods", ",".join(["hogwild", "tiered", *PROGRAMS]), "--workers", CORES]
    log, hinge = (work.compare("beside", loss, RCV1, None, "--loss", loss, *methods) for loss in ("log", "hinge"))
    assert log is not None
    assert hinge is not None
    heads = ["one machine, the same data", "hogwild", "the other", ""]
    return {
        "headline": table_of(heads, [*epochs(log, "tiered", True), *sooner(log, "logistic")]),
        "others": table_of(heads, [*epochs(log, "hogwild", False), *sooner(hinge, "SVM")]),
    }


def epochs(source: ComparisonResult, method: str, rival: bool) -> Iterator[list[str]]:
    """Lines of an epoch: of one core beside scikit-learn's SGD, and of all cores with a method beside one."""
    found = groups_of(source)
    serial, others = found["serial", 1], found.get(("sklearn-sgd", 1))
    if rival and others:
        size = f"{source.head['rows']:,} rows x {source.head['nnz'] / source.head['rows']:.0f} nonzeros"
        yield line(
            f"one core against scikit-learn `SGDClassifier`, an epoch of {size}", serial, others, "epoch_seconds"
        )
    group = found[method, physical_cores()]
    equal = f"objective / serial {group.median('last objective') / serial.median('last objective'):.4f}"
    yield line(f"{CORES} cores against one, an epoch (`{method}`, {equal})", group, serial, "epoch_seconds")


def sooner(source: ComparisonResult, name: str) -> Iterator[list[str]]:
    """A line a program: time to the hardest target that it and serial always reach; serial's where it reaches none."""
    found = groups_of(source)
    serial = found["serial", 1]
    for method, program in PROGRAMS.items():
        if other := found.get((method, 1)):
            common = [eps for eps in source.eps if serial.share(eps) == other.share(eps) == 1]
            eps = min(common, default=target(source, serial) or max(source.eps))
            title = f"one core against {program}, {name}: time to {percent(eps)} of the optimum"
            yield line(title, serial, other, f"train_seconds to {eps:g}")


def line(title: str, ours: Group, theirs: Group, figure: str) -> list[str]:
    mine, other = ours.median(figure), theirs.median(figure)
    shown = ["never" if math.isnan(value) else duration(value) for value in (mine, other)]
    return [title, *shown, f"**{times(other / mine)}**"]


def disciplines(work: Work) -> dict[str, str]:
    """Speed of an epoch of every discipline over one serial worker, on three shapes of data."""
    counts = [str(1 << k) for k in range(physical_cores().bit_length())]
    options = ["--methods", ",".join(DISCIPLINES), "--workers", ",".join(counts), "--steps", "1", "--epochs", "5"]
    found = {}
    for name, data in FAMILIES.items():
        source = work.compare("disciplines", name, data, None, *options)
        assert source is not None
        found |= {(name, *key): group for key, group in groups_of(source).items()}
    columns = [(name, int(count)) for name in FAMILIES for count in counts]
    lines = []
    for method in DISCIPLINES[1:]:
        pairs = [(found[name, "serial", 1], found.get((name, method, count))) for name, count in columns]
        speeds = [
            serial.median("epoch_seconds") / group.median("epoch_seconds") if group else math.nan
            for serial, group in pairs
        ]
        serial, last = next((pair for pair in reversed(pairs[: len(counts)]) if pair[1]), (None, None))
        ratio = last.median("last objective") / serial.median("last objective") if serial and last else math.nan
        lines.append([f"`{method}`", *map(times, speeds), f"{ratio:.4f}"])
    heads = ["discipline", *(f"{name}, {count}" for name, count in columns), "objective / serial"]
    return {"disciplines": table_of(heads, lines)}


# ---- time to a target


def compare(work: Work) -> dict[str, str]:
    """Every method on real data, on data beyond the cache, on dense data."""
    made = (
        work.compare("compare", title, data, test, "--methods", METHODS, "--workers", CORES, *more)
        for title, (data, test, more) in {**REAL, **MADE}.items()
    )
    sources = [source for source in made if source]
    beyond = next((source for source in sources if source.label == BEYOND), sources[-1])
    return {
        "compare": comparison_table(sources),
        "verdicts": "\n".join(f"* {source.label}: {verdict(source)[0]}" for source in sources),
        "verdict": "```text\n" + textwrap.fill(verdict(beyond)[0], 118) + "\n```",
    }


def comparison_table(sources: list[ComparisonResult]) -> str:
    """Seconds to a target, a line a method, a column a data set: the hardest target that serial always reaches."""
    heads, columns = [""], []
    for source in sources:
        eps = target(source, source.serial) or max(source.eps)
        cache = source.head.get("cache_megabytes") or math.inf
        where = "in the cache" if source.head["megabytes"] <= cache else "beyond it"
        heads.append(f"{source.label}: {source.head['nnz'] / 1e6:.3g} M nonzeros, {where}; to {percent(eps)}")
        columns.append({key: to_target(group, eps) for key, group in groups_of(source).items()})
    keys = dict.fromkeys(key for column in columns for key in column)
    return table_of(heads, [[words_of(*key), *(column.get(key, "–") for column in columns)] for key in keys])


def to_target(group: Group, eps: float) -> str:
    """Median seconds to the target, and the share of runs that got there if it is not all."""
    share = group.share(eps)
    return duration(group.median(f"train_seconds to {eps:g}")) + f" ({share:.0%})" * (share < 1) if share else "never"


# ---- simulated workers


def simulate(work: Work) -> dict[str, str]:
    """What 4, 16 and 64 tiered workers do to the objective, at one worker's best step."""
    lines = []
    short = ["--epochs", "5", "--holdout", "0"]
    many = "--host simulator --delay random --workers 4,16,64 --methods serial,tiered --seeds 3 --steps".split()
    for title, (data, more) in SIMULATED.items():
        tuned = work.compare("tuned", title, data, None, "--methods", "serial", "--seeds", "1", *short, *more)
        if tuned is not None:
            step = repr(tuned.groups[0].first["step"])
            source = work.compare("simulated", title, data, None, *many, step, *short, *more)
            assert source is not None
            spread, *ratios = simulated_cells(source)
            lines.append([f"{title} {spread}", *ratios])
    return {"simulated": table_of(["data (seeds of one worker)", "W = 4", "16", "64"], lines)}


def simulated_cells(source: ComparisonResult) -> Iterator[str]:
    """The spread of one worker's seeds, then the ratio of medians for each number of workers."""
    found = groups_of(source)
    ends = [run["last objective"] for run in found["serial", 1].runs]
    median = statistics.median(ends)
    yield f"({min(ends) / median:.2f}–{max(ends) / median:.2f})"
    for workers in (4, 16, 64):
        group = found.get(("tiered", workers))
        well = group is not None and all("last objective" in run for run in group.runs)
        yield f"{group.median('last objective') / median:.3f}" if group and well else "–"


# ---- ratings, and the paper


def completion(work: Work) -> dict[str, str]:
    """Matrix completion: millions of updates a second, and errors, beside cornac's and, without biases, LIBMF's."""
    options = ["--problem", "completion", "--epochs", "6", "--workers", f"1,{CORES}"]
    kinds = {"ratings": ("", "hogwild,blocks,cornac", [])}
    if shutil.which("mf-train"):  # reads its text for every point, so it gets fewer trials
        few = ["--no-biases", "--seeds", "3", "--steps", "0.05,0.1"]
        kinds["plain-ratings"] = (", no biases", "hogwild,libmf", few)
    heads, columns = ["M updates a second (held-out RMSE)"], []
    for title, data in RATINGS.items():
        for rank in ("32", "64"):
            column = {}
            for kind, (suffix, methods, more) in kinds.items():
                if "libmf" in methods and data.startswith("synthetic:"):
                    continue  # it reads ten million lines for every point: eight minutes a column
                about = (f"{kind}-{rank}", title, data, None, *options, "--rank", rank)
                if source := work.compare(*about, "--methods", methods, *more):
                    column |= {words_of(*key) + suffix: rate(source, group) for key, group in groups_of(source).items()}
                    head = f"{title}, {source.head['ratings'] / 1e6:.1f} M ratings, rank {rank}"
            if column:
                heads.append(head)
                columns.append(column)
    keys = dict.fromkeys(key for column in columns for key in column)
    return {"completion": table_of(heads, [[key, *(each.get(key, "–") for each in columns)] for key in keys])}


def rate(source: ComparisonResult, group: Group) -> str:
    speed = source.head["ratings"] / group.median("epoch_seconds") / 1e6
    return f"{speed:.0f} ({group.median('last test_rmse'):.4f})"


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
        f"{CORES} workers. Seconds are of {PAPER_EPOCHS} epochs of training.",
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


# ---- the pages


def block(name: str) -> re.Pattern[str]:
    """The place of a table in a page: its marks, and what is between them."""
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.DOTALL)


def beside_the_pages(tables: dict[str, str]) -> Iterator[str]:
    """A line for each line of a table whose ratios the pages have too, for the same data, target and workers."""
    pages = "".join((ROOT / name).read_text() for name in PAGES)
    for name, table in tables.items():
        there = ratios(found[2] if (found := block(name).search(pages)) else "")
        for row, cells in ratios(table).items():
            both = [(head, cell, there[row][head]) for head, cell in cells.items() if head in there.get(row, {})]
            if both:
                said = (f"{head.partition(':')[0]} {cell} ({other})".strip() for head, cell, other in both)
                yield f"{row}: {'; '.join(said)}"


def ratios(table: str) -> dict[str, dict[str, str]]:
    """Ratios of a table by its lines, without what is in brackets there, and by columns: cells such as 2.9x, or those
    below a heading such as a/b; and where the first line is of one serial worker, of figures over its own.
    """
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table.splitlines() if line[:1] == "|"]
    found: dict[str, dict[str, str]] = {}
    for row in rows[2:]:
        cells = found.setdefault(re.sub(r" \(.*?\)", "", row[0]), {})
        for head, first, cell in list(zip(rows[0], rows[2], row))[1:]:
            if cell.endswith("x") or ("/" in head and cell[:1].isdigit()):
                cells[head] = cell
            elif (
                row is not rows[2]
                and rows[2][0].startswith("`serial`")
                and cell[:1].isdigit()
                and 0 < place(first) < 1e9
            ):
                cells[re.sub(", (in the cache|beyond it)", "", head)] = times(place(cell) / place(first))
    return found


def write(tables: dict[str, str], out: Path) -> None:
    """Put the tables between the pages' markers, and the figure beside this script."""
    pages = {path: path.read_text() for path in (ROOT / name for name in PAGES)}
    for name, table in tables.items():
        pattern = block(name)
        if not any(pattern.search(text) for text in pages.values()):
            raise SystemExit(f"{' and '.join(PAGES)} have no <!-- {name} --> ... <!-- /{name} -->")
        for path, text in pages.items():
            pages[path] = pattern.sub(lambda found, table=table: f"{found[1]}{table}\n{found[3]}", text)
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
