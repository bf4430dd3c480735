"""`pypmix ps`: the jobs of servers, and their procs."""

from __future__ import annotations

import sys
from typing import Any

from pypmix.cli.reach import Reach
from pypmix.cli.show import as_json, table
from pypmix.standard import attrs
from pypmix.standard.attr import Attr
from pypmix.standard.enums import ProcState
from pypmix.standard.errors import LostConnection, PMIxError, Unreachable
from pypmix.standard.types import Proc, ProcInfo
from pypmix.tool import Tool

_TABLES = (attrs.QUERY_PROC_TABLE, attrs.QUERY_LOCAL_PROC_TABLE)


def ps(reach: Reach, json: bool) -> None:
    """Print the jobs of the server that is meant, or of all that are found."""
    with reach.failures():
        servers = list(_servers(reach))
        if json:
            print(as_json({"servers": servers}))
            return
        if not servers:
            reach.say("no server of this user runs on this node")
        rows: list[tuple[str, ...]] = [
            (job["nspace"], str(proc["rank"]), str(proc["pid"]), proc["state"], proc["node"], proc["executable"])
            for server in servers
            for job in server["jobs"]
            for proc in job["procs"]
        ]
        headings = ("JOB", "RANK", "PID", "STATE", "NODE", "PROGRAM")
        sys.stdout.write(table(headings, rows))


def _servers(reach: Reach) -> list[dict[str, Any]]:
    tool = reach.tool()
    try:
        tool.open()
    except Unreachable:
        if reach.named or reach.patience:
            raise
        return []
    with tool:
        found = [look(tool)]
        while not reach.named:
            try:
                tool.attach_to_server(primary=True)
            except Unreachable:
                break
            other = look(tool)
            # Several servers of a session may be here, and each knows all of its jobs.
            seen = {job["nspace"] for server in found for job in server["jobs"]}
            jobs = [job for job in other["jobs"] if job["nspace"] not in seen]
            if jobs or not other["jobs"]:
                found.append({**other, "jobs": jobs})
        return found


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
                    # Native servers know it perhaps, but the tables that they send hold none.
                    "exit_code": _ask(tool, attrs.EXIT_CODE, proc=row.proc)
                    if state >= ProcState.UNTERMINATED
                    else None,
                }
            )
    return sorted(found, key=lambda proc: proc["rank"])


def _ask(tool: Tool, key: Attr[Any], nspace: str | None = None, proc: Proc | None = None) -> Any:
    """Return an answer, None where the server has none: tools are jobs too, and have no procs to show."""
    try:
        return tool.query(key, nspace=nspace, proc=proc, default=None)
    except (LostConnection, Unreachable):
        raise
    except PMIxError:
        return None
