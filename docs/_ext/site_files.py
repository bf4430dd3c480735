"""Files for machines beside the pages: `sitemap.xml`, `robots.txt`, `llms.txt`, and each page's own source as Markdown.

`llms.txt` lists the pages with their first paragraph; see https://llmstxt.org.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.sax.saxutils import escape

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

SHORT = 220


def paragraph(env: BuildEnvironment, page: str) -> str:
    """Return the first paragraph of a page, shortened and without its markup."""
    blocks = env.doc2path(page).read_text().split("\n\n")
    text = next((each for each in blocks if each[:1].isalpha() or each[:1] in "`["), "")
    text = re.sub(r"\{\w+\}`([^`<]+?)\s*(<[^`]*>)?`|\[([^]]*)\]\([^)]*\)", lambda found: found[1] or found[3], text)
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= SHORT else text[:SHORT].rsplit(" ", 1)[0] + " ..."


def sections(env: BuildEnvironment) -> list[tuple[str, list[str]]]:
    """Return the pages by the captions of the landing page's lists."""
    found = []
    for tree in env.tocs["index"].findall(lambda node: node.tagname == "toctree"):
        pages: list[str] = []
        for _, page in tree["entries"]:
            pages += [page, *[each for each in env.toctree_includes.get(page, ()) if each not in pages]]
        found.append((tree.get("caption") or "Pages", pages))
    return found


def written(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name not in {"html", "dirhtml"}:
        return
    env, folder = app.env, Path(app.outdir)
    base = app.config.html_baseurl.rstrip("/")
    pages = sorted(env.found_docs)
    address = {page: f"{base}/{app.builder.get_target_uri(page)}" for page in pages}
    urls = "\n".join(f"  <url><loc>{escape(address[page])}</loc></url>" for page in pages)
    (folder / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}\n</urlset>\n'
    )
    (folder / "robots.txt").write_text(f"User-agent: *\nAllow: /\nSitemap: {base}/sitemap.xml\n")
    lines = ["# pypmix", "", f"> {app.config.description}", ""]
    for caption, listed in sections(env):
        lines += [f"## {caption}", ""]
        lines += [
            f"- [{env.titles[page].astext()}]({base}/_sources/{page}.md.txt): {paragraph(env, page)}" for page in listed
        ]
        lines.append("")
    (folder / "llms.txt").write_text("\n".join(lines))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("description", "", "html")
    app.connect("build-finished", written)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
