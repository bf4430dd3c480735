"""Logs: entries of procs, on the host's own output, in the system's log, and in the logger `pypmix.log`.

The logger gets a record of each entry that is written anywhere: `record.source` is the proc, `record.channel` the
Standard's name of the channel, and `record.created` the time that the proc gave, if any. Job records go to it. A host
without handlers for it writes only to the requested channels.
"""

from __future__ import annotations

import logging
import os
import time
from functools import partial

from pypmix.host.directives import name_of
from pypmix.standard import attrs
from pypmix.standard.enums import Status
from pypmix.standard.errors import NotSupported, OutOfResources, PMIxError
from pypmix.standard.logtext import iso_time, printable
from pypmix.standard.ops import Log
from pypmix.standard.ops.events import is_set
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.standard.types import Info

logger = logging.getLogger("pypmix.log")
# Without any handler, the logging module would write warnings to standard error, which may contain them already.
logger.addHandler(logging.NullHandler())

STREAMS = {attrs.LOG_STDOUT.key: (1, "stdout"), attrs.LOG_STDERR.key: (2, "stderr")}
SYSLOG = frozenset((attrs.LOG_SYSLOG.key, attrs.LOG_LOCAL_SYSLOG.key, attrs.LOG_GLOBAL_SYSLOG.key))
"""One node has one system log."""

RECORD = attrs.LOG_JOB_RECORD.key
TEXTS = frozenset((attrs.LOG_MSG.key, attrs.LOG_KEY.key, attrs.LOG_VAL.key))
"""The contents of a job record."""

MET = frozenset((attrs.LOG_SYSLOG_PRI.key, *TEXTS))
"""Keys that belong to a channel and are not channels."""

SYSLOG_SOCKET = "/dev/log"
USER_FACILITY = 1 << 3
NOTICE = 5
LEVELS = (50, 50, 50, 40, 30, 20, 20, 10)
"""The levels of the logging module for the priorities of syslog."""

LAST_SECOND = 253402300800
"""The end of the year 9999; later times of clients are not believed."""

MAX_WAITING = 16 << 20
"""The limit of bytes of logs that wait for a slow reader of the host's output."""


class _Entry:
    """A log entry of one proc, and the prefix of its lines."""

    def __init__(self, host: Manager, op: Log, requestor: Proc | None) -> None:
        given = {info.key: info.value.data for info in op.directives}
        source = given.get(attrs.LOG_SOURCE.key)
        self.source = source if isinstance(source, Proc) else requestor or host.server.proc
        named = given.get(attrs.LOG_TIMESTAMP.key)
        moment = named if isinstance(named, int) and named > 0 else op.timestamp
        self.time = float(moment) if 0 < moment < LAST_SECOND else time.time()
        self.tagged = is_set(op.directives, attrs.LOG_TAG_OUTPUT.key)
        self.stamped = is_set(op.directives, attrs.LOG_TIMESTAMP_OUTPUT.key)
        self.xml = is_set(op.directives, attrs.LOG_XML_OUTPUT.key)
        job = host.jobs.get(self.source.nspace)
        whose = printable(self.source.nspace) if job is None else "" if job.number == 1 else str(job.number)
        self.tag = f"[{whose}:{self.source.rank}]" if whose else f"[{self.source.rank}]"

    @property
    def stamp(self) -> str:
        return iso_time(self.time)

    def lines(self, text: str, channel: str) -> bytes:
        """Return a text in its written form: whole lines, each with the requested prefix."""
        lines = (text[:-1] if text.endswith("\n") else text).split("\n")
        if self.xml:
            lines = [self._element(line, channel) for line in lines]
        else:
            before = (f"{self.stamp} " if self.stamped else "") + (f"{self.tag}<{channel}>: " if self.tagged else "")
            lines = [before + line for line in lines]
        return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")

    def _element(self, line: str, channel: str) -> str:
        from html import escape

        stamp = f' timestamp="{self.stamp}"' if self.stamped else ""
        nspace = escape(self.source.nspace)
        return f'<{channel} nspace="{nspace}" rank="{self.source.rank}"{stamp}>{escape(line, False)}</{channel}>'


class Logs:
    """Logs that wait for the readers of the host's output."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._waiting = 0

    def write(self, number: int, data: bytes, source: Proc, written: Callable[[], None]) -> None:
        """Write lines of a proc to the host's stdout (1) or stderr (2), once most of the earlier output was read.

        Raises:
            PMIxError: Too much waits for a reader that does not read.
        """
        sink = self._host.sink_of(self._host.jobs.get(source.nspace), number)
        if self._waiting + len(data) > MAX_WAITING:
            raise OutOfResources("nothing reads the logs", operation="log")

        def write() -> None:
            self._waiting -= len(data)
            sink.write(None, data)
            written()

        self._waiting += len(data)
        if not sink.pause(write):
            write()


def _text(info: Info) -> str:
    data = info.value.data
    if isinstance(data, bytes):
        return data.decode("utf-8", "replace")
    if not isinstance(data, str):
        raise PMIxError(f"{name_of(info.key)} takes a text", status=Status.ERR_BAD_PARAM, operation="log")
    return data


def _record(entry: _Entry, channel: str, text: str, level: int = logging.INFO) -> None:
    if not logger.isEnabledFor(level):
        return
    record = logger.makeRecord(
        logger.name, level, "(pmix)", 0, "%s: %s", (entry.source, text.rstrip("\n")), None,
        extra={"source": entry.source, "channel": channel},
    )  # fmt: skip
    record.created = entry.time
    logger.handle(record)


def _syslog(entry: _Entry, text: str, priority: int) -> None:
    import socket

    line = f"<{USER_FACILITY | priority}>pypmix[{os.getpid()}]: {entry.source}: {text}".rstrip("\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as system:
        try:
            system.connect(SYSLOG_SOCKET)
            system.send(line.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise NotSupported(f"the system's log takes nothing: {error.strerror}", operation="log") from None


def _stream(logs: Logs, entry: _Entry, info: Info, written: Callable[[], None]) -> None:
    """Write to stdout or stderr of the host."""
    descriptor, channel = STREAMS[info.key]
    text = _text(info)
    logs.write(descriptor, entry.lines(text, channel), entry.source, written)
    _record(entry, name_of(info.key), text)


def _write(entry: _Entry, op: Log, info: Info, priority: int) -> None:
    """Write to a channel that accepts it at once."""
    if info.key in SYSLOG:
        text = _text(info)
        _syslog(entry, text, priority)
        _record(entry, name_of(info.key), text, LEVELS[priority])
    elif info.key == RECORD:
        _record(entry, name_of(info.key), _record_text(op))
    else:
        raise NotSupported(f"this host has no {name_of(info.key)}", operation=op.name)


def _log(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, Log)
    entry = _Entry(host, op, upcall.requestor)
    everything = (*op.data, *op.directives)
    priority = next((info.value.data for info in everything if info.key == attrs.LOG_SYSLOG_PRI.key), NOTICE)
    if not isinstance(priority, int) or not 0 <= priority < len(LEVELS):
        raise PMIxError(f"{priority!r} is not a priority", status=Status.ERR_BAD_PARAM, operation=op.name)
    once = is_set(op.directives, attrs.LOG_ONCE.key)
    channels = [info for info in op.data if info.key not in MET]
    errors: list[PMIxError] = []
    waiting: set[int] = set()
    begun = False

    def written(number: int) -> None:
        waiting.discard(number)
        if begun and not waiting:
            answer()

    def answer() -> None:
        if not errors:
            upcall.reply()
        elif len(errors) == len(channels):
            upcall.fail(errors[0])
        else:
            upcall.fail(PMIxError(str(errors[0]), status=Status.ERR_PARTIAL_SUCCESS, operation=op.name))

    for number, info in enumerate(channels):
        try:
            if info.key in STREAMS:
                waiting.add(number)
                _stream(host.part(Logs), entry, info, partial(written, number))
            else:
                _write(entry, op, info, priority)
        except PMIxError as error:
            waiting.discard(number)
            errors.append(error)
        else:
            if once:
                errors.clear()
                break
    if not channels:
        errors.append(NotSupported("no channel was named that this host has", operation=op.name))
        upcall.fail(errors[0])
        return
    begun = True
    if not waiting:
        answer()


def _record_text(op: Log) -> str:
    """Return the contents of a job record: the messages, keys and values among the data."""
    return " ".join([_text(info) for info in op.data if info.key in TEXTS])


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {Log: _log}
