"""Nodes that an engine lends: the workers of a Dask cluster, or actors of a Ray cluster.

The engine places its workers, carries the session's secret and the launcher's addresses to them, and reports their
deaths. Ranks then communicate through pypmix's own servers. This process is the launcher: `Nodes.run` runs a job in the
thread that calls it. One thread per node waits for the engine's calls: `begin`, which starts the daemon there, and
`wait`, which returns when the daemon ends. A node is lost if a call to it fails.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import time

from pypmix.extras.frameworks.agent import DaemonEnd
from pypmix.extras.frameworks.reachability import apart
from pypmix.extras.frameworks.world import World, decode_results, returned
from pypmix.host.addresses import ANYWHERE, is_loopback, own_addresses
from pypmix.host.job import Application
from pypmix.host.local import LocalHost
from pypmix.host.outcome import Outcome, listed
from pypmix.host.placing import Node
from pypmix.host.rosters.base import NOT_OURS
from pypmix.host.session import NodeSession
from pypmix.host.terms import Terms
from pypmix.standard.errors import PMIxError
from pypmix.standard.logtext import get_logger, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Protocol, Self

    from pypmix.host.exchange.bridge import ByteStream
    from pypmix.host.placing import NodeRequest, Obtained

    class Engine(Protocol):
        """The interface of an engine.

        Attributes:
            name: The engine's name in messages.
        """

        name: str

        def call(self, node: str, method: str, *arguments: Any) -> Any:
            """Call a method of a node's agent (`agent.Agent`) and return its result; raises if the node is lost."""

        def joined(self) -> list[Node] | None:
            """Return the nodes added since the last call; None if this session never takes the engine's new nodes."""

        def more(self, request: NodeRequest) -> list[Node]:
            """Obtain further nodes; may wait for them. Raises an exception with the reason if it cannot."""

        def release(self, node: Node) -> None:
            """Give back a node that has left the session."""

        def close(self) -> None:
            """Give back all nodes."""


PATIENCE = 60.0
"""Seconds that nodes have to be ready. Lost nodes do not use it up: the engine reports them."""

AGENTS = 15.0
"""Seconds that agents have to report the ends of their daemons, and to send each piece of the ranks' results."""

LOOK = 1.0
"""Seconds between polls for new nodes of the engine."""

FUNCTION = ("sh", "-c", 'exec "$PYPMIX_PYTHON" -P -m pypmix.extras.frameworks.calling', "pypmix-function")


_log = get_logger("pypmix.host")


class LentDaemon:
    """A `StartedDaemon` that is controlled by calls of an engine.

    Args:
        engine: The engine.
        node: The node.
        line: The daemon's line.
        function: The pickled function for the ranks that request one; None for programs.
        tell: Called with the reason if the node is lost.
        connect: Connects the launcher with the daemon by a stream; None if the daemon uses its own connections.

    Attributes:
        name: The node's name.
        stdin: Never a descriptor: the line is an argument of `begin`, and the exchange asks the daemon to leave.
        stdout: The descriptor to read the daemon's answer from; it ends with the daemon. Belongs to the caller.
        end: The end of the daemon; None while it runs.
        results: The results of a function's ranks, by their numbers; None until all pieces are received.
        lost: Whether the engine has lost the node.
    """

    def __init__(
        self,
        engine: Engine,
        node: Node,
        line: bytes,
        function: bytes | None,
        tell: Callable[[str], None],
        connect: Callable[[ByteStream], None] | None,
    ) -> None:
        self.stdin = NOT_OURS
        self.stdout, self._writer = os.pipe2(os.O_CLOEXEC)
        self.end: DaemonEnd | None = None
        self.results: dict[int, bytes] | None = None
        self._engine = engine
        self.name = node.name
        self._arguments = line, function, connect is not None
        self._connect = connect
        self._tell = tell
        self.lost = False
        self._trouble = f"{engine.name} has not answered the call for it"
        self._stopped = False
        self._last_answer = 0.0
        self._thread = threading.Thread(target=self._tend, name=f"pypmix-{node.name}", daemon=True)
        self._thread.start()

    def _tend(self) -> None:
        call, name = self._engine.call, self.name
        try:
            answer: bytes = call(name, "begin", *self._arguments)
            self._trouble = ""
            if self._stopped:
                # `stop` ran before the agent had a daemon to kill.
                call(name, "stop")
            if self._connect is not None:
                self._connect(_Stream(self._engine, name))
            self._tell_answer(answer)
            ended: DaemonEnd = call(name, "wait")
            self._trouble = "; ".join(ended.errors.strip().splitlines()[-1:])
            self.end = ended
        except Exception as error:
            self.end = DaemonEnd(255, "", b"", 0)
            self._lose(error)
        finally:
            os.close(self._writer)
        if not self.lost:
            try:
                self._fetch(self.end)
            except Exception as error:
                self._lose(error)

    def _lose(self, error: Exception) -> None:
        """Report the node as lost after a failed call, whose exception may be of any type."""
        lines = str(error).strip().splitlines()
        text = f"{type(error).__name__}: {lines[0] if lines else ''}"
        self._trouble = (error.detail if isinstance(error, PMIxError) else text)[:300]
        self.lost = True
        self._tell(f"the engine has lost it: {self._trouble}")

    def _fetch(self, end: DaemonEnd) -> None:
        """Fetch the remaining pieces of the ranks' results, and unpickle all."""
        data = bytearray(end.results)
        while len(data) < end.size:
            self._last_answer = time.monotonic()
            piece = self._engine.call(self.name, "read_piece", len(data))
            if not piece:
                # This launcher waited too long, and the agent dropped the results when it began the next job.
                return
            data += piece
        self.results = pickle.loads(data)

    def _tell_answer(self, answer: bytes) -> None:
        try:
            os.write(self._writer, answer)
        except BrokenPipeError:
            # The session no longer waits for this daemon.
            return

    def stop(self) -> None:
        """Kill the daemon."""
        if not self._stopped and self.end is None:
            self._stopped = True
            threading.Thread(target=self._stop, daemon=True).start()

    def _stop(self) -> None:
        try:
            self._engine.call(self.name, "stop")
        except Exception:
            # The node is lost, and the daemon with it.
            return

    def ended(self) -> int | None:
        """Return the daemon's exit code, None while it runs."""
        return None if self.end is None else self.end.code

    def trouble(self) -> str:
        """Return an error text with the reason of the daemon's end; empty if none is known."""
        return f"node {self.name}: its daemon cannot be started: {self._trouble}" if self._trouble else ""

    def join(self, since: float) -> None:
        """Wait for the daemon's end and its results; give up `AGENTS` seconds after `since` or the last piece.

        Args:
            since: The time by which the daemon should have ended.
        """
        while (left := max(since, self._last_answer) + AGENTS - time.monotonic()) > 0 and self._thread.is_alive():
            self._thread.join(left)


class _Stream:
    """The bytes from and to a daemon, by calls of the engine (`pypmix.host.exchange.bridge.ByteStream`)."""

    def __init__(self, engine: Engine, node: str) -> None:
        self._engine = engine
        self._node = node

    def read(self) -> bytes:
        """Wait for data of the daemon, and return it."""
        data: bytes = self._engine.call(self._node, "pull")
        return data

    def write(self, data: bytes) -> None:
        """Send data to the daemon."""
        self._engine.call(self._node, "push", data)

    def close(self) -> None:
        """End the daemon's connection; the calls end then, or with the node."""
        self.write(b"")


class Nodes:
    """Nodes that run programs and functions as the ranks of jobs. A context manager, which gives them back.

    Args:
        engine: The engine.
        nodes: The nodes.
        interface: The interface that daemons listen on: its name, an address or a CIDR; by default the interface that
            leads to the launcher.
        direct: Whether daemons and this process use their own connections (True) or the engine's (False); by default
            their own if they reach each other.

    Attributes:
        nodes: The usable nodes: the nodes that the engine lost in a job are removed.
    """

    def __init__(
        self, engine: Engine, nodes: Sequence[Node], *, interface: str = "", direct: bool | None = None
    ) -> None:
        self.nodes = tuple(nodes)
        self._gate = threading.Lock()
        self._busy = self._closed = False
        self._engine = engine
        self._interface = interface
        self._direct = direct
        self._tried: tuple[Node, ...] = ()
        self._apart = ""
        """The text about a tried node and another that it does not reach; empty if all reach each other."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<nodes {', '.join([f'{node.name} ({node.slots})' for node in self.nodes]):.200}>"

    @property
    def slots(self) -> int:
        """The number of ranks that the nodes can run, the sum of their slots."""
        return sum([node.slots or 0 for node in self.nodes])

    def run(
        self,
        argv: Sequence[str],
        n: int = 0,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        terms: Terms | None = None,
        patience: float = PATIENCE,
    ) -> Outcome:
        """Run a program as the ranks of a job; return when all its processes have ended.

        Args:
            argv: The program and its arguments.
            n: The number of ranks; by default the number of slots.
            env: Variables to add to the environment that ranks inherit from their worker.
            timeout: Seconds after which the job is ended.
            terms: The options of the job, such as the destination of its output, and whether a failure ends it.
            patience: Seconds that nodes have to be ready.

        Returns:
            The first failure; code 0 if there was none. A node that is lost is a failure.

        Raises:
            PMIxError: A node cannot be used; the text has the reason.
        """
        # Keep a string as it is, for `Application` to refuse.
        words = argv if isinstance(argv, str | bytes) else tuple(argv)
        return self._run(self._application(words, n), env, timeout, terms, patience)[0]

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        n: int = 0,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
        **keywords: Any,
    ) -> list[Any]:
        """Call a Python function in each rank of a job, and return the results of the ranks, in rank order.

        The function, its arguments and its results are sent by cloudpickle. The function finds its rank by
        `pypmix.Client`, or uses `mpi4py`.

        Args:
            function: The function.
            arguments: Its positional arguments, the same in all ranks.
            n: The number of ranks; by default the number of slots.
            timeout: Seconds after which the job is ended.
            env: Variables to add to the environment that ranks inherit from their worker.
            patience: Seconds that nodes have to be ready.
            keywords: Its keyword arguments.

        Raises:
            Exception: The exception of the first rank that failed, with its rank and traceback in a note.
            PMIxError: The job was ended otherwise, or a node cannot be used; the text has the reason.
        """
        import cloudpickle

        data = cloudpickle.dumps((function, arguments, keywords))
        app = self._application(FUNCTION, n)
        size = app.np
        outcome, daemons = self._run(app, env, timeout, None, patience, data)
        found = {rank: result for each in daemons for rank, result in (each.results or {}).items()}
        results = returned(decode_results(found), size, outcome.reason or self._lacking(daemons))
        if outcome.code:
            raise PMIxError(outcome.reason)
        return results

    def world(
        self,
        *,
        mpi: bool = True,
        env: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
        release: Callable[[], None] = lambda: None,
    ) -> World:
        """Start ranks, one for each slot, that carry out functions one after the other: `with nodes.world() as world:`.

        Args:
            mpi: Pass an MPI communicator to the functions, for which nodes need mpi4py and an MPI library that supports
                PMIx; otherwise pass a `pypmix.Group`.
            env: Variables to add to the environment that ranks inherit from their worker.
            patience: Seconds that nodes have to be ready.
            release: Called when the world has ended.

        Raises:
            PMIxError: A node cannot be used, or a rank has no communicator; the text has the reason.
        """
        shares = {node.name: node.slots or 0 for node in self.nodes}
        app = self._application(FUNCTION, 0)

        def job(on_begin: Callable[[LocalHost], None]) -> Outcome:
            return self._run(app, env, None, None, patience, b"", on_begin)[0]

        return World(shares, job, self._engine.call, mpi=mpi, release=release)

    def close(self) -> None:
        """Give the nodes back. May be called twice."""
        with self._gate:
            closed, self._closed = self._closed, True
        if not closed:
            self._engine.close()

    @property
    def busy(self) -> bool:
        """Whether a job or a world runs on these nodes."""
        return self._busy

    def _application(self, words: Any, n: int) -> Application:
        """Return the application of a job.

        Raises:
            PMIxError: The nodes cannot run a job now.
        """
        if self._closed:
            raise PMIxError("the nodes have been given back", hint="take nodes again")
        if not self.nodes:
            raise PMIxError("no node is left: they were lost or have been released", hint="take nodes again")
        if self._busy:
            raise _busy()
        return Application(words, n or self.slots)

    def _run(
        self,
        app: Application,
        env: Mapping[str, str] | None,
        timeout: float | None,
        terms: Terms | None,
        patience: float,
        function: bytes | None = None,
        on_begin: Callable[[LocalHost], None] = lambda _host: None,
    ) -> tuple[Outcome, list[LentDaemon]]:
        with self._alone():
            daemons: list[LentDaemon] = []
            addresses = launcher_addresses([node.addresses[-1] for node in self.nodes if node.addresses])
            is_isolated = not self._is_direct(addresses)

            def start(node: Node, line: bytes) -> LentDaemon:
                def tell(reason: str) -> None:
                    session.lost(node.name, reason)

                connect = session.connect if is_isolated else None
                daemons.append(LentDaemon(self._engine, node, line, function, tell, connect))
                return daemons[-1]

            session = NodeSession(
                self.nodes,
                start,
                listen=ANYWHERE,
                addresses=addresses,
                interface=self._interface,
                env=env,
                patience=patience,
                obtain=self._obtain,
                release=self._release,
                is_isolated=is_isolated,
            )
            finished = threading.Event()
            looking = self._looking(session, finished)
            try:
                # Standard input belongs to this program, such as a notebook, and not to the job.
                host = LocalHost([app], terms=terms or Terms(stdin=None), timeout=timeout, remote=session)
                on_begin(host)
                outcome = host.run()
            finally:
                finished.set()
                self._settle(daemons, looking)
            return outcome, daemons

    def _lacking(self, daemons: Sequence[LentDaemon]) -> str:
        """Return an error text with the nodes whose results are missing; empty if all are there."""
        names = [each.name for each in daemons if each.results is None]
        text = f"{self._engine.name} does not give what the ranks of {listed(names)} have returned"
        lost = [each.trouble() for each in daemons if each.lost]
        return f"{text}: {lost[0] if lost else f'nothing has come for {AGENTS:g} s'}" if names else ""

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Reserve the nodes for one job."""
        with self._gate:
            if self._busy:
                raise _busy()
            self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _settle(self, daemons: Sequence[LentDaemon], looking: threading.Thread) -> None:
        """Wait until agents report the ends of their daemons, and remove lost nodes."""
        now = time.monotonic()
        for each in daemons:
            each.join(now)
        looking.join(max(0.0, now + AGENTS - time.monotonic()))
        lost = [each.name for each in daemons if each.lost]
        with self._gate:
            self.nodes = tuple([node for node in self.nodes if node.name not in lost])

    def _is_direct(self, addresses: Sequence[str]) -> bool:
        """Return True if daemons and this process connect to each other, instead of using the engine's connections."""
        if self._direct is not None:
            return self._direct
        if all(is_loopback(address) for address in addresses):
            return True
        if set(self.nodes) - set(self._tried):
            self._tried = self.nodes
            self._apart = apart([node.name for node in self.nodes], self._engine.call, addresses, self._interface)
            if self._apart:
                _log.warning("%s: messages go over the connections of %s", printable(self._apart), self._engine.name)
        return not self._apart

    # Nodes that join and leave while a job runs

    def _looking(self, session: NodeSession, finished: threading.Event) -> threading.Thread:
        thread = threading.Thread(target=self._look, args=(session, finished), name="pypmix-engine", daemon=True)
        thread.start()
        return thread

    def _look(self, session: NodeSession, finished: threading.Event) -> None:
        while not finished.wait(LOOK):
            try:
                joined = self._engine.joined()
            except Exception as error:
                _log.warning("further nodes cannot be had of the engine: %s", error)
                continue
            if joined is None:
                return
            with self._gate:
                self.nodes += tuple(joined)
            for node in joined:
                session.join(node)

    def _obtain(self, request: NodeRequest, done: Obtained) -> None:
        def obtain() -> None:
            try:
                nodes = self._engine.more(request)
            except Exception as error:
                done((), _reason(error))
                return
            with self._gate:
                self.nodes += tuple(nodes)
            done(nodes, "")

        threading.Thread(target=obtain, name="pypmix-obtain", daemon=True).start()

    def _release(self, node: Node) -> None:
        with self._gate:
            self.nodes = tuple([each for each in self.nodes if each is not node])
        self._engine.release(node)


def _reason(error: Exception) -> str:
    """Return why nodes cannot be obtained, for the error of the request."""
    if isinstance(error, PMIxError):
        return "; ".join([each for each in (error.detail, error.hint) if each])
    return str(error) or type(error).__name__


def _busy() -> PMIxError:
    return PMIxError(
        "these nodes run a job already, or are a world",
        hint="end that first, or take the same workers as nodes once more for a second one",
    )


def number_of(what: str, number: int | None) -> None:
    """Check a requested number of nodes or slots; None is valid.

    Raises:
        TypeError: It is not a whole number.
        ValueError: It is below 1.
    """
    if number is None:
        return
    if type(number) is not int:
        raise TypeError(f"{what} is a whole number, not {number!r:.80}")
    if number < 1:
        raise ValueError(f"{what} is at least 1, not {number}")


def launcher_addresses(peers: Iterable[str]) -> list[str]:
    """Return the addresses by which others may reach this process; loopback if all are on this machine.

    Args:
        peers: An address of each other node.
    """
    routes = list(dict.fromkeys([own_addresses(each)[0] for each in peers]))
    away = [each for each in routes if not is_loopback(each)]
    return away or routes or ["127.0.0.1"]


def name_nodes(hosts: Sequence[tuple[str, int, tuple[str, ...]]], used: Iterable[str] = ()) -> list[Node]:
    """Make nodes with unique names: the second node of machine `n1` is named `n1-2`, and so on.

    Args:
        hosts: The host name, slots and addresses of each node.
        used: Names in use by other nodes.
    """
    nodes: list[Node] = []
    names = set(used)
    for hostname, slots, addresses in hosts:
        name, number = hostname, 1
        while name in names:
            number += 1
            name = f"{hostname}-{number}"
        names.add(name)
        nodes.append(Node(name, slots, addresses=addresses))
    return nodes
