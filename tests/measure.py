"""Measure the source code of pypmix: sizes, import circles, habits, and the functions on the way of operations.

Usage: python tests/measure.py [--root FOLDER] [--json] [--steps] | --sites HABIT | --words | --page | --accept

FOLDER is a checkout, by default this one, with the native engine built in it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from lib import figures, journeys

LONGEST = 10


def measure(root: Path, steps: bool = False) -> dict[str, Any]:
    """Return all figures of a checkout."""
    files = figures.sources(root)
    ours = figures.written(files)
    found: dict[str, Any] = {
        "files": len(ours),
        "lines": sum(each.lines for each in ours),
        "lines generated": sum(each.lines for each in files) - sum(each.lines for each in ours),
        "lines by package": figures.sizes(ours),
        "circles": len(circles := figures.circles(files)),
        "modules in circles": sum(map(len, circles)),
        "members of circles": circles,
    }
    habits = figures.count(files)
    found |= {name: sum(counts.values()) for name, counts in habits.items()}
    found["habits by package"] = habits
    longest = sorted(((each.lines, each.path) for each in ours), reverse=True)[:LONGEST]
    found["longest files"] = {path: lines for lines, path in longest}
    for title, journey in trace_all(root).items():
        found[title] = {
            side: {
                "files": len({step.path for step in taken}),
                "functions": len(taken),
                "functions but of wire/ and standard/": len(
                    [step for step in taken if not step.path.startswith(("wire/", "standard/"))]
                ),
            }
            for side, taken in (("client", journey.client), ("server", journey.server))
        } | {"files of both": len(journey.files)}
        if steps:
            found[title]["steps"] = {"client": journey.client, "server": journey.server}
    return found


def trace_all(root: Path) -> dict[str, journeys.Journey]:
    """Return each journey by its title."""
    found = {f"{name}, python engine": journey for name, journey in journeys.trace(root).items()}
    found |= {f"{name}, native engine": journey for name, journey in journeys.trace(root, "native").items()}
    return found | {"upcall of a user's host": journeys.trace(root, scene=journeys.OF_HOST)["upcall"]}


def show(found: dict[str, Any], indent: str = "") -> None:
    """Print figures, one a line."""
    for name, value in found.items():
        if isinstance(value, dict):
            print(f"{indent}{name}")
            show(value, indent + "    ")
        elif isinstance(value, list | tuple):
            print(f"{indent}{name}")
            for each in value:
                print(f"{indent}    {' '.join(each)}")
        else:
            print(f"{indent}{name:<{max(1, 48 - len(indent))}} {value:>7}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="a checkout; this one by default")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--steps", action="store_true", help="print each function on the way of the operations")
    parser.add_argument("--sites", choices=figures.HABITS, help="print only where a habit is met with")
    parser.add_argument("--words", action="store_true", help="print only where words to avoid are met with")
    parser.add_argument(
        "--page", action="store_true", help='write "Also on the way" of docs/how-it-works/architecture.md'
    )
    parser.add_argument("--accept", action="store_true", help="write today's counts into tests/unit/ratchet.json")
    given = parser.parse_args()
    if given.page:
        page = journeys.PAGE.read_text()
        journeys.PAGE.write_text(journeys.rewritten(page, journeys.trace_page(given.root.resolve())))
        return
    if given.accept:
        figures.LIMITS.write_text(json.dumps(figures.limited(given.root), indent=2) + "\n")
        return
    if given.sites:
        for each in figures.written(figures.sources(given.root)):
            for site in figures.HABITS[given.sites](each):
                print(f"pypmix/{site.path}:{site.line}: {site.text}")
        return
    if given.words:
        for word, site in figures.words(given.root, figures.sources(given.root)):
            print(f"{site.path}:{site.line}: {word}: {site.text}")
        return
    found = measure(given.root.resolve(), given.steps)
    if given.json:
        json.dump(found, sys.stdout, indent=2)
    else:
        show(found)


if __name__ == "__main__":
    main()
