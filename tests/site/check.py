"""Check the built documentation without a browser: the index of objects is whole, pictures exist, links have words.

Usage: python tests/site/check.py FOLDER
"""

from __future__ import annotations

import csv
import json
import re
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = ROOT / "native" / "vocabulary"
FILES = ("sitemap.xml", "robots.txt", "llms.txt", "objects.inv", "searchindex.js")
PARTS = ("types", "groups")
"""The modules with the names that are too general for the package's root."""
INTERNAL = ("pypmix.host.callbacks.host.Host.hop", "pypmix.host.Host.hop", "pypmix.host.Host.launch_over")


def objects(folder: Path) -> set[str]:
    """Return the names of the Python objects that other documentations can link to."""
    return {line.split(" ", 1)[0] for line in inventory(folder) if " py:" in line}


def inventory(folder: Path) -> list[str]:
    """Return the lines about objects that other documentations can link to."""
    data = (folder / "objects.inv").read_bytes()
    return zlib.decompress(data.split(b"\n", 4)[4]).decode().splitlines()


def public() -> set[str]:
    """Return the names that have to be among them."""
    sys.path.insert(0, str(ROOT))
    import pypmix
    import pypmix.host
    import pypmix.host.exchange

    modules = ("aio", "attrs", "events", "host", *PARTS)
    homes = {name: part for part in PARTS for name in dir(getattr(pypmix, part)) if name[:1] != "_"}
    homes |= {name: "" for name in dir(pypmix) if name[:1] != "_" and name not in modules}
    found = {".".join(filter(None, ("pypmix", homes[name], name))) for name in homes}
    host = ("Host", "LocalHost", "Outcome", "JobLayout", "NodeLayout", "Application", "LATER")
    found |= {f"pypmix.host.{name}" for name in host}
    found |= {f"pypmix.host.exchange.{name}" for name in pypmix.host.exchange.__all__}
    found |= {"Infos", "Procs", "Key", "Apps", "Target", "Feature"}
    for table, column in (("attributes.tsv", "name"), ("constants.tsv", "member")):
        with (VOCABULARY / table).open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                enums = row.get("enums", "").replace(",", " ").split() if column == "member" else []
                owners = [each for each in enums if each in homes] if column == "member" else ["attrs"]
                owners = [".".join(filter(None, (homes.get(each, ""), each))) for each in owners]
                found |= {f"pypmix.{owner}.{name}" for owner in owners for name in row[column].split()}
    return found


def wrong(page: Path) -> list[str]:
    text = page.read_text()
    article = text.partition("<article")[2].partition("</article>")[0]
    found = [f"a link without text: {link}" for link in re.findall(r'<a [^>]*href="([^"]*)"[^>]*>\s*</a>', article)]
    for source in re.findall(r'<img [^>]*src="([^"]+)"', text):
        if "://" not in source and not (page.parent / source.partition("?")[0]).exists():
            found.append(f"a picture is missing: {source}")
    return found


def old_links(folder: Path) -> list[str]:
    """Return what is wrong with the pages and the script that old links lead to."""
    text = (folder / "_static" / "old_links.js").read_text()
    homes = json.loads(text.removeprefix("const oldLinks = ").partition(";\n")[0])
    found = []
    for line in inventory(folder):
        name, kind, _, target, _ = line.split(" ", 4)
        page, _, anchor = target.partition("#")
        if kind.startswith("py:") and anchor in ("$", name):
            part = name
            while part and part not in homes:
                part = part.rpartition(".")[0]
            if homes.get(part) != page:
                found.append(f"old links to {name} lead to {homes.get(part)}, not to {page}")
    for page in sorted(folder.rglob("*.html")):
        text = page.read_text()
        if "_static" not in page.parts and "old_links.js" not in text:
            found.append(f"{page.relative_to(folder)} does not follow old links")
        for there in re.findall(r'<link rel="canonical" href="([^:"]*)">', text):
            if not (page.parent / there).exists():
                found.append(f"{page.relative_to(folder)} leads to {there}, which is missing")
    missing = [name for name in ("host", "types", "upcalls") if not (folder / "reference" / f"{name}.html").exists()]
    return [*found, *[f"the old page {name} leads nowhere" for name in missing]]


def offered(folder: Path, name: str) -> list[str]:
    """Return what is wrong with the examples that a page shows: they can be saved, and commands can be copied."""
    shown = re.findall(r"^<!-- program: \S*examples/\S*?(\w+\.py)", (ROOT / "docs" / name).read_text(), re.M)
    text = (folder / name).with_suffix(".html").read_text()
    saved = re.findall(r'href="[^"]*_downloads/[^"/]*/([^"]*)"', text)
    found = [f"{each} cannot be saved" for each in shown if each not in saved]
    return found if "copybutton.js" in text else [*found, "nothing can be copied"]


def main() -> int:
    folder = Path(sys.argv[1])
    problems = [f"{name} is missing" for name in FILES if not (folder / name).exists()]
    known = objects(folder)
    problems += [f"{name} is not in objects.inv" for name in sorted(public() - known)]
    problems += old_links(folder)
    problems += [f"{name} is internal and in the reference" for name in INTERNAL if name in known]
    for page in sorted(folder.rglob("*.html")):
        if "_static" not in page.parts:
            problems += [f"{page.relative_to(folder)}: {each}" for each in wrong(page)]
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = str(path.relative_to(ROOT / "docs"))
        problems += [f"{name}: {each}" for each in offered(folder, name)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
