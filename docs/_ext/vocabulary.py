"""Tables from the project's own data: `vocabulary-enums`, `-attributes` and `-features`, and `run-options`.

Each enum, member and attribute has an anchor of its Python name, and is in `objects.inv`.
"""

from __future__ import annotations

import csv
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DATA = Path(__file__).resolve().parents[2] / "native" / "vocabulary"


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def text(source: str) -> nodes.paragraph:
    """Return a paragraph in which words between backticks are code."""
    paragraph = nodes.paragraph()
    for number, part in enumerate(source.split("`")):
        if part:
            paragraph += nodes.literal(text=part) if number % 2 else nodes.Text(part)
    return paragraph


def table(titles: list[str], widths: list[int], content: list[list[nodes.Node]]) -> nodes.table:
    group = nodes.tgroup(cols=len(titles))
    for width in widths:
        group += nodes.colspec(colwidth=width)

    def row(cells: list[nodes.Node]) -> nodes.row:
        return nodes.row("", *[nodes.entry("", cell) for cell in cells])

    group += nodes.thead("", row([nodes.paragraph(text=title) for title in titles]))
    group += nodes.tbody("", *map(row, content))
    return nodes.table("", group)


def code(source: str) -> nodes.paragraph:
    return nodes.paragraph("", "", nodes.literal(text=source)) if source else nodes.paragraph()


class Named(SphinxDirective):
    """A directive that describes Python objects: each gets an anchor, and an entry in the index of objects."""

    def anchor(self, name: str, kind: str, shown: str) -> nodes.paragraph:
        """Return the name as code that links to itself, which is what others link to."""
        link = nodes.reference("", "", nodes.literal(text=shown), internal=True, refid=name, ids=[name])
        self.state.document.note_explicit_target(link)
        self.env.get_domain("py").note_object(name, kind, name, location=link)  # type: ignore[attr-defined]
        return nodes.paragraph("", "", link)


def since(row: dict[str, str]) -> str:
    return f" {row['since']}" + (f", until {row['until']}" if row["until"] else "")


class Enums(Named):
    """`vocabulary-enums::`: each enum of `pypmix` and `pypmix.types`, in a section with its members."""

    def run(self) -> list[nodes.Node]:
        import pypmix

        constants = rows("constants.tsv")
        found: list[nodes.Node] = []
        for enum in rows("enums.tsv"):
            name = enum["enum"]
            if name not in {*dir(pypmix), *dir(pypmix.types)}:
                continue
            path = f"pypmix.{name}" if name in dir(pypmix) else f"pypmix.types.{name}"
            section = nodes.section(ids=[path, nodes.make_id(name)], names=[nodes.fully_normalize_name(name)])
            self.state.document.note_explicit_target(section)
            self.env.get_domain("py").note_object(path, "class", path, location=section)  # type: ignore[attr-defined]
            section += nodes.title("", name)
            section += text(f"`{enum['ctype']}`: {enum['meaning']}")
            content: list[list[nodes.Node]] = [
                [
                    nodes.container(
                        "", *[self.anchor(f"{path}.{member}", "attribute", member) for member in row["member"].split()]
                    ),
                    code(row["value"]),
                    text(since(row)),
                    text(row["meaning"]),
                ]
                for row in constants
                if name in row["enums"].replace(",", " ").split()
            ]
            section += table(["Member", "Value", "Since", "Meaning"], [34, 14, 10, 42], content)
            found.append(section)
        return found


FEW = 5
"""So many attributes that begin with the same word have a section of their own."""


class Attributes(Named):
    """`vocabulary-attributes::`: every attribute with its key and types, by the first word of its name."""

    def run(self) -> list[nodes.Node]:
        listed: dict[str, list[dict[str, str]]] = {}
        for row in sorted(rows("attributes.tsv"), key=lambda row: row["name"]):
            listed.setdefault(row["name"].partition("_")[0], []).append(row)
        found: list[nodes.Node] = []
        rest = [row for group in listed.values() if len(group) < FEW for row in group]
        for word, group in [*listed.items(), ("Others", rest)]:
            if len(group) < FEW:
                continue
            section = nodes.section(ids=[nodes.make_id(f"attributes-{word}")])
            section += nodes.title("", word if word == "Others" else f"{word}_")
            content: list[list[nodes.Node]] = []
            for row in group:
                name = self.anchor(f"pypmix.attrs.{row['name']}", "data", row["name"])
                content.append(
                    [name, code(row["key"]), code(row["types"]), text(f"{row['meaning']} (since{since(row)})")]
                )
            section += table(["Attribute", "Key", "Types", "Meaning"], [32, 20, 14, 34], content)
            found.append(section)
        return found


class Features(Named):
    """`vocabulary-features::`: the features that `supports` tells of."""

    def run(self) -> list[nodes.Node]:
        content: list[list[nodes.Node]] = [[code(row["name"]), text(row["meaning"])] for row in rows("features.tsv")]
        return [table(["Feature", "Meaning"], [30, 70], content)]


class RunOptions(Directive):
    """`run-options::`: the options of `pypmix run`."""

    def run(self) -> list[nodes.Node]:
        from pypmix.cli.options import OPTIONS

        content = [
            [
                code(", ".join(option.names) + (f" {option.metavar}" if option.metavar else "")),
                text(f"{option.help} Each application may have its own." if option.per_app else option.help),
            ]
            for option in OPTIONS
        ]
        return [table(["Option", "Meaning"], [34, 66], content)]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("vocabulary-enums", Enums)
    app.add_directive("vocabulary-features", Features)
    app.add_directive("vocabulary-attributes", Attributes)
    app.add_directive("run-options", RunOptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
