"""Daemons that other nodes start: where there are many, the launcher starts some by ssh, and these start the others.

The launcher deals the nodes out in blocks. The first node of a block of several gets a relay, which starts a daemon
beside it and, in the same way, those of the rest of its block. All that is said goes through the relays: the daemons'
first lines down (they hold the secret, so they go over standard input), what daemons write up, as lines of JSON.

A relay is needed only until its daemons have met the launcher. Where one is lost later, theirs go on: they know of the
launcher's end by the exchange (`Orders.relayed`). An orderly end is told them by a word, before their input ends. Nodes
that a relay does not reach, or that it has not told of when it is lost, are started by the launcher itself.

Threads. A relay has one. In the launcher a thread of its own serves a `Relays`; what the roster calls takes its lock.
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
"""So many nodes are all started by the launcher."""

RADIX = 16
"""So many blocks a launcher or a relay makes of more."""

MAX_LINE = 64 << 20
"""Bytes that a relay is told at first, or tells in one line."""

OUT, ENDED, CUT = "out", "ended", "cut"
"""The news of a daemon: it has written something; it has ended; its relay is lost."""

LEAVE = b"leave\n"
"""Tells a relay, or a daemon that a relay has started, that the session is over."""

CHUNK = 1 << 16
F_SETPIPE_SZ = 1031


class Leaf(Record):
    """A node of a block.

    Attributes:
        name: Its name.
        host: What the agent is told of it.
        line: The first line of its daemon.
    """

    name: str
    host: str
    line: bytes

    @property
    def relayed(self) -> bytes:
        """The line for a daemon that a relay starts."""
        return json.dumps({**json.loads(self.line), "relayed": True}).encode() + b"\n"


def blocks(leaves: Sequence[Leaf], radix: int) -> list[Sequence[Leaf]]:
    """Deal nodes out in at most so many blocks of neighbours, as even as can be."""
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
        """Whether it is a relay."""
        return len(self.leaves) > 1

    def leave(self, word: bool) -> None:
        """Have it leave: end its input, with the word before it where it may go on without input."""
        if not self.told:
            self.told = True
            try:
                if word:
                    os.write(self.started.stdin, LEAVE)
            except OSError:
                # It has ended.
                pass
            os.close(self.started.stdin)


class Tree:
    """Starts the daemons of blocks of nodes, and tells of them; not thread-safe.

    Args:
        selector: Where what is read is registered; its data is what to call.
        agent: The agent's template, for relays.
        command: Makes the command line that runs words on a host.
        daemon: The command that runs a daemon.
        radix: How many blocks relays make.
        explain: See `Started`.
        errors: Reads what commands write to standard error.
        report: Called with what is told of a daemon, its name, and what it has written, or its exit code.
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
        """Whether something is awaited."""
        return any(stem.left for stem in self.stems)

    def start(self, leaves: Sequence[Leaf], line: bytes, words: Sequence[str]) -> Started:
        """Start a command that stands for a block, and write its first line.

        Raises:
            OSError: It cannot be started.
        """
        started = Started(leaves[0].name, words, self._errors, self._explain)
        stem = _Stem(started, leaves)
        self.stems.append(stem)
        self._selector.register(started.stdout, selectors.EVENT_READ, lambda: self._read(stem))
        try:
            # It is written before ssh has got there.
            fcntl.fcntl(started.stdin, F_SETPIPE_SZ, max(CHUNK, min(len(line), 1 << 20)))
        except OSError:
            pass
        try:
            while line:
                line = line[os.write(started.stdin, line) :]
        except OSError:
            # It has ended already, which is told.
            pass
        return started

    def spread(self, leaves: Sequence[Leaf], top: bool) -> None:
        """Start the daemons of nodes, by relays where there are more than blocks.

        Args:
            leaves: The nodes.
            top: Whether this is the launcher, whose own daemons know of its end by their input.
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
            # A shell's start-up files have printed it.
            return
        if kind in (OUT, ENDED, CUT) and name in stem.left and isinstance(value, str if kind == OUT else int):
            if kind != OUT:
                stem.left.discard(name)
            self._report(kind, name, value)


class Relayed:
    """A daemon whose output a thread of the launcher passes on; see `pypmix.host.session.StartedDaemon`.

    Args:
        leaf: Its node.
        relays: What has it started.
    """

    def __init__(self, leaf: Leaf, relays: Relays) -> None:
        self.leaf = leaf
        self.closed, self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, self.out = os.pipe2(os.O_CLOEXEC)
        self.direct: Started | None = None
        self.code: int | None = None
        self.said = False
        self._relays = relays

    def stop(self) -> None:
        """End it by force, where this machine has started it; others end with the session."""
        if self.direct is not None:
            self.direct.stop()

    def ended(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self.code

    def trouble(self) -> str:
        """Say why it has ended, or what to try where it does not answer."""
        return self._relays.trouble(self)


class Relays:
    """The launcher's side: starts the daemons of many nodes, by relays, and by itself where these fail.

    Args:
        agent: The agent's template.
        command: Makes the command line that runs words on a host.
        daemon: The command that runs a daemon.
        radix: How many blocks are made.
        explain: See `Started`.
        errors: Reads what commands write to standard error.
    """

    def __init__(
        self, agent: str, command: Command, daemon: Sequence[str], radix: int, explain: Explain, errors: Errors
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._command = command
        self._daemon = daemon
        self._explain = explain
        self._tree = Tree(self._selector, agent, command, daemon, radix, explain, errors, self._told)
        self._nodes: dict[str, Relayed] = {}
        self._left: set[str] = set()
        self._waker, self._wake = os.pipe2(os.O_CLOEXEC)
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="pypmix-roster-tree", daemon=True)
        self._thread.start()

    def add(self, name: str, host: str, line: bytes) -> Relayed:
        """Take a node in, to be started with all others by `begin`."""
        node = self._nodes[name] = Relayed(Leaf(name, host, line), self)
        self._selector.register(node.closed, selectors.EVENT_READ, lambda: self._heard(node))
        return node

    def begin(self) -> None:
        """Start all."""
        os.write(self._wake, b"+")

    def trouble(self, node: Relayed) -> str:
        """Say why a daemon has ended, or what to try where it does not answer."""
        return self._explain(node.leaf.name, node.code, "") if node.direct is None else node.direct.trouble()

    def close(self) -> None:
        """End all that was started here."""
        os.close(self._wake)
        self._thread.join()
        for stem in self._tree.stems:
            stem.leave(stem.relays)
            stem.started.close()
            if stem.left:
                os.close(stem.started.stdout)
        for node in self._nodes.values():
            self._end(node, 0)
            if node.leaf.name not in self._left:
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
                        # The other nodes need the thread, and this one would be ready again at once.
                        fault("to follow what a node says", error)
                        with contextlib.suppress(KeyError):
                            self._selector.unregister(key.fileobj)
                elif os.read(self._waker, 1):
                    self._tree.spread([node.leaf for node in self._nodes.values()], True)
                else:
                    return

    def _heard(self, node: Relayed) -> None:
        """The session has written the first line, which was passed on already, or has ended."""
        if os.read(node.closed, CHUNK):
            return
        self._selector.unregister(node.closed)
        os.close(node.closed)
        self._left.add(node.leaf.name)
        for stem in self._tree.stems:
            if all(leaf.name in self._left for leaf in stem.leaves):
                stem.leave(stem.relays)

    def _told(self, kind: str, name: str, value: str | int) -> None:
        node = self._nodes[name]
        if kind == OUT:
            node.said = True
            try:
                if node.code is None:
                    os.write(node.out, str(value).encode())
            except OSError:
                # The session has closed it.
                return
        elif not node.said and node.direct is None and name not in self._left:
            self._start_here(node)
        elif kind == CUT and node.said:
            # Its output stays open: the exchange tells of its end.
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
