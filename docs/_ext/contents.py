"""The order of the pages: the lists of links below "All pages" on the landing page, which can be read anywhere.

Sphinx gets a hidden `toctree` for each list, whose caption is the heading of the list. The pages of classes are in the
order in which the index of classes first links to them.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

LISTS = "## All pages\n"
CLASSES = "reference/api"
TITLE = "# API: "
TREE = """
```{{toctree}}
:maxdepth: 1
:caption: {caption}
:hidden:

{entries}
```
"""


def trees(text: str) -> str:
    """Return the directives for the lists of the landing page.

    The sidebar shows a title up to its colon; words that people search for follow.
    """
    found = []
    for part in text.partition(LISTS)[2].split("\n### ")[1:]:
        caption, _, links = part.partition("\n")
        pages = re.findall(r"^- \[([^]]+)\]\(([\w/-]+)\.md\)$", links, re.MULTILINE)
        entries = "\n".join(f"{title.partition(':')[0]} <{page}>" for title, page in pages)
        found.append(TREE.format(caption=caption, entries=entries))
    return "".join(found)


def class_tree(text: str, folder: Path) -> str:
    """Return the directive for the pages of the API that the index links to; the sidebar shows their classes."""
    pages = dict.fromkeys(re.findall(r"\]\(([\w-]+)\.md\)", text))
    titles = {page: (folder / f"{page}.md").read_text().partition("\n")[0] for page in pages}
    entries = [f"{title.removeprefix(TITLE)} <{page}>" for page, title in titles.items() if title.startswith(TITLE)]
    return TREE.format(caption="Classes", entries="\n".join(entries))


def add_trees(app: Sphinx, page: str, source: list[str]) -> None:
    if page == app.config.root_doc:
        source[0] += trees(source[0])
    elif page == CLASSES:
        source[0] += class_tree(source[0], (app.srcdir / page).parent)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_trees)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
