"""Monitors: they raise an event if a proc's heartbeats, or the signs of life of a file, are missing.

A monitor looks after each period. After more periods in a row without a sign than may be dropped it raises its event
once, and again only after a new sign. It ends with the proc that requested it, and if that proc finalizes. The handlers
of the event decide what to do.
"""

from __future__ import annotations

import os
import time

from pypmix.host.directives import name_of
from pypmix.standard import attrs
from pypmix.standard.enums import InfoFlags, Range, Status
from pypmix.standard.errors import NotFound, NotSupported, OutOfResources, PMIxError
from pypmix.standard.ops import Heartbeat, Notification, ProcessMonitor
from pypmix.standard.ops.events import check_range, is_set
from pypmix.standard.ops.publishing import RANGES
from pypmix.standard.types import MAX_KEYLEN, DataArray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Cancellable, Upcall
    from pypmix.host.manager import Manager
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.standard.types import Info, Proc

    Sign = tuple[object, ...] | None

PATH_MAX = 4096

MAX_TARGETS = 4096
"""The limit of procs that the range of an event may name."""

MAX_MONITORS = 64
"""The limit of monitors of one proc."""

HEARTBEAT = attrs.MONITOR_HEARTBEAT.key
FILE = attrs.MONITOR_FILE.key
CANCEL = attrs.MONITOR_CANCEL.key
RANGE = attrs.RANGE.key
CUSTOM_RANGE = attrs.EVENT_CUSTOM_RANGE.key

KNOWN = frozenset(
    attribute.key
    for attribute in (
        attrs.MONITOR_ID,
        attrs.MONITOR_APP_CONTROL,
        attrs.MONITOR_HEARTBEAT_TIME,
        attrs.MONITOR_HEARTBEAT_DROPS,
        attrs.MONITOR_FILE_SIZE,
        attrs.MONITOR_FILE_ACCESS,
        attrs.MONITOR_FILE_MODIFY,
        attrs.MONITOR_FILE_CHECK_TIME,
        attrs.MONITOR_FILE_DROPS,
        attrs.RANGE,
        attrs.EVENT_CUSTOM_RANGE,
        attrs.TIMEOUT,
    )
)

READS: dict[str, Callable[[os.stat_result], object]] = {
    attrs.MONITOR_FILE_SIZE.key: lambda found: found.st_size,
    attrs.MONITOR_FILE_ACCESS.key: lambda found: found.st_atime_ns,
    attrs.MONITOR_FILE_MODIFY.key: lambda found: found.st_mtime_ns,
}
"""The properties of a file whose change is a sign of life, by key."""


class Monitor:
    """A heartbeat or a file that is watched.

    Args:
        period: Seconds between looks.
        drops: How many looks in a row may see no sign of life before the event is raised.
        event: The event to raise.
    """

    def __init__(self, period: int, drops: int, event: Notification) -> None:
        self.period = period
        self.event = event
        self.timer: Cancellable | None = None
        self._drops = drops
        self._last = self.look()
        self._missed = 0

    def look(self) -> Sign:
        """Return the observed state; it is a sign of life if it differs from the last one."""
        raise NotImplementedError

    def check(self) -> bool:
        """Look, and return True if the event is due now."""
        seen = self.look()
        if seen is not None and seen != self._last:
            self._last = seen
            self._missed = 0
            return False
        self._missed += 1
        return self._missed == self._drops + 1


class HeartbeatMonitor(Monitor):
    """A monitor of the heartbeats of a proc."""

    def __init__(self, monitors: Monitors, proc: Proc, period: int, drops: int, event: Notification) -> None:
        self._monitors = monitors
        self._proc = proc
        super().__init__(period, drops, event)

    def look(self) -> Sign:
        """Return the time of the last heartbeat."""
        return self._monitors.beats(self._proc)


class FileMonitor(Monitor):
    """A monitor of a file, of which the directives of `op` name the watched properties.

    Raises:
        PMIxError: They name none, or the file has no path.
    """

    def __init__(self, op: ProcessMonitor, base: str, period: int, drops: int, event: Notification) -> None:
        self._reads = [read for key, read in READS.items() if is_set(op.directives, key)]
        path = op.monitor.value.data
        if not isinstance(path, str) or not 0 < len(path) < PATH_MAX or "\0" in path:
            raise _bad("a file to watch is a path")
        if not self._reads:
            raise _bad("nothing of the file is to be watched: its size, accesses or changes")
        self._path = os.path.join(base, path)
        super().__init__(period, drops, event)

    def look(self) -> Sign:
        """Return the watched properties; a file that does not exist shows no life."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return tuple([read(found) for read in self._reads])


class Monitors:
    """The monitors of a host's clients and tools."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._monitors: dict[Proc, dict[str, Monitor]] = {}
        self._beats: dict[Proc, float] = {}
        host.at_rank_end.append(self._rank_ended)
        host.at_departure.append(self.leave)

    def beat(self, proc: Proc) -> None:
        """Record a heartbeat of a proc."""
        if proc in self._monitors:
            self._beats[proc] = time.monotonic()

    def beats(self, proc: Proc) -> Sign:
        """Return a value that changes with each heartbeat of a proc."""
        return (self._beats.get(proc),)

    def add(self, proc: Proc, name: str, monitor: Monitor) -> None:
        """Add a monitor and start it.

        Raises:
            PMIxError: The proc has a monitor of this name, or too many monitors.
        """
        own = self._monitors.setdefault(proc, {})
        if name in own:
            raise PMIxError(f"there is a monitor {name!r} already", status=Status.ERR_EXISTS)
        if len(own) >= MAX_MONITORS:
            raise OutOfResources(f"a proc has at most {MAX_MONITORS} monitors")
        own[name] = monitor
        self._arm(monitor)

    def _arm(self, monitor: Monitor) -> None:
        monitor.timer = self._host.loop.later(monitor.period, lambda: self._due(monitor))

    def _due(self, monitor: Monitor) -> None:
        self._arm(monitor)
        if monitor.check():
            try:
                self._host.notify(monitor.event)
            except Exception:
                from pypmix.standard.logtext import get_logger

                # A caller does not wait for it, and one odd event must not end the jobs.
                get_logger("pypmix.host").exception("the event of a monitor could not be raised")

    def cancel(self, proc: Proc, name: str | None) -> None:
        """End one monitor of a proc, or all of them.

        Raises:
            NotFound: It has none of this name.
        """
        own = self._monitors.get(proc, {})
        if name is not None and name not in own:
            raise NotFound(f"there is no monitor {name!r}", operation="process_monitor")
        for each in list(own) if name is None else [name]:
            timer = own.pop(each).timer
            if timer is not None:
                timer.cancel()
        if not own:
            self._monitors.pop(proc, None)
            self._beats.pop(proc, None)

    def leave(self, proc: Proc) -> None:
        """Cancel the monitors of a proc that has ended, or will send no further heartbeats."""
        self.cancel(proc, None)

    def _rank_ended(self, _job: RunningJob, rank: Rank) -> None:
        self.leave(rank.proc)


def _bad(text: str) -> PMIxError:
    return PMIxError(text, status=Status.ERR_BAD_PARAM, operation="process_monitor")


def _number(op: ProcessMonitor, key: str, least: int, default: int | None = None) -> int:
    found = next((info.value.data for info in op.directives if info.key == key), default)
    if not isinstance(found, int) or found < least:
        raise _bad(f"{name_of(key)} is to be a number of at least {least}, not {found!r}")
    return found


def _event(op: ProcessMonitor, proc: Proc, name: str) -> Notification:
    given = {info.key: info for info in op.directives}
    infos: list[Info] = [attrs.EVENT_AFFECTED_PROC(proc)]
    if name:
        infos.append(attrs.MONITOR_ID(name))
    if op.monitor.key == FILE:
        infos.append(op.monitor)
    if CUSTOM_RANGE in given:
        infos.append(given[CUSTOM_RANGE])
    wide = given[RANGE].value.data if RANGE in given else Range.NAMESPACE
    named = given[CUSTOM_RANGE].value.data if CUSTOM_RANGE in given else None
    if isinstance(named, DataArray) and len(named.items) > MAX_TARGETS:
        raise _bad(f"the range names more than {MAX_TARGETS} procs")
    try:
        if wide not in RANGES:
            raise ValueError(f"{wide!r} is not a range")
        check_range(wide, tuple(infos))
    except (TypeError, ValueError) as error:
        raise _bad(str(error)) from None
    return Notification(op.error, proc, wide, tuple(infos))


def _monitor(host: Manager, upcall: Upcall) -> None:
    op, proc = upcall.op, upcall.requestor
    assert isinstance(op, ProcessMonitor)
    assert proc is not None
    monitors = host.part(Monitors)
    key = op.monitor.key
    if key == CANCEL:
        monitors.cancel(proc, op.monitor.value.data or None)
        upcall.reply(())
        return
    for info in op.directives:
        if info.key not in KNOWN and info.flags & InfoFlags.REQUIRED:
            raise NotSupported(f"this host has no {name_of(info.key)}", operation=op.name)
    name = next((str(info.value.data or "") for info in op.directives if info.key == attrs.MONITOR_ID.key), "")
    if len(name) > MAX_KEYLEN:
        raise _bad("the monitor's id is too long")
    if key == HEARTBEAT:
        period = _number(op, attrs.MONITOR_HEARTBEAT_TIME.key, 1)
        drops = _number(op, attrs.MONITOR_HEARTBEAT_DROPS.key, 0, 0)
        monitor: Monitor = HeartbeatMonitor(monitors, proc, period, drops, _event(op, proc, name))
    elif key == FILE:
        period = _number(op, attrs.MONITOR_FILE_CHECK_TIME.key, 1)
        drops = _number(op, attrs.MONITOR_FILE_DROPS.key, 0, 0)
        monitor = FileMonitor(op, _folder(host, proc), period, drops, _event(op, proc, name))
    else:
        raise NotSupported(f"this host does not monitor {name_of(key)}", operation=op.name)
    found = host.find(proc)
    if found is not None and not found[1].alive:
        raise NotFound(f"{proc} has ended", operation=op.name)
    monitors.add(proc, name or f"{key} {id(monitor)}", monitor)
    upcall.reply(())


def _folder(host: Manager, proc: Proc) -> str:
    """Return the folder in which a proc was started."""
    found = host.find(proc)
    if found is None:
        return os.sep
    job = found[0].job
    return job.apps[job.slots()[proc.rank].app].wdir or job.wdir or os.sep


def _heartbeat(host: Manager, upcall: Upcall) -> None:
    if upcall.requestor is not None:
        host.part(Monitors).beat(upcall.requestor)
    upcall.reply()


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {ProcessMonitor: _monitor, Heartbeat: _heartbeat}
