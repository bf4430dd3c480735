"""The directive `compat-differences`: what is different from the official binding, by topics."""

from __future__ import annotations

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from vocabulary import table, text

from pypmix.compat.check import TABLE, TOPICS


class Differences(Directive):
    """`compat-differences::`: a section for each topic, with the differences in a table."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for topic, title in TOPICS.items():
            section = nodes.section(ids=[nodes.make_id(f"differences-{topic}")])
            section += nodes.title("", title)
            content = []
            for each in TABLE:
                if each.topic == topic:
                    here = f"{each.here} {each.advice}".strip()
                    names = ", ".join(f"`{name}`" for name in each.name.split())
                    content.append([text(names), text(each.official), text(here)])
            section += table(["Of", "The official binding", "pypmix, and what to do"], [20, 40, 40], content)
            found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("compat-differences", Differences)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
