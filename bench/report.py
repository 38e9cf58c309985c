"""Reports: the results of a benchmark, for people as a table and for programs as JSON."""

from collections.abc import Mapping, Sequence
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


class Wanted(Struct, frozen=True):
    """A bound that the median of some figures should keep: `least` or `most`."""

    least: float | None = None
    most: float | None = None

    @property
    def text(self) -> str:
        """The bound for a table."""
        return f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"

    def met(self, values: Sequence[float]) -> bool | None:
        """True if the median keeps the bound; `None` without figures."""
        if not values:
            return None
        middle = median(values)
        return (self.least is None or middle >= self.least) and (self.most is None or middle <= self.most)

    def verdict(self, values: Sequence[float]) -> str:
        """`reached`, `missed` or `not measured`."""
        return _VERDICTS[self.met(values)]

    def goal(self, name: str, values: Sequence[float], form: str = "{:.2f}") -> Goal:
        """The goal with the figures that this run reached."""
        return Goal(name, self.text, spread(values, form), self.met(values))


_VERDICTS = {True: "reached", False: "missed", None: "not measured"}


class Report(Struct):
    """Results of one benchmark."""

    name: str
    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    """Every figure of every round, by series, in the order of the rounds."""
    cpu_us: dict[str, float] = field(default_factory=dict)
    """Medians for the history, by load: processor time of the hub per message, or per delivery of a fan-out."""
    ratios_to: dict[str, float] = field(default_factory=dict)
    """Medians for the history, by load: ratios to references."""

    def add(self, series: str, value: float) -> None:
        """Add a figure of this round."""
        self.samples.setdefault(series, []).append(value)

    def median(self, series: str) -> float | None:
        """Median of a series."""
        values = self.samples.get(series)
        return median(values) if values else None

    def remember(self, load: str, cpu: str, ratios: Mapping[str, Sequence[float]]) -> None:
        """Keep the medians of a load for the history: those of the series `cpu`, and of ratios by name."""
        if self.samples.get(cpu):
            self.cpu_us[f"{self.name}, {load}"] = round(median(self.samples[cpu]), 2)
        for name, values in ratios.items():
            if values:
                self.ratios_to[f"{self.name}, {load}, {name}"] = round(median(values), 3)

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
    for goal in goals:
        drawn.add_row(goal.name, goal.wanted, goal.reached, _VERDICTS[goal.met])
    console.print(drawn)
