"""Pictures: drawn by Graphviz into `docs/pictures/` and kept there, so that building the pages needs no `dot`.

Usage: python docs/_ext/drawings.py, after a `.dot` file or a table of states has changed. A stale one fails a build.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
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


class Drawing(SphinxDirective):
    """`drawing:: NAME`, with `:alt:`: a picture of `docs/pictures`."""

    required_arguments = 1
    option_spec = {"alt": directives.unchanged_required}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        source = PICTURES / f"{name}.dot"
        self.env.note_dependency(str(source))
        self.env.note_dependency(str(source.with_suffix(".svg")))
        try:
            return [nodes.raw("", inline(name, source.read_text(), self.options["alt"]), format="html")]
        except (ValueError, OSError, KeyError) as error:
            raise self.error(str(error)) from error


def main() -> None:
    import states

    for path in sorted(PICTURES.glob("*.dot")):
        draw(path.stem, path.read_text())
    for name, machine in states.machines().items():
        draw(f"states-{name}", states.drawing(machine))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    main()
