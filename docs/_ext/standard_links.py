"""Links to the PMIx Standard and its RFCs: where a description names a C function, the Standard or an RFC.

`standard.tsv` says in which chapter, section or subsection of version 5.0 a function is described, by the names that
the PDF has for them.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

STANDARD = "https://pmix.org/uploads/2023/05/pmix-standard-v5.0.pdf"
RFCS = "https://github.com/pmix/RFCs/blob/master"
SOURCE = Path(__file__).with_name("standard.tsv")
WORDS = re.compile(r"RFC (\d{4})|PMIx Standard(?=: )")


def places() -> dict[str, str]:
    with SOURCE.open(newline="") as file:
        return {row["name"]: row["place"] for row in csv.DictReader(file, delimiter="\t")}


def linked(match: re.Match[str]) -> nodes.reference:
    uri = f"{RFCS}/RFC{match[1]}.md" if match[1] else STANDARD
    return nodes.reference("", match[0], refuri=uri, internal=False)


def link(_: Sphinx, document: nodes.document) -> None:
    """Make the links of a document that has been read."""
    known = places()
    for described in document.findall(addnodes.desc_content):
        for literal in list(described.findall(nodes.literal)):
            place = known.get(literal.astext())
            if place is not None and not isinstance(literal.parent, (nodes.reference, addnodes.pending_xref)):
                uri = f"{STANDARD}#nameddest={place}"
                title = f"PMIx Standard 5.0, {place.replace('.', ' ', 1)}"
                literal.replace_self(
                    nodes.reference("", "", literal.deepcopy(), refuri=uri, internal=False, reftitle=title)
                )
    for text in list(document.findall(nodes.Text)):
        inside = text.parent
        if not isinstance(
            inside, (nodes.reference, nodes.literal, nodes.title, nodes.literal_block, addnodes.pending_xref)
        ):
            parts: list[nodes.Node] = []
            end = 0
            for match in WORDS.finditer(text):
                parts += [nodes.Text(text[end : match.start()]), linked(match)]
                end = match.end()
            if parts:
                inside.replace(text, [*parts, nodes.Text(text[end:])])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
