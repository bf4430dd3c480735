"""The directive `state-diagram`: a table of states that the package goes by, and a picture of it."""

from __future__ import annotations

from collections import defaultdict
from textwrap import wrap

from docutils import nodes
from docutils.parsers.rst import Directive
from drawings import inline
from sphinx.application import Sphinx
from vocabulary import table, text

from pypmix.engine.collective import machine as collective
from pypmix.engine.groups import states
from pypmix.host.exchange import coordinator

NEWLINE = r"\n"
"""What `dot` begins a new line at."""

STYLE = """
    graph [bgcolor=white, pad=0.2, nodesep=0.35, ranksep=0.5, fontname="sans-serif"]
    node [shape=box, style=rounded, fontname="sans-serif", fontsize=11, height=0.3]
    edge [fontname="sans-serif", fontsize=9, arrowsize=0.6]
"""


def machines() -> dict[str, type[states.Machine]]:
    return {**states.MACHINES, "collective": collective.Life, "coordinator": coordinator.Life}


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


class StateDiagram(Directive):
    """`state-diagram:: invitee`: a table of states as a picture and in words; `machines` has their names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        machine = machines().get(name)
        if machine is None:
            raise self.error(f"no states of {name!r}")
        self.state.document.settings.env.note_dependency(states.__file__)
        content: list[list[nodes.Node]] = [
            [text(row.state), text(row.what), text(row.next), text(row.said)] for row in machine.ROWS
        ]
        titles = ["State", "What happens", "Next state", "Who is told"]
        try:
            picture = inline(f"states-{name}", drawing(machine), f"The states of: {machine.__doc__}")
        except ValueError as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", picture, format="html"), table(titles, [16, 26, 16, 42], content)]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("state-diagram", StateDiagram)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
