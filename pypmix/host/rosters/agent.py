"""The end in a process of an engine, such as a Dask worker: it starts the daemon of its node, and stands by it.

The daemon's standard input is a pipe from this process. So the daemon leaves with it, however it ends; and it leaves
when its exchange loses the launcher. The ranks of functions connect to this process (`pypmix.host.rosters.calling`):
they are given a function, and give back what it has returned or raised.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading

from pypmix._version import __version__
from pypmix.engine.faults import fault
from pypmix.engine.peeruid import is_own
from pypmix.host.addresses import connections, hang_up
from pypmix.host.exchange.switch import SocketStream
from pypmix.host.rosters.reach import Probe, unreached
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

    from pypmix.host.addresses import Address

CLOSE_SECONDS = 5.0
"""Seconds that the results of ranks that have ended get to be read, and what their daemon has sent last."""

BEGIN_SECONDS = 300.0
"""Seconds that a call for ranks waits for the start of their daemon."""

KEPT = 4096
"""Bytes of the end of the daemon's standard error that are kept, to find out why it has ended."""

MAX_ANSWER = 1 << 16
"""Bytes of the daemon's first line."""

PIECE = 1 << 24
"""Bytes of what ranks have given back that go in one answer: it is known then that more comes."""

NOTHING = pickle.dumps({})
"""Results of no ranks, pickled."""

PYTHON = "PYPMIX_PYTHON"
"""The variable with the Python that runs this process: ranks of a function run on it too."""

CALL = "PYPMIX_CALL"
"""The variable with the abstract name of the socket at which ranks get their function."""


class Ended(Record):
    """The end of a daemon.

    Attributes:
        code: Its exit code.
        errors: The end of what it has written to standard error.
        results: What ranks of a function have given back, by their numbers, pickled; or the first piece of that.
        size: How long that is.
    """

    code: int
    errors: str
    results: bytes
    size: int


class _Run:
    """A daemon that was begun, or is about to be, and what belongs to it alone.

    Args:
        function: See `Agent.begin`.
    """

    def __init__(self, function: bytes | None) -> None:
        self.calls = None if function is None else Calls(function)
        self.process: subprocess.Popen[bytes] | None = None
        self.stream: SocketStream | None = None
        self.drained = threading.Event()
        self.pushing = threading.Lock()
        self.errors = b""
        self.results = b""
        self.reader: threading.Thread | None = None

    def start(self, line: bytes, switched: bool) -> bytes:
        """Start the daemon, and return its answer.

        Raises:
            Exception: It cannot be started.
        """
        theirs: socket.socket | None = None
        try:
            if switched:
                given = json.loads(line)
                ours, theirs = socket.socketpair()
                self.stream = SocketStream(ours)
                line = json.dumps({**given, "switch": theirs.fileno()}).encode() + b"\n"
            process = self._open(() if theirs is None else (theirs.fileno(),))
        finally:
            if theirs is not None:
                theirs.close()
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        reader = threading.Thread(target=self._read, args=(process.stderr,), daemon=True)
        reader.start()
        self.reader = reader
        try:
            process.stdin.write(line)
        except BrokenPipeError:
            # It has ended already; what it has written tells why.
            pass
        answer = b""
        while not answer.endswith(b"\n") and len(answer) < MAX_ANSWER:
            # One that cannot begin says why, or ends.
            piece = process.stdout.read(MAX_ANSWER)
            if not piece:
                break
            answer += piece
        return answer

    def _open(self, given: tuple[int, ...]) -> subprocess.Popen[bytes]:
        env = {**os.environ, PYTHON: sys.executable}
        if self.calls is not None:
            env[CALL] = self.calls.name
        pipe = subprocess.PIPE
        # A group of its own: Ctrl-C in front of the engine is for the engine.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pypmix", "node"],
            stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, env=env, process_group=0, pass_fds=given,
        )  # fmt: skip
        return self.process

    def _read(self, file: IO[bytes]) -> None:
        while data := file.read(KEPT):
            self.errors = (self.errors + data)[-KEPT:]
            try:
                sys.stderr.write(data.decode(errors="replace"))
            except Exception:
                # Nothing can be shown here, but a full pipe would hold the daemon up.
                continue
        file.close()

    def wait(self) -> Ended:
        """Return when the daemon has ended, and how."""
        process, calls, stream = self.process, self.calls, self.stream
        code = 0
        # It is None if the daemon could not be started.
        if process is not None:
            code = process.wait()
            if self.reader is not None:
                self.reader.join(1.0)
            for file in (process.stdin, process.stdout, None if self.reader else process.stderr):
                if file is not None:
                    file.close()
        self.results = NOTHING if calls is None else pickle.dumps(calls.close())
        if stream is not None:
            # What the daemon has sent last is pulled, if the launcher is still there.
            self.drained.wait(0.0 if process is None else CLOSE_SECONDS)
            stream.close()
            # A pull and a push that wait there end with that.
            self.drained.wait(1.0)
            with self.pushing:
                self.stream = None
                stream.release()
        return Ended(code, self.errors.decode(errors="replace"), self.results[:PIECE], len(self.results))

    def leave(self) -> None:
        """End the daemon's standard input."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def stop(self) -> None:
        """Kill the daemon, if there is one."""
        process = self.process
        if process is not None and process.poll() is None:
            process.kill()


class Agent:
    """Runs one daemon at a time. An engine calls its methods, each on a thread of its own.

    Attributes:
        calls: How many calls are under way, where the engine counts them.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._run: _Run | None = None
        self._probe: Probe | None = None
        self._kept = b""
        self._begun = threading.Condition()

    def hostname(self) -> str:
        """Return the name of this machine."""
        return socket.gethostname()

    def offer(self, interface: str, launcher: Sequence[Address]) -> Address | str:
        """Listen where the daemon would, for `reach` on other nodes; return the address, or why that cannot be."""
        self.rest()
        self._probe = Probe()
        return self._probe.offer(interface, launcher)

    def reach(self, places: Sequence[Sequence[Address]]) -> list[int]:
        """Return which of some processes cannot be reached from here, by their places in a list of their addresses."""
        return unreached(places)

    def rest(self) -> None:
        """Listen no more."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close()

    def pull(self) -> bytes:
        """Return what the daemon sends to the switch, and wait for it; nothing when it has ended."""
        run = self._run
        if run is None or run.stream is None:
            return b""
        try:
            data = run.stream.read()
        except OSError:
            data = b""
        if not data:
            run.drained.set()
        return data

    def push(self, data: bytes) -> None:
        """Give the daemon what the switch sends it; waits while it does not read.

        Does not raise for a daemon that has ended, as engines log that: `pull` and `wait` tell of the end.
        """
        run = self._run
        if run is None:
            return
        with run.pushing:
            if run.stream is None:
                return
            try:
                run.stream.write(data)
            except OSError:
                return

    def begin(self, line: bytes, function: bytes | None = None, switched: bool = False) -> bytes:
        """Start the daemon, and return its answer; does not raise, as engines log what they have called then.

        Args:
            line: The daemon's line, which holds a secret.
            function: What ranks that ask for a function are given; if it is empty, they stay for `call_in_ranks`.
            switched: Whether what the daemon sends goes by `pull` and `push`.
        """
        try:
            self.stop()
            with self._begun:
                run = self._run = _Run(function)
                self._kept = b""
                self._begun.notify_all()
            return run.start(line, switched)
        except Exception as error:
            self.stop()
            text = f"its daemon cannot be started: {error}"
            return json.dumps({"error": text, "version": __version__}).encode() + b"\n"

    def wait(self) -> Ended:
        """Return when the daemon has ended, and how."""
        run = self._run
        if run is None:
            return Ended(0, "", NOTHING, len(NOTHING))
        ended = run.wait()
        with self._begun:
            # The next one may have begun.
            if self._run is run:
                self._run = None
                self._kept = run.results if ended.size > PIECE else b""
        return ended

    def further(self, start: int) -> bytes:
        """Return the next piece of what ranks have given back, of which so much has come; forget it with the last."""
        with self._begun:
            piece = self._kept[start : start + PIECE]
            if start + PIECE >= len(self._kept):
                self._kept = b""
        return piece

    @property
    def idle(self) -> bool:
        """Whether there is neither a daemon nor anything that is kept for its ranks, or of them."""
        return self._run is None and self._probe is None and not self._kept

    def call_in_ranks(self, function: bytes, count: int) -> dict[int, bytes]:
        """Have the ranks of this node call a function; return what they have given back, by their numbers.

        Ranks that end without a result are left out: all of them, where the daemon is not started in time.

        Args:
            function: The function and its arguments, as cloudpickle has written them.
            count: How many ranks there are.
        """
        with self._begun:
            # It may be called before `begin` is; and a launcher that fails never calls that.
            self._begun.wait_for(lambda: self._calls is not None, BEGIN_SECONDS)
            calls = self._calls
        return {} if calls is None else calls.call_in_ranks(function, count)

    def dismiss(self) -> None:
        """Have the ranks that stay for functions end, when they have carried out the last one."""
        if (calls := self._calls) is not None:
            calls.dismiss()

    @property
    def _calls(self) -> Calls | None:
        run = self._run
        return None if run is None else run.calls

    def leave(self) -> None:
        """The launcher has gone: the daemon leaves, if there is one, and ends its ranks."""
        self.rest()
        with self._begun:
            self._kept = b""
        if (run := self._run) is not None:
            run.leave()

    def stop(self) -> None:
        """Kill the daemon, if there is one; its guard ends its ranks."""
        if (run := self._run) is not None:
            run.stop()


class Calls:
    """Gives ranks of this machine and user functions, and takes what these have returned or raised.

    Args:
        function: The function and its arguments, as cloudpickle has written them, which each rank is given that comes.
            If it is empty, ranks stay for those of `call_in_ranks`.

    Attributes:
        name: The abstract name of the socket that ranks connect to.
    """

    def __init__(self, function: bytes) -> None:
        self.name = f"pypmix-call-{os.getpid()}-{os.urandom(16).hex()}"
        self._function = function
        self._results: dict[int, bytes] = {}
        self._gate = threading.Condition()
        self._serving = 0
        self._staying: list[socket.socket] = []
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + self.name)
        self._listener.listen(1024)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        for connection in connections(self._listener):
            try:
                self._accepted(connection)
            except Exception as error:
                # Other ranks of the node need the thread.
                fault("to serve a rank", error)
                connection.close()

    def _accepted(self, connection: socket.socket) -> None:
        if not is_own(peer_uid(connection)):
            connection.close()
            return
        with self._gate:
            if not self._function:
                self._staying.append(connection)
                self._gate.notify_all()
                return
            self._serving += 1
        try:
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except RuntimeError:
            self._served()
            raise

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                give(connection, self._function)
                # The rank ends with its result, though this process may be stopped.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                self._results.update(take(connection))
        finally:
            self._served()

    def _served(self) -> None:
        with self._gate:
            self._serving -= 1
            self._gate.notify_all()

    def call_in_ranks(self, function: bytes, count: int) -> dict[int, bytes]:
        """Give a function to so many ranks that stay; return what they give back, without those that end."""
        with self._gate:
            self._gate.wait_for(lambda: len(self._staying) >= count or self._closed)
            if self._closed:
                return {}
            ranks = list(self._staying)
            self._serving += 1
        try:
            for connection in ranks:
                give(connection, function)
            results: dict[int, bytes] = {}
            for connection in ranks:
                results.update(take(connection))
            return results
        finally:
            self._served()

    def dismiss(self) -> None:
        """Tell ranks that stay that no further function comes."""
        with self._gate:
            for connection in self._staying:
                hang_up(connection)

    def close(self) -> dict[int, bytes]:
        """Return what all have given back, once they have ended."""
        self._closed = True
        # A thread that waits for ranks would not learn of a mere close.
        hang_up(self._listener)
        self._listener.close()
        # A process that a rank has forked may still have its end. What ranks have sent before can be read on.
        self.dismiss()
        with self._gate:
            self._gate.notify_all()
            self._gate.wait_for(lambda: not self._serving, CLOSE_SECONDS)
            for connection in self._staying:
                connection.close()
        return self._results


def give(connection: socket.socket, function: bytes) -> None:
    """Give a rank a function, unless it has ended."""
    try:
        send(connection, function)
    except OSError:
        # `take` finds the end.
        return


def take(connection: socket.socket) -> dict[int, bytes]:
    """Return what a rank gives back, by its number; nothing if it has ended, as one that was killed."""
    try:
        number = int.from_bytes(receive(connection), "big")
        return {number: receive(connection)}
    except (OSError, EOFError):
        return {}


def peer_uid(connection: socket.socket) -> int:
    """Return the user of the process at the other end of a local connection."""
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def send(connection: socket.socket, data: bytes) -> None:
    """Send a frame."""
    connection.sendall(len(data).to_bytes(8, "big"))
    connection.sendall(data)


def receive(connection: socket.socket) -> bytes:
    """Receive a frame; raises `EOFError` where the other end has gone."""
    return _exactly(connection, int.from_bytes(_exactly(connection, 8), "big"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    pieces = []
    while size:
        piece = connection.recv(min(size, 1 << 20))
        if not piece:
            raise EOFError("the other end has gone")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
