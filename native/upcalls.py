"""Write the requests and the methods of `Host` from the operations and the table of upcalls.

Usage: python native/upcalls.py [--check]

`native/vocabulary/upcalls.tsv` has a line for each method: its operations, its request, the request's base and the type
of the reply. The fields of a request, with their types and meanings, are the fields of its operations in
`pypmix/standard/ops`. If a method has several operations, its request has the fields that they share. A base in
`pypmix/host/callbacks/base.py` may define some of them itself.
"""

from __future__ import annotations

import csv
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "native" / "vocabulary" / "upcalls.tsv"
RESULT = ROOT / "pypmix" / "host" / "callbacks"
NOTE = "# Made from native/vocabulary/upcalls.tsv and pypmix/standard/ops by native/upcalls.py: change it there.\n"
WIDTH = 120

# The operations are read from this checkout, installed or not: linters run where it is not.
sys.path.insert(0, str(ROOT))

REQUESTS = '''
"""The requests of a host's methods: the fields of the operations of `pypmix.standard.ops`, as attributes."""

from __future__ import annotations

from pypmix.host.callbacks import base
from pypmix.host.callbacks.base import Request as Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard import ops
{imports}
'''

UPCALLS = '''
"""The methods of a host, one for each upcall, with their defaults."""

from __future__ import annotations

from pypmix.host.callbacks import requests
from pypmix.host.callbacks.base import Request
from pypmix.standard import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable
    from typing import Any, TypeAlias, TypeVar

    from pypmix.host.callbacks.base import Given, Later
    from pypmix.standard.enums import Status
    from pypmix.standard.ops import Connected, Credential, GroupResults
    from pypmix.standard.types import DeviceDistance, Pdata, Proc

    T = TypeVar("T")
    Reply: TypeAlias = T | Later | Status | Awaitable[T | Later | Status]
    """The results that a method may return; `async def` methods return them when they are awaited."""

ROUTES: dict[type[ops.Op[Any]], tuple[str, type[Request[Any]]]] = {{
{routes}
}}
"""The method for each operation, and the class of its request."""

METHODS = tuple(dict.fromkeys([name for name, _ in ROUTES.values()]))
"""The names of the methods."""


def find_route(op: ops.Op[Any]) -> tuple[str, type[Request[Any]]]:
    """Return the method for an operation and the class of its request; an empty name if the operation is unknown."""
    return ROUTES.get(type(op), ("", Request))


class Upcalls:
    """The methods for upcalls. Each may be overridden by a `def` or an `async def`."""

    def default(self, req: Request[Any]) -> Later:
        """Reply as a host without a method for the request."""
        raise NotImplementedError
'''

METHOD = '''
    def {method}(self, req: requests.{request}) -> Reply[{reply}]:
        """{text}"""
        return self.default(req)
'''


class Row(NamedTuple):
    """A line of the table."""

    method: str
    operations: str
    request: str
    base: str
    reply: str
    text: str

    @property
    def kinds(self) -> list[type]:
        """The classes of the operations."""
        ops = importlib.import_module("pypmix.standard.ops")
        return [getattr(ops, name) for name in self.operations.split()]


def read_rows() -> list[Row]:
    with TABLE.open(newline="") as file:
        return [Row(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def read_meanings(kind: type) -> dict[str, str]:
    """Return the meaning of each field that the docstring of an operation explains."""
    lines = inspect.getdoc(kind) or ""
    section = re.search(r"^(?:Args|Attributes):\n((?: +.*\n?)+)", lines, re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def find_fields(rows: list[Row], base: type) -> dict[str, tuple[str, str]]:
    """Return the type and the meaning of each field that the operations of a request share."""
    kinds = [kind for row in rows for kind in row.kinds]
    shared = [kind.__declared__ for kind in kinds]  # type: ignore[attr-defined]
    meanings = {name: text for kind in kinds for name, text in read_meanings(kind).items()}
    return {
        name: (type, meanings.get(name, ""))
        for name, type in shared[0].items()
        if all(name in fields for fields in shared) and not hasattr(base, name)
    }


def write_request(name: str, rows: list[Row]) -> str:
    """Return the class of a request."""
    bases = importlib.import_module("pypmix.host.callbacks.base")
    row = rows[0]
    base = getattr(bases, row.base.partition("[")[0])
    fields = find_fields(rows, base)
    methods = ", ".join(f"`{each.method}`" for each in rows)
    if len(rows) > 1:
        text = f"The request of {methods}."
    elif base in (bases.Request, bases.InfoRequest):
        text = f"{methods}: {row.text[0].lower()}{row.text[1:]}"
    else:
        text = inspect.getdoc(base)
    told = [
        textwrap.fill(f"{field}: {meaning}", WIDTH - 4, initial_indent="    ", subsequent_indent="        ")
        for field, (_, meaning) in fields.items()
        if meaning
    ]
    parts = [text, "\n".join(["Attributes:", *told])] if told else [text]
    doc = "\n\n".join(parts)
    declared = [f"{field}: {type}" for field, (type, _) in fields.items()]
    kinds = " | ".join(dict.fromkeys(f"ops.{kind.__name__}" for each in rows for kind in each.kinds))
    body = [f'"""{doc}{NEWLINE * (NEWLINE in doc)}"""', "", "__slots__ = ()", "", f"op: {kinds}", *declared]
    return f"\n\nclass {name}(base.{row.base}):\n{textwrap.indent(NEWLINE.join(body), '    ')}\n"


NEWLINE = "\n"


def make_files() -> dict[str, str]:
    """Return the text of each generated module by its name."""
    rows = read_rows()
    requests: dict[str, list[Row]] = {}
    for row in rows:
        requests.setdefault(row.request, []).append(row)
    classes = "".join([write_request(name, group) for name, group in requests.items()])
    declared = " ".join(re.findall(r"^    \w+: (.*)$", classes, re.MULTILINE))
    words = sorted(set(re.findall(r"\b[A-Z]\w+", declared)))
    imports = [
        f"    from {home} import {', '.join(found)}"
        for home in ("pypmix.standard.structures", "pypmix.standard.types")
        if (found := [word for word in words if _is_made_in(home, word)])
    ]
    pairs = [(kind, row) for row in rows for kind in row.operations.split()]
    routes = [f'    ops.{kind}: ("{row.method}", requests.{row.request}),' for kind, row in pairs]
    methods = "".join([METHOD.format(**row._asdict()) for row in rows])
    return {
        "requests.py": NOTE + REQUESTS.lstrip("\n").format(imports=NEWLINE.join(imports)) + classes,
        "upcalls.py": NOTE + UPCALLS.lstrip("\n").format(routes="\n".join(routes)) + methods,
    }


def _is_made_in(home: str, name: str) -> bool:
    made = getattr(importlib.import_module(home), name, None)
    return getattr(made, "__module__", "") == home


def main(arguments: list[str]) -> int:
    files = make_files()
    stale = [name for name, text in files.items() if not _is_same(RESULT / name, text)]
    if arguments == ["--check"]:
        if stale:
            print(f"stale, run native/upcalls.py: {', '.join(stale)}", file=sys.stderr)
        return bool(stale)
    for name in stale:
        (RESULT / name).write_text(files[name])
    return 0


def _is_same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
