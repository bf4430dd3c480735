"""The output of commands: PMIx's values as text for people, as JSON for programs."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Mapping
from enum import Enum
from typing import Any, TextIO

from pypmix.cli.streams import styled, takes_all
from pypmix.cli.usage import columns
from pypmix.standard.logtext import printable
from pypmix.standard.record import Record
from pypmix.standard.types import Info, Proc, Value
from pypmix.standard.values import to_python

_UNPRINTABLE = re.compile(r"[^ -~]")


def plain(value: object) -> Any:
    """Return a value in its form for JSON: procs as `nspace:rank`, bytes as hexadecimal digits, records as objects."""
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
    r"""Return a value as JSON text, in which characters that control a terminal are escaped (`\u009b`)."""
    text = json.dumps(plain(value), indent=indent, ensure_ascii=not takes_all())
    # JSON escapes all line breaks but its own.
    return "\n".join([line if line.isprintable() else _UNPRINTABLE.sub(_escaped, line) for line in text.split("\n")])


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1]


def as_text(value: object) -> str:
    """Return a value for a person in one line: a string as text, all else as JSON."""
    found = plain(value)
    return printable(found, sys.maxsize) if isinstance(found, str) else as_json(found, None)


STYLES = {"good": "32", "bad": "31", "odd": "33", "dim": "2", "bold": "1"}
"""The styles of text on a terminal, by purpose."""


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]], out: TextIO | None = None) -> str:
    """Return a table for `out`: fitted to a terminal, unwrapped for anything else."""
    return grid([headings, *rows], ["bold"], out or sys.stdout)


def grid(rows: list[tuple[str, ...]], styles: list[str], out: TextIO) -> str:
    """Return rows as columns, of which a terminal folds the last one; the first rows have the styles."""
    cells = [[printable(cell) for cell in row] for row in rows]
    starts = [max(map(len, column)) + 2 for column in zip(*cells, strict=True)][:-1]
    room = max(20, columns(out.fileno()) - sum(starts)) if out.isatty() else 0
    colors = styled(out) and not os.environ.get("NO_COLOR")
    lines = []
    for number, row in enumerate(cells):
        # Folded lines can neither be searched by grep nor copied.
        folded = (textwrap.wrap(row[-1], room, break_on_hyphens=False) if room else [row[-1]]) or [""]
        style = STYLES.get(styles[number], "") if colors and number < len(styles) else ""
        for first, text in enumerate(folded):
            start = "".join([cell.ljust(width) for cell, width in zip(row, starts, strict=False)])
            line = (" " * sum(starts) if first else start) + text
            lines.append(f"\x1b[{style}m{line.rstrip()}\x1b[0m\n" if style else line.rstrip() + "\n")
    return "".join(lines)
