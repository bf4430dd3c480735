"""`pypmix ps`: the jobs of servers, and their procs.

`top.py` shows the same procs: `look` asks for them, and `proc_rows` makes the rows, below `HEADINGS`, in their order.
"""

from __future__ import annotations

import sys
from typing import Any

from pypmix.cli.reach import Reach, chosen, command_lines, expected, shown_command
from pypmix.cli.show import as_json, table
from pypmix.standard import attrs
from pypmix.standard.attr import Attr
from pypmix.standard.enums import ProcState
from pypmix.standard.errors import LostConnection, PMIxError, Unreachable
from pypmix.standard.types import Proc, ProcInfo
from pypmix.tool import Tool

HEADINGS = ("JOB", "RANK", "PID", "STATE", "NODE", "PROGRAM")
JOB_WIDTH = 26
"""The most columns of a job's name on a terminal; pipes and JSON get the whole name."""
JOB_END = 7
"""The length of the end that such a name keeps."""

_TABLES = (attrs.QUERY_PROC_TABLE, attrs.QUERY_LOCAL_PROC_TABLE)


def ps(reach: Reach, json: bool) -> int:
    """Print the jobs of the chosen server, or of all servers found; return 1 if none is found."""
    with reach.failures():
        servers, end = _servers(reach)
        kept_out = None if end is None or expected(end) else end
        if not (servers or kept_out or json):
            reach.say("no server of this user runs on this node")
        if servers or json:
            sys.stdout.write(as_json({"servers": servers}) + "\n" if json else _text(servers))
        if kept_out:
            raise kept_out
    return 0 if servers else 1


def _text(servers: list[dict[str, Any]]) -> str:
    return table(HEADINGS, proc_rows(servers))


def proc_rows(servers: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the rows of a table of all procs; on a terminal the long names of jobs are shortened."""
    short = sys.stdout.isatty()
    return [
        (
            _short(job["nspace"]) if short else job["nspace"],
            str(proc["rank"]),
            str(proc["pid"]),
            proc["state"],
            proc["node"],
            shown_command(proc["command"]) or proc["executable"],
        )
        for server in servers
        for job in server["jobs"]
        for proc in job["procs"]
    ]


def _short(nspace: str) -> str:
    """Return a job's name for a narrow terminal: without its middle, which is random."""
    return nspace if len(nspace) <= JOB_WIDTH else f"{nspace[: JOB_WIDTH - JOB_END - 1]}…{nspace[-JOB_END:]}"


def _servers(reach: Reach) -> tuple[list[dict[str, Any]], PMIxError | None]:
    """Return the state of the servers that are found, and the error that ended the search."""
    tool = reach.tool()
    try:
        tool.open()
    except Unreachable as error:
        if reach.named or reach.patience or chosen():
            raise
        return [], error
    with tool:
        found = [look(tool)]
        end = None
        while not reach.named and (end := reach.connect_next(tool)) is None:
            try:
                other = look(tool)
            except (LostConnection, Unreachable):
                # It has ended in the meantime.
                continue
            # Several servers of a session may run here, and each knows all of its jobs.
            seen = {job["nspace"] for server in found for job in server["jobs"]}
            jobs = [job for job in other["jobs"] if job["nspace"] not in seen]
            if jobs or not other["jobs"]:
                found.append({**other, "jobs": jobs})
        return found, end


def look(tool: Tool) -> dict[str, Any]:
    """Return the jobs of a tool's primary server, and their procs."""
    nspaces = str(_ask(tool, attrs.QUERY_NAMESPACES) or "").split(",")
    return {
        "server": str(tool.get_servers()[0]),
        "release": tool.server.rpartition(" ")[2],
        "jobs": [{"nspace": each, "procs": _procs(tool, each)} for each in nspaces if each and each != tool.nspace],
    }


def _procs(tool: Tool, nspace: str) -> list[dict[str, Any]]:
    rows: list[object] = next((rows for rows in (_ask(tool, key, nspace) for key in _TABLES) if rows), [])
    commands = [line for size, line in command_lines(tool, nspace) for _ in range(size)] if rows else []
    found = []
    for row in rows:
        if isinstance(row, ProcInfo):
            state = ProcState(row.state)
            found.append(
                {
                    "rank": row.proc.rank,
                    "pid": row.pid,
                    "state": state.name,
                    "node": row.hostname or "",
                    "executable": row.executable or "",
                    "command": commands[row.proc.rank] if row.proc.rank < len(commands) else "",
                    # Native servers may know it, but the tables that they send do not contain it.
                    "exit_code": _ask(tool, attrs.EXIT_CODE, proc=row.proc)
                    if state >= ProcState.UNTERMINATED
                    else None,
                }
            )
    return sorted(found, key=lambda proc: proc["rank"])


def _ask(tool: Tool, key: Attr[Any], nspace: str | None = None, proc: Proc | None = None) -> Any:
    """Return an answer, None if the server has none: tools are jobs too, and have no procs to show."""
    try:
        return tool.query(key, nspace=nspace, proc=proc, default=None)
    except (LostConnection, Unreachable):
        raise
    except PMIxError:
        return None
