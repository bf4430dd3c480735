"""Pictures of times by the number of ranks, as SVG: a panel for each operation, both axes logarithmic."""

from __future__ import annotations

import math
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 240, 56, 34, 60
PANELS = 3
"""The number of panels in a row."""

ROW = 18
"""The height of a line of the legend."""

KEYS, KEY_WIDTH = 3, 230
"""The number of names in a row of the legend, and the width of one."""

STYLE = (
    "text{font:12px sans-serif;fill:#222}polyline{fill:none;stroke-width:2}circle{stroke:none}"
    ".grid{stroke:#ddd;fill:none}"
)


class Line(NamedTuple):
    """A line of a panel.

    Attributes:
        name: Its name in the legend; lines of one name look alike.
        color: Its color, as SVG writes it.
        dashes: The lengths of its dashes and gaps, as SVG writes them; empty if it has none.
        points: Numbers of ranks, and the time for each.
    """

    name: str
    color: str
    dashes: str
    points: list[tuple[int, float]]


def picture(panels: dict[str, list[Line]], foot: str, alike: bool = True) -> str:
    """Return a picture.

    Args:
        panels: The lines of each panel by its title.
        foot: The line below.
        alike: Whether all panels have the same axis of times.
    """
    every = [line for lines in panels.values() for line in lines]
    ranks = sorted({number for line in every for number, _ in line.points})
    parts = []
    for number, (title, lines) in enumerate(panels.items()):
        panel = _panel(title, lines, ranks, *_powers(every if alike else lines))
        x, y = LEFT + number % PANELS * (WIDTH + GAP), TOP + number // PANELS * (HEIGHT + GAP)
        parts.append(f'<g transform="translate({x} {y})">\n{panel}\n</g>')
    bottom = TOP + HEIGHT + (len(panels) - 1) // PANELS * (HEIGHT + GAP)
    named = {line.name: line for lines in panels.values() for line in lines}
    for number, line in enumerate(named.values()):
        x, y = LEFT + number % KEYS * KEY_WIDTH, bottom + 44 + number // KEYS * ROW
        parts.append(f'<polyline {_stroke(line)} points="{x},{y} {x + 34},{y}"/>')
        parts.append(f'<text x="{x + 42}" y="{y + 4}">{escape(line.name)}</text>')
    width = LEFT + max(min(len(panels), PANELS) * (WIDTH + GAP), KEYS * KEY_WIDTH) + 24 - GAP
    height = bottom + 68 + -(-len(named) // KEYS) * ROW
    parts.append(f'<text x="{LEFT}" y="{height - 12}">{escape(foot)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<style>{STYLE}</style>\n<rect width="{width}" height="{height}" rx="6" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _powers(lines: list[Line]) -> tuple[int, int]:
    """Return the powers of ten that enclose all times."""
    figures = [figure for line in lines for _, figure in line.points]
    low = math.floor(math.log10(min(figures)))
    return low, max(math.ceil(math.log10(max(figures))), low + 1)


def _stroke(line: Line) -> str:
    return f'stroke="{line.color}"' + (f' stroke-dasharray="{line.dashes}"' if line.dashes else "")


def _panel(title: str, lines: list[Line], ranks: list[int], low: int, high: int) -> str:
    span = math.log(ranks[-1] / ranks[0])

    def across(number: float) -> float:
        return WIDTH * math.log(number / ranks[0]) / span if span else WIDTH / 2

    def up(figure: float) -> float:
        return HEIGHT - HEIGHT * (math.log10(figure) - low) / (high - low)

    found = [f'<text x="{WIDTH / 2:.0f}" y="-12" text-anchor="middle">{escape(title)}</text>']
    for each in ranks:
        x = across(each)
        found.append(f'<path class="grid" d="M{x:.1f} 0V{HEIGHT}"/>')
        found.append(f'<text x="{x:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{each}</text>')
    for power in range(low, high + 1):
        y = up(10**power)
        found.append(f'<path class="grid" d="M0 {y:.1f}H{WIDTH}"/>')
        found.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>')
    for line in lines:
        points = [(across(number), up(figure)) for number, figure in line.points]
        if len(points) == 1:
            # A line of one point would not be visible.
            found.append(f'<circle fill="{line.color}" r="4" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}"/>')
        else:
            found.append(f'<polyline {_stroke(line)} points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
    return "\n".join(found)
