"""The directive `promise-table`: what is promised of groups and sets, connections or values, and who keeps it."""

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


def declared() -> ModuleType:
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    return importlib.import_module("lib.promises")


class Promises(Directive):
    """`promise-table:: NAME`: each promise with its place, and for each pairing whether it is kept; reasons below.

    The name is `groups`, `connections` or `values`.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        promises = declared()
        shown = {
            "groups": promises.PROMISES,
            "connections": promises.connect_promises.PROMISES,
            "values": promises.value_promises.PROMISES,
        }
        if self.arguments[0] not in shown:
            raise self.error(f"no promises of {self.arguments[0]!r}")
        for name in ("promises.py", "connect_promises.py", "value_promises.py"):
            self.state.document.settings.env.note_dependency(str(TESTS / "lib" / name))
        notes: dict[str, int] = {}
        content = []
        for promise in shown[self.arguments[0]]:
            cells: list[nodes.Node] = [text(promise.text), text(promise.place)]
            for _, server, clients in promises.COLUMNS:
                found = [lack for client in clients for lack in _lacks(promises, promise.name, server, client)]
                numbers = [notes.setdefault(lack.reason, len(notes) + 1) for lack in found]
                cells.append(text(", ".join(map(str, sorted(set(numbers)))) or "✓"))
            content.append(cells)
        titles = ["What is promised", "Where", *[column.title for column in promises.COLUMNS]]
        listed = nodes.enumerated_list()
        for reason in notes:
            listed += nodes.list_item("", text(f"{reason[:1].upper()}{reason[1:]}."))
        found_table = table(titles, [40, 20, *([6] * len(promises.COLUMNS))], content)
        found_table["classes"].append("promises")
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
