"""A tree of relays that starts the daemons of many nodes: the launcher starts some by ssh, and these start the others.

The launcher divides the nodes into blocks. The first node of a block of several gets a relay, which starts a daemon on
its own node and, in the same way, the daemons of the rest of its block. All data passes through the relays: down, the
daemons' first lines (over standard input, since they contain the secret); up, the daemons' output, as lines of JSON.

A relay is needed only until its daemons are connected to the launcher. If a relay is lost later, its daemons continue:
the exchange notifies them of the launcher's end (`Orders.relayed`). At an orderly end, daemons receive `LEAVE` before
their input ends. The launcher directly starts nodes that a relay does not reach, and nodes without a report when their
relay is lost.

Threads. A relay has one thread. In the launcher each `Relays` has a thread, which `begin` wakes after all nodes are
added, and which `close` joins.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import sys
import threading

from pypmix.engine.faults import fault
from pypmix.host.rosters.process import Errors, Started
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.host.rosters.process import Explain

    Report = Callable[[str, str, str | int], None]
    Command = Callable[[str, Sequence[str]], list[str]]

FLAT = 32
"""The maximum number of nodes that the launcher starts without relays."""

RADIX = 16
"""The maximum number of blocks that a launcher or a relay makes of more nodes."""

MAX_LINE = 64 << 20
"""The maximum length in bytes of a relay's first line, and of each line that it sends."""

OUT, ENDED, CUT = "out", "ended", "cut"
"""The reports about a daemon: it has written output; it has ended; its relay is lost."""

LEAVE = b"leave\n"
"""The message to a relay, or to a daemon started by a relay, that the session has ended."""

CHUNK = 1 << 16
F_SETPIPE_SZ = 1031


class Leaf(Record):
    """A node of a block.

    Attributes:
        name: The node's name.
        host: The host name that is passed to the agent.
        line: The first line for the node's daemon.
    """

    name: str
    host: str
    line: bytes

    @property
    def relayed(self) -> bytes:
        """The line for a daemon that a relay starts."""
        return json.dumps({**json.loads(self.line), "relayed": True}).encode() + b"\n"


def blocks(leaves: Sequence[Leaf], radix: int) -> list[Sequence[Leaf]]:
    """Divide nodes into at most `radix` blocks of neighbours, of sizes as equal as possible."""
    count = min(radix, len(leaves))
    bounds = [len(leaves) * number // count for number in range(count + 1)] if count else [0]
    return [leaves[low:high] for low, high in zip(bounds, bounds[1:], strict=False)]


class _Stem:
    """A command that was started for a block: a daemon, or a relay."""

    def __init__(self, started: Started, leaves: Sequence[Leaf]) -> None:
        self.started = started
        self.leaves = leaves
        self.left = {leaf.name for leaf in leaves}
        self.buffer = b""
        self.told = False

    @property
    def relays(self) -> bool:
        """Whether the command is a relay."""
        return len(self.leaves) > 1

    def leave(self, word: bool) -> None:
        """Ask the command to leave: end its input, once.

        Args:
            word: Send `LEAVE` before, for a command that may continue without input.
        """
        if not self.told:
            self.told = True
            try:
                if word:
                    os.write(self.started.stdin, LEAVE)
            except OSError:
                # The command has ended.
                pass
            os.close(self.started.stdin)


class Tree:
    """Starts the daemons of blocks of nodes, and reports about them; not thread-safe.

    Args:
        selector: The selector to register outputs with; the data of a key is the function to call if it is readable.
        agent: The agent's template, for relays.
        command: Makes the command line that runs words on a host.
        daemon: The command that runs a daemon.
        radix: The maximum number of blocks of `spread`, also in relays.
        explain: See `Started`.
        errors: Reads the standard error of commands.
        report: Called with `OUT`, `ENDED` or `CUT`, the node's name, and the daemon's output or exit code.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        agent: str,
        command: Command,
        daemon: Sequence[str],
        radix: int,
        explain: Explain,
        errors: Errors,
        report: Report,
    ) -> None:
        self._selector = selector
        self._agent = agent
        self._command = command
        self._daemon = list(daemon)
        self._radix = radix
        self._explain = explain
        self._errors = errors
        self._report = report
        self.stems: list[_Stem] = []

    @property
    def live(self) -> bool:
        """Whether the reports of some daemons are not complete."""
        return any(stem.left for stem in self.stems)

    def start(self, leaves: Sequence[Leaf], line: bytes, words: Sequence[str]) -> Started:
        """Start a block's command, a daemon or a relay, and write its first line.

        Raises:
            OSError: The command cannot be started.
        """
        started = Started(leaves[0].name, words, self._errors, self._explain)
        stem = _Stem(started, leaves)
        self.stems.append(stem)
        self._selector.register(started.stdout, selectors.EVENT_READ, lambda: self._read(stem))
        try:
            # Enlarge the pipe: the line is written before ssh has connected and reads it.
            fcntl.fcntl(started.stdin, F_SETPIPE_SZ, max(CHUNK, min(len(line), 1 << 20)))
        except OSError:
            pass
        try:
            while line:
                line = line[os.write(started.stdin, line) :]
        except OSError:
            # The command has already ended, which `_read` reports.
            pass
        return started

    def spread(self, leaves: Sequence[Leaf], top: bool) -> None:
        """Start the daemons of nodes, by relays if there are more nodes than blocks.

        Args:
            leaves: The nodes.
            top: Whether this is the launcher, whose direct daemons detect its end by the end of their input.
        """
        for block in blocks(leaves, self._radix):
            head = block[0]
            if len(block) == 1:
                line, words = head.line if top else head.relayed, self._daemon
            else:
                told = [[leaf.name, leaf.host, leaf.line.decode()] for leaf in block]
                orders = {"nodes": told, "radix": self._radix, "agent": self._agent}
                line, words = json.dumps(orders).encode() + b"\n", [*self._daemon[:-1], "relay"]
            try:
                self.start(block, line, self._command(head.host, words))
            except OSError as error:
                print(f"{head.name}: its daemon cannot be started: {error}", file=sys.stderr, flush=True)
                for leaf in block:
                    self._report(CUT, leaf.name, 1)

    def _read(self, stem: _Stem) -> None:
        data = os.read(stem.started.stdout, CHUNK)
        if not data:
            self._selector.unregister(stem.started.stdout)
            os.close(stem.started.stdout)
            stem.leave(False)
            kind = CUT if stem.relays else ENDED
            code = stem.started.collect()
            for name in sorted(stem.left):
                self._report(kind, name, code)
            stem.left.clear()
        elif stem.relays:
            *lines, stem.buffer = (stem.buffer + data).split(b"\n")
            if len(stem.buffer) > MAX_LINE:
                stem.started.stop()
            for line in lines:
                self._pass_on(stem, line)
        else:
            self._report(OUT, stem.leaves[0].name, data.decode(errors="replace"))

    def _pass_on(self, stem: _Stem, line: bytes) -> None:
        try:
            kind, name, value = json.loads(line)
        except (ValueError, TypeError):
            # A line that a shell's start-up files have printed.
            return
        if kind in (OUT, ENDED, CUT) and name in stem.left and isinstance(value, str if kind == OUT else int):
            if kind != OUT:
                stem.left.discard(name)
            self._report(kind, name, value)


class Relayed:
    """A daemon whose output a thread of the launcher passes on; see `pypmix.host.rosters.base.StartedDaemon`.

    Args:
        leaf: The daemon's node.
        relays: The `Relays` that starts the daemon.
    """

    def __init__(self, leaf: Leaf, relays: Relays) -> None:
        self.leaf = leaf
        self.closed, self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, self.out = os.pipe2(os.O_CLOEXEC)
        self.direct: Started | None = None
        self.code: int | None = None
        self.has_answered = False
        self._relays = relays

    def stop(self) -> None:
        """Kill the daemon's command if this machine has started it; a daemon behind a relay ends with the session."""
        if self.direct is not None:
            self.direct.stop()

    def ended(self) -> int | None:
        """Return the daemon's exit code, None while it runs."""
        return self.code

    def trouble(self) -> str:
        """Return an error text with the reason of the daemon's end, or a remedy if it does not answer."""
        return self._relays.trouble(self)


class Relays:
    """The launcher's side: starts the daemons of many nodes by relays, and directly if a relay fails.

    Args:
        agent: The agent's template.
        command: Makes the command line that runs words on a host.
        daemon: The command that runs a daemon.
        radix: The maximum number of blocks.
        explain: See `Started`.
        errors: Reads the standard error of commands.
    """

    def __init__(
        self, agent: str, command: Command, daemon: Sequence[str], radix: int, explain: Explain, errors: Errors
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._command = command
        self._daemon = daemon
        self._explain = explain
        self._tree = Tree(self._selector, agent, command, daemon, radix, explain, errors, self._handle_report)
        self._nodes: dict[str, Relayed] = {}
        self._departed: set[str] = set()
        self._waker, self._wake = os.pipe2(os.O_CLOEXEC)
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="pypmix-roster-tree", daemon=True)
        self._thread.start()

    def add(self, name: str, host: str, line: bytes) -> Relayed:
        """Add a node, to be started with all others by `begin`."""
        node = self._nodes[name] = Relayed(Leaf(name, host, line), self)
        self._selector.register(node.closed, selectors.EVENT_READ, lambda: self._close_input(node))
        return node

    def begin(self) -> None:
        """Start the daemons of all nodes."""
        os.write(self._wake, b"+")

    def trouble(self, node: Relayed) -> str:
        """Return an error text with the reason of a daemon's end, or a remedy if it does not answer."""
        return self._explain(node.leaf.name, node.code, "") if node.direct is None else node.direct.trouble()

    def close(self) -> None:
        """End all commands started here."""
        os.close(self._wake)
        self._thread.join()
        for stem in self._tree.stems:
            stem.leave(stem.relays)
            stem.started.close()
            if stem.left:
                os.close(stem.started.stdout)
        for node in self._nodes.values():
            self._end(node, 0)
            if node.leaf.name not in self._departed:
                os.close(node.closed)
        self._selector.close()
        os.close(self._waker)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd != self._waker:
                    try:
                        key.data()
                    except Exception as error:
                        # The thread must survive for the other nodes. This node would be ready again at once.
                        fault("to follow what a node says", error)
                        with contextlib.suppress(KeyError):
                            self._selector.unregister(key.fileobj)
                elif os.read(self._waker, 1):
                    self._tree.spread([node.leaf for node in self._nodes.values()], True)
                else:
                    return

    def _close_input(self, node: Relayed) -> None:
        """Handle the end of a daemon's standard input: a command leaves once the inputs of all its nodes have ended."""
        if os.read(node.closed, CHUNK):
            # The session has written the first line, which `start` has already sent.
            return
        self._selector.unregister(node.closed)
        os.close(node.closed)
        self._departed.add(node.leaf.name)
        for stem in self._tree.stems:
            if all(leaf.name in self._departed for leaf in stem.leaves):
                stem.leave(stem.relays)

    def _handle_report(self, kind: str, name: str, value: str | int) -> None:
        node = self._nodes[name]
        if kind == OUT:
            node.has_answered = True
            try:
                if node.code is None:
                    os.write(node.out, str(value).encode())
            except OSError:
                # The session has closed it.
                return
        elif not node.has_answered and node.direct is None and name not in self._departed:
            self._start_here(node)
        elif kind == CUT and node.has_answered:
            # Keep the output open: the exchange reports the daemon's end.
            node.code = 0
        else:
            self._end(node, int(value))

    def _start_here(self, node: Relayed) -> None:
        leaf = node.leaf
        try:
            node.direct = self._tree.start([leaf], leaf.line, self._command(leaf.host, self._daemon))
        except OSError:
            self._end(node, 1)

    def _end(self, node: Relayed, code: int) -> None:
        if node.out >= 0:
            node.code = code if node.code is None else node.code
            os.close(node.out)
            node.out = -1
