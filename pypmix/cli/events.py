"""`pypmix events`: prints events as they arrive."""

from __future__ import annotations

import fnmatch
import signal
import time

from pypmix.arguments import limit
from pypmix.cli.reach import Reach, arguments
from pypmix.cli.show import as_json, as_text
from pypmix.cli.usage import UsageError
from pypmix.events import Event
from pypmix.standard.enums import EventCode
from pypmix.standard.errors import LostConnection, OperationTimeout
from pypmix.standard.logtext import printable
from pypmix.standard.types import decimal
from pypmix.tool import Tool

INTERRUPTED = 128 + signal.SIGINT


def events(reach: Reach, patterns: list[str], count: int | None, timeout: float | None, json: bool) -> None:
    """Print events until `count` or the timeout is reached, the server ends, or Ctrl-C is pressed."""
    wanted = codes(patterns)
    with arguments():
        timeout = limit(timeout)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with reach.failures(), reach.one() as tool:
            _print(reach, tool, wanted, count, timeout, json)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _print(
    reach: Reach, tool: Tool, event_codes: tuple[EventCode, ...], count: int | None, timeout: float | None, json: bool
) -> None:
    deadline = None if timeout is None else time.monotonic() + timeout
    seen = dropped = 0
    with tool.events(*event_codes) as stream:
        reach.say(f"listening at {tool.get_servers()[0]}")
        while count is None or seen < count:
            try:
                event = stream.get(None if deadline is None else max(0.001, deadline - time.monotonic()))
            except OperationTimeout:
                return
            except LostConnection:
                reach.say("the server is gone")
                return
            print(_as_json(event) if json else _as_text(event), flush=True)
            seen += 1
            if stream.dropped > dropped:
                reach.say(f"{stream.dropped - dropped} events came too fast and were lost")
                dropped = stream.dropped


def codes(patterns: list[str]) -> tuple[EventCode, ...]:
    """Return the events that patterns name: names with wildcards such as `GROUP_*`, or numbers."""
    found: dict[EventCode, None] = {}
    for pattern in patterns:
        if decimal(pattern.removeprefix("-"), 1 << 31) is not None:
            found[EventCode(int(pattern))] = None
            continue
        name = pattern.upper().removeprefix("PMIX_")
        named = [code for code in EventCode if fnmatch.fnmatchcase(code.name, name)]
        if not named:
            raise UsageError(f"no event is called {pattern}")
        found.update(dict.fromkeys(named))
    return tuple(found)


def _as_json(event: Event) -> str:
    return as_json(
        {
            "time": time.time(),
            "code": int(event.code),
            "name": event.code.name,
            "source": event.source,
            "affected": event.affected,
            "info": event.info,
        },
        indent=None,
    )


def _as_text(event: Event) -> str:
    moment = time.strftime("%H:%M:%S")
    info = " ".join([f"{printable(key)}={as_text(value)}" for key, value in event.info.items()])
    return f"{moment} {event.code.name} from {as_text(event.source)} {info}".rstrip()
