"""`pypmix query`: prints a server's answers to single queries."""

from __future__ import annotations

import difflib

from pypmix.cli.reach import Reach, arguments
from pypmix.cli.show import as_json, as_text
from pypmix.cli.usage import UsageError
from pypmix.standard import attrs
from pypmix.standard.attr import Attr
from pypmix.standard.logtext import printable
from pypmix.standard.ops.core import check_key
from pypmix.standard.types import Info, Proc, decimal
from pypmix.standard.values import from_python


def query(
    reach: Reach,
    keys: list[str],
    job: str | None,
    rank: int | None,
    node: str | None,
    qualifiers: list[str],
    json: bool,
) -> None:
    """Print the answers to queries; exit with 1 if one of them has none."""
    if rank is not None and job is None:
        raise UsageError("a rank is one of a job: --job NSPACE --rank RANK")
    with arguments():
        wanted = [attribute(key) for key in keys]
        infos = [_qualifier(text) for text in qualifiers]
        proc = None if job is None or rank is None else Proc(job, rank)
    with reach.failures(), reach.one() as tool:
        found = tool.query(wanted, nspace=None if proc is not None else job, proc=proc, node=node, info=infos)
    by_key = {str(each): _name(each) for each in wanted}
    if json:
        print(as_json({by_key.get(key, key): value for key, value in found.items()}))
    else:
        for key, value in found.items():
            prefix = "" if len(keys) == 1 else f"{printable(by_key.get(key, key))}: "
            print(prefix + as_text(value))
    for key in sorted(found.missing):
        reach.say(f"the server has no answer for {by_key.get(key, key)}")
    if found.missing:
        raise SystemExit(1)


def attribute(text: str) -> Attr[object] | str:
    """Return the attribute that a text names: `QUERY_NAMESPACES`, `PMIX_QUERY_NAMESPACES` or `pmix.qry.ns`.

    Every text with a dot in it is a key: hosts may answer keys outside the Standard.
    """
    if "." in text:
        check_key(text)
        return attrs.by_key(text) or text
    name = text.upper().removeprefix("PMIX_")
    found = getattr(attrs, name, None)
    if isinstance(found, Attr):
        return found
    near = difflib.get_close_matches(name, attrs.__all__, 3)
    raise UsageError(f"there is no attribute {text}" + (f"; is it {' or '.join(near)}?" if near else ""))


def _name(key: Attr[object] | str) -> str:
    return key.name if isinstance(key, Attr) else key


def _qualifier(text: str) -> Info:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"a qualifier is NAME=VALUE, not {text!r}")
    key = attribute(name)
    if isinstance(key, str):
        return Info(key, from_python(value))
    candidates: list[object] = [value]
    if decimal(value.removeprefix("-"), 1 << 64) is not None:
        candidates.insert(0, int(value))
    if value.lower() in ("true", "false"):
        candidates.insert(0, value.lower() == "true")
    for candidate in candidates:
        try:
            return key(candidate)
        except (TypeError, ValueError, OverflowError):
            continue
    raise UsageError(f"{key.name} takes {' or '.join(_types(key))}, not {value!r}")


def _types(key: Attr[object]) -> list[str]:
    from pypmix.standard.types import type_name

    return [type_name(each) for each in key.types]
