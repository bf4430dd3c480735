"""Nodes that join a running session, and nodes that leave it in order.

A request comes from a roster (`NodeSession.join`, `NodeSession.leave`); from `pypmix grow`, `pypmix shrink` or a rank,
by an allocation request; or from a spawn that adds hosts. All of it happens on the launcher's loop.

A node joins. The roster obtains it, now or later. Its daemon is started like the first ones, reports that it is ready,
and takes part in the exchange. The existing jobs and process sets are registered with it. From then on ranks can be
placed on it: `PMIX_DVM_IS_READY` is raised, and the request is answered. Of the nodes of one request, all join or none.

A node leaves. No further rank is placed on it. If ranks run on it, the request is refused, unless it asks to end them:
they get SIGTERM, and SIGKILL after the grace. When nothing is left of them, the daemon is ordered to leave. Once it has
ended, `PMIX_EVENT_NODE_OFFLINE` and `PMIX_DVM_IS_READY` are raised, and the request is answered. A request from the
node itself is answered before its daemon leaves, since that daemon passes the answer on. Lost nodes are handled by
`pypmix.host.session`.
"""

from __future__ import annotations

import signal

from pypmix.host.control import check_user
from pypmix.host.directives import name_of
from pypmix.host.exchange.crossing import Forwarded
from pypmix.host.outcome import listed
from pypmix.host.placing import NodeRequest
from pypmix.standard import attrs
from pypmix.standard.enums import AllocDirective, EventCode, InfoFlags, Range, Status
from pypmix.standard.errors import NotFound, NotSupported, PMIxError, ResourceBusy
from pypmix.standard.logtext import get_logger
from pypmix.standard.ops import AllocationRequest, Notification
from pypmix.standard.ops.events import is_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.host.placing import Node
    from pypmix.host.rank import Rank
    from pypmix.host.remote import RemoteNode
    from pypmix.host.serving import ServingManager
    from pypmix.host.session import Fleet, NodeSession
    from pypmix.standard.types import Info

    OnDone = Callable[[str, PMIxError | None], None]

OPERATION = "allocation_request"

NODES = attrs.ALLOC_NODE_LIST.key
NUMBER = attrs.ALLOC_NUM_NODES.key
CPUS = attrs.ALLOC_NUM_CPUS.key
ID = attrs.ALLOC_ID.key
REQUEST = attrs.ALLOC_REQ_ID.key
END_RANKS = attrs.JOB_CTRL_TERMINATE.key
"""With a release: ranks that run on the nodes are ended."""

MAX_NODES = 1 << 16
MAX_CPUS = 1 << 20
"""The limits of nodes and of CPUs of a request: a roster may have to start as many."""

PASSED_ON = 10.0
"""Seconds that the daemon of a leaving node has to pass on the answer to a requestor there."""

KNOWN = frozenset((NODES, NUMBER, CPUS, ID, REQUEST, END_RANKS, attrs.TIMEOUT.key))

EXIT_CODE = 128 + signal.SIGTERM
"""The exit code of ranks that are ended with their node."""


class Elastic:
    """Adds nodes to the session of a launcher, and removes them.

    Args:
        host: The launcher.
        fleet: Its daemons.
        session: The roster's nodes: it obtains further ones, unless they are fixed, and takes them back.
    """

    def __init__(self, host: ServingManager, fleet: Fleet, session: NodeSession) -> None:
        self._host = host
        self._fleet = fleet
        self._session = session
        self._granted: dict[str, tuple[str, ...]] = {}
        """The nodes of each allocation, by its id."""
        self._coming: set[str] = set()
        """The names of nodes that were requested from the roster and have not joined yet."""
        self._leaving: dict[RemoteNode, list[Callable[[], None]]] = {}
        """The nodes that are leaving, with the calls that are due when they have left."""
        self._asked_there: dict[RemoteNode, list[Callable[[], None]]] = {}
        """The answers that are due on such a node before its daemon leaves."""
        self._last = 0
        self._held: list[Callable[[], None]] | None = []
        """The requests from before the first nodes have joined; None from then on."""

    def begin(self) -> None:
        """Carry out the requests that wait: the first nodes have joined, and the first job is about to run."""
        held, self._held = self._held or [], None
        for call in held:
            call()

    def call_when_joined(self, call: Callable[[], None]) -> None:
        """Carry out a request as soon as the first nodes have joined, perhaps at once."""
        if self._held is None:
            call()
        else:
            self._held.append(call)

    # Joining

    def grow(self, wanted: NodeRequest, done: OnDone, request: str = "") -> None:
        """Add nodes of the roster.

        Args:
            wanted: The nodes, or their number.
            done: Called with the id of the allocation that they form, or with the error.
            request: The requestor's name for the request.

        Raises:
            NotSupported: The nodes of the session are fixed.
            PMIxError: One of them is in the session already.
        """
        if self._session.obtain is None:
            raise NotSupported("the nodes of this session are fixed: its roster adds none", operation=OPERATION)
        there = [name for name, _ in wanted.hosts if self._named(name) is not None]
        if there:
            text = f"{listed(there)} is in the session already"
            raise PMIxError(text, status=Status.ERR_EXISTS, operation=OPERATION)
        names = {_bare(name) for name, _ in wanted.hosts}
        if coming := sorted(names & self._coming):
            text = f"{listed(coming)} is on its way into the session already"
            raise PMIxError(text, status=Status.ERR_EXISTS, operation=OPERATION)
        self._coming |= names

        def settled(granted: str, error: PMIxError | None) -> None:
            self._coming -= names
            done(granted, error)

        def obtained(nodes: Sequence[Node], reason: str) -> None:
            self._host.loop.post(lambda: self._obtained(tuple(nodes), reason, settled, request))

        self._session.obtain(wanted, obtained)

    def _obtained(self, nodes: tuple[Node, ...], reason: str, done: OnDone, request: str) -> None:
        if nodes:
            self.join(nodes, done, request)
        else:
            self._refuse(reason or "the roster has no such nodes", done, request)

    def join(self, nodes: tuple[Node, ...], done: OnDone | None = None, request: str = "") -> None:
        """Add nodes whose daemons can be started; an error is logged if `done` is not given."""
        done = done or _logged
        self._fleet.add(nodes, lambda failed: self._joined(nodes, failed, done, request))

    def _joined(self, nodes: tuple[Node, ...], failed: Mapping[str, str], done: OnDone, request: str) -> None:
        if not failed:
            self._last += 1
            granted = f"{self._host.space}.{self._last}"
            self._granted[granted] = tuple([node.name for node in nodes])
            self._raise_ready(self._granted[granted], request, attrs.ALLOC_ID(granted))
            done(granted, None)
            return
        self._refuse("\n".join(failed.values()), done, request)

    def _refuse(self, reason: str, done: OnDone, request: str) -> None:
        self._raise(EventCode.ERR_DVM_MOD, *_requested(request))
        done("", PMIxError(reason, status=Status.ERR_JOB_ALLOC_FAILED, operation=OPERATION))

    # Leaving

    def shrink(
        self, names: Sequence[str], end_ranks: bool, done: Callable[[], None], request: str = "", asker: str = ""
    ) -> None:
        """Remove nodes.

        Args:
            names: Their names.
            end_ranks: Whether ranks that run on them are ended.
            done: Called when they have left; if the requestor is on one of them, just before that node leaves.
            request: The requestor's name for the request.
            asker: The node of the requestor, empty for the launcher's.

        Raises:
            NotFound: The session has no such node.
            PMIxError: Ranks run there, or no other node with slots stays.
        """
        leaving = []
        for name in names:
            node = self._named(name)
            if node is None:
                others = ", ".join([each.hostname for each in self._fleet.nodes])
                raise NotFound(f"{name!r:.80} is none of the nodes that there are: {others}", operation=OPERATION)
            leaving.append(node)
        if not any(node.slots for node in self._fleet.nodes if node not in leaving):
            text = f"without {listed(names)} the session has no slot for a rank"
            raise PMIxError(text, status=Status.ERR_BAD_PARAM, operation=OPERATION)
        busy = [f"{node} ({len(ranks)})" for node in leaving if (ranks := self._ranks_on(node))]
        if busy and not end_ranks:
            text = (
                f"ranks run on {listed(busy)}: have them ended with it (`pypmix shrink --force`), or wait for their end"
            )
            raise ResourceBusy(text, operation=OPERATION)
        gone = tuple([node.hostname for node in leaving])
        there = self._named(asker) if asker else None
        self._leave_all(leaving, there, done, lambda: self._raise_ready(gone, request))

    def _leave_all(
        self,
        leaving: Sequence[RemoteNode],
        there: RemoteNode | None,
        done: Callable[[], None],
        ready: Callable[[], None],
    ) -> None:
        """Remove nodes, the requestor's last: it has its answer before its daemon leaves."""
        elsewhere = [node for node in leaving if node is not there]
        left = len(elsewhere)

        def left_elsewhere() -> None:
            # Another request may have removed it meanwhile.
            if there is None or there not in leaving or not (there in self._fleet.nodes or there in self._leaving):
                ready()
                done()
            else:
                self._leave(there, ready, answer=done)

        def one_left() -> None:
            nonlocal left
            left -= 1
            if not left:
                left_elsewhere()

        for node in leaving:
            node.slots = 0
        for node in elsewhere:
            self._leave(node, one_left)
        if not elsewhere:
            left_elsewhere()

    def leave(self, name: str, reason: str) -> None:
        """Remove a node that the roster takes back."""
        node = self._named(name)
        if node is not None:
            why = f": {reason}" if reason else ""
            self._leave(node, lambda: self._raise_ready((name,), ""), f"the roster takes {name} back{why}")

    def _leave(
        self,
        node: RemoteNode,
        done: Callable[[], None],
        reason: str = "",
        answer: Callable[[], None] | None = None,
    ) -> None:
        node.slots = 0
        if answer is not None:
            self._asked_there.setdefault(node, []).append(answer)

        def end() -> None:
            ranks = [rank for rank in self._ranks_on(node) if rank.alive and not rank.excused]
            if ranks:
                self._host.end_ranks(ranks, EXIT_CODE, reason or f"{node} was taken out of the session")

        for job in list(self._host.jobs.values()):
            # Ranks that are being started cannot be ended before they run.
            job.when_started(end)
        # There may be several requests.
        waiting = self._leaving.setdefault(node, [])
        waiting.append(done)
        if len(waiting) == 1:
            node.when_idle(lambda: self._answer_there(node))

    def _ranks_on(self, node: RemoteNode) -> list[Rank]:
        """Return the ranks that run on a node, or are about to."""
        return [rank for job in self._host.jobs.values() for rank in job.ranks if rank.node is node and not rank.over]

    def _answer_there(self, node: RemoteNode) -> None:
        """Dismiss a node on which nothing is left, once the requestors there have their answers."""
        answers = self._asked_there.pop(node, None)
        if answers is None or node.lost:
            self._dismiss(node)
            return
        for answer in answers:
            answer()
        # Messages keep their order: when this one is answered, those before it have been carried out.
        node.refresh(lambda: self._answer_there(node), PASSED_ON)

    def _dismiss(self, node: RemoteNode) -> None:
        def finish() -> None:
            self._asked_there.pop(node, None)
            self._raise(EventCode.EVENT_NODE_OFFLINE, attrs.HOSTNAME(node.hostname))
            self._session.release(node.known)
            for done in self._leaving.pop(node):
                done()

        for granted, names in list(self._granted.items()):
            rest = tuple([name for name in names if name != node.hostname])
            if rest:
                self._granted[granted] = rest
            else:
                del self._granted[granted]
        self._fleet.dismiss(node, finish)

    # Existing nodes

    def nodes_of(self, granted: str) -> tuple[str, ...]:
        """Return the nodes of an allocation, by its id; empty for an unknown allocation."""
        return self._granted.get(granted, ())

    def idle(self, number: int) -> list[str]:
        """Return `number` nodes on which no rank runs, the last to have joined first.

        Raises:
            PMIxError: There are fewer.
        """
        found = [node.hostname for node in reversed(self._fleet.nodes) if node.slots and not self._ranks_on(node)]
        if len(found) < number:
            text = f"of the nodes {len(found)} run no rank, and {number} are to be released"
            raise ResourceBusy(text, operation=OPERATION)
        return found[:number]

    def _named(self, name: str) -> RemoteNode | None:
        name = _bare(name)
        return next((node for node in self._fleet.nodes if name in node.names), None)

    # Events

    def _raise_ready(self, names: Sequence[str], request: str, *more: Info) -> None:
        nodes = attrs.ALLOC_NODE_LIST(",".join(names))
        self._raise(EventCode.DVM_IS_READY, nodes, *_requested(request), *more)

    def _raise(self, code: int, *infos: Info) -> None:
        self._host.notify(node_event(self._host, code, *infos))


def _bare(name: str) -> str:
    """Return the name of a node without the name of a user."""
    return name.rpartition("@")[2]


def node_event(host: Manager, code: int, *infos: Info) -> Notification:
    """Return an event about nodes, for all of the session."""
    return Notification(code, host.server.proc, Range.SESSION, (*infos, attrs.EVENT_NON_DEFAULT(True)))


def _logged(_id: str, error: PMIxError | None) -> None:
    if error is not None:
        get_logger("pypmix.host").error("%s", error.detail)


def _requested(request: str) -> tuple[Info, ...]:
    return (attrs.ALLOC_REQ_ID(request),) if request else ()


# Allocation requests


def _allocate(host: Manager, upcall: Upcall) -> None:
    elastic = host.find_part(Elastic)
    if elastic is None:
        raise NotSupported("this job has one fixed node; start it with --host or in an allocation", operation=OPERATION)
    check_user(upcall, "change the nodes of another user's session")
    elastic.call_when_joined(lambda: host.answer_with(_change, upcall))


def _change(host: Manager, upcall: Upcall) -> None:
    op, elastic = upcall.op, host.find_part(Elastic)
    assert isinstance(op, AllocationRequest) and elastic is not None
    for info in op.directives:
        if info.key not in KNOWN and info.flags & InfoFlags.REQUIRED:
            raise NotSupported(f"{name_of(info.key)} is required and not offered on this host", operation=op.name)
    given = {info.key: info.value.data for info in op.directives}
    request = str(given.get(REQUEST) or "")
    if op.directive in (AllocDirective.NEW, AllocDirective.EXTEND):
        wanted = NodeRequest(_hosts(given), _number(given, NUMBER), _number(given, CPUS, MAX_CPUS))
        if wanted == NodeRequest():
            raise _bad("it names no nodes, and neither their number nor that of CPUs")

        def grown(granted: str, error: PMIxError | None) -> None:
            if error is not None:
                upcall.fail(error)
            else:
                nodes = attrs.ALLOC_NODE_LIST(",".join(elastic.nodes_of(granted)))
                upcall.reply((attrs.ALLOC_ID(granted), nodes, *_requested(request)))

        elastic.grow(wanted, grown, request)
    elif op.directive == AllocDirective.RELEASE:
        names = [name for name, _ in _hosts(given)] or list(elastic.nodes_of(str(given.get(ID))))
        names = names or elastic.idle(_number(given, NUMBER))
        if not names:
            raise _bad("it names no nodes to release, no number of them, and no allocation that there is")
        nodes = attrs.ALLOC_NODE_LIST(",".join(names))
        elastic.shrink(
            names,
            is_set(op.directives, END_RANKS),
            lambda: upcall.reply((nodes, *_requested(request))),
            request,
            upcall.server if isinstance(upcall, Forwarded) else "",
        )
    else:
        raise NotSupported(
            f"this host has no allocation request {AllocDirective(op.directive).name}", operation=op.name
        )


def _bad(text: str) -> PMIxError:
    return PMIxError(text, status=Status.ERR_BAD_PARAM, operation=OPERATION)


def _hosts(directives: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
    """Return the nodes that are named, with their slots."""
    text = directives.get(NODES)
    if not text:
        return ()
    if not isinstance(text, str):
        raise _bad("a list of nodes is a string")
    return hosts(text)


def hosts(text: str) -> tuple[tuple[str, int], ...]:
    """Return the nodes of a list such as `n3:4,n4` with their slots, 0 if none were given.

    Raises:
        PMIxError: It cannot be read.
    """
    from pypmix.host.rosters.names import read_hosts

    try:
        return tuple([(host.name, host.slots) for host in read_hosts(text)])
    except ValueError as error:
        raise _bad(str(error)) from None


def _number(directives: Mapping[str, object], key: str, most: int = MAX_NODES) -> int:
    number = directives.get(key, 0)
    if not isinstance(number, int) or not 0 <= number <= most:
        raise _bad(f"{name_of(key)} is a number of at most {most}, not {number!r:.80}")
    return number


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {AllocationRequest: _allocate}
