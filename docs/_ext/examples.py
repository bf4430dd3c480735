"""Adds a link below each example that a page shows, by which it can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes


def add_links(app: Any, doctree: nodes.document) -> None:
    """Link to the files that literal blocks of a page come from."""
    for block in list(doctree.findall(nodes.literal_block)):
        path = Path(block.get("source") or "")
        if not path.is_relative_to(Path(app.srcdir) / "examples") or path.suffix != ".py":
            continue
        place = block.parent if isinstance(block.parent, nodes.container) else block
        target = f"/{path.relative_to(app.srcdir)}"
        link = addnodes.download_reference("", f"Save {path.name}", reftarget=target, refdoc=app.env.docname)
        place.parent.insert(place.parent.index(place) + 1, nodes.paragraph("", "", link, classes=["save"]))


def setup(app: Any) -> dict[str, bool]:
    # Before Sphinx collects the files to be copied.
    app.connect("doctree-read", add_links, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
