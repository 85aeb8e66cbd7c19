"""The paper's table and ours side by side, made from the comparisons of the suite ``paper``.

There are two tables: both tables of results in the same columns, and the stand-ins' hypergraphs beside the paper's;
those of any comparison follow. Ratios are what can be compared: the machines are fifteen years apart, and the data are
stand-ins of another size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hogwild.compare.report.results import ComparisonResult, number
from hogwild.compare.report.summary import Group, own
from hogwild.compare.report.tables import NONE, SIZES, Cells, Table
from hogwild.compare.report.verdict import crew
from hogwild.compare.run.paper import ERRATA, PAPER, SOURCE, PaperResult, PaperSet

TITLE = "The experiments of the Hogwild paper"


class PaperPair:
    """One set of the paper, and the comparison on its stand-in."""

    def __init__(self, paper: PaperSet, source: ComparisonResult) -> None:
        self.paper, self.source = paper, source
        self.methods: dict[str, Group] = {group.method: group for group in own(source)}

    def seconds(self, method: str) -> float:
        """Seconds of training of all epochs, extrapolated if runs were stopped early; NaN without an epoch."""
        group = self.methods.get(method)
        found = group.epoch_seconds if group else None
        return found.median * number(self.source.about, "epochs") if found else math.nan

    def error(self, method: str, part: str) -> float:
        """The column ``part`` of the paper's table: "train" or "test"."""
        group, scale = self.methods.get(method), 1.0
        name = {"linear": f"{part}_loss", "completion": f"{part}_rmse", "cuts": "cut_value"}[self.paper.problem]
        if self.paper.problem == "cuts":
            scale = 1 / number(self.source.about, "edges") if part == "train" else math.nan
        found = group.last(name) if group else None
        value = found.median * scale if found else math.nan
        return math.sqrt(value) if self.paper.problem == "linear" and value >= 0 else value

    def cells(self, method: str) -> Cells:
        """Seconds, with a tilde where a run was stopped early, and errors."""
        seconds = _plain(self.seconds(method))
        late = seconds != NONE and self.methods[method].ended_well < len(self.methods[method].runs)
        return "~" * late + seconds, *(_plain(self.error(method, part)) for part in ("train", "test"))

    def ratio(self, slow: str, quick: str) -> float:
        """How many times as long the first took."""
        seconds = self.seconds(quick)
        return self.seconds(slow) / seconds if seconds > 0 else math.nan


def pairs(sources: Sequence[ComparisonResult]) -> list[PaperPair]:
    """Return the comparisons of the paper's suite, in the paper's order."""
    found = {source.about["set"]: source for source in sources if source.about.get("suite") == "paper"}
    return [PaperPair(each, found[each.name]) for each in PAPER if each.name in found]


def paper_tables(sources: Sequence[ComparisonResult]) -> list[Table]:
    """Return the tables of the paper's suite; none if there is no such comparison."""
    found = pairs(sources)
    return [side_by_side(found), shapes(found)] if found else []


def side_by_side(found: Sequence[PaperPair]) -> Table:
    """Return the paper's table 2, and ours in the same columns."""
    rows: list[Cells] = []
    for each in found:
        paper = each.paper
        theirs = _outcome(paper.hogwild) + _outcome(paper.round_robin)
        rows.append((paper.name, "paper", *theirs, _times(paper.ratio)))
        ours = each.cells("hogwild") + each.cells("round-robin")
        rows.append((paper.name, "here", *ours, _times(each.ratio("round-robin", "hogwild"))))
    about = found[0].source.about
    columns = ("data", "whose", "Hogwild s", "train", "test", "RR s", "train", "test", "RR/HW")
    notes = [
        f"Paper: {SOURCE}, ten threads. Here: stand-ins of {100 * number(about, 'scale'):g} % their size, "
        f"{_crew(found)}. Seconds are of {about['epochs']} epochs of training; extrapolated (~) for runs that were "
        "stopped earlier. All methods take one step: the largest that was tried and converges with one worker.",
        "Train and test: " + "; ".join(f"{each.paper.name}: {each.paper.error}" for each in found) + ". The paper does "
        "not say how it scaled the errors of cuts and of RCV1, so these columns tell methods apart, not machines.",
    ]
    return Table("The paper's table, and the same here", columns, rows, notes)


def shapes(found: Sequence[PaperPair]) -> Table:
    """Return the table of sizes and hypergraphs, the paper's and the generated ones."""
    rows: list[Cells] = []
    for each in found:
        paper, about = each.paper, each.source.about
        size = ", ".join(f"{number(about, name):,.0f} {words or name}" for name, words in SIZES if about.get(name))
        ours = {name: _plain(number(about, name)) for name in ("omega", "delta", "rho")}
        rows.append(
            (
                paper.name,
                paper.size,
                size,
                str(about["data"]),
                ours["omega"],
                f"{paper.delta:.2g}",
                ours["delta"],
                f"{paper.rho:.2g}",
                ours["rho"],
            )
        )
    columns = ("data", "paper's size", "size here", "generated by", "Ω here", "Δ paper", "Δ here", "ρ paper", "ρ here")
    notes = [
        "Measured on the generated training data. A stand-in cannot be sparser than its size allows: the busiest of n "
        "users has 1/n of the ratings or more, and so on.",
        "Both sides of a matrix are scaled by the root of the scale, so that it is as full as the original; then "
        "users and items have fewer ratings each, and less can be learnt of them. Jumbo is scaled to a tenth of what "
        "the others are.",
        *ERRATA,
    ]
    return Table("The data: the paper's and the stand-ins", columns, rows, notes)


def paper_sentences(sources: Sequence[ComparisonResult]) -> list[str]:
    """Return sentences on which method was how much faster; none without a comparison of the paper's suite."""
    found, said = pairs(sources), []
    ratios = _listed({each.paper.name: each.ratio("round-robin", "hogwild") for each in found}, 1)
    if ratios:
        theirs = _listed({each.paper.name: each.paper.ratio for each in found}, 1)
        said.append(
            f"Round-robin takes so many times as long as Hogwild, on {_crew(found)}: {ratios}; in the paper, on ten "
            f"threads: {theirs}."
        )
    if gains := _listed({each.paper.name: each.ratio("serial", "hogwild") for each in found}, 2):
        said.append(f"Hogwild is so many times as quick as one serial worker: {gains}.")
    return said


def _listed(ratios: dict[str, float], decimals: int) -> str:
    return ", ".join(f"{name} {value:.{decimals}f}" for name, value in ratios.items() if math.isfinite(value))


def _outcome(outcome: PaperResult | None) -> Cells:
    return (NONE,) * 3 if outcome is None else tuple(map(_plain, (outcome.seconds, outcome.train, outcome.test)))


def _plain(value: float | None) -> str:
    return NONE if value is None or not math.isfinite(value) else f"{value:.3g}" if value < 1e3 else f"{value:,.0f}"


def _times(value: float) -> str:
    return NONE if not math.isfinite(value) else f"{value:.1f}" if value >= 9.95 else f"{value:.2g}"


def _crew(found: Sequence[PaperPair]) -> str:
    return crew(found[0].source.about["workers_list"][0])
