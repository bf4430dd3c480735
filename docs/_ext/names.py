"""The directive `renames`: old and new names. And references of signatures to names that are not in their module.

A signature names a class as its module imports it. The class may be documented in another one of the public modules.
"""

from __future__ import annotations

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from vocabulary import code, table

from pypmix.oldnames import RENAMES, show

HOMES = ("pypmix.types", "pypmix.groups", "pypmix.events")


class Renames(Directive):
    """`renames::`: a table of the old names and the new ones."""

    def run(self) -> list[nodes.Node]:
        rows: list[list[nodes.Node]] = [[code(old), form(show(old))] for old in sorted(RENAMES)]
        return [table(["Old name", "New name"], [50, 50], rows)]


def form(text: str) -> nodes.paragraph:
    """Return a new form: a name, or a text with code in backticks."""
    if "`" not in text:
        return code(text)
    parts = enumerate(text.split("`"))
    return nodes.paragraph("", "", *[nodes.literal(text=part) if at % 2 else nodes.Text(part) for at, part in parts])


def find_moved(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Element | None:
    """Resolve a reference to a class in one of the public modules."""
    if node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    name = node["reftarget"].rpartition(".")[2]
    for home in HOMES:
        target = f"{home}.{name}"
        if target in domain.objects:  # type: ignore[attr-defined]
            node["reftarget"] = target
            return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], target, node, content)
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("renames", Renames)
    app.connect("missing-reference", find_moved)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
