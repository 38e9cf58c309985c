"""Reports: the results of a benchmark, for people as a table and for programs as JSON."""

from collections.abc import Sequence
from statistics import median

from msgspec import Struct, field
from rich.console import Console
from rich.table import Table as RichTable


class Table(Struct):
    """Rows of text under a title."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)


class Goal(Struct, frozen=True):
    """A figure that the project aims at, and the figure that this run reached."""

    name: str
    wanted: str
    reached: str
    met: bool | None
    """`None` when the figure was not measured."""


class Report(Struct):
    """Results of one benchmark."""

    name: str
    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    """Every figure of every round, by series, in the order of the rounds."""

    def add(self, series: str, value: float) -> None:
        """Add a figure of this round."""
        self.samples.setdefault(series, []).append(value)

    def median(self, series: str) -> float | None:
        """Median of a series."""
        values = self.samples.get(series)
        return median(values) if values else None

    def spread(self, series: str, form: str = "{:,.0f}") -> str:
        """Median of a series with its range."""
        return spread(self.samples.get(series, []), form)

    def ratios(self, series: str, reference: str) -> list[float]:
        """Ratio of a series to its reference, for each round."""
        pairs = zip(self.samples.get(series, []), self.samples.get(reference, []), strict=False)
        return [value / other for value, other in pairs if other]


def spread(values: Sequence[float], form: str = "{:,.0f}") -> str:
    """Median of some figures with their range."""
    if not values:
        return "–"
    low, high = form.format(min(values)), form.format(max(values))
    middle = form.format(median(values))
    return middle if low == high else f"{middle} ({low}..{high})"


def show(console: Console, report: Report) -> None:
    """Print a report."""
    for table in report.tables:
        drawn = RichTable(title=table.title, title_justify="left", title_style="bold")
        for index, column in enumerate(table.columns):
            drawn.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
        for row in table.rows:
            drawn.add_row(*row)
        console.print(drawn)
    for note in report.notes:
        console.print(f"  {note}", highlight=False)


def show_goals(console: Console, reports: Sequence[Report]) -> None:
    """Print which goals this run reached."""
    goals = [goal for report in reports for goal in report.goals]
    if not goals:
        return
    drawn = RichTable(title="Goals", title_justify="left", title_style="bold")
    for column in ("goal", "wanted", "reached", ""):
        drawn.add_column(column, overflow="fold")
    words = {True: "met", False: "missed", None: "not measured"}
    for goal in goals:
        drawn.add_row(goal.name, goal.wanted, goal.reached, words[goal.met])
    console.print(drawn)
