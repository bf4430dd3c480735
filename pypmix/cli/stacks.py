"""`pypmix stacks` and `pypmix attach`: look into the ranks of a running job, on all of its nodes."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import Any

from pypmix.cli.reach import Reach
from pypmix.cli.usage import UsageError
from pypmix.standard import attrs
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.logtext import printable_lines
from pypmix.standard.types import RANK_WILDCARD, Proc, ProcInfo
from pypmix.tool import Tool

MOST_PIECES = 1 << 16
"""The most pieces of output that are kept: one for each rank, and the ends."""

PDB = (3, 14)
"""The first release of Python whose pdb attaches to a process."""


def stacks(reach: Reach, job: str | None, timeout: float) -> int:
    """Print the Python stacks of all ranks of a job, equal ones once; return 1 if no rank has any."""
    with reach.failures(), reach.one() as tool:
        nspace = find_job(tool, job)
        rows = [row for row in proc_table(tool, nspace) if row.state < ENDED]
        found = _collect(tool, nspace, rows, timeout)
    sys.stdout.write(as_text(rows, found))
    return 0 if any(each["stacks"] for each in found) else 1


ENDED = 15
"""The first of the states of procs that have ended."""


def find_job(tool: Tool, job: str | None) -> str:
    """Return the nspace of a job that a person names by it or by its number; of the first job if none is named.

    Raises:
        UsageError: There is no such job.
    """
    names = str(tool.query(attrs.QUERY_NAMESPACES, default="")).split(",")
    jobs = [name for name in names if name and name != tool.nspace and proc_table(tool, name)]
    if not jobs:
        raise UsageError("no job runs there")
    if job is None:
        return min(jobs, key=lambda name: (len(name), name))
    for name in jobs:
        if job in (name, name.rpartition("@")[2]):
            return name
    raise UsageError(f"there is no job {job:.80}: the jobs are {', '.join(jobs):.400}")


def proc_table(tool: Tool, nspace: str) -> list[ProcInfo]:
    """Return the ranks of a job; none if the nspace is not that of a job."""
    try:
        rows = tool.query(attrs.QUERY_PROC_TABLE, nspace=nspace, default=None)
    except NotFound:
        rows = None
    return sorted([row for row in rows or () if isinstance(row, ProcInfo)], key=lambda row: row.proc.rank)


def _collect(tool: Tool, nspace: str, rows: list[ProcInfo], timeout: float) -> list[dict[str, Any]]:
    """Return the stacks that a program on each node of a job reads."""
    target = attrs.DEBUG_TARGET(Proc(nspace, RANK_WILDCARD))
    infos = [attrs.DEBUGGER_DAEMONS(True), attrs.DEBUG_DAEMONS_PER_NODE(1), target, attrs.OUTPUT_NOCOPY(True)]
    here = {row.hostname for row in rows} == {socket.gethostname()}
    python = sys.executable if here else "python3"
    daemons = tool.spawn([python, "-m", "pypmix.cli.nodestacks"], info=infos)
    texts: dict[tuple[Proc, int], bytes] = {}
    with tool.output(daemons, buffer=MOST_PIECES) as output:
        code = daemons.wait(timeout=timeout)
        for piece in output:
            texts[piece.source, piece.channel] = texts.get((piece.source, piece.channel), b"") + piece.data
    lines = [line for text in texts.values() for line in text.splitlines()]
    found = [json.loads(line) for line in lines if line.startswith(b"{")]
    if code and not found:
        last = lines[-1].decode(errors="replace") if lines else f"exit code {code}"
        raise PMIxError(f"the programs that read the stacks on the nodes have failed: {last}")
    return found


def as_text(rows: list[ProcInfo], answers: list[dict[str, Any]]) -> str:
    """Return the stacks of ranks as text: equal stacks once, and a line for each rank without a stack."""
    by_rank = {each["rank"]: each for each in answers}
    groups: dict[str, list[int]] = {}
    absent: list[str] = []
    for row in rows:
        rank = row.proc.rank
        each = by_rank.get(rank)
        if each is None or not each["stacks"]:
            why = "its node has sent none" if each is None else each["why"]
            absent.append(f"rank {rank} (pid {row.pid} on {row.hostname}): no stack: {why}\n")
        else:
            groups.setdefault(_stacks_text(each["stacks"]), []).append(rank)
    lines = [f"{ranks_text(ranks)}\n{text}" for text, ranks in sorted(groups.items(), key=lambda item: item[1])]
    return printable_lines("\n".join([*lines, "".join(absent)] if absent else lines)) + ("" if absent else "\n")


def _stacks_text(stacks: list[list[str]]) -> str:
    lines = []
    for number, frames in enumerate(stacks):
        if number:
            lines.append("  another thread\n")
        lines += [f"{'  ' if number else ''}  {frame}\n" for frame in frames or ["no Python frame"]]
    return "".join(lines)


def ranks_text(ranks: list[int]) -> str:
    """Return the text that names ranks: `ranks 0-3, 5`."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    text = ", ".join(["-".join(map(str, part)) for part in parts])
    return f"rank{'s' if len(ranks) > 1 else ''} {text}"


# Attach.


def attach(reach: Reach, rank: int, job: str | None, debugger: str) -> int:
    """Attach a debugger to a rank: in this terminal if the rank is on this machine, else by its node's daemon."""
    import shlex

    with reach.failures(), reach.one() as tool:
        nspace = find_job(tool, job)
        row = next((row for row in proc_table(tool, nspace) if row.proc.rank == rank), None)
        if row is None or row.state >= ENDED or not row.pid:
            raise UsageError(f"rank {rank} of {nspace} does not run")
        words = [*shlex.split(debugger), str(row.pid)] if debugger else ["gdb", "-p", str(row.pid)]
        if not is_here(row):
            return _attach_there(reach, tool, row, words)
        if not debugger:
            words = python_debugger(row.pid) or words
    try:
        os.execvp(words[0], words)
    except OSError as error:
        reach.say(f"{words[0]} cannot be run: {error.strerror}; --debugger names another debugger")
        return 127


def python_debugger(pid: int) -> list[str]:
    """Return the command of a pdb that attaches to a process; empty if its Python has none."""
    try:
        path = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return []
    name = os.path.basename(path)
    version = name.removeprefix("python").rstrip("t").split(".")
    if not name.startswith("python") or not all(part.isdecimal() for part in version) or len(version) != 2:
        return []
    return [path, "-m", "pdb", "-p", str(pid)] if tuple(map(int, version)) >= PDB else []


def is_here(row: ProcInfo) -> bool:
    """Return True if a process of this machine is the rank."""
    try:
        with open(f"/proc/{row.pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return False
    name, rank = f"PMIX_NAMESPACE={row.proc.nspace}", f"PMIX_RANK={row.proc.rank}"
    return name.encode() in variables and rank.encode() in variables


def _attach_there(reach: Reach, tool: Tool, row: ProcInfo, words: list[str]) -> int:
    """Run a debugger beside a rank of another node, with this command's input and output."""
    infos = [attrs.DEBUGGER_DAEMONS(True), attrs.DEBUG_TARGET(row.proc), attrs.OUTPUT_NOCOPY(True)]
    daemon = tool.spawn(words, stdin=True, info=infos)
    reach.say(f"{words[0]} runs on {row.hostname}, without a terminal")
    threading.Thread(target=_feed, args=(tool, daemon), daemon=True).start()
    with tool.output(daemon) as output:
        for piece in output:
            os.write(1, piece.data)
    return daemon.wait()


def _feed(tool: Tool, daemon: Any) -> None:
    """Pass the lines of standard input on to a daemon, until either ends."""
    try:
        with tool.input(daemon) as stdin:
            for line in iter(sys.stdin.buffer.readline, b""):
                stdin.write(line)
    except PMIxError:
        return
