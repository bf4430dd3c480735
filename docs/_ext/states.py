"""The tables of states that the package goes by, as pictures and as tables of pages.

A page has a table between the comments `<!-- states: NAME -->` and `<!-- end -->`; `drawings.py` writes it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from textwrap import wrap

from pypmix.engine.collective import machine as collective
from pypmix.engine.groups import states
from pypmix.host.exchange import rounds

NEWLINE = r"\n"
"""What `dot` begins a new line at."""

STYLE = """
    graph [bgcolor=white, pad=0.2, nodesep=0.35, ranksep=0.5, fontname="sans-serif"]
    node [shape=box, style=rounded, fontname="sans-serif", fontsize=11, height=0.3]
    edge [fontname="sans-serif", fontsize=9, arrowsize=0.6]
"""


def machines() -> dict[str, type[states.Machine]]:
    return {**states.MACHINES, "collective": collective.CollectiveState, "coordinator": rounds.Life}


def drawing(machine: type[states.Machine]) -> str:
    """Return a machine in the language of `dot`: the states that end it have a double frame."""
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in machine.ROWS:
        edges[row.state, row.next].append(NEWLINE.join(wrap(row.what, 22)))
    before = {state for state, _ in edges}
    lines = ['"" [shape=point, width=0.12, height=0.12]', f'"" -> "{machine.START}"']
    lines += [f'"{after}" [peripheries=2]' for _, after in edges if after not in before]
    lines += [f'"{one}" -> "{other}" [label="{f";{NEWLINE}".join(labels)}"]' for (one, other), labels in edges.items()]
    return "\n".join(["digraph {", STYLE, *dict.fromkeys(lines), "}"])


TITLES = ("State", "What happens", "Next state", "Notified")
TABLE = re.compile(r"(<!-- states: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(machine: type[states.Machine]) -> str:
    """Return a machine as a table of Markdown."""
    states = list(dict.fromkeys(row.state for row in machine.ROWS))
    by_state = sorted(machine.ROWS, key=lambda row: states.index(row.state))
    rows = [TITLES, ("---",) * len(TITLES), *[(row.state, row.what, row.next, row.said) for row in by_state]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def renew(page: str) -> str:
    """Return the text of a page with its tables of states as they are in the package."""
    return TABLE.sub(lambda found: f"{found[1]}\n{table(machines()[found[2]])}\n\n{found[3]}", page)
