"""The agent in a process of an engine, such as a Dask worker: it starts and controls the daemon of its node.

The daemon's standard input is a pipe from this process. So the daemon leaves when this process ends in any way; it also
leaves when its exchange loses the launcher. The ranks of functions connect to this process
(`pypmix.extras.frameworks.calling`): they receive a function, and send back its result or exception.
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
from pypmix.engine.peeruid import is_current_user
from pypmix.extras.frameworks.reachability import Probe, unreached
from pypmix.host.addresses import connections, hang_up
from pypmix.host.exchange import bridge
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

    from pypmix.host.addresses import Address

CLOSE_SECONDS = 5.0
"""Seconds to read the results of ended ranks, and the last data of their daemon."""

BEGIN_SECONDS = 300.0
"""Seconds that a call for ranks waits for the start of their daemon."""

KEPT = 4096
"""The number of bytes of the daemon's standard error, from its end, that are kept to explain a failure."""

MAX_ANSWER = 1 << 16
"""The maximum length in bytes of the daemon's first line."""

PIECE = 1 << 24
"""The maximum number of bytes of results in one answer; `further` returns the rest."""

NOTHING = pickle.dumps({})
"""Results of no ranks, pickled."""

PYTHON = "PYPMIX_PYTHON"
"""The variable with the Python that runs this process: ranks of a function run on it too."""

CALL = "PYPMIX_CALL"
"""The variable with the abstract name of the socket at which ranks get their function."""


class DaemonEnd(Record):
    """The end of a daemon.

    Attributes:
        code: The daemon's exit code.
        errors: The last bytes of its standard error, as text.
        results: The pickled results of a function's ranks, by their numbers; or the first piece of these bytes.
        size: The number of bytes of all pieces.
    """

    code: int
    errors: str
    results: bytes
    size: int


class _Run:
    """One run of a daemon, from before its start to its end, with its resources.

    Args:
        function: See `Agent.begin`.
    """

    def __init__(self, function: bytes | None) -> None:
        self.calls = None if function is None else Calls(function)
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: socket.socket | None = None
        self.drained = threading.Event()
        self.pushing = threading.Lock()
        self.errors = b""
        self.results = b""
        self.reader: threading.Thread | None = None

    def start(self, line: bytes, bridged: bool) -> bytes:
        """Start the daemon, and return its answer.

        Raises:
            Exception: The daemon cannot be started.
        """
        theirs: socket.socket | None = None
        try:
            if bridged:
                descriptors = json.loads(line)
                ours, theirs = socket.socketpair()
                self.connection = ours
                line = json.dumps({**descriptors, "connection": theirs.fileno()}).encode() + b"\n"
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
            # The daemon has already ended; its standard error has the reason.
            pass
        answer = b""
        while not answer.endswith(b"\n") and len(answer) < MAX_ANSWER:
            # A daemon that fails to start answers with the reason, or ends.
            piece = process.stdout.read(MAX_ANSWER)
            if not piece:
                break
            answer += piece
        return answer

    def _open(self, descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
        env = {**os.environ, PYTHON: sys.executable}
        if self.calls is not None:
            env[CALL] = self.calls.name
        pipe = subprocess.PIPE
        # A separate process group: Ctrl-C at the engine's terminal must not reach the daemon.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pypmix", "node"],
            stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, env=env, process_group=0, pass_fds=descriptors,
        )  # fmt: skip
        return self.process

    def _read(self, file: IO[bytes]) -> None:
        while data := file.read(KEPT):
            self.errors = (self.errors + data)[-KEPT:]
            try:
                sys.stderr.write(data.decode(errors="replace"))
            except Exception:
                # The text cannot be shown. Read on nevertheless, since a full pipe would block the daemon.
                continue
        file.close()

    def wait(self) -> DaemonEnd:
        """Wait for the daemon's end, and return it."""
        process, calls, connection = self.process, self.calls, self.connection
        code = 0
        # The process is None if the daemon could not be started.
        if process is not None:
            code = process.wait()
            if self.reader is not None:
                self.reader.join(1.0)
            for file in (process.stdin, process.stdout, None if self.reader else process.stderr):
                if file is not None:
                    file.close()
        self.results = NOTHING if calls is None else pickle.dumps(calls.close())
        if connection is not None:
            # The launcher, if it still runs, pulls the daemon's last data.
            self.drained.wait(0.0 if process is None else CLOSE_SECONDS)
            # This ends a `pull` and a `push` that wait for it.
            hang_up(connection)
            self.drained.wait(1.0)
            with self.pushing:
                self.connection = None
                connection.close()
        return DaemonEnd(code, self.errors.decode(errors="replace"), self.results[:PIECE], len(self.results))

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
    """Runs one daemon at a time. An engine calls its methods, each call on a separate thread.

    Attributes:
        calls: The number of calls in progress, if the engine counts them.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._run: _Run | None = None
        self._probe: Probe | None = None
        self._kept = b""
        self._condition = threading.Condition()

    def hostname(self) -> str:
        """Return the name of this machine."""
        return socket.gethostname()

    def offer(self, interface: str, launcher: Sequence[Address]) -> Address | str:
        """Listen at the daemon's address for `reach` on other nodes; return the address, or the reason of a failure."""
        self.rest()
        self._probe = Probe()
        return self._probe.offer(interface, launcher)

    def reach(self, places: Sequence[Sequence[Address]]) -> list[int]:
        """Return the indexes in `places` of the processes that cannot be reached from here by any address."""
        return unreached(places)

    def rest(self) -> None:
        """Stop listening for `reach`."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close()

    def pull(self) -> bytes:
        """Wait for data of the daemon to the launcher, and return it; empty if the daemon has ended."""
        run = self._run
        if run is None or run.connection is None:
            return b""
        try:
            data = run.connection.recv(bridge.PIECE)
        except OSError:
            data = b""
        if not data:
            run.drained.set()
        return data

    def push(self, data: bytes) -> None:
        """Send data of the launcher to the daemon, and wait while the daemon does not read; without data, hang up.

        Does not raise if the daemon has ended: `pull` and `wait` report the end.
        """
        # An engine would log an exception here.
        run = self._run
        if run is None:
            return
        with run.pushing:
            if run.connection is None:
                return
            if not data:
                hang_up(run.connection)
            try:
                run.connection.sendall(data)
            except OSError:
                return

    def begin(self, line: bytes, function: bytes | None = None, bridged: bool = False) -> bytes:
        """Start the daemon, and return its answer, or an answer with the error. Does not raise.

        Args:
            line: The daemon's line, which contains a secret.
            function: The pickled function for ranks that request one; if it is empty, ranks stay for `call_in_ranks`;
                None if the ranks run a program.
            bridged: Whether the daemon communicates through `pull` and `push`.
        """
        # If this raised, an engine would log the call with its arguments, and so the secret.
        try:
            self.stop()
            with self._condition:
                run = self._run = _Run(function)
                self._kept = b""
                self._condition.notify_all()
            return run.start(line, bridged)
        except Exception as error:
            self.stop()
            text = f"its daemon cannot be started: {error}"
            return json.dumps({"error": text, "version": __version__}).encode() + b"\n"

    def wait(self) -> DaemonEnd:
        """Wait for the daemon's end, and return it."""
        run = self._run
        if run is None:
            return DaemonEnd(0, "", NOTHING, len(NOTHING))
        ended = run.wait()
        with self._condition:
            # The next daemon may have been started.
            if self._run is run:
                self._run = None
                self._kept = run.results if ended.size > PIECE else b""
        return ended

    def read_piece(self, start: int) -> bytes:
        """Return the piece of the results from byte `start`; forget the results with the last piece."""
        with self._condition:
            piece = self._kept[start : start + PIECE]
            if start + PIECE >= len(self._kept):
                self._kept = b""
        return piece

    @property
    def idle(self) -> bool:
        """Whether the agent has no daemon, no probe and no unsent result."""
        return self._run is None and self._probe is None and not self._kept

    def call_in_ranks(self, function: bytes, count: int) -> dict[int, bytes]:
        """Call a function in the ranks of this node; return their results, by their numbers.

        Ranks that end without a result are left out: all ranks, if the daemon is not started in time.

        Args:
            function: The function and its arguments, pickled by cloudpickle.
            count: The number of ranks.
        """
        with self._condition:
            # This may be called before `begin`, and a launcher that fails never calls `begin`.
            self._condition.wait_for(lambda: self._calls is not None, BEGIN_SECONDS)
            calls = self._calls
        return {} if calls is None else calls.call_in_ranks(function, count)

    def dismiss(self) -> None:
        """End the ranks that stay for functions, after their current function."""
        if (calls := self._calls) is not None:
            calls.dismiss()

    @property
    def _calls(self) -> Calls | None:
        run = self._run
        return None if run is None else run.calls

    def leave(self) -> None:
        """Handle the launcher's exit: ask the daemon, if any, to leave and end its ranks."""
        self.rest()
        with self._condition:
            self._kept = b""
        if (run := self._run) is not None:
            run.leave()

    def stop(self) -> None:
        """Kill the daemon, if there is one; its guard ends its ranks."""
        if (run := self._run) is not None:
            run.stop()


class Calls:
    """Sends functions to ranks of this machine and user, and receives their results or exceptions.

    Args:
        function: The function and its arguments for each rank that connects, pickled by cloudpickle. If it is empty,
            ranks stay for the functions of `call_in_ranks`.

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
                # The thread must survive for the other ranks of the node.
                fault("to serve a rank", error)
                connection.close()

    def _accepted(self, connection: socket.socket) -> None:
        if not is_current_user(peer_uid(connection)):
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
                # The rank ends after its result even if this process is suspended by then.
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
        """Send a function to `count` staying ranks; return their results, without ranks that end first."""
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
        """Close the stream of functions to staying ranks, which ends them."""
        with self._gate:
            for connection in self._staying:
                hang_up(connection)

    def close(self) -> dict[int, bytes]:
        """Return the results of all ranks, once these have ended."""
        self._closed = True
        # Closing alone does not wake the thread that waits for ranks.
        hang_up(self._listener)
        self._listener.close()
        # A process forked by a rank may still hold the rank's end open. Data that ranks sent before can still be read.
        self.dismiss()
        with self._gate:
            self._gate.notify_all()
            self._gate.wait_for(lambda: not self._serving, CLOSE_SECONDS)
            for connection in self._staying:
                connection.close()
        return self._results


def give(connection: socket.socket, function: bytes) -> None:
    """Send a function to a rank; does not raise if the rank has ended."""
    try:
        send(connection, function)
    except OSError:
        # `take` detects the end.
        return


def take(connection: socket.socket) -> dict[int, bytes]:
    """Receive a rank's result, by its number; empty if the rank ended without one, such as a killed rank."""
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
    """Receive a frame; raises `EOFError` if the other end is closed."""
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
