"""The chart and the tables of the page on performance, made of results that benchmarks have written by `--out`.

    python tests/bench/chart.py [RESULTS]

Writes `docs/pictures/performance.svg` and the page's table of one node, by default of the newest file in
`tests/bench/results`, and its tables of several nodes, of the newest in `tests/bench/results/nodes`.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from pypmix.extras.commands.picture import Line, picture

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "operate" / "performance.md"
CHART = PAGE.parents[1] / "pictures" / "performance.svg"
SHOWN = {"fence": "fence", "fence collect": "collecting fence"}
LAUNCHERS = {"pypmix": "`pypmix run`", "prterun": "`prterun` 5.0.11", "mpirun": "`mpirun` 4.1.4"}
SERVERS = {"pypmix": "pypmix run", "prterun": "prterun"}
CLIENTS = {"python": "Python engine", "native": "native engine", "C": "C"}
COLORS = {"python": "#1b6ca8", "native": "#b35900", "C": "#4a4a4a"}
TABLE = re.compile(r"(?<=<!-- made by tests/bench/chart\.py -->\n\n)\|.*?\n(?=\n)", re.DOTALL)
NODES = re.compile(r"(?<=<!-- nodes, made by tests/bench/chart\.py -->\n\n).*?\n(?=\n<!-- end -->)", re.DOTALL)

Results = dict[str, Any]


def newest() -> Results:
    found: Results = json.loads(max((HERE / "results").glob("*.json")).read_text())
    return found


def newest_nodes() -> Results:
    found: Results = json.loads(max((HERE / "results" / "nodes").glob("*.json")).read_text())
    return found


def made(results: Results) -> str:
    """Return when, of what and where figures were made, and what else the machine had to do."""
    machine = f"{results['machine']}, Python {results['python']}"
    return f"{results['date']}, pypmix {results['version']}, {machine}, load {results['load']}"


def nodes_tables(results: Results) -> str:
    """Return the tables of the page on several nodes."""
    fences, starts = results["fences"], results["starts"]
    lines = [f"Fences ({made(fences)}), microseconds:", ""]
    lines += ["| nodes | bytes of a rank | `prterun` | `pypmix run` | ratio |", "|---|---|---|---|---|"]
    for row in fences["rows"]:
        theirs, ours = statistics.median(row["prterun"]), statistics.median(row["pypmix"])
        lines.append(f"| {row['nodes']} | {row['bytes']:,} | {theirs:,.0f} | {ours:,.0f} | {ours / theirs:.2f} |")
    for row in starts["rows"]:
        lines += ["", f"The start of {row['ranks']} ranks on each of {row['nodes']} nodes ({made(starts)}):", ""]
        lines += ["| launcher | elapsed | CPU time of all | ratios of `pypmix run` |", "|---|---|---|---|"]
        took = {name: [statistics.median(column) for column in zip(*row[name], strict=True)] for name in LAUNCHERS}
        for name, command in LAUNCHERS.items():
            ratios = [own / other for own, other in zip(took["pypmix"], took[name], strict=True)]
            elapsed, spent = took[name]
            lines.append(f"| {command} | {elapsed:.2f} s | {spent:.2f} s | {ratios[0]:.2f}, {ratios[1]:.2f} |")
    return "\n".join(lines) + "\n"


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
    text = TABLE.sub(lambda _: table(results), PAGE.read_text())
    PAGE.write_text(NODES.sub(lambda _: nodes_tables(newest_nodes()), text))


if __name__ == "__main__":
    main()
