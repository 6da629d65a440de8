"""A picture of cost against size: lines on two logarithmic scales, as SVG. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
"""Sizes with the seconds that each took."""

WIDTH, HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 240, 30, 50
_COLORS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#a16207", "#be185d")
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2937}.grid{stroke:#d1d5db}.back{fill:#fff}"
    "@media (prefers-color-scheme:dark){text{fill:#e5e7eb}.grid{stroke:#374151}.back{fill:#111827}}"
)


def growth_svg(series: Mapping[str, Points], title: str) -> str:
    """Return a line for each series, from its smallest size to its largest, with its name at its end.

    Deterministic: the same points give the same bytes.
    """
    points = [point for line in series.values() for point in line]
    sizes, seconds = _decades(size for size, _ in points), _decades(cost for _, cost in points)
    lines = "".join(_line(name, line, color, sizes, seconds) for (name, line), color in _colored(series))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="title desc"><title id="title">{escape(title)}</title>'
        f'<desc id="desc">{escape("; ".join(_sentences(series)))}</desc><style>{_STYLE}</style>'
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>{"".join(_grid(sizes, seconds))}{lines}'
        f"{_names(series, seconds)}</svg>\n"
    )


def _colored(series: Mapping[str, Points]) -> Iterator[tuple[tuple[str, Points], str]]:
    for index, item in enumerate(series.items()):
        yield item, _COLORS[index % len(_COLORS)]


def _decades(values: Iterator[float]) -> tuple[int, int]:
    logs = [math.log10(value) for value in values]
    return math.floor(min(logs)), math.ceil(max(logs))


def _x(size: float, sizes: tuple[int, int]) -> float:
    share = (math.log10(size) - sizes[0]) / max(1, sizes[1] - sizes[0])
    return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)


def _y(cost: float, seconds: tuple[int, int]) -> float:
    share = (math.log10(cost) - seconds[0]) / max(1, seconds[1] - seconds[0])
    return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)


def _grid(sizes: tuple[int, int], seconds: tuple[int, int]) -> Iterator[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    for power in range(sizes[0], sizes[1] + 1):
        x = _x(10**power, sizes)
        yield f'<line class="grid" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>'
        yield f'<text x="{x}" y="{bottom + 20}" text-anchor="middle">{10**power:,}</text>'
    for power in range(seconds[0], seconds[1] + 1):
        y = _y(10**power, seconds)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y}" x2="{right}" y2="{y}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{10.0**power:g} s</text>'
    yield f'<text x="{(_LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">packages or objects</text>'
    yield f'<text x="{_LEFT}" y="{_TOP - 12}">CPU time</text>'


def _line(name: str, line: Points, color: str, sizes: tuple[int, int], seconds: tuple[int, int]) -> str:
    places = [(_x(size, sizes), _y(cost, seconds)) for size, cost in sorted(line)]
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{color}"/>' for x, y in places)
    path = " ".join(f"{x},{y}" for x, y in places)
    drawn = f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>{dots}'
    return f"<g><title>{escape(name)}</title>{drawn}</g>"


def _names(series: Mapping[str, Points], seconds: tuple[int, int]) -> str:
    """Return the names beside the ends of their lines, from top to bottom, none upon another."""
    ends = sorted((_y(max(line)[1], seconds), name, color) for (name, line), color in _colored(series))
    texts, last = [], 0.0
    for y, name, color in ends:
        last = max(y, last + 18)
        x = WIDTH - _RIGHT + 14
        texts.append(f'<circle cx="{x}" cy="{last}" r="4" fill="{color}"/>')
        texts.append(f'<text x="{x + 10}" y="{last + 4}">{escape(name)}</text>')
    return "".join(texts)


def _sentences(series: Mapping[str, Points]) -> Iterator[str]:
    for name, line in series.items():
        first, last = min(line), max(line)
        yield f"{name}: {first[1]:.3g} s for {first[0]:,}, {last[1]:.3g} s for {last[0]:,}"
