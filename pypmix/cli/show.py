"""How commands print PMIx's values: as text for people, as JSON for programs."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, TextIO

from pypmix.standard.logtext import printable
from pypmix.standard.record import Record
from pypmix.standard.types import Info, Proc, Value
from pypmix.standard.values import to_python

_UNPRINTABLE = re.compile(r"[^ -~]")


def plain(value: object) -> Any:
    """Return a value as JSON has it: procs as `nspace:rank`, bytes as hexadecimal digits, records as objects."""
    match value:
        case Enum():
            return value.name
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Proc():
            return str(value)
        case Info():
            return {value.key: plain(value.value)}
        case Value():
            return plain(to_python(value))
        case Mapping():
            return {str(plain(key)): plain(each) for key, each in value.items()}
        case Record():
            return {name: plain(getattr(value, name)) for name in fields(value)}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
    return str(value)


def fields(record: Record) -> list[str]:
    """Return the names of a record's fields."""
    return list(type(record).__match_args__)


def as_json(value: object, indent: int | None = 2) -> str:
    r"""Return a value as JSON text, in which what does something to a terminal is escaped (`\u009b`)."""
    text = json.dumps(plain(value), indent=indent, ensure_ascii=False)
    # Its own line breaks are all that are left of those that JSON has to escape.
    return "\n".join([line if line.isprintable() else _UNPRINTABLE.sub(_escaped, line) for line in text.split("\n")])


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1]


def as_text(value: object) -> str:
    """Return a value for a person in one line: a string as text, all else as JSON."""
    found = plain(value)
    return printable(found, sys.maxsize) if isinstance(found, str) else as_json(found, None)


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]], out: TextIO | None = None) -> str:
    """Return a table for `out`: fitted to a terminal, unwrapped for anything else."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = out or sys.stdout
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        last = number == len(headings) - 1
        grid.add_column(heading, no_wrap=not last, overflow="fold" if last else "ellipsis")
    for row in rows:
        grid.add_row(*[Text(printable(cell)) for cell in row])
    terminal = out.isatty()
    # Lines that are folded at 80 columns can neither be read by grep nor copied.
    console = Console(file=io.StringIO(), width=None if terminal else 100_000, force_terminal=terminal, highlight=False)
    with console.capture() as capture:
        console.print(grid)
    return "".join([line.rstrip() + "\n" for line in capture.get().splitlines()])
