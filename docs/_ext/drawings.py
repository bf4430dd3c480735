"""Pictures: drawn by Graphviz into `docs/pictures/` and kept there, so that building the pages needs no `dot`.

Usage: python docs/_ext/drawings.py, after a `.dot` file or a table of states has changed. It also writes the tables of
states into the pages. A stale picture or table fails a build.

A page shows a picture as an ordinary image, so that it can be read anywhere. The site has it as a part of the page, in
the colours of its text.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

import states
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

DOCS = Path(__file__).resolve().parents[1]
PICTURES = DOCS / "pictures"
MADE = "<!-- made of {} -->"


def digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def draw(name: str, source: str) -> None:
    """Write a picture from its source in the language of `dot`."""
    drawn = subprocess.run(["dot", "-Tsvg"], input=source, capture_output=True, text=True, check=True).stdout
    svg = drawn[drawn.index("<svg") :].rstrip()
    (PICTURES / f"{name}.svg").write_text(f"{MADE.format(digest(source))}\n{svg}\n")


def inline(name: str, source: str, alt: str) -> str:
    """Return a picture as a part of a page, in the colours of its text; raise `ValueError` if it is stale."""
    path = PICTURES / f"{name}.svg"
    text = path.read_text() if path.exists() else ""
    if not text.startswith(MADE.format(digest(source))):
        raise ValueError(f"{path.name} is stale or missing: run `python docs/_ext/drawings.py`, which needs Graphviz")
    svg = text.partition("-->")[2].strip()
    svg = re.sub(r'<polygon fill="white" stroke="(transparent|none|white)"[^>]*/>\n?', "", svg, count=1)
    svg = svg.replace('fill="white"', 'fill="none"')
    svg = re.sub(r"<title>.*?</title>\n?|<!--.*?-->\n?", "", svg).replace('"black"', '"currentColor"')
    svg = re.sub(r"<text (?![^>]*fill=)", '<text fill="currentColor" ', svg)
    svg = re.sub(r' id="\w+"', "", svg)
    width = re.search(r'<svg width="(\d+)pt" height="\d+pt"', svg)
    if width:
        svg = svg.replace(width[0], f'<svg style="width: {width[1]}pt"', 1)
    return f'<div class="drawing" role="img" aria-label="{nodes.Text(alt).astext()}">\n{svg}\n</div>'


def sources() -> dict[str, str]:
    """Return the source of each picture that is drawn, by its name."""
    found = {path.stem: path.read_text() for path in sorted(PICTURES.glob("*.dot"))}
    return found | {f"states-{name}": states.drawing(machine) for name, machine in states.machines().items()}


class Inline(SphinxTransform):
    """Make the pictures that are drawn here parts of their page."""

    default_priority = 200

    def apply(self, **kwargs: object) -> None:
        drawn = sources()
        for image in list(self.document.findall(nodes.image)):
            path = Path(image["uri"])
            if path.parent.name != PICTURES.name or path.stem not in drawn:
                continue
            self.env.note_dependency(str(PICTURES / path.name))
            try:
                picture = nodes.raw("", inline(path.stem, drawn[path.stem], image["alt"]), format="html")
            except ValueError as error:
                raise ExtensionError(str(error)) from error
            whole = image.parent if isinstance(image.parent, nodes.paragraph) else image
            whole.replace_self(picture)


def check_tables(app: Sphinx, page: str, source: list[str]) -> None:
    """Fail if a page has a table of states that is stale."""
    if states.renew(source[0]) != source[0]:
        raise ExtensionError(f"{page}: a table of states is stale: run `python docs/_ext/drawings.py`")


def main() -> None:
    for name, source in sources().items():
        draw(name, source)
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        if states.renew(text) != text:
            page.write_text(states.renew(text))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(Inline)
    app.connect("source-read", check_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    main()
