"""Old links to the reference: a page for each page that there was, and a script that finds the object of an anchor.

Objects move from page to page. Where a link names one that is no longer on its page, the script opens the page that has
it. The address of an object's anchor is its name, so that the name is all that the script needs.
"""

from __future__ import annotations

import json
from pathlib import Path
from posixpath import relpath

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

FILE = "old_links.js"

PAGES = {
    "reference/connect-protocol": "how-it-works/between-servers",
    "reference/constants": "reference/attributes",
    "reference/exchange": "reference/server-exchange",
    "reference/host": "reference/host-class",
    "reference/limits": "reference/environment",
    "reference/moves": "reference/names",
    "reference/standard": "reference/promises",
    "reference/testing": "reference/scenario",
    "reference/types": "reference/values",
    "reference/upcalls": "reference/servers",
}
"""The pages of today, by the pages that there were."""

SCRIPT = """\
const oldLinks = %s;

// Returns the page of an object; an object that is not listed is on the page of the one that contains it.
function findPage(name) {
  for (let part = name; part; part = part.slice(0, Math.max(part.lastIndexOf("."), 0)))
    if (Object.hasOwn(oldLinks, part)) return oldLinks[part];
  return "";
}

if (typeof document !== "undefined") {
  const script = document.currentScript;
  const root = new URL("..", script.src);
  const follow = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const page = document.getElementById(name) ? "" : findPage(name) || script.dataset.page || "";
    const there = new URL(page, root);
    if (page && there.pathname !== location.pathname) location.replace(there + location.hash);
  };
  document.addEventListener("DOMContentLoaded", follow);
  window.addEventListener("hashchange", follow);
}
"""

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{there}">
<script src="{script}" data-page="{page}"></script>
<noscript><meta http-equiv="refresh" content="0; url={there}"></noscript>
</head>
<body><article><p>This page has moved: <a href="{there}">{page}</a></p></article></body>
</html>
"""


def find_homes(env: BuildEnvironment, address: dict[str, str]) -> dict[str, str]:
    """Return the page of each object of Python that is on another page than the object that contains it."""
    objects = sorted(env.get_domain("py").get_objects(), key=lambda each: each[0].count("."))
    found: dict[str, str] = {}
    for name, _, _, page, anchor, _ in objects:
        if name == anchor:
            outer = name
            while "." in outer:
                outer = outer.rpartition(".")[0]
                if outer in found:
                    break
            if found.get(outer) != address[page]:
                found[name] = address[page]
    return found


def written(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    folder, address = Path(app.outdir), {page: app.builder.get_target_uri(page) for page in app.env.found_docs}
    (folder / "_static" / FILE).write_text(SCRIPT % json.dumps(find_homes(app.env, address), indent=0))
    for old, new in PAGES.items():
        here = f"{old}.html"
        script, there = (relpath(path, here.rpartition("/")[0]) for path in (f"_static/{FILE}", address[new]))
        (folder / here).write_text(PAGE.format(script=script, there=there, page=address[new]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_js_file(FILE)
    app.connect("build-finished", written)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
