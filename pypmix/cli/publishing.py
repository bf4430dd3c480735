"""`pypmix publish`, `lookup` and `unpublish`: the published data of a server."""

from __future__ import annotations

import contextlib
import json as json_module
import os
from collections.abc import Iterator

from pypmix.arguments import timed, whole_seconds
from pypmix.cli.reach import Reach, arguments
from pypmix.cli.show import as_json, as_text
from pypmix.cli.usage import UsageError
from pypmix.standard import attrs
from pypmix.standard.enums import Persist, Range
from pypmix.standard.errors import NotFound, OperationTimeout
from pypmix.standard.logtext import printable
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.types import Proc
from pypmix.standard.values import infos
from pypmix.tool import Tool

RANGES = {range_.name.lower().replace("_", "-"): range_ for range_ in (Range.LOCAL, Range.SESSION, Range.GLOBAL)}
PERSISTENCES = {
    "session": Persist.SESSION,
    "first-read": Persist.FIRST_READ,
    "indef": Persist.INDEF,
}


def publisher() -> Proc:
    """Return the name under which a user's commands publish: only a value's publisher can take it back."""
    return Proc(f"pypmix-publish-{os.geteuid()}", 0)


@contextlib.contextmanager
def _publishing(reach: Reach) -> Iterator[Tool]:
    """Yield a tool that publishes; under the name of `publisher` if the server lets a name connect again."""
    with reach.one() as tool:
        if not tool.supports("tool.reconnect"):
            yield tool
            return
        uri = str(tool.get(attrs.SERVER_URI))
    with Tool(uri=uri, proc=publisher()) as named:
        yield named


def publish(reach: Reach, items: list[str], range: str, persist: str, timeout: float | None) -> None:
    """Publish values under keys."""
    if range not in RANGES:
        raise UsageError(f"a range is one of {', '.join(RANGES)}, not {range!r}")
    if persist not in PERSISTENCES:
        raise UsageError(f"a persistence is one of {', '.join(PERSISTENCES)}, not {persist!r}")
    values = dict([_item(text) for text in items])
    with arguments():
        Publish(infos(values), RANGES[range], PERSISTENCES[persist], timed((), timeout))
    with reach.failures(), _publishing(reach) as tool:
        tool.publish(values, data_range=RANGES[range], persist=PERSISTENCES[persist], timeout=timeout)


def unpublish(reach: Reach, keys: list[str]) -> None:
    """Remove values that this user's commands have published."""
    with arguments():
        Unpublish(tuple(keys))
    with reach.failures(), _publishing(reach) as tool:
        tool.unpublish(*keys)


def lookup(reach: Reach, keys: list[str], wait: float | None, json: bool) -> None:
    """Print published values; exit with 1 if one is missing."""
    with arguments():
        Lookup(tuple(keys), timed((), wait or None))
    with reach.failures(), reach.one() as tool:
        try:
            found = tool.lookup(keys, timeout=wait)
        except (OperationTimeout, NotFound):
            reach.say(f"not published: {' or '.join(keys)}" + (f" (within {whole_seconds(wait)} s)" if wait else ""))
            raise SystemExit(1) from None
    if json:
        print(as_json({key: {"value": item.value, "by": item.by} for key, item in found.items()}))
    else:
        for key, item in found.items():
            print(as_text(item.value) if len(keys) == 1 else f"{printable(key)}={as_text(item.value)}")
    for key in [key for key in keys if key in found.missing]:
        reach.say(f"not published: {key}")
    if found.missing:
        raise SystemExit(1)


def _item(text: str) -> tuple[str, object]:
    """Return key and value of `KEY=TEXT` or `KEY:=JSON`."""
    key, equals, value = text.partition("=")
    if not equals or not key.rstrip(":"):
        raise UsageError(f"what is published is KEY=TEXT or KEY:=JSON, not {text!r}")
    if not key.endswith(":"):
        return key, value
    try:
        return key[:-1], json_module.loads(value)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{value!r:.80} is not JSON: {error}") from None
