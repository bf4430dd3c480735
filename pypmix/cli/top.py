"""`pypmix top`: shows jobs while they run: their procs, pending operations, and the procs that these wait for.

`look` of `ps.py` asks a server for its jobs, and `proc_rows` there makes the rows of procs, in the order in which both
commands show them; here are the pending operations, and the screen. The options are declared in `_add_looking` of
`app.py`, and passed on by `_top` there.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import textwrap
import time
from typing import Any, NoReturn

from pypmix.cli.ps import HEADINGS, look, proc_rows
from pypmix.cli.reach import Reach, expected
from pypmix.cli.show import as_json, table
from pypmix.cli.streams import styled
from pypmix.host import pending
from pypmix.host.outcome import listed
from pypmix.standard.errors import LostConnection, PMIxError, Unreachable
from pypmix.standard.logtext import printable
from pypmix.standard.naming import name_ranks
from pypmix.standard.types import Proc, ProcInfo
from pypmix.tool import Tool

ENDED = "the server is gone"


def top(reach: Reach, once: bool, json: bool, interval: float) -> None:
    """Print the jobs of the chosen server, or of all servers found: once, or repeatedly until they end."""
    with reach.failures(), reach.tool() as tool:
        end = None
        while not reach.named and end is None:
            end = reach.connect_next(tool)
        servers = tool.get_servers()
        if not (once or json) and styled(sys.stdout):
            _live(reach, tool, servers, interval)
            return
        found = _all(tool, servers)
        sys.stdout.write(as_json({"servers": found}) + "\n" if json else _text(found))
        if end is not None and not expected(end):
            raise end


def _all(tool: Tool, servers: list[Proc]) -> list[dict[str, Any]]:
    """Return the state of the servers; ended servers are removed from the list."""
    found = []
    for server in list(servers):
        try:
            tool.set_server(server)
            found.append({**look(tool), "pending": _pending(tool)})
        except PMIxError:
            if len(servers) == 1:
                raise
            servers.remove(server)
    return found


def _pending(tool: Tool) -> list[dict[str, Any]] | None:
    """Return the pending operations, None if the server does not report them."""
    try:
        infos = tool.query(pending.KEY, default=None)
        return None if infos is None else [_plain(entry) for entry in pending.unpack(infos)]
    except (LostConnection, Unreachable):
        raise
    except (PMIxError, TypeError, ValueError):
        return None


def _plain(entry: pending.Entry) -> dict[str, Any]:
    return {
        "operation": entry.operation,
        "label": entry.label,
        "seconds": round(entry.seconds, 3),
        "arrived": [_proc(row) for row in entry.arrived],
        "missing": [_proc(row) for row in entry.missing],
    }


def _proc(row: ProcInfo) -> dict[str, Any]:
    return {"proc": str(row.proc), "pid": row.pid, "node": row.hostname or ""}


# For people.


def waiting(item: dict[str, Any], several: bool = False, job: str = "") -> str:
    """Return a line about a pending operation: how many procs have arrived, and the missing ones.

    Args:
        item: The operation.
        several: Whether the procs are on several nodes, so that these are named.
        job: The nspace of the only job that is shown; empty if there are several.
    """
    operation, arrived, missing = item["operation"], item["arrived"], item["missing"]
    if not missing:
        return f"{operation} — {_names(arrived, item['seconds'], several, job)} waits for the server's host"
    if operation == "get":
        names = _names(missing, item["seconds"], several, job)
        return f"get {item['label']} — {_names(arrived, None, several, job)} waits for {names}"
    total = len(arrived) + len(missing)
    return f"{operation} {len(arrived)} of {total} procs — waiting for {_names(missing, item['seconds'], several, job)}"


def _names(procs: list[dict[str, Any]], seconds: float | None, several: bool, job: str) -> str:
    age = "" if seconds is None else f"{seconds:.1f} s"
    names = []
    for proc in procs:
        where = f" on {proc['node']}" if several and proc["node"] else ""
        notes = [note for note in (f"pid {proc['pid']}{where}" if proc["pid"] else "", age) if note]
        nspace, _, rank = proc["proc"].rpartition(":")
        name = name_ranks([int(rank)]) if nspace == job and rank.isdecimal() else proc["proc"]
        names.append(f"{name} ({', '.join(notes)})" if notes else name)
    return listed(names)


def _text(servers: list[dict[str, Any]], rows: int | None = None, columns: int | None = None) -> str:
    """Return all as text; with `rows`, further procs are only counted, and with `columns`, long commands are cut."""
    nodes = {proc["node"] for server in servers for job in server["jobs"] for proc in job["procs"]}
    jobs = {job["nspace"] for server in servers for job in server["jobs"]}
    only = jobs.pop() if len(jobs) == 1 else ""
    pending = [item for server in servers for item in server["pending"] or ()]
    lines = [printable(waiting(item, len(nodes) > 1, only)) for item in pending]
    procs = proc_rows(servers)
    room = len(procs) if rows is None else max(1, rows - len(lines) - 4)
    text = table(HEADINGS, procs[:room] if columns is None else _cut(procs[:room], columns))
    if len(procs) > room:
        text += f"and {len(procs) - room} more procs\n"
    return text + "".join([f"{line}\n" for line in ("", *lines)] if lines else [])


def _cut(rows: list[tuple[str, ...]], columns: int) -> list[tuple[str, ...]]:
    """Return rows whose last cell takes no second line, so that pending operations stay in sight."""
    widths = [max(map(len, cells)) + 2 for cells in zip(HEADINGS, *rows, strict=True)]
    left = max(1, columns - sum(widths[:-1]))
    return [(*row[:-1], row[-1][:left]) for row in rows]


ENTER, REDRAW, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[H", "\x1b[?25h\x1b[?1049l"
"""Sequences for a terminal: show a second screen without a cursor, return to its top, show the first."""


def _live(reach: Reach, tool: Tool, servers: list[Proc], interval: float) -> None:
    # The terminal has to be restored, and these signals end commands by default.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGTSTP, _pause)
    try:
        _keys.take()
        sys.stdout.write(ENTER)
        while True:
            size = shutil.get_terminal_size()
            title = f"pypmix top — {time.strftime('%H:%M:%S')}, {len(servers)} server{'s'[: len(servers) != 1]}\n\n"
            text = title + _text(_all(tool, servers), size.lines - 2, size.columns)
            lines = [part for line in text.splitlines() for part in _folded(line, size.columns)]
            sys.stdout.write(REDRAW + "\n".join([f"{line}\x1b[K" for line in lines[: size.lines]]) + "\x1b[J")
            sys.stdout.flush()
            if _keys.pressed("q", interval):
                return
    except KeyboardInterrupt:
        return
    except (LostConnection, Unreachable):
        pass
    finally:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        _keys.give_back()
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        # A second Ctrl-C must not wait for the server.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    reach.say(ENDED)


class _Keys:
    """Single keys of standard input, if it is a terminal."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def take(self) -> None:
        """Read keys one by one and without echo; Ctrl-C and Ctrl-Z keep their effects."""
        import termios

        if _in_background():
            # It would be stopped for it.
            return
        with contextlib.suppress(termios.error, OSError):
            self._before = termios.tcgetattr(0)
            mode = termios.tcgetattr(0)
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(0, termios.TCSANOW, mode)

    def give_back(self) -> None:
        """Restore the terminal."""
        import termios

        if self._before is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSANOW, self._before)
            self._before = None

    def pressed(self, key: str, seconds: float) -> bool:
        """Wait for a key, and return True if `key` was pressed within `seconds`."""
        if self._before is None:
            time.sleep(seconds)
            return False
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([0], [], [], left)[0]:
                typed = os.read(0, 64)
                if key.encode() in typed:
                    return True
                if not typed:
                    self._before = None
                    time.sleep(max(0.0, end - time.monotonic()))
        return False


def _in_background() -> bool:
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:
        # It is not a terminal, or it belongs to another session.
        return False


_keys = _Keys()


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _pause(number: int, _frame: object) -> None:
    """Give the terminal to the shell while the command is stopped."""
    # Not through the stream: the signal may have interrupted a write to it.
    _keys.give_back()
    os.write(1, LEAVE.encode())
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.signal(number, _pause)
    _keys.take()
    os.write(1, ENTER.encode())


def _folded(line: str, width: int) -> list[str]:
    """Return a line as the lines that a terminal shows; styled lines fit already."""
    return [line] if line.startswith("\x1b") else textwrap.wrap(line, width, drop_whitespace=False) or [""]
