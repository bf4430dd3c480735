"""Requests: the form in which handlers of a host get upcalls: their fields, the requestor, `reply` and `fail`."""

from __future__ import annotations

import math

from pypmix.answers import Answers
from pypmix.psets import ProcSet as ProcSet
from pypmix.standard import attrs, statuses
from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.errors import SUCCESSES, PMIxError, error_for
from pypmix.standard.naming import name_procs
from pypmix.standard.ops import Connected, Credential, GroupResults
from pypmix.standard.ops.connecting import CONNECT_ASSIGN, CONNECT_ID, CONNECT_XCHG_ONLY
from pypmix.standard.ops.events import is_set, procs_in
from pypmix.standard.ops.hosting import GROUP_CANCEL, GROUP_CONSTRUCT, GROUP_DESTRUCT
from pypmix.standard.types import MAX_NSLEN, DeviceDistance, Info, Pdata, Proc, check_name
from pypmix.standard.values import infos as as_infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Hashable, Iterable, Mapping
    from typing import Any, NoReturn, Protocol

    from pypmix.engine.base import Upcall
    from pypmix.standard.attr import Attr
    from pypmix.standard.ops import Op
    from pypmix.standard.types import App, Cpuset, Query, ResourceUnit, Topology

    Handler = Callable[[Any], Any]
    Given = Mapping[Any, object] | Iterable[Info] | None

    class Dispatcher(Protocol):
        """The requests in flight, as a request sees them."""

        expand: Callable[[Iterable[Proc]], Iterable[Proc]]

        def settled(self, request: Request[Any], /) -> None: ...

        def again(self, request: Request[Any], /) -> None: ...


R = TypeVar("R")


class Later:
    """The type of `LATER`."""

    def __repr__(self) -> str:
        return "LATER"


LATER = Later()
"""Returned by a handler that answers by `reply` or `fail` of the request, before or after it returns."""


def _seconds(infos: Iterable[Info]) -> float | None:
    """Return the shortest of the timeouts that callers give to an operation; None if they give none."""
    found = None
    for info in infos:
        data = info.value.data
        if info.key == attrs.TIMEOUT.key and isinstance(data, int | float) and data > 0 and math.isfinite(data):
            found = data if found is None else min(found, data)
    return found


class Request(Generic[R]):
    """An upcall as a handler gets it; the fields of its operation (`pypmix.standard.ops`) are its attributes.

    It is answered once: by the handler's result or exception or, if the result is `LATER`, by `reply` or `fail`, from
    any thread.

    Attributes:
        op: The operation.
        name: The name of the handler's method, which is the name of the server module's slot.
        requestor: The client that sent the request; None if it is not of a single client.
        uid: The client's user, as the server knows it; None without a client.
        gid: The client's group.
    """

    __slots__ = ("__weakref__", "_dispatcher", "_upcalls", "deadline", "gid", "name", "op", "requestor", "task", "uid")

    def __init__(self, upcall: Upcall, name: str, dispatcher: Dispatcher) -> None:
        self.op: Op[Any] = upcall.op
        self.name = name
        self.requestor = upcall.requestor
        self.uid = upcall.uid
        self.gid = upcall.gid
        # The thread that pops this entry answers; `pop` is atomic.
        self._upcalls = [upcall]
        self._dispatcher = dispatcher
        self.deadline = math.inf
        self.task: Task[None] | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if not name.startswith("_"):
                try:
                    return getattr(self.op, name)
                except AttributeError:
                    pass
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def given(self) -> tuple[Info, ...]:
        """The operation's directives or, if it has no directives, its infos."""
        found: tuple[Info, ...] | None = getattr(self.op, "directives", None)
        return getattr(self.op, "infos", ()) if found is None else found

    @property
    def info(self) -> Answers:
        """The same infos as a dict of plain values, by attribute or key. If a key is given twice, the last counts."""
        return Answers(self.given)

    @property
    def timeout(self) -> float | None:
        """The seconds after which the callers give up (`PMIX_TIMEOUT`); None if they wait for ever."""
        return _seconds(self.given)

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """The operation and its sorted procs, which are the same on all participating servers."""
        return (self.name, *sorted(set(getattr(self.op, "procs", ()))))

    @property
    def answered(self) -> bool:
        """Whether the request has been answered."""
        return not self._upcalls

    def asks(self, flag: Attr[bool]) -> bool:
        """Return True if a flag was given and is not false."""
        return is_set(self.given, flag.key)

    def reply(self, result: Any = None) -> Later:
        """Answer the request.

        Args:
            result: The result, as the handler could return it.

        Returns:
            `LATER`, so that a handler may end with `return req.reply(...)`.

        Raises:
            TypeError, ValueError: This is not a result of this operation; the request is still unanswered.
        """
        return self._settle(self.result(result), None)

    def fail(self, error: BaseException | int) -> Later:
        """Answer the request with an error.

        Args:
            error: A `PMIxError`, whose status the peer gets; any other exception, for which it gets `ERROR`; or a
                `Status`.

        Returns:
            `LATER`.

        Raises:
            TypeError, ValueError: This is not an error; the request is still unanswered.
        """
        if isinstance(error, int) and not isinstance(error, bool):
            if error in SUCCESSES:
                raise ValueError(f"{error!r} is not an error")
            error = error_for(int(error))(f"the host answered {self.name} so", status=int(error), operation=self.name)
        elif not isinstance(error, BaseException):
            raise TypeError(f"{self.name} fails with an exception or a Status, not with a {type(error).__name__}")
        return self._settle(None, error)

    def _settle(self, result: object, error: BaseException | None) -> Later:
        try:
            upcall = self._upcalls.pop()
        except IndexError:
            self._dispatcher.again(self)
            return LATER
        try:
            if error is not None:
                upcall.fail(error)
            else:
                upcall.reply(result)
        except Exception as problem:
            # The engine cannot send this result; the peer needs an answer all the same.
            upcall.fail(failure(self, problem))
            raise
        finally:
            self._dispatcher.settled(self)
        return LATER

    def take(self) -> Upcall | None:
        """Remove and return the upcall, which the caller then answers; None if it has been answered."""
        try:
            upcall = self._upcalls.pop()
        except IndexError:
            return None
        self._dispatcher.settled(self)
        return upcall

    def result(self, given: Any) -> R:
        """Convert a handler's result to the form that the server takes.

        Raises:
            TypeError, ValueError: The result cannot be converted.
        """
        if given is not None:
            self.wrong(given, "nothing")
        return None  # type: ignore[return-value]

    def wrong(self, given: object, wanted: str) -> NoReturn:
        """Raise `TypeError`: a result has the wrong type for the request."""
        raise TypeError(f"{self.name} is answered with {wanted}, not with a {type(given).__name__}")

    def __str__(self) -> str:
        procs = getattr(self.op, "procs", None)
        if procs is None:
            proc = getattr(self.op, "proc", None)
            procs = () if proc is None else (proc,)
        text = self.name
        if procs:
            text += f" of {name_procs(procs)}"
        if self.requestor is not None and self.requestor not in procs:
            text += f" by {self.requestor}"
        return text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}{', answered' if self.answered else ''}>"


class _InfoRequest(Request[tuple[Info, ...]]):
    """A request that is answered with infos: a mapping of attributes or keys to values, or infos, or None."""

    __slots__ = ()

    def result(self, given: Any) -> tuple[Info, ...]:
        return _infos(self, given)


def _infos(request: Request[Any], given: Any) -> tuple[Info, ...]:
    if isinstance(given, Answers):
        return given.infos
    if isinstance(given, str | bytes | int):
        request.wrong(given, "infos or a mapping of keys to values")
    return as_infos(given)


class ClientRequest(Request[None]):
    """`client_connected`, `client_finalized`, `client_lost`; an error refuses the client that connects."""

    __slots__ = ()

    proc: Proc


class AbortRequest(Request[None]):
    """`client_aborted`: a client asks the host to end procs.

    Attributes:
        proc: The client.
        message: The client's text about the reason.
    """

    __slots__ = ()

    proc: Proc
    message: str

    @property
    def status(self) -> int:
        """The status with which the job should end."""
        found: int = self.op.code  # type: ignore[attr-defined]
        return found

    @property
    def targets(self) -> tuple[Proc, ...]:
        """The procs to end; the wildcard of the client's nspace if the client names none."""
        from pypmix.standard.types import RANK_WILDCARD

        found: tuple[Proc, ...] = self.op.targets  # type: ignore[attr-defined]
        return found or (Proc(self.proc.nspace, RANK_WILDCARD),)


class FenceRequest(Request[bytes]):
    """`fence`: all procs of this server have called it; answered with the data of all servers, one after the other.

    Attributes:
        procs: The procs of the fence as its callers name them.
        directives: The directives of the callers.
        data: The data that the procs of this server have committed for others.
    """

    __slots__ = ()

    procs: tuple[Proc, ...]
    directives: tuple[Info, ...]
    data: bytes

    @property
    def collect(self) -> bool:
        """Whether data is exchanged (`PMIX_COLLECT_DATA`)."""
        return self.asks(attrs.COLLECT_DATA)

    def result(self, given: Any) -> bytes:
        # A barrier has no data to return, and the data of this server may be omitted.
        return b"" if given is None else _bytes(self, given)


def _bytes(request: Request[Any], given: Any) -> bytes:
    if not isinstance(given, bytes | bytearray | memoryview):
        request.wrong(given, "bytes")
    return bytes(given)


class DirectModexRequest(Request[bytes]):
    """`direct_modex`: a client requests the data that a proc of another server has committed.

    Attributes:
        proc: The proc of the data.
        directives: The directives of the client.
    """

    __slots__ = ()

    proc: Proc
    directives: tuple[Info, ...]

    @property
    def key(self) -> str:
        """The key that the client waits for (`PMIX_REQUIRED_KEY`); empty if it accepts any data."""
        return next((str(info.value.data) for info in self.directives if info.key == attrs.REQUIRED_KEY.key), "")

    def result(self, given: Any) -> bytes:
        return _bytes(self, given)


class PublishRequest(Request[None]):
    """`publish`; see `pypmix.standard.ops.Publish`."""

    __slots__ = ()

    infos: tuple[Info, ...]
    range: int
    persistence: int
    directives: tuple[Info, ...]


class LookupRequest(Request[tuple[Pdata, ...]]):
    """`lookup`: answered with the `Pdata` that was found, or with `NotFound` if nothing was found."""

    __slots__ = ()

    keys: tuple[str, ...]
    directives: tuple[Info, ...]

    @property
    def wait(self) -> int | None:
        """The number of keys that the caller waits for (`PMIX_WAIT`), 0 for all; None if it does not wait."""
        found: int | None = self.info.get(attrs.WAIT)
        return found

    def result(self, given: Any) -> tuple[Pdata, ...]:
        found = () if given is None else (given,) if isinstance(given, Pdata) else tuple(given)
        for item in found:
            if not isinstance(item, Pdata):
                self.wrong(item, "Pdata")
        if not found:
            from pypmix.standard.errors import NotFound

            raise NotFound(f"no value is published under {', '.join(self.keys)}", operation="lookup")
        return found


class UnpublishRequest(Request[None]):
    """`unpublish`; without keys, all keys that the requestor has published."""

    __slots__ = ()

    keys: tuple[str, ...]
    directives: tuple[Info, ...]


class SpawnRequest(Request[str]):
    """`spawn`: answered with the nspace of the new job, which is registered by then."""

    __slots__ = ()

    apps: tuple[App, ...]
    directives: tuple[Info, ...]

    def result(self, given: Any) -> str:
        if not isinstance(given, str):
            self.wrong(given, "the nspace of the new job")
        if not check_name(given, MAX_NSLEN, "the nspace that spawn is answered with"):
            raise ValueError("spawn is answered with the nspace of the new job, which is not empty")
        return given


class ConnectRequest(Request["Connected | None"]):
    """`connect`: all procs of this server have called it.

    Answered with an nspace for the connection, which must not be the nspace of a job and must be the same on all
    servers: its members are the procs that have joined, in the order of their names. Or with a
    `pypmix.standard.ops.Connected`, in which the host lists the members in the order of the new ranks. Or with None:
    the procs are then connected under their own names.
    """

    __slots__ = ()

    procs: tuple[Proc, ...]
    directives: tuple[Info, ...]

    @property
    def assigns(self) -> bool:
        """Whether the participants support a new nspace for the connection, and request it."""
        return is_set(self.directives, CONNECT_ASSIGN) and not is_set(self.directives, CONNECT_XCHG_ONLY)

    @property
    def id(self) -> str | None:
        """The id that distinguishes it from other connects of the same procs; None if the callers give none."""
        return next((info.value.data for info in self.directives if info.key == CONNECT_ID), None)

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """The operation, its id and its sorted procs, which are the same on all participating servers."""
        id = self.id
        return (self.name, *(() if id is None else (id,)), *sorted(set(self.procs)))

    def result(self, given: Any) -> Connected | None:
        if isinstance(given, str):
            if not check_name(given, MAX_NSLEN, "an nspace"):
                raise ValueError("connect is answered with an nspace, which is not empty, or with None")
            given = Connected(given)
        if given is not None and not isinstance(given, Connected):
            self.wrong(given, "the nspace of the connection, a Connected, or nothing")
        return given


class DisconnectRequest(Request[None]):
    """`disconnect`: all procs of this server have called it."""

    __slots__ = ()

    procs: tuple[Proc, ...]
    directives: tuple[Info, ...]


class EventsRequest(Request[None]):
    """`register_events` and `deregister_events`; without codes, all codes.

    Attributes:
        codes: The codes.
        directives: The directives of a registration; a deregistration has none.
    """

    __slots__ = ()

    codes: tuple[int, ...]


class NotifyRequest(Request[None]):
    """`notify_event`: send an event to the other servers; the clients of this server have received it."""

    __slots__ = ()

    code: int
    range: int
    infos: tuple[Info, ...]


class ToolRequest(Request["Proc | None"]):
    """`tool_connected`: answered with the tool's name; None lets the server generate a name."""

    __slots__ = ()

    proc: Proc | None
    pid: int | None
    launcher: bool
    release: str
    directives: tuple[Info, ...]

    def result(self, given: Any) -> Proc | None:
        if given is not None and not isinstance(given, Proc):
            self.wrong(given, "a Proc or None")
        return given


class QueryRequest(_InfoRequest):
    """`query`: answered with values by key, which may be fewer than the requested keys."""

    __slots__ = ()

    queries: tuple[Query, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """All requested keys, each once."""
        return tuple(dict.fromkeys([key for query in self.queries for key in query.keys]))

    @property
    def given(self) -> tuple[Info, ...]:
        """The qualifiers of all its queries."""
        return tuple([info for query in self.queries for info in query.qualifiers])


class LogRequest(Request[None]):
    """`log`.

    Attributes:
        data: The channels (`attrs.LOG_STDERR`, ...) and the data to write there.
        directives: The directives of the caller.
        timestamp: The time of the call, in seconds since 1970; 0 if it is unknown.
    """

    __slots__ = ()

    data: tuple[Info, ...]
    directives: tuple[Info, ...]
    timestamp: int


class AllocateRequest(_InfoRequest):
    """`allocate`; the directive is an `AllocDirective`."""

    __slots__ = ()

    directive: int
    directives: tuple[Info, ...]


class JobControlRequest(_InfoRequest):
    """`job_control`; without targets, for the requestor's nspace."""

    __slots__ = ()

    targets: tuple[Proc, ...]
    directives: tuple[Info, ...]


class MonitorRequest(_InfoRequest):
    """`monitor`: monitor the requestor, and raise the event `error` when it fails."""

    __slots__ = ()

    monitor: Info
    error: int
    directives: tuple[Info, ...]


class HeartbeatRequest(Request[None]):
    """`heartbeat`: the requestor is alive; the answer is dropped."""

    __slots__ = ()


class GetCredentialRequest(Request[Credential]):
    """`get_credential`: answered with bytes or a `Credential`."""

    __slots__ = ()

    directives: tuple[Info, ...]

    def result(self, given: Any) -> Credential:
        if isinstance(given, Credential):
            return given
        if not isinstance(given, bytes):
            self.wrong(given, "bytes or a Credential")
        return Credential(given)


class ValidateCredentialRequest(_InfoRequest):
    """`validate_credential`: answered with infos about the credential's owner; with an error if it is not valid."""

    __slots__ = ()

    credential: bytes
    directives: tuple[Info, ...]


class IOFPullRequest(Request["int | None"]):
    """`iof_pull`: deliver the output of procs to the server from now on; answered with an id for its end, or None.

    The same handler gets the end of a pull: then `stop` is true, and `id` is the id of the pull.

    Attributes:
        procs: The procs of the output; empty for an end.
        channels: A sum of `IOFChannel`; 0 for an end.
        directives: The directives of the caller.
        id: The id of the pull that ends; None for a new pull.
    """

    __slots__ = ()

    directives: tuple[Info, ...]

    @property
    def procs(self) -> tuple[Proc, ...]:
        return getattr(self.op, "procs", ())

    @property
    def channels(self) -> int:
        return getattr(self.op, "channels", 0)

    @property
    def id(self) -> int | None:
        return getattr(self.op, "id", None)

    @property
    def stop(self) -> bool:
        """Whether a pull ends."""
        return self.id is not None

    def result(self, given: Any) -> int | None:
        if given is not None and type(given) is not int:
            self.wrong(given, "an int or None")
        return given


class IOFPushRequest(Request[None]):
    """`iof_push`: bytes for the standard input of procs; answered when the host has accepted them."""

    __slots__ = ()

    procs: tuple[Proc, ...]
    data: bytes
    directives: tuple[Info, ...]


class GroupRequest(Request[tuple[Info, ...]]):
    """`group`: all procs of this server that construct or destruct a group have called it.

    A construct is answered with the membership (`reply(members=...)`), a `GroupResults` or infos; other operations with
    None. An answer without members means `members`.

    Attributes:
        operation: 0 for a construct, 1 for a destruct, 3 if the server cancels an operation that it has started.
        group: The group's name.
        directives: The directives of the callers on this server, and their infos for the other members.
    """

    __slots__ = ()

    operation: int
    group: str
    directives: tuple[Info, ...]

    @property
    def construct(self) -> bool:
        """Whether this is a construct."""
        return self.operation == GROUP_CONSTRUCT

    @property
    def destruct(self) -> bool:
        """Whether this is a destruct."""
        return self.operation == GROUP_DESTRUCT

    @property
    def cancel(self) -> bool:
        """Whether the server cancels its earlier request."""
        return self.operation == GROUP_CANCEL

    @property
    def procs(self) -> ProcSet:
        """The members as the callers name them; a wildcard means all procs of an nspace."""
        return ProcSet(self.op.procs)  # type: ignore[attr-defined]

    @property
    def added(self) -> ProcSet:
        """Further members, which some callers have not named (`PMIX_GROUP_ADD_MEMBERS`)."""
        return ProcSet(procs_in(self.directives, attrs.GROUP_ADD_MEMBERS.key) or ())

    @property
    def members(self) -> ProcSet:
        """All named and added procs, sorted; a wildcard is replaced by the procs of its job."""
        return ProcSet(sorted(self._dispatcher.expand(self.procs | self.added)))

    @property
    def wants_context_id(self) -> bool:
        """Whether the callers request a context id (`PMIX_GROUP_ASSIGN_CONTEXT_ID`)."""
        return self.asks(attrs.GROUP_ASSIGN_CONTEXT_ID)

    @property
    def shared(self) -> tuple[Info, ...]:
        """The group info and endpoints of the callers for the other members."""
        keys = (attrs.GROUP_INFO.key, attrs.GROUP_INFO_ARRAY.key, attrs.GROUP_ENDPT_DATA.key)
        return tuple([info for info in self.directives if info.key in keys])

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """The operation and the group, which are the same on all participating servers."""
        return (self.name, self.operation, self.group)

    def reply(
        self,
        result: Any = None,
        *,
        members: Iterable[Proc] | None = None,
        context_id: int | None = None,
        infos: Given = None,
    ) -> Later:
        """Answer the request.

        Args:
            result: The result, as the handler could return it; it excludes the other arguments.
            members: All members, in the order of their group ranks; the request's `members` by default.
            context_id: The context id.
            infos: Further results; by default the infos of the callers for each other (`shared`).

        Returns:
            `LATER`.

        Raises:
            TypeError, ValueError: This is not a result; the request is still unanswered.
        """
        if members is None and context_id is None and infos is None:
            return super().reply(result)
        if result is not None:
            raise TypeError("a group request is answered with a result or with its parts, not with both")
        named = () if members is None else tuple(members)
        if infos is None:
            return super().reply(GroupResults(named, context_id, self.shared if self.construct else ()))
        return super().reply(GroupResults(named, context_id, as_infos(infos)))

    def result(self, given: Any) -> tuple[Info, ...]:
        if not self.construct:
            # A destruct has no membership, but a handler of both operations may return one for both.
            return given.infos if isinstance(given, GroupResults) else _infos(self, given)
        if given is None:
            given = GroupResults(infos=self.shared)
        if not isinstance(given, GroupResults):
            return _infos(self, given)
        members = given.members or self.members
        for member in members:
            if not isinstance(member, Proc):
                raise TypeError(f"the members of a group are Procs, not a {type(member).__name__}")
        found = [attrs.GROUP_MEMBERSHIP(list(members))]
        if given.context_id is not None:
            found.append(attrs.GROUP_CONTEXT_ID(given.context_id))
        return (*found, *given.infos)


class FabricRequest(_InfoRequest):
    """`fabric`: answered with infos about a fabric; `index` is the fabric to update, or None for a registration."""

    __slots__ = ()

    @property
    def index(self) -> int | None:
        return getattr(self.op, "index", None)


class ComputeDistancesRequest(Request[tuple[DeviceDistance, ...]]):
    """`compute_distances`: answered with the `DeviceDistance` of each device."""

    __slots__ = ()

    topology: Topology
    cpuset: Cpuset
    directives: tuple[Info, ...]

    def result(self, given: Any) -> tuple[DeviceDistance, ...]:
        found = () if given is None else tuple(given)
        for item in found:
            if not isinstance(item, DeviceDistance):
                self.wrong(item, "DeviceDistances")
        return found


class SessionControlRequest(_InfoRequest):
    """`session_control`: act on a session."""

    __slots__ = ()

    session: int
    directives: tuple[Info, ...]


class ResourceBlockRequest(Request[None]):
    """`resource_block`: define or change a block of resources."""

    __slots__ = ()

    directive: int
    block: str
    units: tuple[ResourceUnit, ...]
    infos: tuple[Info, ...]


def failure(request: Request[Any], error: BaseException) -> PMIxError:
    """Return the error to send to a peer for an exception of a handler."""
    if isinstance(error, PMIxError):
        return error
    # The exception's text may contain private data; it is in the log.
    return PMIxError("the host failed", status=statuses.ERROR, operation=request.name)
