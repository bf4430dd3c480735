"""The directive `upcall-differences`: what the comparison of servers knows that they do differently."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from vocabulary import code, table, text

SOURCE = Path(__file__).resolve().parents[2] / "tests" / "foreign" / "compare" / "differences.py"


def declared() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pypmix_compare_differences", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Differences(Directive):
    """`upcall-differences::`: the declared differences, in the order of their upcalls."""

    def run(self) -> list[nodes.Node]:
        env = self.state.document.settings.env
        env.note_dependency(str(SOURCE))
        rows = sorted(declared().DIFFERENCES, key=lambda row: (row.op, row.where))
        content = [
            [
                code(row.op),
                code(row.where),
                text(", ".join(release.replace(".*", "") for release in row.releases).replace("*", "all")),
                text(row.libpmix),
                text(row.pypmix),
                text(row.reason),
            ]
            for row in rows
        ]
        titles = ["Upcall", "What of it", "libpmix", "libpmix does", "pypmix does", "Why"]
        return [table(titles, [14, 18, 8, 24, 24, 30], content)]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("upcall-differences", Differences)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
