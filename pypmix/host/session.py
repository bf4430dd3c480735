"""A session of daemons: started by a roster's word, joined with the launcher by an exchange, ended with it.

`NodeSession` is what a roster makes: the nodes, and how to start a process on one. `LocalHost` is given it and runs its
jobs there. The launcher listens for its daemons, hands each its line on standard input, and waits until all have said
that they are ready and take part in the exchange. From then on a node is lost where its daemon's connection, its
standard output or the daemon itself ends, or where the roster says so: its ranks are lost with it. The connection of a
daemon that no longer answers ends after `keep_alive` seconds (`pypmix.host.exchange.keepalive`).

A daemon leaves where its standard input ends, so nothing outlives the launcher, however that ends.
"""

from __future__ import annotations

import os
import secrets
import socket
import time

from pypmix.engine.times import KEEP_ALIVE_SECONDS
from pypmix.host import orders
from pypmix.host.crossings import Exchanging, merged
from pypmix.host.daemon import Orders, bootstrap, read_ready
from pypmix.host.exchange import Crossing, Exchange, TCPCarrier
from pypmix.host.exchange.coordinator import ContextIds
from pypmix.host.loop import READ
from pypmix.host.outcome import listed
from pypmix.host.remote import RemoteNode
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.logtext import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Protocol

    from pypmix.engine.base import Upcall
    from pypmix.engine.common import Pending
    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.loop import Loop
    from pypmix.host.nodes import HostNode
    from pypmix.host.placing import Node
    from pypmix.host.serving import ServingManager
    from pypmix.standard.types import Proc

    class StartedDaemon(Protocol):
        """A process that is to become a daemon.

        Attributes:
            stdin: The descriptor that writes to its standard input; -1 where the line has been passed on already.
            stdout: The descriptor that reads its standard output.
        """

        stdin: int
        stdout: int

        def stop(self) -> None:
            """End it by force; may be called twice, and does not block."""

        def ended(self) -> int | None:
            """Return its exit code if it has ended; does not block."""

        def trouble(self) -> str:
            """Return why it has ended before it was ready, and what to try; empty if that is not known."""

    Start = Callable[[Node, bytes], StartedDaemon]

LAUNCHER = "!launcher"
"""The launcher's name in the exchange: the first of all, so that what a session keeps once is kept there."""

PATIENCE = 30.0
"""Seconds that daemons have to be ready."""

LEAVING = 4.0
"""Seconds that daemons have to leave."""

MAX_LINE = 1 << 16
"""Bytes that a daemon may say before it is ready."""

POLL = 0.02

_log = get_logger("pypmix.host")


class NodeSession:
    """The nodes of a session, and how to start their daemons.

    Args:
        nodes: The nodes.
        start: Starts `[python, "-m", "pypmix", "node"]` on a node, and returns at once; called with the node and the
            line that the session writes to its standard input.
        listen: The address that the launcher listens on.
        addresses: What daemons dial to reach the launcher, in order; by default the address that it listens on, or
            this machine's name where that is a wildcard.
        interface: What daemons listen on: the name of an interface, an address or a CIDR; what leads to the launcher by
            default.
        env: What is added to the environment that ranks have of their daemon.
        folder: Where daemons make their folders; TMPDIR there by default.
        patience: Seconds that they have to be ready.
        keep_alive: Seconds after which a node whose daemon does not answer is lost, and a launcher to its daemons.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        start: Start,
        *,
        listen: str = "127.0.0.1",
        addresses: Sequence[str] = (),
        interface: str = "",
        env: Mapping[str, str] | None = None,
        folder: str = "",
        patience: float = PATIENCE,
        keep_alive: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        names = [node.name for node in nodes]
        if len(set(names)) != len(names):
            raise ValueError(f"a node is named twice: {listed(names)}")
        if not any(node.slots for node in nodes):
            raise ValueError("no node has a slot for a rank")
        self.nodes = tuple(nodes)
        self.start = start
        self.listen = listen or "127.0.0.1"
        self.addresses = tuple(addresses)
        self.interface = interface
        self.env = dict(env or {})
        self.folder = folder
        self.patience = patience
        self.keep_alive = keep_alive
        self.on_lost: Callable[[str, str], None] = lambda _name, _reason: None
        """Set by the launcher: told of a node that is lost; from any thread."""

    def lost(self, name: str, reason: str) -> None:
        """The roster knows that a node is lost; from any thread."""
        self.on_lost(name, reason)


class _Daemon:
    """A daemon on its way, or there.

    Attributes:
        present: Whether it takes part in the exchange, and the launcher has told it of the others.
    """

    def __init__(self, node: RemoteNode, started: StartedDaemon) -> None:
        self.node = node
        self.started = started
        self.said = bytearray()
        self.ready = False
        self.present = False
        self.open = True


class Fleet:
    """The daemons of a launcher.

    Args:
        host: The launcher.
        session: What the roster says.
        space: What the nspaces of the session's jobs begin with.
        loop: The launcher's loop.
    """

    def __init__(self, host: ServingManager, session: NodeSession, space: str, loop: Loop) -> None:
        self._host = host
        self._session = session
        self._space = space
        self._loop = loop
        self.nodes = tuple([RemoteNode(host, number, node) for number, node in enumerate(session.nodes)])
        self._by_name = {node.hostname: node for node in self.nodes}
        self._daemons: dict[str, _Daemon] = {}
        self._there: dict[str, tuple[tuple[str, int], ...]] = {}
        self._carrier: TCPCarrier | None = None
        self._exchange: Exchange | None = None
        self._failed: PMIxError | None = None
        self._closing = False

    def open(self) -> Launching:
        """Start the daemons, and return what the servers do together, once all are there.

        Raises:
            PMIxError: One of them cannot be started, or does not come in time.
            OSError: The launcher cannot listen there.
        """
        session = self._session
        secret = secrets.token_bytes(32)
        carrier = TCPCarrier(LAUNCHER, secret, listen=(session.listen, 0), keep_alive=session.keep_alive)
        self._carrier = carrier
        self._exchange = exchange = Exchange(carrier)
        crossing = Crossing(self._host.server, exchange)
        self._host.next_context_id = ContextIds(f"{LAUNCHER} host").take
        self._listen(exchange)
        exchange.start()
        host, port = carrier.address
        named = session.addresses or ((socket.gethostname(),) if host in ("0.0.0.0", "::") else (host,))
        launcher = LAUNCHER, tuple([(each, port) for each in named])
        for node in self.nodes:
            node.open(exchange)
            given = Orders(
                node.hostname, self._space, secret, launcher, node.number, session.interface,
                tuple(session.env.items()), session.folder, self._host.wdir, self._host.grace, session.keep_alive,
            )  # fmt: skip
            self._start(node, bootstrap(given))
        session.on_lost = lambda name, reason: self._post(lambda: self._lose(name, reason))
        deadline = time.monotonic() + session.patience
        self._loop.run(lambda: self._come() or time.monotonic() > deadline, every=POLL)
        if self._failed is not None:
            raise self._failed
        late = [name for name, daemon in self._daemons.items() if not daemon.present]
        if late:
            raise PMIxError(
                f"{listed(late)} did not join within {session.patience:g} s",
                hint=f"their daemons dial {', '.join([each for each, _ in launcher[1]])} port {port}: "
                "is there a route, and no firewall?",
            )
        return Launching(self._host, crossing, self)

    def _start(self, node: RemoteNode, line: bytes) -> None:
        known = next(each for each in self._session.nodes if each.name == node.hostname)
        try:
            started = self._session.start(known, line)
        except OSError as error:
            raise PMIxError(f"node {node}: its daemon cannot be started: {error}") from error
        daemon = self._daemons[node.hostname] = _Daemon(node, started)
        os.set_blocking(started.stdout, False)
        self._loop.watch(started.stdout, READ, lambda: self._read(daemon))
        if started.stdin >= 0:
            try:
                while line:
                    line = line[os.write(started.stdin, line) :]
            except OSError:
                # It has ended already, and its output says so.
                return

    def _read(self, daemon: _Daemon) -> None:
        try:
            data = os.read(daemon.started.stdout, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        name = daemon.node.hostname
        if not data:
            self._rest(daemon)
            if not daemon.ready:
                self._refuse(daemon)
            self._lose(name, "its daemon has ended")
        elif daemon.ready:
            _log.info("%s: %s", name, data.decode(errors="replace").rstrip())
        else:
            daemon.said += data
            if b"\n" in daemon.said or len(daemon.said) > MAX_LINE:
                self._refuse(daemon)

    def _refuse(self, daemon: _Daemon) -> None:
        """Take in what a daemon has said first: that it is ready, or why it is not."""
        line, _, rest = bytes(daemon.said).partition(b"\n")
        trouble = "" if line else daemon.started.trouble()
        try:
            if trouble:
                raise PMIxError(trouble)
            read_ready(line, daemon.node.hostname)
        except PMIxError as error:
            self._failed = self._failed or error
        else:
            daemon.ready = True
            if rest:
                _log.info("%s: %s", daemon.node, rest.decode(errors="replace").rstrip())

    def _rest(self, daemon: _Daemon) -> None:
        if daemon.open:
            daemon.open = False
            self._loop.unwatch(daemon.started.stdout)

    def _come(self) -> bool:
        return self._failed is not None or all(each.ready and each.present for each in self._daemons.values())

    # Messages

    def _post(self, call: Callable[[], None]) -> None:
        try:
            self._loop.post(call)
        except (OSError, RuntimeError):
            # The launcher has closed.
            return

    def _listen(self, exchange: Exchange) -> None:
        exchange.handle(orders.HERE, self._met)
        exchange.handle(orders.ASK, self._asked)
        for topic, listener in (
            (orders.LIFE, RemoteNode.lived),
            (orders.WROTE, RemoteNode.wrote),
            (orders.ENDED, RemoteNode.ended),
            (orders.OVER, RemoteNode.over),
        ):
            exchange.hear(topic, lambda sender, data, listener=listener: self._told(sender, data, listener))  # type: ignore[misc]
        exchange.watch(self._changed)

    def _of(self, sender: str) -> RemoteNode:
        node = self._by_name.get(sender)
        if node is None:
            raise NotFound(f"{sender} is not a node of this session", operation="exchange")
        return node

    def _met(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        """A daemon says where it listens: tell it of those that have come before, which it dials."""
        node = self._of(sender)
        before = tuple(self._there.items())
        self._there[sender] = orders.ADDRESSES.read(data)
        answer(orders.PEERS.write(before), None)
        self._post(lambda: self._join(node))

    def _join(self, node: RemoteNode) -> None:
        self._daemons[node.hostname].present = True

    def _asked(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        node = self._of(sender)

        def ask() -> None:
            try:
                node.asked(data, answer)
            except PMIxError as error:
                answer(None, error)

        self._post(ask)

    def _told(self, sender: str, data: bytes, listener: Callable[[RemoteNode, bytes], None]) -> None:
        node = self._of(sender)

        def tell() -> None:
            try:
                listener(node, data)
            except PMIxError as error:
                _log.error("what node %s tells is dropped: %s", node, error)

        self._post(tell)

    def _changed(self, name: str, here: bool) -> None:
        if not here and self._carrier is not None:
            reason = self._carrier.reason(name)
            text = f"the connection with its daemon has ended{reason and ': '}{reason}"
            self._post(lambda: self._lose(name, text))

    def _lose(self, name: str, reason: str) -> None:
        """A node is lost."""
        node, daemon = self._by_name.get(name), self._daemons.get(name)
        if node is None or daemon is None or self._closing or node.lost:
            return
        if not daemon.present:
            self._failed = self._failed or PMIxError(f"node {name}: {reason}")
        self._host.nodes = tuple([each for each in self._host.nodes if each is not node])
        daemon.started.stop()
        node.lose(reason)

    def refresh(self, done: Callable[[], None], timeout: float) -> None:
        """Learn from all daemons what is under way there, and call a function then."""
        asked = [node for node in self.nodes if not node.lost]
        left = len(asked)

        def told() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for node in asked:
            node.refresh(told, timeout)
        if not asked:
            done()

    def away(self, going: bool) -> None:
        """Tell the daemons that this process stops itself, or is back: they do not count it as lost meanwhile."""
        if self._carrier is not None:
            self._carrier.away(going)

    # The end

    def close(self) -> None:
        """Have all daemons leave; those that do not are stopped."""
        self._closing = True
        for daemon in self._daemons.values():
            if daemon.started.stdin >= 0:
                os.close(daemon.started.stdin)
        deadline = time.monotonic() + LEAVING
        self._loop.run(lambda: self._left() or time.monotonic() > deadline, every=POLL)
        for daemon in self._daemons.values():
            self._rest(daemon)
            if daemon.started.ended() is None:
                daemon.started.stop()
            os.close(daemon.started.stdout)
        if self._exchange is not None:
            self._exchange.close()

    def _left(self) -> bool:
        return all(daemon.started.ended() is not None for daemon in list(self._daemons.values()))


class Launching(Exchanging):
    """The crossing of the launcher's own server in a session; the daemons have those of theirs.

    Args:
        host: The launcher.
        crossing: What answers for its server.
        fleet: The daemons.
    """

    def __init__(self, host: ServingManager, crossing: Crossing, fleet: Fleet) -> None:
        super().__init__(host, crossing)
        self._launcher = host
        self._fleet = fleet

    def answer(self, node: HostNode, upcall: Upcall) -> bool:
        """Answer an upcall of the launcher's own server; tell whether it is one that is answered here."""
        return node.here and super().answer(node, upcall)

    def connected(self, node: HostNode, proc: Proc) -> None:
        """A proc of the launcher's server has connected."""
        if node.here:
            super().connected(node, proc)

    def finalized(self, node: HostNode, proc: Proc) -> None:
        """A proc of the launcher's server has finalized."""
        if node.here:
            super().finalized(node, proc)

    def departed(self, node: HostNode, proc: Proc) -> None:
        """A proc of the launcher's server has ended or was lost."""
        if node.here:
            super().departed(node, proc)

    def pending(self) -> list[Pending]:
        """Return what is under way, oldest first; that of daemons as they have told it last."""
        found: Iterable[Pending] = [item for node in self._launcher.nodes for item in node.pending()]
        return merged(found)
