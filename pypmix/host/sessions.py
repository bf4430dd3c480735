"""Standing sessions from outside: their folder, the connection with one, and the jobs that a program runs there.

A session is a process of its own (`pypmix.host.standing`), which `pypmix session start` starts. It listens on a Unix
socket in a folder that only its user may enter; each side also checks the user of the other, as the kernel reports it.
A command sends its job, with the ends of pipes for the input and the output of the ranks, and then the signals that it
gets. The session acknowledges each signal, and answers with the end of the job. If the connection ends, the job ends.
Once the time limit of the job is over, the command asks every few seconds whether the session still answers.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import stat
import struct
import sys
import time

from pypmix._version import __version__
from pypmix.host.folders import temporary_folder
from pypmix.host.launch import wait_for_end
from pypmix.host.outcome import TIMED_OUT, Outcome
from pypmix.host.terms import Terms
from pypmix.standard.errors import LostConnection, NotFound, OperationTimeout, PermissionDenied, PMIxError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Mapping as Variables
    from types import TracebackType
    from typing import Any, Self

    from pypmix.host.job import Application
    from pypmix.host.mapping import Mapping
    from pypmix.host.trying import Fault

DEFAULT = "default"
"""The name of a session that is given none."""

MAX_NAME = 64
MAX_MESSAGE = 64 << 20
"""The most bytes of a message: a command line and an environment."""

CHUNK = 1 << 16
PIECE = 1 << 15

STOP_SECONDS = 60.0
"""Seconds that the process of a session has to exit once it has closed its connections."""

ANSWER_SECONDS = 5.0
"""Seconds that a session has to answer a signal that is to end the job, a question, or whether it is alive."""

OPERATION = "session"


class Wish(Record):
    """The job that a command requests of a session.

    Args:
        apps: Its applications.
        terms: Its terms.
        timeout: Seconds after which it is ended; 0 for no limit.
        patience: Seconds in which it gets its slots; 0 for no limit.
        fill: Whether its only application has a rank for each slot.
        hosts: The nodes to run on, with their slots, 0 for all of them; empty for any nodes.
        mapping: The rules of its placement; None for the session's.
        faults: Faults to inject.
        env: The environment of the command.
        wdir: The working directory of the command.
    """

    apps: tuple[Application, ...]
    terms: Terms = Terms()
    timeout: float = 0.0
    patience: float = 0.0
    fill: bool = False
    hosts: tuple[tuple[str, int], ...] = ()
    mapping: Mapping | None = None
    faults: tuple[Fault, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    wdir: str = ""


def pack(value: object) -> Any:
    """Convert a record, and the records and tuples in it, for `json.dumps`; `pypmix.host.standing` converts it back."""
    if isinstance(value, Record):
        fields: tuple[str, ...] = value.__fields__  # type: ignore[attr-defined]
        return {"is": type(value).__name__, **{field: pack(getattr(value, field)) for field in fields}}
    return [pack(each) for each in value] if isinstance(value, tuple) else value


class Link:
    """A connection of a command and a session, for messages that are objects of JSON.

    Args:
        connection: The socket; closed by the link.

    Attributes:
        files: The descriptors that have arrived, for the caller to take and to close.
        note_answer: Called when the other process has acknowledged a signal.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.note_answer: Callable[[], object] = lambda: None
        self._connection = connection
        self._data = bytearray()
        self.files: list[int] = []

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._connection.fileno()

    @property
    def user(self) -> int:
        """The user of the other process, as the kernel reports it."""
        return self._peer[1]

    @property
    def pid(self) -> int:
        """The pid of the other process."""
        return self._peer[0]

    @property
    def _peer(self) -> tuple[int, ...]:
        return struct.unpack("3i", self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))

    def send(self, message: Variables[str, object], files: Sequence[int] = ()) -> None:
        """Send a message, with descriptors.

        Raises:
            OSError: The other process has ended, or does not read.
        """
        text = json.dumps(message).encode()
        data = memoryview(struct.pack("!I", len(text)) + text)
        if files:
            rights = array.array("i", files)
            sent = self._connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            data = data[sent:]
        if data:
            self._connection.sendall(data)

    def receive(self) -> list[dict[str, Any]] | None:
        """Read once, and return the messages that are complete; None at the end of the connection."""
        try:
            data, files, _, _ = socket.recv_fds(self._connection, CHUNK, 4, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        self.files += files
        if not data:
            return None
        self._data += data
        found = []
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big")
            if size > MAX_MESSAGE:
                return None
            if len(self._data) < 4 + size:
                break
            try:
                message = json.loads(self._data[4 : 4 + size])
            except (ValueError, RecursionError):
                return None
            del self._data[: 4 + size]
            if not isinstance(message, dict):
                return None
            found.append(message)
        return found

    def close(self) -> None:
        """Close the connection, and the descriptors that have arrived."""
        self._connection.close()
        for file in self.files:
            os.close(file)
        self.files = []


# Where sessions are


def check_name(name: str) -> str:
    """Return `name` if it can name a session.

    Raises:
        ValueError: It cannot.
    """
    plain = name.isascii() and all(sign.isalnum() or sign in "._-" for sign in name)
    if not name or name[0] in ".-" or not plain or len(name) > MAX_NAME:
        raise ValueError(
            f"a session's name has up to {MAX_NAME} of a-z, A-Z, 0-9, '.', '_' and '-', and is not {name!r:.80}"
        )
    return name


def folder_of(env: Variables[str, str], user: int) -> str:
    """Return the folder of a user's sessions."""
    return os.path.join(temporary_folder(env), f"pypmix-sessions-{user}")


def enter(env: Variables[str, str], *, make: bool = False) -> int:
    """Open the folder of this user's sessions, and return its descriptor.

    Args:
        env: The environment, whose TMPDIR holds the folder.
        make: Whether to make the folder.

    Raises:
        FileNotFoundError: It does not exist.
        PermissionDenied: Others may write to it.
        OSError: It cannot be made.
    """
    path = folder_of(env, os.geteuid())
    if make:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        os.close(folder)
        owner = f"belongs to user {found.st_uid}" if found.st_uid != os.geteuid() else "is open to other users"
        raise PermissionDenied(
            f"the folder of your sessions, {path}, {owner}", operation=OPERATION, hint="remove it, or set TMPDIR"
        )
    return folder


def socket_path(folder: int, name: str) -> str:
    """Return a path of a session's socket that is short enough for the kernel, whatever the folder's path is."""
    return f"/proc/self/fd/{folder}/{name}.sock"


def names(env: Variables[str, str]) -> list[str]:
    """Return the names of this user's sessions on this machine; some of them may have been killed."""
    try:
        folder = enter(env)
    except FileNotFoundError:
        return []
    try:
        return sorted([name.removesuffix(".sock") for name in os.listdir(folder) if name.endswith(".sock")])
    finally:
        os.close(folder)


def connect(name: str, env: Variables[str, str]) -> Link:
    """Connect to a session of this user.

    Raises:
        ValueError: The name cannot be that of a session.
        NotFound: There is no such session.
        PermissionDenied: It is a session of another user.
    """
    check_name(name)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    link = Link(connection)
    try:
        folder = enter(env)
        try:
            connection.connect(socket_path(folder, name))
        finally:
            os.close(folder)
    except (FileNotFoundError, ConnectionRefusedError):
        link.close()
        raise _absent(name, env) from None
    except BaseException:
        link.close()
        raise
    if link.user != os.geteuid():
        user = link.user
        link.close()
        raise PermissionDenied(f"session {name} is one of user {user}", operation=OPERATION)
    return link


def _absent(name: str, env: Variables[str, str]) -> PMIxError:
    """Return the error for a session that this user does not have."""
    place = temporary_folder(env)
    for other in os.listdir(place):
        user = other.removeprefix("pypmix-sessions-")
        # Only root can look into the folders of others.
        if user != other and user != str(os.geteuid()) and os.path.exists(os.path.join(place, other, f"{name}.sock")):
            text = f"session {name} is one of user {user}, and this is user {os.geteuid()}"
            return PermissionDenied(text, operation=OPERATION)
    known = [each for each in names(env) if is_alive(each, env)]
    there = f"the sessions here are {', '.join(known)}" if known else "you have no session on this machine"
    return NotFound(
        f"there is no session {name}: {there}",
        operation=OPERATION,
        hint=f"`pypmix session start {name}` starts it, and TMPDIR has to be the same as there",
    )


def is_alive(name: str, env: Variables[str, str]) -> bool:
    """Return True if a session accepts connections."""
    try:
        folder = enter(env)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
                connection.connect(socket_path(folder, name))
        finally:
            os.close(folder)
    except OSError:
        return False
    return True


def ask(name: str, operation: str, env: Variables[str, str]) -> dict[str, Any]:
    """Send a session a request, and return its answer; `stop` is answered when the session has ended.

    Raises:
        PMIxError: There is no such session, or it does not answer.
    """
    link = connect(name, env)
    pid = link.pid
    pulse = Pulse(link, ANSWER_SECONDS)
    waiting = select.poll()
    waiting.register(link.fileno(), select.POLLIN)
    try:
        try:
            link.send({"ask": operation, "version": __version__})
        except OSError as error:
            raise _ended(name) from error
        while not pulse.is_lost():
            if not waiting.poll(1000 * pulse.seconds_left()):
                continue
            found = link.receive()
            if found is None:
                break
            for message in found:
                if "refused" in message:
                    raise PMIxError(str(message["refused"]), operation=OPERATION)
                if "alive" not in message:
                    return message
                pulse.note_answer()
        else:
            raise _silent(name, pid)
    finally:
        link.close()
    if operation == "stop":
        wait_for_end(pid, STOP_SECONDS)
        return {}
    raise _ended(name)


def _ended(name: str) -> PMIxError:
    return LostConnection(
        f"session {name} has ended while this job ran", operation=OPERATION, hint="`pypmix session list` shows others"
    )


def _silent(name: str, pid: int) -> PMIxError:
    return OperationTimeout(
        f"session {name} does not answer",
        operation=OPERATION,
        hint=f"was its process {pid} stopped? `kill -CONT {pid}` lets it go on, and `kill -KILL {pid}` ends it",
    )


class Pulse:
    """Finds out, after some time, that a session does not answer.

    Args:
        link: The connection with the session.
        patience: Seconds until the session is asked for the first time.
    """

    def __init__(self, link: Link, patience: float) -> None:
        self._link = link
        self._due = time.monotonic() + patience
        self._is_asked = False

    def seconds_left(self) -> float:
        """Return the seconds until `is_lost` has something to do."""
        return max(0.0, self._due - time.monotonic())

    def is_lost(self) -> bool:
        """Ask the session if it is time to, and return True if it has not answered the last time."""
        if time.monotonic() < self._due:
            return False
        if self._is_asked:
            return True
        self._is_asked = True
        self._due = time.monotonic() + ANSWER_SECONDS
        try:
            self._link.send({"alive": True})
        except OSError:
            # It has ended, which reading shows.
            pass
        return False

    def note_answer(self) -> None:
        """Wait before the session is asked again."""
        self._is_asked = False
        self._due = time.monotonic() + ANSWER_SECONDS


# Jobs


class _Relay:
    """Passes the input and output of a command on, through pipes to the session.

    Only the command reads and writes its own files: they may be shared with other programs, and one of them could make
    a read or a write of the session block.

    Args:
        files: The command's standard input, -1 for none, and its output and error.
    """

    def __init__(self, files: tuple[int, int, int]) -> None:
        self._source, out, err = files
        self._poll = select.poll()
        self._sinks: dict[int, int] = {}
        self._rest = b""
        reader, self._writer = os.pipe2(os.O_CLOEXEC)
        self.theirs = [reader]
        os.set_blocking(self._writer, False)
        for target in (out,) if os.path.sameopenfile(out, err) else (out, err):
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            self.theirs.append(theirs)
            self._sinks[ours] = target
            self._poll.register(ours, select.POLLIN)
        if self._source < 0:
            self.end_input()
        else:
            self._poll.register(self._writer, select.POLLOUT)

    def give(self) -> list[int]:
        """Return the session's ends, in the order of a rank's files."""
        return self.theirs if len(self.theirs) == 3 else [*self.theirs, self.theirs[-1]]

    def close_given(self) -> None:
        """Close the session's ends, which it has by now."""
        for file in self.theirs:
            os.close(file)
        self.theirs = []

    def turn(self, link: Link | None, limit: float | None) -> bool:
        """Wait until something can be done, or for `limit` seconds, and do it; return True if the link can be read."""
        if link is not None:
            self._poll.register(link.fileno(), select.POLLIN)
        try:
            ready = self._poll.poll(None if limit is None else 1000 * limit)
        finally:
            if link is not None:
                self._poll.unregister(link.fileno())
        readable = False
        for file, events in ready:
            if link is not None and file == link.fileno():
                readable = True
            elif file == self._writer:
                self._write_input() if events == select.POLLOUT else self.end_input()
            elif file == self._source:
                self._read_input()
            elif file in self._sinks:
                self._pass_on(file)
        return readable

    def _write_input(self) -> None:
        """The pipe has room: write what is left, or wait for input."""
        try:
            if self._rest:
                self._rest = self._rest[os.write(self._writer, self._rest) :]
        except BlockingIOError:
            return
        except OSError:
            self.end_input()
            return
        if not self._rest:
            self._poll.unregister(self._writer)
            try:
                self._poll.register(self._source, select.POLLIN)
            except OSError:
                self._read_input()

    def _read_input(self) -> None:
        self._poll.unregister(self._source)
        try:
            self._rest = os.read(self._source, PIECE)
        except OSError:
            self._rest = b""
        if self._rest:
            self._poll.register(self._writer, select.POLLOUT)
        else:
            self.end_input()

    def end_input(self) -> None:
        """End the input of the ranks; may be called twice."""
        writer, self._writer = self._writer, -1
        if writer >= 0:
            for file in (writer, self._source):
                try:
                    self._poll.unregister(file)
                except (KeyError, ValueError):
                    continue
            os.close(writer)

    def _pass_on(self, file: int) -> None:
        try:
            data = os.read(file, CHUNK)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._sinks[file], rest) :]
        except OSError:
            # Its reader has exited: the session's next write fails, and ends the job.
            data = b""
        if not data:
            self._poll.unregister(file)
            del self._sinks[file]
            os.close(file)

    @property
    def is_open(self) -> bool:
        """Whether output may follow."""
        return bool(self._sinks)

    def close(self) -> None:
        """Close all pipes."""
        self.close_given()
        self.end_input()
        for file in list(self._sinks):
            os.close(file)
        self._sinks.clear()


def run_job(
    name: str,
    wish: Wish,
    files: tuple[int, int, int],
    env: Variables[str, str],
    attend: Callable[[Link], object] = lambda _link: None,
) -> Outcome:
    """Run a job in a session, and return its end.

    Args:
        name: The session.
        wish: The job.
        files: The standard input, -1 for none, and the output and error.
        env: The environment, whose TMPDIR names the folder of the session.
        attend: Called with the link once the job was requested.

    Raises:
        PMIxError: There is no such session, it refuses the job, or it ends before the job.
    """
    link = connect(name, env)
    relay = _Relay(files)
    end: Outcome | None = None
    refused = ""
    try:
        try:
            link.send({"job": pack(wish), "version": __version__}, relay.give())
        except OSError:
            # A session that refuses the job may not read all of it.
            pass
        relay.close_given()
        attend(link)
        # The session ends the job at its time limit, unless it hangs.
        pulse = Pulse(link, wish.timeout) if wish.timeout else None
        reading: Link | None = link
        while reading is not None or relay.is_open:
            if pulse is not None and reading is not None and pulse.is_lost():
                text = f"session {name} does not answer, and ends the job when it continues"
                return Outcome(TIMED_OUT, f"the job did not end within {wish.timeout:g} s; {text}")
            if not relay.turn(reading, None if pulse is None or reading is None else pulse.seconds_left()):
                continue
            found = link.receive()
            for message in found or ():
                if "end" in message:
                    end = Outcome(int(message["end"]), str(message["reason"]))
                if "refused" in message:
                    refused = str(message["refused"])
                if "signal" in message:
                    link.note_answer()
                if "alive" in message and pulse is not None:
                    pulse.note_answer()
            if found is None:
                reading = None
                relay.end_input()
    finally:
        relay.close()
        link.close()
    if refused:
        raise PMIxError(refused, operation=OPERATION)
    if end is None:
        raise _ended(name)
    return end


class Session:
    """A standing session of this user: jobs start in it at once, on nodes whose daemons run already.

    `LocalHost` has the arguments of the jobs. Several threads may run jobs at the same time. As a context manager it
    stops the session at the end of the block.

    Args:
        name: Its name.
    """

    def __init__(self, name: str = DEFAULT) -> None:
        self.name = check_name(name)

    @classmethod
    def start(cls, name: str = DEFAULT, *options: str) -> Self:
        """Start a session, and return it when its nodes have joined.

        Args:
            name: Its name.
            options: The options of `pypmix session start`.

        Raises:
            PMIxError: It cannot be started; the text says why.

        Example:
            >>> with Session.start("tests", "--host", "n1,n2") as session:
            ...     outcome = session.run([Application(("hostname",), 2)])
        """
        # Costs more to import than all else that a job in a session needs.
        import subprocess

        command = [sys.executable, "-m", "pypmix", "session", "start", check_name(name), *options]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise PMIxError(done.stderr.strip() or f"exit code {done.returncode}", operation=OPERATION)
        return cls(name)

    def run(
        self,
        apps: Iterable[Application],
        *,
        terms: Terms | None = None,
        timeout: float | None = None,
        patience: float | None = None,
        mapping: Mapping | None = None,
        files: tuple[int, int, int] = (-1, 1, 2),
    ) -> Outcome:
        """Run a job to its end.

        Args:
            apps: Its applications.
            terms: Its terms.
            timeout: Seconds after which it is ended.
            patience: Seconds in which it gets its slots; they are waited for without a limit by default.
            mapping: The rules of its placement; the session's by default.
            files: The descriptors that its ranks read and write: input, -1 for none, output and error.

        Raises:
            PMIxError: There is no such session, it refuses the job, or it ends before the job.

        Example:
            >>> outcome = Session("tests").run([Application(("hostname",), 4)], timeout=60)
            >>> outcome.code
            0
        """
        env = tuple(os.environ.items())
        wish = Wish(
            tuple(apps), terms or Terms(), timeout or 0.0, patience or 0.0, mapping=mapping, env=env, wdir=os.getcwd()
        )
        return run_job(self.name, wish, files, os.environ)

    def describe(self) -> dict[str, Any]:
        """Return its nodes and jobs, as `pypmix session list --json` prints them.

        Example:
            >>> len(Session("tests").describe()["jobs"])
            0
        """
        return ask(self.name, "describe", os.environ)

    def stop(self) -> None:
        """Stop it; its jobs end. It has ended when this returns.

        Example:
            >>> Session("tests").stop()
        """
        ask(self.name, "stop", os.environ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
