"""The classes of `pypmix.aio` in the reference, which are on the pages of their blocking counterparts.

Nearly all docstrings of the two are equal but for their examples, since one is generated from the other: the second
becomes a link to the first, and keeps its example.
A class that a signature names without its module is the one of the same side.
"""

from __future__ import annotations

import inspect
from importlib import import_module

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

HOMES = ("pypmix", "pypmix.groups", "pypmix.types")
KINDS = {"class", "exception", "type"}
ROLES = {"class": "class", "method": "meth", "property": "attr", "attribute": "attr", "function": "func"}


def find_counterpart(name: str) -> tuple[str, object] | None:
    """Return the name under which the reference has the blocking counterpart, and the object; None without one.

    Args:
        name: The full name of a class, a member or a function of `pypmix.aio`.
    """
    parts = name.split(".")
    at = next((at for at, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    for home in (*HOMES, ".".join(part for part in parts[:at] if part != "aio")):
        found: object = import_module(home)
        if parts[at] not in dir(found):  # a package gives old names too
            continue
        try:
            for part in parts[at:]:
                found = getattr(found, part)
        except AttributeError:
            continue
        return ".".join([home, *parts[at:]]), found
    return None


def split_example(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return a docstring without its example, and the example."""
    begin = next((at for at, line in enumerate(lines) if line in {"Example:", "Examples:"}), len(lines))
    rest = range(begin + 1, len(lines))
    end = next((at for at in rest if lines[at] and not lines[at].startswith(" ")), len(lines))
    return [line for line in lines[:begin] + lines[end:] if line], lines[begin:end]


def link_counterpart(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Reduce a docstring to its first paragraph, the link and its example, if only the example is its own."""
    if not name.startswith("pypmix.aio.") or what not in ROLES or "" not in lines:
        return
    counterpart = find_counterpart(name)
    if counterpart is None:
        return
    text, example = split_example((inspect.getdoc(obj) or "").splitlines())
    if text == split_example((inspect.getdoc(counterpart[1]) or "").splitlines())[0]:
        lines[lines.index("") + 1 :] = [f"See :py:{ROLES[what]}:`{counterpart[0]}`.", "", *example, ""]


def find_module(node: nodes.Node | None) -> str:
    """Return the module of the class or function whose signature or description has a reference; empty without one."""
    while node is not None:
        module = node.get("module") or node.get("py:module") if isinstance(node, nodes.Element) else None
        if module:
            return str(module)
        node = node.parent
    return ""


class QualifyNames(SphinxPostTransform):
    """Complete the names of classes in signatures, before Sphinx looks for them."""

    default_priority = 5

    def run(self, **_: object) -> None:
        sides: dict[tuple[bool, str], list[str]] = {}
        for name, entry in self.env.get_domain("py").objects.items():  # type: ignore[attr-defined]
            if not entry.aliased and entry.objtype in KINDS:
                sides.setdefault((name.startswith("pypmix.aio."), name.rpartition(".")[2]), []).append(name)
        for node in self.document.findall(pending_xref):
            if node.get("refdomain") == "py" and "." not in node["reftarget"]:
                names = sides.get((f"{find_module(node)}.".startswith("pypmix.aio."), node["reftarget"]), [])
                if len(names) == 1:
                    node["reftarget"] = names[0]


def setup(app: Sphinx) -> dict[str, bool]:
    # Before napoleon, which takes the sections of a docstring apart.
    app.connect("autodoc-process-docstring", link_counterpart, priority=100)
    app.add_post_transform(QualifyNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
