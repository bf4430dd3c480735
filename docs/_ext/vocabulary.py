"""The directives `vocabulary-enum`, `vocabulary-attributes` and `run-options`: tables from the project's own data."""

from __future__ import annotations

import csv
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

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


class Enum(Directive):
    """`vocabulary-enum:: Status`: the members of an enum."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        found = [row for row in rows("constants.tsv") if name in row["enums"].replace(",", " ").split()]
        if not found:
            raise self.error(f"no constants of an enum {name!r}")
        content = [[code(r["member"]), code(r["value"]), text(r["since"]), text(r["meaning"])] for r in found]
        return [table(["Member", "Value", "Since", "Meaning"], [26, 14, 10, 50], content)]


class Attributes(Directive):
    """`vocabulary-attributes::`: every attribute, with its key and types."""

    def run(self) -> list[nodes.Node]:
        content = [
            [code(r["name"]), code(r["key"]), code(r["types"]), text(r["since"]), text(r["meaning"])]
            for r in rows("attributes.tsv")
        ]
        return [table(["Attribute", "Key", "Types", "Since", "Meaning"], [24, 20, 14, 8, 44], content)]


class RunOptions(Directive):
    """`run-options::`: the options of `pypmix run`."""

    def run(self) -> list[nodes.Node]:
        from pypmix.cli.options import OPTIONS

        content = [
            [
                code(", ".join(option.names) + (f" {option.metavar}" if option.metavar else "")),
                text("application" if option.per_app else "job"),
                text(option.help),
            ]
            for option in OPTIONS
        ]
        return [table(["Option", "Of", "Meaning"], [34, 14, 60], content)]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("vocabulary-enum", Enum)
    app.add_directive("vocabulary-attributes", Attributes)
    app.add_directive("run-options", RunOptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
