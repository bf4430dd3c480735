"""The groups of a client: the port between them and its machine, and their operations at the server.

A server of the Python engine decides constructs and destructs: each is one request and one answer, which
`Constructing` of `pypmix.engine.groups` prepares and records. All other operations of a program, and constructs on
other servers, are begun in `GroupPort.begin` and carried out by `pypmix.engine.groups`, which submits further
operations. These arrive here again by `submit`, and are sent to the server.
"""

from __future__ import annotations

from pypmix.engine.faults import Steps
from pypmix.engine.groups.agent import Agent
from pypmix.engine.groups.constructing import FAILURES, SERVER_GRACE, reacting, results_of
from pypmix.engine.groups.foreign import support_of
from pypmix.engine.groups.foreign.rules import TELLING, signed
from pypmix.engine.python.client import Operation, timeout_of
from pypmix.engine.python.clientside.events import events_of
from pypmix.standard import statuses
from pypmix.standard.errors import SUCCESSES, LostConnection, NotFound, PMIxError
from pypmix.standard.keys import GROUP_NAMES
from pypmix.standard.ops import (
    Fence,
    Get,
    GroupAdmit,
    GroupConstruct,
    GroupDestruct,
    GroupEnter,
    GroupInvite,
    GroupInviteControl,
    GroupJoin,
    GroupLeave,
    GroupUnwatch,
    GroupWatch,
)
from pypmix.wire.codec import Packer
from pypmix.wire.messages import Command, request_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.chain import Handlers
    from pypmix.engine.groups.addresses import Addresses
    from pypmix.engine.python.client import Call, Client, ClientTimer, Ended, JobValues, Start
    from pypmix.standard.ops import Connected, GroupResults, GroupState, Notification, Op
    from pypmix.standard.types import Info, Proc

    Formed = tuple[GroupResults | None, list[JobValues]]

PARTIAL: tuple[int, int, int] = (6, 0, 0)
"""The first release as which a server of this engine brings a group with a partial success.

To clients of earlier ones that is how a construct fails.
"""


MAX_ANSWER = 65536
"""The longest answer that is kept, in bytes."""


class GroupPort:
    """The groups of one client, and its machine as they see it; see `pypmix.engine.groups.agent.Port`.

    Args:
        client: The machine.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._outside: set[Call] = set()
        self._steps = Steps(self._fail)
        self.proc = client.proc
        self.server_release = client.release
        support = self.support = support_of(client.adapts)
        self.construct: Callable[[Call], None] = self.begin
        self.destruct: Callable[[Call], None] = self.begin
        if support.decides:
            self.construct, self.destruct = self._ask_construct, self._ask_destruct
        self._last_requests: dict[int, tuple[Sequence[object], tuple[bytes, Any, bytes]]] = {}
        """By command, the fields of the last request but for the group's name, and these packed."""
        self.last_answer: tuple[bytes, Any] = b"", None
        """The last answer to a construct, packed and read: that of the next group of the same procs equals it."""
        self.recorded = False
        self.fetch = client.store.lookup
        self.agent = Agent(self)
        self.addresses: Addresses = self.agent.addresses
        self.names = self.addresses.rules
        self.handlers.failed = self._steps.failed
        client.at_loss.append(self._handle_disconnect)

    # Calls of the machine; see `pypmix.engine.python.client.Groups`

    def begin(self, call: Call, group: str = "") -> None:
        client, op = self._client, call.op

        def finish(result: Any, error: BaseException | None) -> None:
            self._outside.discard(call)
            if isinstance(error, PMIxError):
                client.named(error, op)
            client.end(call, result, error)

        call.guided = True
        self._outside.add(call)
        if group:
            self._steps.begin(call, self.agent.constructing.fence, group, op, finish)
        else:
            self._steps.begin(call, self.agent.start, op, finish)

    def outside(self) -> Iterable[Call]:
        return list(self._outside)

    def abandon(self, op: Any) -> None:
        self.agent.constructing.give_up(op)

    def _fail(self, whose: object, error: PMIxError) -> None:
        for call in [each for each in self._outside if whose is None or each is whose]:
            self._outside.discard(call)
            self._client.fail(call, PMIxError(error.detail, hint=error.hint))

    def translate(self, call: Call) -> bool:
        client, op = self._client, call.op
        # No group has the name of the job, which nearly all fences and gets name.
        if type(op) is Fence:
            if not op.procs or (len(op.procs) == 1 and op.procs[0][0] == self.proc[0]):
                return True
        elif type(op) is Get and op.proc[0] in (self.proc[0], "") and op.key != GROUP_NAMES:
            return True
        group = self.addresses.whole(op)
        if group:
            self.begin(call, group)
            return False
        try:
            answer = self.addresses.answer(op)
            if answer is None:
                call.op = self.addresses.translated(op)
                return True
        except NotFound as error:
            client.fail(call, error)
            return False
        client.end(call, answer)
        return False

    def state(self, name: str) -> GroupState | None:
        found: GroupState | None = self.agent.standing.state(name)
        return found

    def is_member(self, name: str) -> bool:
        return bool(self.addresses.members(name))

    def expect(self, codes: Iterable[int]) -> None:
        self.agent.expect(codes)

    def connected(self, made: Connected, id: str) -> None:
        self.addresses.connected(made.nspace, made.procs, id)

    def disconnected(self, procs: tuple[Proc, ...], id: str) -> None:
        self.addresses.disconnected(procs, id)

    def _handle_disconnect(self) -> None:
        client = self._client
        client.timers.clear()
        self.agent.handle_disconnect(None if client.closed is None else client.closed())
        for call in list(self._outside):
            client.fail(call, LostConnection("the client was closed meanwhile"))

    # Calls of the groups

    @property
    def handlers(self) -> Handlers:
        return events_of(self._client).handlers

    def enter(self, step: Callable[[], None]) -> None:
        self._client.enter(step)

    def tell(self, function: Callable[[Any], None], argument: object) -> None:
        self._client.tell(function, argument)

    def watch(self, code: int, watcher: Callable[[Notification], None]) -> None:
        events_of(self._client).watch(code, watcher)

    def submit(self, op: Op[Any], done: Done[Any]) -> None:
        start: Start | None = None
        if isinstance(op, GroupConstruct):
            start = self._construct
        elif isinstance(op, GroupDestruct):
            start = self._destruct
        self._client.begin_inside(op, self._steps.make_callback(done), start)

    def give_up(self, op: Op[Any]) -> None:
        self._client.give_up_inside(op)

    def later(self, seconds: float, call: Callable[[], None]) -> ClientTimer:
        return self._client.later(seconds, self._steps.later(call))

    # Operations that the server decides

    def _ask_construct(self, call: Call) -> None:
        op: Any = call.op
        try:
            self.agent.constructing.begin(op)
        except PMIxError as error:
            self._client.fail(call, error)
            return
        try:
            self._request(call, Command.GROUP_CONSTRUCT, tuple(dict.fromkeys(op.procs)), reacting(op), {})
        except BaseException:
            self.agent.constructing.drop(op)
            raise

    def _ask_destruct(self, call: Call) -> None:
        op: Any = call.op
        try:
            members = self.agent.constructing.begin_destruct(op)
        except PMIxError as error:
            self._client.fail(call, error)
            return
        try:
            self._request(call, Command.GROUP_DESTRUCT, (), op.directives, {"members": tuple(sorted(members))})
        except BaseException:
            self.agent.constructing.end_destruct(op, statuses.ERROR)
            raise

    def _request(
        self, call: Call, command: int, procs: tuple[Proc, ...], infos: tuple[Info, ...], more: dict[str, object]
    ) -> None:
        """Send a request that differs from the last one by the group's name alone, or pack it anew."""
        client, op = self._client, call.op
        last, shared = self._last_requests.get(command), (procs, infos, more)
        if last is None or last[0] != shared:
            layout = request_layout(command, client.release)
            parts = layout.around("group", client.buffer_type, client.rule, procs=procs, infos=infos, **more)
            last = self._last_requests[command] = shared, parts
        before, name, after = last[1]
        packer = Packer(client.buffer_type, client.rule)
        name.put(packer, getattr(op, "group", ""))
        client.request(call, before + packer.bytes() + after)
        limit = timeout_of(op) if infos else 0
        if limit:
            # The server keeps the time. It may be late on a busy machine.
            client.limit(call, limit + SERVER_GRACE)

    # Operations that the parts submit to the server

    def _construct(self, client: Client, call: Call, op: GroupConstruct) -> None:
        infos = op.directives
        if client.release >= TELLING:
            infos = tuple([signed(info, client.proc) for info in infos])
        client.request(call, client.encode(Command.GROUP_CONSTRUCT, group=op.group, procs=op.procs, infos=infos))

    def _destruct(self, client: Client, call: Call, op: GroupDestruct) -> None:
        # In the order that servers have them in, whatever that of the group is.
        members = tuple(sorted(self.agent.standing.members(op.group)))
        fields = {"group": op.group, "members": members, "infos": op.directives}
        client.request(call, client.encode(Command.GROUP_DESTRUCT, **fields))


def _port(client: Client) -> GroupPort:
    port: Any = client.groups
    return port  # type: ignore[no-any-return]


def _start(client: Client, call: Call, op: Op[Any]) -> None:
    if client.server is None:
        client.alone(call)
        return
    groups = client.grouped()
    if type(op) is GroupConstruct:
        groups.construct(call)
    elif type(op) is GroupDestruct:
        groups.destruct(call)
    else:
        groups.begin(call)


def _read_failure(client: Client, call: Call, payload: bytes) -> Ended:
    if _port(client).support.answers_partially:
        return client.read_missing(call, payload)
    status = client.status(payload)
    return client.read_missing(call, payload) if status == statuses.ERR_TIMEOUT else (status, None)


def _read_formed(client: Client, call: Call, payload: bytes) -> tuple[Ended, Formed]:
    port = _port(client)
    if payload == port.last_answer[0]:
        last: tuple[Ended, Formed] = port.last_answer[1]
        return last
    status = client.status(payload)
    partial = status == statuses.ERR_PARTIAL_SUCCESS and port.support.answers_partially and client.release >= PARTIAL
    if status not in SUCCESSES and not partial:
        return _read_failure(client, call, payload), (None, [])
    fields = client.decode(Command.GROUP_CONSTRUCT, payload)
    members, context_id, infos = fields.get("members") or (), fields["context_id"], fields.get("group_info", ())
    jobs = fields.get("objects")
    results = results_of(infos, partial, tuple(members), context_id)
    formed = (status, None), (results, client.read_jobs(jobs) if jobs else [])
    if not jobs and len(payload) <= MAX_ANSWER:
        port.last_answer = payload, formed
    return formed


def _constructed(client: Client, call: Call, op: GroupConstruct, reply: tuple[Ended, Formed]) -> None:
    failure, (results, jobs) = reply
    port = _port(client)
    # The parts of the groups take the end of their own requests themselves.
    asked = call.inside is None and port.support.decides
    if results is None:
        if asked:
            port.agent.constructing.drop(op)
        _settle(client, call, op, failure)
        return
    if jobs:
        client.learn(jobs)
    client.end(call, port.agent.constructing.form(op, results) if asked else results)


def _destructed(client: Client, call: Call, op: GroupDestruct, failure: Ended) -> None:
    port = _port(client)
    if call.inside is None and port.support.decides:
        port.agent.constructing.end_destruct(op, failure[0])
    _settle(client, call, op, failure)


def _settle(client: Client, call: Call, op: GroupConstruct | GroupDestruct, failure: Ended) -> None:
    status = failure[0]
    if status in SUCCESSES:
        client.end(call)
    else:
        client.miss(call, failure, FAILURES.get(status, "").format(repr(op.group)))


OPERATIONS: dict[type, Operation] = dict.fromkeys(
    (
        GroupAdmit,
        GroupEnter,
        GroupInvite,
        GroupInviteControl,
        GroupJoin,
        GroupLeave,
        GroupUnwatch,
        GroupWatch,
    ),
    Operation(_start),
)
OPERATIONS[GroupConstruct] = Operation(_start, _read_formed, _constructed)
OPERATIONS[GroupDestruct] = Operation(_start, _read_failure, _destructed)
