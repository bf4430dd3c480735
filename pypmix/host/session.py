"""A session of daemons: started by a roster, joined with the launcher by an exchange, ended with it.

`NodeSession` is made by a roster: the nodes, and a function that starts a process on a node. `LocalHost` is given it
and runs its jobs there. The launcher listens for its daemons, writes each its line on standard input, and waits until
all have reported that they are ready and take part in the exchange. From then on a node is lost if its daemon's
connection, its standard output or the daemon itself ends, or if the roster reports it: its ranks are lost with it. The
connection of a daemon that no longer answers ends after `keep_alive` seconds (`pypmix.host.exchange.keepalive`).

A daemon leaves if its standard input ends, so nothing outlives the launcher, however that ends.

Nodes join later, and leave while the session continues, as `pypmix.host.elastic` decides. A late daemon is started and
met as the others, but its failure only fails its joining. The launcher sends it the existing jobs, and the procs lost
with former nodes; the other servers send it all else.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from functools import partial
from queue import SimpleQueue as Queue

from pypmix.engine.times import KEEP_ALIVE_SECONDS
from pypmix.host import orders
from pypmix.host.crossings import Exchanging, merged
from pypmix.host.elastic import Elastic, node_event
from pypmix.host.exchange import Crossing, Exchange, TCPCarrier, bridge
from pypmix.host.exchange.coordinator import ContextIds
from pypmix.host.exchange.limits import MAX_MESH
from pypmix.host.firstlines import ECHO, Orders, bootstrap, first_line, read_ready
from pypmix.host.loop import READ
from pypmix.host.orders import Inbox
from pypmix.host.outcome import listed
from pypmix.host.placing import placed
from pypmix.host.preload import send_piece
from pypmix.host.remote import TRY_INTERFACE, RemoteNode, RemoteShare, apart
from pypmix.host.rosters.base import NOT_OURS
from pypmix.host.sites import Site
from pypmix.host.terms import PATIENCE
from pypmix.standard import attrs
from pypmix.standard.enums import EventCode
from pypmix.standard.errors import PMIxError
from pypmix.standard.logtext import get_logger, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pypmix.engine.base import Upcall
    from pypmix.engine.common import Pending
    from pypmix.host.exchange.bridge import ByteStream
    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.job import Application
    from pypmix.host.loop import Loop
    from pypmix.host.mapping import Mapping as Placement
    from pypmix.host.mapping import Place
    from pypmix.host.nodes import HostNode
    from pypmix.host.placing import Node, Obtain, Target
    from pypmix.host.rank import Rank
    from pypmix.host.rosters.base import StartedDaemon
    from pypmix.host.running import Launch, RunningJob, Share
    from pypmix.host.serving import ServingManager
    from pypmix.host.tracing import Trace
    from pypmix.standard.ops import Notification
    from pypmix.standard.types import Proc

    Start = Callable[[Node, bytes], StartedDaemon]
    Word = Callable[["Fleet"], object]

LAUNCHER = "!launcher"
"""The launcher's name in the exchange: the first of all, so that data that a session keeps once is kept there."""

REFRESH = 2.0
"""Seconds that daemons have to report the pending operations of their nodes."""

LEAVING = 4.0
"""Seconds that daemons have to leave."""

LAST_WORDS = 0.5
"""Seconds after the end of a daemon's process in which its last messages may still arrive."""

PROBES = 6
"""The probes of a daemon's loop within the time of the keep-alive, and the unanswered ones by which it is lost:
one more than the keep-alive of connections needs, whose reason is more exact if a whole process is stopped."""

MAX_LINE = 1 << 16
"""Bytes that a daemon may print before it is ready."""

POLL = 0.02

SLOW = 4.0
"""Seconds after which a person at a terminal is shown the nodes that have not joined."""

_log = get_logger("pypmix.host")


class NodeSession:
    """The nodes of a session, and the function that starts their daemons.

    Args:
        nodes: The nodes.
        start: Starts `[python, "-m", "pypmix", "node"]` on a node, and returns at once; called with the node and the
            line that the session writes to its standard input.
        listen: The address that the launcher listens on.
        addresses: The addresses that daemons dial to reach the launcher, in order; by default the address that it
            listens on, or this machine's name if that is a wildcard.
        interface: The network that daemons listen on: the name of an interface, an address or a CIDR; by default the
            network to the launcher.
        env: Variables to add to the environment that ranks inherit from their daemon.
        folder: The parent of the daemons' folders; TMPDIR there by default.
        patience: Seconds that they have to be ready.
        keep_alive: Seconds after which a node whose daemon does not answer is lost, and a launcher to its daemons.
        obtain: Obtains further nodes while the session runs; None if the nodes are fixed.
        release: Called with a node that has left.
        encrypt: Whether launcher and daemons encrypt their messages; by default if these leave a machine.
        is_isolated: Whether launcher and daemons reach each other only by streams that `connect` is given.
        mesh: The number of servers, including the launcher, that are all connected with each other (`TCPCarrier`).
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
        obtain: Obtain | None = None,
        release: Callable[[Node], None] = lambda _node: None,
        encrypt: bool | None = None,
        is_isolated: bool = False,
        mesh: int = MAX_MESH,
    ) -> None:
        names = [node.name for node in nodes]
        if len(set(names)) != len(names):
            raise ValueError(f"a node is named twice: {listed(names)}")
        if all(node.slots == 0 for node in nodes):
            raise ValueError("no node has a slot for a rank")
        self.nodes = tuple(nodes)
        self.start = start
        self.listen = listen or "127.0.0.1"
        self.addresses = tuple(addresses)
        self.interface = interface
        self.env = dict(env or {})
        for name, value in self.env.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"an environment is made of str: {name!r:.80} is {value!r:.80}")
        self.folder = folder
        self.patience = patience
        self.keep_alive = keep_alive
        self.mesh = mesh
        self.obtain = obtain
        self.release = release
        self.encrypt = encrypt
        self.is_isolated = is_isolated
        self._words: Queue[Word] = Queue()
        self._heard: Callable[[], None] = lambda: None

    # Reports of the roster, from any thread; reports before the session runs are kept

    def join(self, node: Node) -> None:
        """Add a node of the roster: start its daemon, which joins the session."""
        self._say(lambda fleet: fleet.elastic.call_when_joined(lambda: fleet.elastic.join((node,))))

    def leave(self, name: str, reason: str = "") -> None:
        """Return a node to the roster: its ranks are ended, and its daemon leaves."""
        self._say(lambda fleet: fleet.elastic.call_when_joined(lambda: fleet.elastic.leave(name, reason)))

    def lost(self, name: str, reason: str) -> None:
        """Report that a node is lost."""
        self._say(lambda fleet: fleet.lose(name, reason))

    def connect(self, stream: ByteStream) -> None:
        """Connect the launcher with a daemon by a stream."""
        self._say(lambda fleet: fleet.connect(stream))

    def _say(self, word: Word) -> None:
        self._words.put(word)
        self._heard()

    def follow(self, callback: Callable[[], None]) -> None:
        """Call a function for each new report, and once now."""
        self._heard = callback
        callback()

    def carry_out(self, fleet: Fleet) -> None:
        """Carry out the reports that are queued, on the loop."""
        while not self._words.empty():
            self._words.get()(fleet)


class _Daemon:
    """A daemon that was started.

    Attributes:
        joining: The joining that it belongs to, until it has joined a session that runs.
        present: Whether it takes part in the exchange, and the launcher has sent it the addresses of the others.
        has_joined: Whether it has done so at any time.
    """

    def __init__(self, node: RemoteNode, started: StartedDaemon, joining: _Joining | None) -> None:
        self.node = node
        self.started = started
        self.joining = joining
        self.said = b""
        self.ready = False
        self.present = self.has_joined = False
        self.open = True

    def unwatch(self, loop: Loop) -> None:
        """Stop reading its standard output; may be called twice."""
        if self.open:
            self.open = False
            loop.unwatch(self.started.stdout)

    def dismiss(self) -> None:
        """Order it to leave: write a line to its standard input, and close that."""
        if self.started.stdin >= 0:
            with contextlib.suppress(OSError):
                os.write(self.started.stdin, b"\n")
            os.close(self.started.stdin)
            self.started.stdin = NOT_OURS


class _Joining:
    """Nodes that are joining a session that runs.

    Args:
        names: Their names.
        done: Called when all others have joined, with the reasons why some cannot join, by their names.
    """

    def __init__(self, names: Iterable[str], done: Callable[[Mapping[str, str]], None]) -> None:
        self.awaited = dict.fromkeys(names)
        self._failed: dict[str, str] = {}
        self._done = done
        self._over = False

    def settle(self, name: str, reason: str = "") -> None:
        """Record that a node has joined or cannot join; a joined node may be lost before the others have joined."""
        self.awaited.pop(name, None)
        if reason:
            self._failed.setdefault(name, reason)
        if not self.awaited and not self._over:
            self._over = True
            self._done(self._failed)


class Fleet(Site):
    """The daemons of a launcher.

    Args:
        host: The launcher.
        session: The session that the roster made.
        space: The beginning of the nspaces of the session's jobs.
        loop: The launcher's loop.
        trace: The file of the trace, for which the daemons record the requests to their servers.
        mapping: The rules by which ranks are placed for a job that gives none; by default all slots are filled, and
            then nodes take even shares.

    Attributes:
        is_closing: Whether the daemons are being dismissed at the end.
    """

    complete = False
    _host: ServingManager

    def __init__(
        self,
        host: ServingManager,
        session: NodeSession,
        space: str,
        loop: Loop,
        trace: Trace | None = None,
        mapping: Placement | None = None,
    ) -> None:
        super().__init__(host, host.machine, mapping)
        self._trace = trace
        self.session = session
        self._space = space
        self._loop = loop
        self._joined = tuple([RemoteNode(host, number, node) for number, node in enumerate(session.nodes)])
        self._by_name = {node.hostname: node for node in self.nodes}
        self._last = self.connections = len(self.nodes)
        """The last number of a node; the launcher has the number after the first nodes."""
        self.elastic = Elastic(host, self, session)
        self._daemons: dict[str, _Daemon] = {}
        self._awaited: set[str] = set()
        """The first daemons that have not joined."""
        self._leaving: list[_Daemon] = []
        self._secret = b""
        self._launcher: tuple[str, tuple[tuple[str, int], ...]] = (LAUNCHER, ())
        self._inbox: Inbox[RemoteNode] | None = None
        self._carrier: TCPCarrier | None = None
        self._exchange: Exchange | None = None
        self._crossing: Crossing | None = None
        self._failed: PMIxError | None = None
        self._unreported: dict[str, list[RemoteNode]] = {}
        """The lost nodes that have not been reported, by the reason."""
        self.is_closing = False
        self._events: list[Notification] = []
        self._is_gathering = False

    @property
    def nodes(self) -> tuple[RemoteNode, ...]:
        """The nodes that are in the session, by their numbers."""
        return self._joined

    @property
    def has_slots(self) -> bool:
        """Whether all that a placement needs is known of each node; otherwise daemons report it."""
        return all(node.slots is not None for node in self.session.nodes) and not self.mapping.needs_hardware

    @property
    def room(self) -> int:
        """The number of slots that no rank has yet."""
        return sum([max(0, (node.slots or 0) - node.running) for node in self.nodes])

    def place(self, sizes: Sequence[int], target: Target) -> list[tuple[HostNode, tuple[Place, ...]]]:
        """Place the ranks of a job on nodes, by their slots.

        Raises:
            OverflowError: There is no room for them.
        """
        usable = [(node, node.slots) for node in target.nodes or self.nodes if node.slots]
        return placed(sizes, usable, self.rooms(usable, target), target.mapping or self.mapping)

    def notify_daemons(self, event: Notification) -> None:
        """Raise an event on all nodes of daemons."""
        self._events.append(event)
        if not self._is_gathering:
            self._send_events()

    @contextlib.contextmanager
    def gathered_events(self) -> Iterator[None]:
        """Send the events that are raised meanwhile together, to each daemon in one message."""
        self._is_gathering = True
        try:
            yield
        finally:
            self._is_gathering = False
            self._send_events()

    def _send_events(self) -> None:
        events, self._events = self._events, []
        if events and self._exchange is not None:
            names = [node.hostname for node in self.nodes if not node.lost]
            # It is written once for all.
            self._exchange.tell_several(names, orders.RAISE, orders.EVENTS.write(tuple(events)))

    def settle(self, apps: tuple[Application, ...], wdir: str) -> tuple[Application, ...]:
        """Return the applications as they are: daemons look for the folder."""
        return apps

    def program(self, app: Application) -> str:
        """Return the name of the program of an application, which daemons resolve."""
        return app.program or app.argv[0]

    def warm_up(self, apps: Sequence[Application], programs: Sequence[str]) -> None:
        """Do nothing: daemons have the fork servers."""

    def adopt(self) -> None:
        """Do nothing: the children of this process belong to the roster."""

    def end_strays(self, loop: Loop) -> None:
        """Do nothing: daemons end the processes that the ranks left behind."""

    def open(self) -> Launching:
        """Start the daemons, and return the crossing of the servers once all have joined or the host is to end.

        Raises:
            PMIxError: One of them cannot be started, or does not join in time.
            OSError: The launcher cannot listen at its address.
        """
        session = self.session
        self._secret = os.urandom(32)
        self._carrier = self._listening(session)
        self._exchange = exchange = Exchange(self._carrier)
        if session.is_isolated:
            exchange.detours.introduce_all()
        loop = self._host.server.session.loop()
        if loop is not None:
            # Messages for the server, and its answers, pass through no other thread.
            exchange.live_on(loop)
        self._crossing = crossing = Crossing(self._host.server, exchange, launcher=LAUNCHER)
        self._host.next_context_id = ContextIds(f"{LAUNCHER} host").take
        inbox = self._listen(exchange)
        exchange.start()
        self._awaited = {node.hostname for node in self.nodes}
        for node in self.nodes:
            self._start(node, exchange)
        session.follow(lambda: inbox.post(lambda: session.carry_out(self)))
        deadline = time.monotonic() + session.patience
        self._loop.later(SLOW, lambda: self._tell_progress(SLOW))
        self._loop.run(
            lambda: self._failed is not None or not self._awaited or self._host.ending or time.monotonic() > deadline,
            every=POLL,
        )
        if self._failed is not None:
            raise self._failed
        if self._host.ending:
            return Launching(self._host, crossing, self)
        if late := [daemon for daemon in self._daemons.values() if not daemon.ready or not daemon.present]:
            names = listed([daemon.node.hostname for daemon in late])
            raise PMIxError(f"{names} did not join within {session.patience:g} s", hint=self._advice(late))
        self._loop.post(self.elastic.begin)
        self.complete = True
        Probes(self._host, self, self._loop).begin()
        return Launching(self._host, crossing, self)

    def _listening(self, session: NodeSession) -> TCPCarrier:
        """Return a carrier to which the daemons connect."""
        carrier = TCPCarrier(
            LAUNCHER,
            self._secret,
            listen=None if session.is_isolated else (session.listen, 0),
            introducer=LAUNCHER,
            mesh=session.mesh,
            keep_alive=session.keep_alive,
            encrypt=session.encrypt,
            quiet=True,
        )
        if session.is_isolated:
            return carrier
        host, port = carrier.address
        named = session.addresses or ((socket.gethostname(),) if host in ("0.0.0.0", "::") else (host,))
        self._launcher = LAUNCHER, tuple([(each, port) for each in named])
        return carrier

    def connect(self, stream: ByteStream) -> None:
        """Connect the launcher with a daemon by a stream."""
        if self._carrier is not None:
            bridge.connect(self._carrier, stream)

    def _tell_progress(self, after: float) -> None:
        """Show at a terminal which nodes have not joined, and again after twice the time."""
        missing = [name for name, daemon in self._daemons.items() if not daemon.present]
        sink = self._host.sink(2)
        if self.complete or not missing or not sink.terminal:
            return
        come = len(self._daemons) - len(missing)
        text = f"{come} of {len(self._daemons)} nodes have come after {after:g} s; waiting for {listed(missing)}"
        sink.write(None, f"pypmix run: {printable(text)}\n".encode())
        self._loop.later(after, lambda: self._tell_progress(2 * after))

    def _advice(self, daemons: Sequence[_Daemon]) -> str:
        """Return a hint at the reason why daemons do not join: first the trouble of a daemon that is not ready."""
        for daemon in daemons:
            if not daemon.ready and (trouble := daemon.started.trouble()):
                printed = daemon.said.decode(errors="replace").strip().rpartition("\n")[2]
                return f"{trouble}; printed there: {printable(printed)[:200]}" if printed else trouble
        where = self._launcher[1]
        if not where:
            return "what has started them is to pass on what they send: does it run, and answer?"
        dialed = f"{', '.join([each for each, _ in where])} port {where[0][1]}"
        return f"their daemons dial {dialed}: is there a route, and no firewall?"

    def _start(self, node: RemoteNode, exchange: Exchange, joining: _Joining | None = None) -> None:
        session = self.session
        node.open(exchange, partial(self.lose, node.hostname))
        given = Orders(
            node.hostname, self._space, self._secret, self._launcher, node.number, session.interface,
            tuple(session.env.items()), session.folder, self._host.machine.wdir, self._host.grace, session.keep_alive,
            session.encrypt, warm=None if self._host.machine.forks is None else self._host.machine.forks.modules,
            trace=self._trace is not None,
        )  # fmt: skip
        line = bootstrap(given)
        try:
            started = session.start(node.known, line)
        except OSError as error:
            raise PMIxError(f"node {node}: its daemon cannot be started: {error}") from error
        daemon = self._daemons[node.hostname] = _Daemon(node, started, joining)
        os.set_blocking(started.stdout, False)
        self._loop.watch(started.stdout, READ, lambda: self._read(daemon))
        if started.stdin >= 0:
            try:
                while line:
                    line = line[os.write(started.stdin, line) :]
            except OSError:
                # It has ended already; its output shows the reason.
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
            daemon.unwatch(self._loop)
            if daemon in self._leaving:
                return
            if not daemon.ready:
                self._refuse(daemon)
            # An earlier report of the roster may give a better reason.
            self.session.carry_out(self)
            if daemon.present:
                # Its last messages may follow, and then the end of its connection: pipe and connection are not ordered.
                self._loop.later(LAST_WORDS, lambda: self._ended(daemon, "its daemon has ended"))
            else:
                self._ended(daemon, "its daemon has ended")
        elif daemon.ready:
            _log.info("%s: %s", name, data.decode(errors="replace").rstrip())
        else:
            daemon.said += data
            if first_line(daemon.said)[1] or ECHO in daemon.said or len(daemon.said) > MAX_LINE:
                self._refuse(daemon)

    def _ended(self, daemon: _Daemon, reason: str) -> None:
        """Lose the node of a daemon that has ended; prefer the reason that the daemon itself sent."""
        name = daemon.node.hostname
        if self._daemons.get(name) is daemon:
            self.lose(name, daemon.node.leaves or reason)

    def _refuse(self, daemon: _Daemon) -> None:
        """Handle the first output of a daemon: it is ready, or the reason why it is not."""
        printed, line, rest = first_line(daemon.said)
        if ECHO in printed:
            # It holds the secret, and is neither logged nor shown.
            line = printed
        trouble = "" if line or len(daemon.said) > MAX_LINE else daemon.started.trouble()
        try:
            if trouble:
                raise PMIxError(trouble)
            ready = read_ready(line or printed.strip(), daemon.node.hostname)
        except PMIxError as error:
            if daemon.joining is None:
                self._failed = self._failed or error
            else:
                self._give_up(daemon, "\n".join(filter(None, (error.detail, error.hint))))
        else:
            daemon.ready = True
            daemon.node.has_cpus(ready.cpus, ready.shape)
            self._settle(daemon)
            if told := (printed + rest).strip():
                _log.info("%s: %s", daemon.node, told.decode(errors="replace"))

    # Nodes that join later, and nodes that leave

    def add(self, nodes: Sequence[Node], done: Callable[[Mapping[str, str]], None]) -> None:
        """Start the daemons of further nodes; all of them join, or all are given back.

        Args:
            nodes: The nodes.
            done: Called with the reasons why some cannot join, by their names; with none when all have joined.
        """

        def settled(failed: Mapping[str, str]) -> None:
            for node in nodes:
                daemon = self._daemons.get(node.name)
                if daemon is None or daemon.joining is not joining:
                    continue
                daemon.joining = None
                if failed:
                    self._give_up(daemon, "others of its request cannot join")
                else:
                    self._joined = tuple(sorted((*self.nodes, daemon.node), key=lambda each: each.number))
                    self._host.add_node(daemon.node)
                    assert self._crossing is not None
                    self._crossing.introduce(node.name)
            done(failed)

        joining = _Joining([node.name for node in nodes], settled)
        for node in nodes:
            self._begin(node, joining)
        self._loop.later(self.session.patience, lambda: self._too_late(joining))

    def _begin(self, node: Node, joining: _Joining) -> None:
        assert self._exchange is not None
        name = node.name
        if name not in joining.awaited or self.is_closing:
            return
        if name in self._daemons:
            joining.settle(name, f"{name} is in the session already")
            return
        if any(each.node.hostname == name for each in self._leaving):
            # Its former daemon is about to end.
            self._loop.later(POLL, lambda: self._begin(node, joining))
            return
        self._last += 1
        remote = self._by_name[name] = RemoteNode(self._host, self._last, node)
        try:
            self._start(remote, self._exchange, joining)
        except PMIxError as error:
            self.session.release(node)
            joining.settle(name, error.detail)

    def _too_late(self, joining: _Joining) -> None:
        for name in list(joining.awaited):
            text = f"{name} did not join within {self.session.patience:g} s"
            daemon = self._daemons.get(name)
            if daemon is None or daemon.joining is not joining:
                joining.settle(name, text)
            else:
                self._give_up(daemon, f"{text}: {self._advice([daemon])}")

    def _give_up(self, daemon: _Daemon, reason: str) -> None:
        """Give up a daemon that does not join a session that runs."""
        joining, daemon.joining = daemon.joining, None
        daemon.node.lose(reason)
        del self._daemons[daemon.node.hostname]
        self._stop(daemon, reason)
        self._part(daemon, lambda: self.session.release(daemon.node.known))
        if joining is not None:
            joining.settle(daemon.node.hostname, reason)

    def _settle(self, daemon: _Daemon) -> None:
        """Record that a late daemon has joined once it is ready and takes part in the exchange."""
        if daemon.ready and daemon.present:
            self._awaited.discard(daemon.node.hostname)
            if daemon.joining is not None:
                daemon.joining.settle(daemon.node.hostname)

    def dismiss(self, node: RemoteNode, done: Callable[[], None]) -> None:
        """Dismiss the daemon of a node on which nothing is left of any job.

        Args:
            node: The node.
            done: Called when it has ended.
        """
        daemon = self._daemons.pop(node.hostname, None)
        if daemon is None:
            # It was lost in the meantime.
            done()
            return
        node.dismiss()
        self._forget(node)
        daemon.dismiss()
        self._part(daemon, done)

    def _stop(self, daemon: _Daemon, reason: str) -> None:
        """End a daemon by force, and its connections with the other servers, even if its process does not end."""
        daemon.started.stop()
        if daemon.present and self._carrier is not None:
            self._carrier.drop(daemon.node.hostname, reason)

    def _part(self, daemon: _Daemon, done: Callable[[], None]) -> None:
        """Wait until a daemon has ended, its output too, and the exchange has lost it: then its name is free again."""
        self._leaving.append(daemon)
        began = time.monotonic()

        def look() -> None:
            if self.is_closing:
                return
            seconds = time.monotonic() - began
            left = not daemon.open and not daemon.present and daemon.started.ended() is not None
            if left or seconds > 2 * LEAVING:
                self._leaving.remove(daemon)
                daemon.unwatch(self._loop)
                daemon.dismiss()
                os.close(daemon.started.stdout)
                done()
                return
            if seconds > LEAVING:
                self._stop(daemon, f"it has not left in {LEAVING:g} s")
            self._loop.later(POLL, look)

        look()

    def _forget(self, node: RemoteNode) -> None:
        self._joined = tuple([each for each in self.nodes if each is not node])
        self._host.nodes = tuple([each for each in self._host.nodes if each is not node])

    def share(self, launch: Launch, node: HostNode, ranks: list[Rank]) -> Share:
        """Make the share of a launch on a node."""
        assert isinstance(node, RemoteNode)
        return RemoteShare(launch, node, ranks)

    def move(self, job: RunningJob, done: Callable[[], None]) -> None:
        """Describe a job anew to all daemons, and to this process's server; call `done` once all have answered."""
        assert self._crossing is not None
        places = {rank: node.hostname for node in job.job.nodes for rank in node.ranks}
        left = 1 + len(self.nodes)

        def count_answer() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for node in self.nodes:
            ranks = [rank.proc.rank for rank in job.ranks if rank.node is node]
            node.register(job, ranks)
            node.when_described(job.nspace, lambda _fault: count_answer())
        self._crossing.move(job.job, places, lambda: self._host.soon(count_answer))

    # Messages

    def _listen(self, exchange: Exchange) -> Inbox[RemoteNode]:
        def add_to_trace(node: RemoteNode, data: bytes) -> None:
            if self._trace is not None:
                self._trace.add_message(node.hostname, data)

        inbox = self._inbox = Inbox(exchange, self._loop, self._by_name)
        for request, handler in (
            (orders.ASK, RemoteNode.answer_upcall),
            (orders.REPORT, self._report),
            (orders.FETCH_FILE, lambda _node, data, answer: send_piece(self._host.jobs, data, answer)),
        ):
            inbox.handle(request, handler)
        for topic, listener in (
            (orders.LIFE, RemoteNode.lived),
            (orders.WROTE, RemoteNode.wrote),
            (orders.ENDED, RemoteNode.record_rank_ends),
            (orders.OVER, RemoteNode.record_job_end),
            (orders.LEAVES, RemoteNode.will_leave),
            (orders.REACHED, RemoteNode.was_reached),
            (orders.TRACED, add_to_trace),
        ):
            inbox.hear(topic, listener)
        exchange.watch(self._changed)
        return inbox

    def _report(self, _node: RemoteNode, _data: bytes, answer: OnAnswer) -> None:
        from pypmix.host.report import report

        host = self._host
        self.refresh(lambda: answer(orders.REPORTED.write((report(host),)), None))

    def _changed(self, name: str, here: bool) -> None:
        assert self._inbox is not None and self._exchange is not None
        if here:
            self._inbox.post(lambda: self._join(name))
        else:
            reason = self._exchange.reason(name)
            text = f"the connection with its daemon has ended{reason and ': '}{reason}"
            self._inbox.post(lambda: self._disconnected(name, text))

    def _join(self, name: str) -> None:
        """Record that a daemon takes part in the exchange; one that the session has given up is to leave."""
        daemon = self._daemons.get(name)
        if daemon is not None:
            daemon.present = daemon.has_joined = True
            self._settle(daemon)
        elif self._exchange is not None:
            self._exchange.tell(name, orders.LEAVE, b"")

    def _disconnected(self, name: str, reason: str) -> None:
        for daemon in [each for each in self._leaving if each.node.hostname == name]:
            daemon.present = False
        known = self._daemons.get(name)
        if known is not None:
            # The exchange has lost it already: nothing is left to end there.
            known.present = False
            self._ended(known, reason)

    def lose(self, name: str, reason: str) -> bool:
        """Remove a node that is lost, and end its daemon by force."""
        daemon = self._daemons.get(name)
        if daemon is not None and not self.is_closing:
            self._lose(daemon, reason)
        return True

    def _lose(self, daemon: _Daemon, reason: str) -> None:
        name = daemon.node.hostname
        if daemon.joining is not None:
            self._give_up(daemon, f"node {name}: {reason}")
            return
        if not daemon.has_joined:
            self._failed = self._failed or PMIxError(f"node {name}: {reason}")
        del self._daemons[name]
        self._awaited.discard(name)
        self._forget(daemon.node)
        self._stop(daemon, reason)
        if daemon.has_joined and not daemon.node.ends_a_job():
            # Otherwise the end of the job reports it.
            if not self._unreported:
                self._loop.later(LAST_WORDS, self._report_losses)
            self._unreported.setdefault(reason, []).append(daemon.node)
        daemon.node.lose(reason)
        self._host.notify(node_event(self._host, EventCode.EVENT_NODE_DOWN, attrs.HOSTNAME(name)))
        self._part(daemon, lambda: None)
        self._host.node_lost()

    def _report_losses(self) -> None:
        """Report the losses of a moment, in one line for each reason: a launcher that was stopped loses all nodes."""
        unreported, self._unreported = self._unreported, {}
        for reason, nodes in unreported.items():
            # A job that continues without its ranks there may have reported it.
            names = [node.hostname for node in nodes if not node.loss_is_reported]
            if not names:
                continue
            text = f"node {names[0]} is" if len(names) == 1 else f"nodes {listed(names)} are"
            self._host.sink(2).write(None, f"pypmix run: {text} lost: {printable(reason)}\n".encode())

    def refresh(self, done: Callable[[], None]) -> None:
        """Collect the pending operations of all daemons, and call a function then."""
        asked = [node for node in self.nodes if not node.lost]
        left = len(asked)

        def count_answer() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for node in asked:
            node.refresh(count_answer, REFRESH)
        if not asked:
            done()

    def away(self, going: bool) -> None:
        """Report to the daemons that this process stops itself, or is back: they do not count it as lost meanwhile.

        A stream cannot pass it on: its threads stop with this process.
        """
        if self._carrier is not None:
            self._carrier.away(going)

    # The end

    def close(self) -> None:
        """Dismiss all daemons, and stop those left after `LEAVING` seconds."""
        self.is_closing = True
        self._report_losses()
        if self._exchange is not None:
            self._exchange.conclude()
        # A roster may report more after the loop has closed.
        self.session.follow(lambda: None)
        self._leaving += self._daemons.values()
        for daemon in self._leaving:
            if daemon.started.stdin == NOT_OURS and daemon.present and self._exchange is not None:
                # The roster owns its standard input.
                self._exchange.tell(daemon.node.hostname, orders.LEAVE, b"")
            daemon.dismiss()
            if not daemon.ready:
                # It has no ranks to end, and the process that starts it may hang.
                daemon.started.stop()
        deadline = time.monotonic() + LEAVING
        left = list(self._leaving)

        def are_gone() -> bool:
            left[:] = [daemon for daemon in left if daemon.started.ended() is None]
            return not left or time.monotonic() > deadline

        self._loop.run(are_gone, every=POLL)
        for daemon in self._leaving:
            daemon.unwatch(self._loop)
            if daemon.started.ended() is None:
                daemon.started.stop()
            os.close(daemon.started.stdout)
        if self._exchange is not None:
            self._exchange.close()


class Probes:
    """The probes of the loops of all daemons: the threads of their connections answer in any case.

    Args:
        host: The launcher.
        fleet: The daemons.
        loop: The launcher's loop.
    """

    def __init__(self, host: ServingManager, fleet: Fleet, loop: Loop) -> None:
        self._host = host
        self._fleet = fleet
        self._loop = loop
        self._patience = fleet.session.patience
        self._keep_alive = fleet.session.keep_alive
        # A pair that does not reach each other is to be known before its time is over.
        self._period = min(self._keep_alive, self._patience) / PROBES
        self._has_warned = False

    def begin(self) -> None:
        """Probe all daemons, now and then again until the fleet is closed."""
        self._loop.later(self._period, self._probe)

    def _probe(self) -> None:
        if self._fleet.is_closing:
            return
        for node in self._fleet.nodes:
            silent = node.probe(self._warn_apart) * self._period
            if silent >= self._keep_alive:
                self._fleet.lose(node.hostname, f"its daemon has not answered for {silent:.3g} s")
        self.begin()

    def _warn_apart(self) -> None:
        """Warn once of nodes that have not reached each other in time: their messages go through this process."""
        nodes = self._fleet.nodes
        there = {node.hostname for node in nodes}
        for node in nodes:
            for name, where, reason, seconds in node.unreached:
                if name in there and seconds >= self._patience and not self._has_warned:
                    self._has_warned = True
                    text = printable(apart(node.hostname, name, where, reason))
                    line = f"pypmix run: {text}; their messages pass through this process; {TRY_INTERFACE}\n"
                    self._host.sink(2).write(None, line.encode())


class Launching(Exchanging):
    """The crossing of the launcher's server in a session; the daemons have the crossings of their servers.

    Args:
        host: The launcher.
        crossing: Answers the upcalls of its server.
        fleet: The daemons.
    """

    def __init__(self, host: ServingManager, crossing: Crossing, fleet: Fleet) -> None:
        super().__init__(host, crossing)
        self._own = crossing
        self._launcher = host
        self._fleet = fleet

    def answer(self, node: HostNode, upcall: Upcall) -> bool:
        """Answer an upcall of the launcher's server; return True if it is answered here."""
        return node.here and super().answer(node, upcall)

    def register(self, job: RunningJob) -> None:
        """Record the places of a job's procs before the daemons get its description."""
        places = {rank: node.hostname for node in job.job.nodes for rank in node.ranks}
        self._own.place(job.job, places, job.number)

    def connected(self, node: HostNode, proc: Proc) -> None:
        """Pass on that a proc of the launcher's server has connected."""
        if node.here:
            super().connected(node, proc)

    def finalized(self, node: HostNode, proc: Proc) -> None:
        """Pass on that a proc of the launcher's server has finalized."""
        if node.here:
            super().finalized(node, proc)

    def departed(self, node: HostNode, proc: Proc) -> None:
        """Pass on that a proc of the launcher's server has ended or was lost."""
        if node.here:
            super().departed(node, proc)

    def pending(self) -> list[Pending]:
        """Return the pending operations, oldest first; those of daemons as of their last report."""
        found: Iterable[Pending] = [item for node in self._launcher.nodes for item in node.pending()]
        return merged(found)
