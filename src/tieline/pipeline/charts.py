"""Charts as SVG text: lines, bars, a timeline and a graph, drawn for a width in pixels.

Used by: the HTML page of the report. Uses: nothing. Colours are CSS classes that the page's style sheet defines, so
that a chart looks right in light and in dark mode. Every mark has a title, which a browser shows when the pointer is
over the mark. Names and texts come from agents, so all of them are escaped.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

SERIES_MAX = 6
"""Maximum number of series with different colours, so that readers can distinguish the colours. The last colour is for
all other series together.
"""

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 26
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
# Possible lower and upper ends of an axis of durations.
_LADDER_MS = (1, 10, 100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE, _HOUR, _DAY, 10 * _DAY, 100 * _DAY)
_TICKS_MS = (
    _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY,
    2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 84 * _DAY, 364 * _DAY,
)  # fmt: skip
_TICK_PIXELS = 90
_NODES_MAX = 24  # more names on the circle cannot be read
_ARROWS_MAX = 120  # more arrows cannot be told apart
_ROW_PIXELS = 22


@dataclass(frozen=True)
class Series:
    """Data of a chart: one line, or the bars of one colour. It has a name, and points of time and value."""

    name: str
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Span:
    """Data of one bar of a timeline: start, end, label and kind. `marks` are parts of the bar that look different."""

    label: str
    start_ms: int
    end_ms: int
    kind: str
    title: str
    marks: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class _Plane:
    """Converts times (x) and values (y) to pixel positions in a drawing, and draws the axes."""

    width: int
    height: int
    from_ms: int
    to_ms: int
    left: int = _LEFT

    def x(self, at_ms: float) -> float:
        share = (at_ms - self.from_ms) / max(1, self.to_ms - self.from_ms)
        return round(self.left + share * (self.width - self.left - _RIGHT), 1)

    def y(self, share: float) -> float:
        return round(self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM), 1)

    def time_axis(self) -> str:
        wanted = max(2, (self.width - self.left) // _TICK_PIXELS)
        span = max(1, self.to_ms - self.from_ms)
        step = next((one for one in _TICKS_MS if span / one <= wanted), _TICKS_MS[-1])
        first = math.ceil(self.from_ms / step) * step
        marks = []
        for at_ms in range(first, self.to_ms + 1, step):
            x = self.x(at_ms)
            marks.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{self.height - _BOTTOM}"/>')
            # A label centred on the edge would be cut off.
            if self.left <= x <= self.width - 2 * _RIGHT:
                label = _moment(at_ms, step)
                marks.append(f'<text class="tick" x="{x}" y="{self.height - 8}" text-anchor="middle">{label}</text>')
        return "".join(marks)

    def value_axis(self, ticks: Sequence[tuple[float, str]]) -> str:
        """Return horizontal grid lines as SVG. Each tick is a height (0 is the bottom, 1 the top) and a label."""
        across = f'x1="{self.left}" x2="{self.width - _RIGHT}"'
        return "".join(
            f'<line class="grid" {across} y1="{self.y(share)}" y2="{self.y(share)}"/>'
            f'<text class="tick" x="{self.left - 6}" y="{self.y(share) + 4}" text-anchor="end">{escape(word)}</text>'
            for share, word in ticks
        )


def duration(ms: float | None) -> str:
    """Return a length of time as text in one unit, such as `1.5 h`. Return a dash for `None`."""
    if ms is None:
        return "–"
    for unit, word in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s")):
        if ms >= unit:
            return f"{ms / unit:.3g} {word}"
    return f"{ms:.0f} ms"


def count(number: float) -> str:
    """Return a number as a short text, such as `12.3k`."""
    for size, word in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if word == 'k' else size):.3g}{word}"
    return f"{number:,.0f}"


def dollars(amount: float) -> str:
    """Return an amount of dollars as text."""
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"  # noqa: PLR2004 - less than a cent


def clock(at_ms: int) -> str:
    """Return a time as text: date, hour and minute in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M}"


def latency_lines(series: Sequence[Series], from_ms: int, to_ms: int, gap_ms: int, width: int) -> str:
    """Return an SVG chart of durations over time, on a logarithmic scale.

    A line has a gap where no value was measured for `gap_ms`. `width` is in pixels.
    """
    plane = _Plane(width, 240, from_ms, to_ms)
    values = [max(1.0, value) for one in series for _, value in one.points]
    low = max(step for step in _LADDER_MS if step <= min(values))
    high = next((step for step in _LADDER_MS if step >= max(values)), max(values))
    high = high if high > low else low * 10
    extent = math.log(high / low)

    def share(value: float) -> float:
        return math.log(max(1.0, value) / low) / extent

    ticks = [(share(step), duration(step)) for step in _LADDER_MS if low <= step <= high]
    drawn = [plane.time_axis(), plane.value_axis(ticks)]
    for index, one in enumerate(series):
        drawn.append(_line(plane, one, index, gap_ms, share, duration))
    return _svg(plane.width, plane.height, "Latency over time", drawn)


def _line(
    plane: _Plane,
    series: Series,
    index: int,
    gap_ms: int,
    share: Callable[[float], float],
    word: Callable[[float], str],
) -> str:
    path, dots, before = "", "", None
    for at_ms, value in series.points:
        x, y = plane.x(at_ms), plane.y(share(value))
        path += f"{'L' if before is not None and at_ms - before <= gap_ms else 'M'}{x} {y}"
        title = f"{series.name}, {clock(at_ms)}: {word(value)}"
        dots += f'<circle class="s{index}" cx="{x}" cy="{y}" r="2.5"><title>{escape(title)}</title></circle>'
        before = at_ms
    return f'<path class="line s{index}" d="{path}"/>{dots}'


def step_area(series: Series, from_ms: int, to_ms: int, width_ms: int, width: int) -> str:
    """Return an SVG chart of a number over time, as a filled area in steps.

    The number stays the same from one point to the next. A point's number is measured at the end of an interval of
    `width_ms`. `width` is in pixels.
    """
    plane = _Plane(width, 200, from_ms, to_ms)
    top = _round_up(max((value for _, value in series.points), default=1))
    path, last = f"M{plane.x(from_ms)} {plane.y(0)}", 0.0
    titles = ""
    for at_ms, value in series.points:
        # A point holds the value at the end of its interval.
        x = plane.x(min(to_ms, at_ms + width_ms))
        path += f"L{x} {plane.y(last / top)}L{x} {plane.y(value / top)}"
        title = escape(f"{clock(at_ms)}: {count(value)} {series.name}")
        titles += f'<circle class="s0" cx="{x}" cy="{plane.y(value / top)}" r="2.5"><title>{title}</title></circle>'
        last = value
    path += f"L{plane.x(to_ms)} {plane.y(last / top)}L{plane.x(to_ms)} {plane.y(0)}Z"
    drawn = [plane.time_axis(), plane.value_axis(_even(top, count)), f'<path class="area s0" d="{path}"/>', titles]
    return _svg(plane.width, plane.height, "Backlog over time", drawn)


def stacked_bars(series: Sequence[Series], width_ms: int, width: int, name: str, word: Callable[[float], str]) -> str:
    """Return an SVG chart with one bar for each interval of `width_ms`, in which the series are stacked.

    `name` is the name of the chart. `word` formats a value. `width` is in pixels.
    """
    times = sorted({at_ms for one in series for at_ms, _ in one.points})
    plane = _Plane(width, 220, times[0], times[-1] + width_ms)
    sums = {at_ms: sum(dict(one.points).get(at_ms, 0) for one in series) for at_ms in times}
    top = _round_up(max(sums.values()) or 1)
    drawn = [plane.time_axis(), plane.value_axis(_even(top, word))]
    below = dict.fromkeys(times, 0.0)
    for index, one in enumerate(series):
        for at_ms, value in one.points:
            if value <= 0:
                continue
            x, right = plane.x(at_ms), plane.x(at_ms + width_ms)
            high, low = plane.y((below[at_ms] + value) / top), plane.y(below[at_ms] / top)
            below[at_ms] += value
            title = escape(f"{one.name}, {clock(at_ms)}: {word(value)}")
            box = f'x="{x}" y="{high}" width="{max(1.0, right - x - 1):.1f}" height="{max(0.5, low - high):.1f}"'
            drawn.append(f'<rect class="s{index}" {box}><title>{title}</title></rect>')
    return _svg(plane.width, plane.height, name, drawn)


def timeline(spans: Sequence[Span], from_ms: int, to_ms: int, width: int) -> str:
    """Return an SVG chart with one horizontal bar for each span, one below the other. `width` is in pixels."""
    left = min(190, width // 3)
    plane = _Plane(width, _TOP + _BOTTOM + _ROW_PIXELS * len(spans), from_ms, to_ms, left)
    drawn = [plane.time_axis()]
    room = left // 7
    for index, span in enumerate(spans):
        y = _TOP + index * _ROW_PIXELS
        label = span.label if len(span.label) <= room else f"{span.label[: room - 1]}…"
        drawn.append(f'<text class="name" x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>')
        title = f"<title>{escape(span.title)}</title>"
        drawn.append(_box(plane, (span.start_ms, span.end_ms), y, f"bar {escape(span.kind)}", title))
        title = f"<title>{escape(span.label)}: blocked</title>"
        drawn += [_box(plane, mark, y, "bar mark", title) for mark in span.marks]
    return _svg(plane.width, plane.height, "Objectives over time", drawn)


def _box(plane: _Plane, span: tuple[int, int], y: int, kind: str, title: str) -> str:
    x, right = plane.x(max(plane.from_ms, span[0])), plane.x(min(plane.to_ms, span[1]))
    return f'<rect class="{kind}" x="{x}" y="{y + 4}" width="{max(3.0, right - x):.1f}" height="14">{title}</rect>'


def graph(edges: Sequence[tuple[str, str, int]], width: int) -> str:
    """Return an SVG drawing of members in a circle, with arrows between them.

    Each edge is an arrow: a sender, a recipient and the number of messages. The more messages, the broader the arrow.
    `width` is in pixels.
    """
    weights: dict[str, int] = {}
    for sender, recipient, messages in edges:
        for member in (sender, recipient):
            weights[member] = weights.get(member, 0) + messages
    members = sorted(sorted(weights, key=lambda member: (-weights[member], member))[:_NODES_MAX])
    height = min(width, 520)
    radius_x, radius_y = width / 2 - 90 if width > 500 else width / 2 - 84, height / 2 - 34  # noqa: PLR2004 - room for names
    places = {}
    for index, member in enumerate(members):
        angle = 2 * math.pi * index / len(members) - math.pi / 2
        places[member] = (width / 2 + radius_x * math.cos(angle), height / 2 + radius_y * math.sin(angle))
    shown = [edge for edge in edges if edge[0] in places and edge[1] in places and edge[0] != edge[1]][:_ARROWS_MAX]
    most = max((messages for _, _, messages in shown), default=1)
    marker = (
        f'<defs><marker id="head-{width}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 0L8 4L0 8Z"/></marker></defs>'
    )
    drawn = [marker]
    for sender, recipient, messages in reversed(shown):
        drawn.append(_arrow(places[sender], places[recipient], (width / 2, height / 2), messages / most,
                            f"head-{width}", f"{sender} → {recipient}: {messages:,}"))  # fmt: skip
    heaviest = max(weights.values(), default=1)
    for member, (x, y) in places.items():
        size = 4 + 7 * math.sqrt(weights[member] / heaviest)
        title = f"<title>{escape(member)}: {weights[member]:,} messages</title>"
        drawn.append(f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}">{title}</circle>')
        drawn.append(_node_name(member, x, y, width, size))
    return _svg(width, height, "Who writes to whom", drawn)


def _node_name(member: str, x: float, y: float, width: int, size: float) -> str:
    room = 12 if width > 500 else 9  # noqa: PLR2004 - what fits beside the circle
    name = member if len(member) <= room else f"{member[: room - 1]}…"
    middle = abs(x - width / 2) < 20  # noqa: PLR2004 - straight above or below
    if middle:
        below = y > size + 40
        return f'<text class="name" x="{x:.1f}" y="{y + (size + 14 if below else -size - 6):.1f}" text-anchor="middle">{escape(name)}</text>'  # noqa: E501 - one element
    right = x > width / 2
    anchor, shift = ("start", size + 4) if right else ("end", -size - 4)
    return f'<text class="name" x="{x + shift:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">{escape(name)}</text>'


def _arrow(
    start: tuple[float, float],
    end: tuple[float, float],
    middle: tuple[float, float],
    weight: float,
    head: str,
    title: str,
) -> str:
    # The arrow bends towards the middle and to one side, so the two directions of a pair are two separate arrows.
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    bend_x = (start[0] + end[0]) / 2 * 0.7 + middle[0] * 0.3 - dy / length * 14
    bend_y = (start[1] + end[1]) / 2 * 0.7 + middle[1] * 0.3 + dx / length * 14
    away = math.hypot(end[0] - bend_x, end[1] - bend_y) or 1.0
    tip_x, tip_y = end[0] - (end[0] - bend_x) / away * 12, end[1] - (end[1] - bend_y) / away * 12
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{bend_x:.1f} {bend_y:.1f} {tip_x:.1f} {tip_y:.1f}"
    style = f'stroke-width="{0.6 + 3.4 * weight:.2f}" stroke-opacity="{0.2 + 0.6 * weight:.2f}"'
    return f'<path class="arrow" d="{path}" {style} marker-end="url(#{head})"><title>{escape(title)}</title></path>'


def _svg(width: int, height: int, name: str, drawn: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(name)}">{"".join(drawn)}</svg>'
    )


def _round_up(value: float) -> float:
    """Return the next larger number that is easy to read on an axis."""
    power = 10.0 ** math.floor(math.log10(max(value, 1e-6)))
    return next(step * power for step in (1, 2, 4, 5, 10) if step * power >= value)


def _even(top: float, word: Callable[[float], str]) -> list[tuple[float, str]]:
    ticks = [(share / 4, word(top * share / 4)) for share in range(5)]
    # With a top below four, rounding would give the same label twice.
    return [tick for index, tick in enumerate(ticks) if tick[1] not in {other for _, other in ticks[:index]}]


def _moment(at_ms: int, step: int) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{moment:%d %b}" if step >= _DAY or at_ms % _DAY == 0 else f"{moment:%H:%M}"
