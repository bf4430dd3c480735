"""The options by which a command chooses its server, and the tool that is connected to it."""

from __future__ import annotations

import contextlib
import os
import re
import sys

from pypmix.cli.usage import UsageError
from pypmix.engine.select import requested
from pypmix.standard import attrs, statuses
from pypmix.standard.errors import LostConnection, PMIxError, Unreachable
from pypmix.standard.logtext import printable_lines
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pypmix.standard.types import Info, Proc
    from pypmix.tool import Tool


CHOSEN = ("PMIX_LAUNCHER_RNDZ_URI", "PMIX_LAUNCHER_RNDZ_FILE", "PMIX_NAMESPACE")
"""The variables by which a launcher, or the program that started this process in a job, chooses the server."""

ANSWER_SECONDS = 10
"""Seconds that a server has to admit a tool: a stopped server never does, and others can still be shown."""


MOST_APPS = 100
"""The most applications of a job whose command lines are queried."""

LONGEST_CHOICE = 100
"""The most characters of one server in a list of several."""

_INTERPRETER = re.compile(r"python[\d.]*t?")


def add_reach(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command's parser."""
    group = parser.add_argument_group("which server")
    group.add_argument("--pid", metavar="PID", type=int, help="The server of this pid, such as a launcher's.")
    group.add_argument("--nspace", metavar="NSPACE", help="The server of this nspace.")
    group.add_argument("--uri", metavar="URI", help="The server at this URI, or in file:PATH.")
    group.add_argument("--file", metavar="PATH", help="The server of this rendezvous file.")
    group.add_argument("--system", action="store_true", help="The system server of this node.")
    group.add_argument(
        "--wait-for-server",
        dest="patience",
        metavar="SECONDS",
        type=float,
        help="How long to wait until it is there.",
    )


class Reach(Record):
    """The server that a command line names, and the command's name."""

    command: str
    pid: int | None = None
    nspace: str | None = None
    uri: str | None = None
    file: str | None = None
    system: bool = False
    patience: float | None = None

    @property
    def named(self) -> bool:
        """Whether it names a server."""
        return bool(self.pid or self.nspace or self.uri or self.file or self.system)

    def tool(self) -> Tool:
        """Return a tool for that server, to be opened."""
        from pypmix.tool import Tool

        with arguments():
            return Tool(
                pid=self.pid,
                nspace=self.nspace,
                uri=self.uri,
                file=self.file,
                system=self.system,
                timeout=self.patience,
                info=self._limit,
            )

    def connect_next(self, tool: Tool) -> PMIxError | None:
        """Connect a tool to one more server of this user and make it the primary one; return the error if that fails.

        The error is to be shown unless it is `expected`.
        """
        if tool.engine.name == "native":
            return Unreachable("libpmix attaches to servers that are named, and looks for none")
        try:
            tool.attach_to_server(primary=True, info=self._limit)
        except PMIxError as error:
            return error
        return None

    @property
    def _limit(self) -> list[Info]:
        # libpmix has its own limits.
        return [] if requested(None, os.environ) == "native" else [attrs.TIMEOUT(ANSWER_SECONDS)]

    @contextlib.contextmanager
    def one(self) -> Iterator[Tool]:
        """Yield a tool of the chosen server, and show a person its name.

        Raises:
            UsageError: No server is named, and there are several with different jobs.
        """
        with self.tool() as tool:
            if not self.named:
                if not chosen():
                    self._refuse_several(tool)
                if sys.stderr is not None and sys.stderr.isatty():
                    self.say(f"the server is {tool.get_servers()[0].nspace}")
            yield tool

    def _refuse_several(self, tool: Tool) -> None:
        first = tool.get_servers()[0]
        jobs = {first: _jobs(tool)}
        while (end := self.connect_next(tool)) is None:
            jobs[tool.get_servers()[0]] = _jobs(tool)
        if not expected(end):
            self.say(end)
        if len(jobs) == 1:
            return
        # Servers of one session know the same jobs.
        if any(not found & jobs[first] for server, found in jobs.items() if server != first):
            texts: dict[frozenset[str], str] = {}
            for server, found in jobs.items():
                tool.set_server(server)
                # Servers of one session are one choice; each server without a job is a separate one.
                texts.setdefault(frozenset(found or {str(server)}), _choice(tool, server, found))
            text = "\n  ".join(["there are several servers of this user; name one:", *texts.values()])
            raise UsageError(printable_lines(text))
        tool.set_server(first)
        for server in jobs:
            if server != first:
                tool.disconnect_from_server(server)

    def say(self, text: object) -> None:
        """Write a message of the command to standard error."""
        print(f"pypmix {self.command}: {printable_lines(text)}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Turn an error of PMIx into a message and the exit code 1."""
        try:
            yield
        except PMIxError as error:
            self.say(error)
            raise SystemExit(1) from None
        except BrokenPipeError:
            # The reader of our output has exited: end as SIGPIPE ends a program.
            sys.stdout = None
            raise SystemExit(141) from None


@contextlib.contextmanager
def arguments() -> Iterator[None]:
    """Turn the refusal of an argument into an error of the command line."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(str(error)) from None


def chosen() -> bool:
    """Return True if the environment chooses the server."""
    return any(os.environ.get(name) for name in CHOSEN)


def expected(error: PMIxError) -> bool:
    """Return True if no server was found, or only files of dead ones, rather than a server that refuses the tool."""
    return error.status == statuses.ERR_UNREACH


def command_lines(tool: Tool, nspace: str) -> list[tuple[int, str]]:
    """Return the number of ranks and the command line of each application of a job, as far as its server knows them."""
    found: list[tuple[int, str]] = []
    while True:
        which = [attrs.APPNUM(len(found))]
        try:
            line = tool.query(attrs.APP_ARGV, nspace=nspace, info=which, default="")
            size = tool.query(attrs.APP_SIZE, nspace=nspace, info=which, default=0) if line else 0
        except (LostConnection, Unreachable):
            raise
        except PMIxError:
            return found
        if not size or len(found) == MOST_APPS:
            return found
        found.append((size, line))


def shown_command(line: str) -> str:
    """Return a command line in its form for tables: without the interpreter and the folders of its program."""
    words = line.split()
    if len(words) > 1 and _INTERPRETER.fullmatch(os.path.basename(words[0])):
        del words[0]
        while len(words) > 1 and words[0].startswith("-") and words[0] not in ("-c", "-m"):
            del words[: 2 if words[0] in ("-W", "-X") else 1]
    return " ".join([os.path.basename(words[0]) or words[0], *words[1:]]) if words else ""


def _choice(tool: Tool, server: Proc, jobs: set[str]) -> str:
    """Return the line of one server in a list of several: the option that names it, its age, and its programs."""
    try:
        pid = tool.query(attrs.SERVER_PIDINFO, default=0)
    except PMIxError:
        pid = 0
    lines = [shown_command(line) for job in sorted(jobs) for _, line in command_lines(tool, job)]
    option = f"--pid {pid}" if pid else f"--nspace {server.nspace}"
    age = age_of(pid) if pid else None
    since = "" if age is None else f"  {age_text(age)} old"
    return f"{option}{since}  {' : '.join(lines) or ', '.join(sorted(jobs)) or 'no job'}"[:LONGEST_CHOICE]


def age_of(pid: int) -> float | None:
    """Return the seconds since a process of this machine started; None if that is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat, open("/proc/uptime", "rb") as uptime:
            # The name of the program, in parentheses, may contain anything.
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
            return max(0.0, float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return None


def age_text(seconds: float) -> str:
    """Return an age in its largest unit: `42 s`, `3 min`, `5 h`, `2 days`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _jobs(tool: Tool) -> set[str]:
    """Return the jobs that the primary server of a tool knows, without the tool itself."""
    try:
        found = tool.query(attrs.QUERY_NAMESPACES, default="")
    except PMIxError:
        found = ""
    return {each for each in str(found).split(",") if each and each != tool.nspace}
