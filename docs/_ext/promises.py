"""The directive `promise-table`: what is promised of groups and process sets, and which pairings keep it."""

from __future__ import annotations

import fnmatch
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from vocabulary import table, text

TESTS = Path(__file__).resolve().parents[2] / "tests"

COLUMNS = (
    ("Python", "python-server", ("python-client",)),
    ("Python, native clients", "python-server", ("native-4.2.2", "native-5.0.11", "native-7.0.0")),
    ("Python, 2 nodes", "python-server-2-nodes", ("python-client",)),
    ("Python, 2 nodes, native clients", "python-server-2-nodes", ("native-4.2.2", "native-5.0.11")),
    ("PRRTE 3 (5.0)", "prterun-5.0.11", ("python-client",)),
    ("PRRTE 3, native clients", "prterun-5.0.11", ("native-5.0.11",)),
    ("PRRTE 5 (7.0)", "prterun-7.0.0", ("python-client",)),
    ("PRRTE 5, native clients", "prterun-7.0.0", ("native-7.0.0",)),
    ("Host on 4.2", "native-server-4.2.2", ("python-client",)),
    ("Host on 4.2, native clients", "native-server-4.2.2", ("native-4.2.2",)),
    ("Host on 5.0", "native-server-5.0.11", ("python-client",)),
    ("Host on 5.0, native clients", "native-server-5.0.11", ("native-5.0.11",)),
    ("Host on 7.0", "native-server-7.0.0", ("python-client",)),
    ("Host on 7.0, native clients", "native-server-7.0.0", ("native-7.0.0",)),
)
"""The pairings of the table: a title, a server, and clients."""


def declared() -> ModuleType:
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    return importlib.import_module("harness.promises")


class Promises(Directive):
    """`promise-table::`: each promise with its place, and for each pairing whether it is kept; the reasons below."""

    def run(self) -> list[nodes.Node]:
        promises = declared()
        self.state.document.settings.env.note_dependency(str(TESTS / "harness" / "promises.py"))
        notes: dict[str, int] = {}
        content = []
        for promise in promises.PROMISES:
            cells: list[nodes.Node] = [text(promise.text), text(promise.place)]
            for _, server, clients in COLUMNS:
                found = [lack for client in clients for lack in _lacks(promises, promise.name, server, client)]
                numbers = [notes.setdefault(lack.reason, len(notes) + 1) for lack in found]
                cells.append(text(", ".join(map(str, sorted(set(numbers)))) or "✓"))
            content.append(cells)
        titles = ["What is promised", "Where", *[column[0] for column in COLUMNS]]
        listed = nodes.enumerated_list()
        for reason in notes:
            listed += nodes.list_item("", text(f"{reason[:1].upper()}{reason[1:]}."))
        found_table = table(titles, [40, 20, *([6] * len(COLUMNS))], content)
        return [found_table, listed] if notes else [found_table]


def _lacks(promises: ModuleType, name: str, server: str, client: str) -> list[Any]:
    return [
        lack
        for lack in promises.LACKS
        if lack.feature == name
        and fnmatch.fnmatchcase(server, lack.server)
        and fnmatch.fnmatchcase(client, lack.client)
    ][:1]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("promise-table", Promises)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
