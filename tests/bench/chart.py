"""The chart and the table of the page on performance, made of results that `bench.py --out` has written.

    python tests/bench/chart.py [RESULTS]

Writes `docs/explanation/performance.svg` and the page's table; by default of the newest file in `tests/bench/results`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from pypmix.cli.picture import Line, picture

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "explanation" / "performance.md"
CHART = PAGE.with_suffix(".svg")
SHOWN = {"fence": "fence", "fence collect": "collecting fence"}
SERVERS = {"pypmix": "pypmix run", "prterun": "prterun"}
CLIENTS = {"python": "Python engine", "native": "native engine", "C": "C"}
COLORS = {"python": "#1b6ca8", "native": "#b35900", "C": "#4a4a4a"}
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
    """Return a picture with a panel for each operation."""
    panels = {
        f"{title}, microseconds by ranks": [
            Line(f"{SERVERS[server]}, {CLIENTS[client]}", COLORS[client], "5 3" if server == "prterun" else "", points)
            for server, client, points in series(results, name)
        ]
        for name, title in SHOWN.items()
    }
    said = f"{results['date']}, commit {results['commit']}, {results['machine']}, Python {results['python']}"
    return picture(panels, said)


def main() -> None:
    results: Results = json.loads(Path(sys.argv[1]).read_text()) if sys.argv[1:] else newest()
    CHART.write_text(chart(results))
    PAGE.write_text(TABLE.sub(lambda _: table(results), PAGE.read_text()))


if __name__ == "__main__":
    main()
