"""The chart and the table of the page on performance, made of results that `bench.py --out` has written.

    python tests/bench/chart.py [RESULTS]

Writes `docs/explanation/performance.svg` and the page's table; by default of the newest file in `tests/bench/results`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "explanation" / "performance.md"
CHART = PAGE.with_suffix(".svg")
SHOWN = {"fence": "fence", "fence collect": "collecting fence"}
SERVERS = {"pypmix": "pypmix run", "prterun": "prterun"}
CLIENTS = {"python": "Python engine", "native": "native engine", "C": "C"}
COLORS = {"python": "#1b6ca8", "native": "#b35900", "C": "#4a4a4a"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 240, 56, 34, 60
TABLE = re.compile(r"(?<=<!-- made by tests/bench/chart\.py -->\n\n)\|.*?\n(?=\n)", re.DOTALL)

Results = dict[str, Any]


def newest() -> Results:
    found: Results = json.loads(max((HERE / "results").glob("*.json")).read_text())
    return found


def series(results: Results, operation: str) -> list[tuple[str, str, list[tuple[int, float]]]]:
    """Return server, client and microseconds by the number of ranks, for each line of a chart."""
    times = results["microseconds"][operation]
    return [
        (server, client, [(int(ranks), figure) for ranks, figure in times[server][client].items()])
        for server in SERVERS
        for client in CLIENTS
    ]


def table(results: Results) -> str:
    """Return the table of the page."""
    ranks = list(next(iter(results["microseconds"]["fence"]["pypmix"].values())))
    lines = [f"| operation | server | client | {' | '.join(ranks)} |", "|---" * (3 + len(ranks)) + "|"]
    for operation, title in SHOWN.items():
        first = ("", "")
        for server, client, points in series(results, operation):
            words = (title, f"`{SERVERS[server]}`")
            cells = ["" if words[0] == first[0] else words[0], "" if words == first else words[1], CLIENTS[client]]
            lines.append("| " + " | ".join([*cells, *(f"{figure:,.0f}" for _, figure in points)]) + " |")
            first = words
    return "\n".join(re.sub(r"\|  (?=\|)", "| ", line) for line in lines) + "\n"


def chart(results: Results) -> str:
    """Return a picture with a panel for each operation, both axes logarithmic."""
    every = [point for name in SHOWN for *_, points in series(results, name) for point in points]
    ranks = sorted({number for number, _ in every})
    low = 10 ** math.floor(math.log10(min(figure for _, figure in every)))
    high = 10 ** math.ceil(math.log10(max(figure for _, figure in every)))

    def across(number: float) -> float:
        return WIDTH * math.log(number / ranks[0]) / math.log(ranks[-1] / ranks[0])

    def up(figure: float) -> float:
        return HEIGHT - HEIGHT * math.log(figure / low) / math.log(high / low)

    parts = []
    for number, (name, title) in enumerate(SHOWN.items()):
        panel = [f'<text x="{WIDTH / 2:.0f}" y="-12" text-anchor="middle">{title}, microseconds by ranks</text>']
        for each in ranks:
            x = across(each)
            panel.append(f'<path class="grid" d="M{x:.1f} 0V{HEIGHT}"/>')
            panel.append(f'<text x="{x:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{each}</text>')
        for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
            y = up(10**power)
            panel.append(f'<path class="grid" d="M0 {y:.1f}H{WIDTH}"/>')
            panel.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>')
        for server, client, points in series(results, name):
            line = " ".join(f"{across(count):.1f},{up(figure):.1f}" for count, figure in points)
            dashes = ' stroke-dasharray="5 3"' if server == "prterun" else ""
            panel.append(f'<polyline stroke="{COLORS[client]}"{dashes} points="{line}"/>')
        parts.append(
            f'<g transform="translate({LEFT + number * (WIDTH + GAP)} {TOP})">\n' + "\n".join(panel) + "\n</g>"
        )
    for number, (server, client) in enumerate((server, client) for server in SERVERS for client in CLIENTS):
        x, y = LEFT + number % 3 * 230, TOP + HEIGHT + 44 + number // 3 * 18
        dashes = ' stroke-dasharray="5 3"' if server == "prterun" else ""
        parts.append(f'<polyline stroke="{COLORS[client]}"{dashes} points="{x},{y} {x + 34},{y}"/>')
        parts.append(f'<text x="{x + 42}" y="{y + 4}">{SERVERS[server]}, {CLIENTS[client]}</text>')
    width, height = 2 * WIDTH + LEFT + GAP + 24, TOP + HEIGHT + 104
    said = f"{results['date']}, commit {results['commit']}, {results['machine']}, Python {results['python']}"
    parts.append(f'<text x="{LEFT}" y="{height - 12}">{escape(said)}</text>')
    style = "text{font:12px sans-serif;fill:#222}polyline{fill:none;stroke-width:2}.grid{stroke:#ddd;fill:none}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<style>{style}</style>\n<rect width="{width}" height="{height}" rx="6" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def main() -> None:
    results: Results = json.loads(Path(sys.argv[1]).read_text()) if sys.argv[1:] else newest()
    CHART.write_text(chart(results))
    PAGE.write_text(TABLE.sub(lambda _: table(results), PAGE.read_text()))


if __name__ == "__main__":
    main()
