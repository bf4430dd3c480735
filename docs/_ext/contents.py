"""The order of the pages: the lists of links below "All pages" on the landing page, which can be read anywhere.

Sphinx gets a hidden `toctree` for each list, whose caption is the heading of the list.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

LISTS = "## All pages\n"
TREE = """
```{{toctree}}
:maxdepth: 1
:caption: {caption}
:hidden:

{entries}
```
"""


def short(title: str) -> str:
    """Return what the sidebar shows of a title, which goes on after a colon with words that people search for."""
    return title if title.startswith("API:") else title.partition(":")[0]


def trees(text: str) -> str:
    """Return the directives for the lists of the landing page."""
    found = []
    for part in text.partition(LISTS)[2].split("\n### ")[1:]:
        caption, _, links = part.partition("\n")
        pages = re.findall(r"^- \[([^]]+)\]\(([\w/-]+)\.md\)$", links, re.MULTILINE)
        entries = "\n".join(f"{short(title)} <{page}>" for title, page in pages)
        found.append(TREE.format(caption=caption, entries=entries))
    return "".join(found)


def add_trees(app: Sphinx, page: str, source: list[str]) -> None:
    if page == app.config.root_doc:
        source[0] += trees(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_trees)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
