"""Requests: an upcall in the form in which a handler of a host gets it, with `reply` and `fail`.

`Request` is the base of all. The other bases add to single requests what their operations in `standard/ops` do not
have: properties that are derived from the fields, and the conversion of a handler's result. The requests themselves are
in `requests`, which is generated from the operations.
"""

from __future__ import annotations

import math
import threading

from pypmix.answers import Answers
from pypmix.psets import ProcSet
from pypmix.standard import attrs, statuses
from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.errors import SUCCESSES, NotFound, PMIxError, error_for
from pypmix.standard.logtext import get_logger
from pypmix.standard.naming import name_procs
from pypmix.standard.ops import Connected, Credential, GroupResults
from pypmix.standard.ops.connecting import CONNECT_ASSIGN, CONNECT_ID, CONNECT_XCHG_ONLY
from pypmix.standard.ops.events import is_set, procs_in
from pypmix.standard.ops.hosting import GROUP_CANCEL, GROUP_CONSTRUCT, GROUP_DESTRUCT
from pypmix.standard.types import MAX_NSLEN, RANK_WILDCARD, DeviceDistance, Info, Pdata, Proc, check_name
from pypmix.standard.values import infos as as_infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Hashable, Iterable, Mapping
    from typing import Any, NoReturn

    from pypmix.engine.base import Upcall
    from pypmix.standard.attr import Attr
    from pypmix.standard.ops import ClientAborted, GroupUpcall, Lookup, Op, QueryInfo

    Handler = Callable[[Any], Any]
    Given = Mapping[Any, object] | Iterable[Info] | None
    Expand = Callable[[Iterable[Proc]], Iterable[Proc]]

log = get_logger("pypmix.host")

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


class OpenRequests:
    """The unanswered requests of a host, which handlers answer on any thread.

    Args:
        expand: Returns procs with their wildcards replaced.

    Attributes:
        closed: Whether the host has closed.
    """

    def __init__(self, expand: Expand) -> None:
        self.expand = expand
        self.closed = False
        self._lock = threading.Lock()
        self._requests: dict[Request[Any], None] = {}
        self._counts: dict[Proc, int] = {}

    def add(self, request: Request[Any]) -> int:
        """Add a request; return the number of the requestor's earlier ones."""
        requestor = request.requestor
        with self._lock:
            self._requests[request] = None
            if requestor is None:
                return 0
            count = self._counts.get(requestor, 0)
            self._counts[requestor] = count + 1
        return count

    def remove(self, request: Request[Any]) -> None:
        """Remove a request that has been answered."""
        with self._lock:
            if request in self._requests:
                del self._requests[request]
                requestor = request.requestor
                if requestor is not None:
                    count = self._counts.pop(requestor) - 1
                    if count:
                        self._counts[requestor] = count

    def count(self, requestor: Proc | None) -> int:
        """Return the number of unanswered requests of a client; 0 for None."""
        return 0 if requestor is None else self._counts.get(requestor, 0)

    def get_all(self) -> list[Request[Any]]:
        """Return the unanswered requests."""
        with self._lock:
            return list(self._requests)

    def report_second_answer(self, request: Request[Any]) -> None:
        """Log that a request was answered again, unless the host has closed."""
        if self.closed:
            return
        if request.deadline < 0:
            log.warning("%s was answered too late: it has been given up", request)
        else:
            log.warning("%s was answered twice; the first answer counts", request, stack_info=True)


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

    Example:
        >>> @host.on("query")
        ... async def query(request):
        ...     print(request.requestor, "of user", request.uid, "asks for", request.queries)
        ...     return host.default(request)
    """

    __slots__ = ("__weakref__", "_open", "_upcalls", "deadline", "gid", "name", "op", "requestor", "task", "uid")

    def __init__(self, upcall: Upcall, name: str, requests: OpenRequests) -> None:
        self.op: Op[Any] = upcall.op
        self.name = name
        self.requestor = upcall.requestor
        self.uid = upcall.uid
        self.gid = upcall.gid
        # The thread that pops this entry answers; `pop` is atomic.
        self._upcalls = [upcall]
        self._open = requests
        self.deadline = math.inf
        self.task: Task[None] | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if not name.startswith("_"):
                try:
                    return getattr(self.op, name)
                except AttributeError:
                    # An old name, or an error.
                    from pypmix.oldnames import find_member

                    return find_member(self, "pypmix.host.Request", name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _infos(self) -> tuple[Info, ...]:
        found: tuple[Info, ...] | None = getattr(self.op, "directives", None)
        return getattr(self.op, "infos", ()) if found is None else found

    @property
    def info(self) -> Answers:
        """The operation's directives, or its infos if it has no directives, as plain values by attribute or key.

        If a key is given twice, the last value counts. `info.infos` has them all, as they came.
        """
        return Answers(self._infos())

    @property
    def timeout(self) -> float | None:
        """The seconds after which the callers give up (`PMIX_TIMEOUT`); None if they wait for ever."""
        infos = self._infos()
        return _seconds(infos) if infos else None

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """The operation and its sorted procs, which are the same on all participating servers."""
        return (self.name, *sorted(set(getattr(self.op, "procs", ()))))

    @property
    def is_answered(self) -> bool:
        """Whether the request has been answered."""
        return not self._upcalls

    def has_flag(self, flag: Attr[bool]) -> bool:
        """Return True if a flag was given and is not false."""
        return is_set(self._infos(), flag.key)

    def reply(self, result: Any = None) -> Later:
        """Answer the request.

        Args:
            result: The result, as the handler could return it.

        Returns:
            `LATER`, so that a handler may end with `return req.reply(...)`.

        Raises:
            TypeError, ValueError: This is not a result of this operation; the request is still unanswered.

        Example:
            >>> @host.on("allocate")
            ... async def allocate(request):
            ...     return request.reply({attrs.ALLOC_ID: "a7"})
        """
        return self._settle(self.convert(result), None)

    def fail(self, error: BaseException | int) -> Later:
        """Answer the request with an error.

        Args:
            error: A `PMIxError`, whose status the peer gets; any other exception, for which it gets `ERROR`; or a
                `Status`.

        Returns:
            `LATER`.

        Raises:
            TypeError, ValueError: This is not an error; the request is still unanswered.

        Example:
            >>> @host.on("allocate")
            ... async def allocate(request):
            ...     return request.fail(Status.ERR_OUT_OF_RESOURCE)
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
            self._open.report_second_answer(self)
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
            self._open.remove(self)
        return LATER

    def take_upcall(self) -> Upcall | None:
        """Remove and return the upcall, which the caller then answers; None if it has been answered."""
        try:
            upcall = self._upcalls.pop()
        except IndexError:
            return None
        self._open.remove(self)
        return upcall

    def convert(self, answer: Any) -> R:
        """Convert a handler's result to the form that the server takes.

        Raises:
            TypeError, ValueError: The result cannot be converted.
        """
        if answer is not None:
            self.refuse(answer, "nothing")
        return None  # type: ignore[return-value]

    def refuse(self, answer: object, expected: str) -> NoReturn:
        """Raise `TypeError`: a result has the wrong type for the request."""
        raise TypeError(f"{self.name} is answered with {expected}, not with a {type(answer).__name__}")

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
        return f"<{type(self).__name__} {self}{', answered' if self.is_answered else ''}>"


class InfoRequest(Request[tuple[Info, ...]]):
    """A request that is answered with infos: a mapping of attributes or keys to values, or infos, or None."""

    __slots__ = ()

    def convert(self, answer: Any) -> tuple[Info, ...]:
        return _read_infos(self, answer)


def _read_infos(request: Request[Any], answer: Any) -> tuple[Info, ...]:
    if isinstance(answer, Answers):
        return answer.infos
    if isinstance(answer, str | bytes | int):
        request.refuse(answer, "infos or a mapping of keys to values")
    return as_infos(answer)


class AbortBase(Request[None]):
    """`client_aborted`: a client asks the host to end procs."""

    __slots__ = ()

    op: ClientAborted

    @property
    def status(self) -> int:
        """The status with which the job should end."""
        return self.op.code

    @property
    def targets(self) -> tuple[Proc, ...]:
        """The procs to end; the wildcard of the client's nspace if the client names none."""
        return self.op.targets or (Proc(self.op.proc.nspace, RANK_WILDCARD),)


class FenceBase(Request[bytes]):
    """`fence`: all procs of this server have called it; answered with the data of all servers, one after the other."""

    __slots__ = ()

    @property
    def collect(self) -> bool:
        """Whether data is exchanged (`PMIX_COLLECT_DATA`)."""
        return self.has_flag(attrs.COLLECT_DATA)

    def convert(self, answer: Any) -> bytes:
        # A barrier has no data to return, and the data of this server may be omitted.
        return b"" if answer is None else _read_bytes(self, answer)


def _read_bytes(request: Request[Any], answer: Any) -> bytes:
    if not isinstance(answer, bytes | bytearray | memoryview):
        request.refuse(answer, "bytes")
    return bytes(answer)


class DirectModexBase(Request[bytes]):
    """`direct_modex`: a client requests the data that a proc of another server has committed."""

    __slots__ = ()

    @property
    def key(self) -> str:
        """The key that the client waits for (`PMIX_REQUIRED_KEY`); empty if it accepts any data."""
        return next((str(info.value.data) for info in self._infos() if info.key == attrs.REQUIRED_KEY.key), "")

    def convert(self, answer: Any) -> bytes:
        return _read_bytes(self, answer)


class LookupBase(Request[tuple[Pdata, ...]]):
    """`lookup`: answered with the `Pdata` that was found, or with `NotFound` if nothing was found."""

    __slots__ = ()

    op: Lookup

    @property
    def wait(self) -> int | None:
        """The number of keys that the caller waits for (`PMIX_WAIT`), 0 for all; None if it does not wait."""
        found: int | None = self.info.get(attrs.WAIT)
        return found

    def convert(self, answer: Any) -> tuple[Pdata, ...]:
        found = () if answer is None else (answer,) if isinstance(answer, Pdata) else tuple(answer)
        for item in found:
            if not isinstance(item, Pdata):
                self.refuse(item, "Pdata")
        if not found:
            raise NotFound(f"no value is published under {', '.join(self.op.keys)}", operation="lookup")
        return found


class SpawnBase(Request[str]):
    """`spawn`: answered with the nspace of the new job, which is registered by then."""

    __slots__ = ()

    def convert(self, answer: Any) -> str:
        if not isinstance(answer, str):
            self.refuse(answer, "the nspace of the new job")
        if not check_name(answer, MAX_NSLEN, "the nspace that spawn is answered with"):
            raise ValueError("spawn is answered with the nspace of the new job, which is not empty")
        return answer


class ConnectBase(Request["Connected | None"]):
    """`connect`: all procs of this server have called it.

    Answered with an nspace for the connection, which must not be the nspace of a job and must be the same on all
    servers: its members are the procs that have joined, in the order of their names. Or with a
    `pypmix.standard.ops.Connected`, in which the host lists the members in the order of the new ranks. Or with None:
    the procs are then connected under their own names.
    """

    __slots__ = ()

    @property
    def assigns(self) -> bool:
        """Whether the participants support a new nspace for the connection, and request it."""
        return is_set(self._infos(), CONNECT_ASSIGN) and not is_set(self._infos(), CONNECT_XCHG_ONLY)

    @property
    def id(self) -> str | None:
        """The id that distinguishes it from other connects of the same procs; None if the callers give none."""
        return next((info.value.data for info in self._infos() if info.key == CONNECT_ID), None)

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """The operation, its id and its sorted procs, which are the same on all participating servers."""
        name, *procs = super().signature
        return (name, *(() if self.id is None else (self.id,)), *procs)

    def convert(self, answer: Any) -> Connected | None:
        if isinstance(answer, str):
            if not check_name(answer, MAX_NSLEN, "an nspace"):
                raise ValueError("connect is answered with an nspace, which is not empty, or with None")
            answer = Connected(answer)
        if answer is not None and not isinstance(answer, Connected):
            self.refuse(answer, "the nspace of the connection, a Connected, or nothing")
        return answer


class ToolBase(Request["Proc | None"]):
    """`tool_connected`: answered with the tool's name; None lets the server generate a name."""

    __slots__ = ()

    def convert(self, answer: Any) -> Proc | None:
        if answer is not None and not isinstance(answer, Proc):
            self.refuse(answer, "a Proc or None")
        return answer


class QueryBase(InfoRequest):
    """`query`: answered with values by key, which may be fewer than the requested keys."""

    __slots__ = ()

    op: QueryInfo

    @property
    def keys(self) -> tuple[str, ...]:
        """All requested keys, each once."""
        return tuple(dict.fromkeys([key for query in self.op.queries for key in query.keys]))

    def _infos(self) -> tuple[Info, ...]:
        # The qualifiers of all its queries.
        return tuple([info for query in self.op.queries for info in query.qualifiers])


class CredentialBase(Request[Credential]):
    """`get_credential`: answered with bytes or a `Credential`."""

    __slots__ = ()

    def convert(self, answer: Any) -> Credential:
        if isinstance(answer, Credential):
            return answer
        if not isinstance(answer, bytes):
            self.refuse(answer, "bytes or a Credential")
        return Credential(answer)


class IOFPullBase(Request["int | None"]):
    """`iof_pull`: deliver the output of procs to the server from now on; answered with an id for its end, or None.

    The same handler gets the end of a pull: then `stop` is true, and `id` is the id of the pull.
    """

    __slots__ = ()

    @property
    def procs(self) -> tuple[Proc, ...]:
        """The procs of the output; empty for an end."""
        return getattr(self.op, "procs", ())

    @property
    def channels(self) -> int:
        """A sum of `IOFChannel`; 0 for an end."""
        return getattr(self.op, "channels", 0)

    @property
    def id(self) -> int | None:
        """The id of the pull that ends; None for a new pull."""
        return getattr(self.op, "id", None)

    @property
    def stop(self) -> bool:
        """Whether a pull ends."""
        return self.id is not None

    def convert(self, answer: Any) -> int | None:
        if answer is not None and type(answer) is not int:
            self.refuse(answer, "an int or None")
        return answer


class FabricBase(InfoRequest):
    """`fabric`: answered with infos about a fabric."""

    __slots__ = ()

    @property
    def index(self) -> int | None:
        """The number of the fabric to update; None for a registration."""
        return getattr(self.op, "index", None)


class DistancesBase(Request[tuple[DeviceDistance, ...]]):
    """`compute_distances`: answered with the `DeviceDistance` of each device."""

    __slots__ = ()

    def convert(self, answer: Any) -> tuple[DeviceDistance, ...]:
        found = () if answer is None else tuple(answer)
        for item in found:
            if not isinstance(item, DeviceDistance):
                self.refuse(item, "DeviceDistances")
        return found


class GroupBase(Request[tuple[Info, ...]]):
    """`group`: all procs of this server that construct or destruct a group have called it.

    A construct is answered with the membership (`reply(members=...)`), a `GroupResults` or infos; other operations with
    None. An answer without members means `members`.
    """

    __slots__ = ()

    op: GroupUpcall

    @property
    def construct(self) -> bool:
        """Whether this is a construct."""
        return self.op.operation == GROUP_CONSTRUCT

    @property
    def destruct(self) -> bool:
        """Whether this is a destruct."""
        return self.op.operation == GROUP_DESTRUCT

    @property
    def cancel(self) -> bool:
        """Whether the server cancels its earlier request."""
        return self.op.operation == GROUP_CANCEL

    @property
    def procs(self) -> ProcSet:
        """The members as the callers name them; a wildcard means all procs of an nspace."""
        return ProcSet(self.op.procs)

    @property
    def added(self) -> ProcSet:
        """Further members, which some callers have not named (`PMIX_GROUP_ADD_MEMBERS`)."""
        return ProcSet(procs_in(self.op.directives, attrs.GROUP_ADD_MEMBERS.key) or ())

    @property
    def members(self) -> ProcSet:
        """All named and added procs, sorted; a wildcard is replaced by the procs of its job."""
        return ProcSet(sorted(self._open.expand(self.procs | self.added)))

    @property
    def wants_context_id(self) -> bool:
        """Whether the callers request a context id (`PMIX_GROUP_ASSIGN_CONTEXT_ID`)."""
        return self.has_flag(attrs.GROUP_ASSIGN_CONTEXT_ID)

    @property
    def shared(self) -> tuple[Info, ...]:
        """The group info and endpoints of the callers for the other members."""
        keys = (attrs.GROUP_INFO.key, attrs.GROUP_INFO_ARRAY.key, attrs.GROUP_ENDPT_DATA.key)
        return tuple([info for info in self.op.directives if info.key in keys])

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """The operation and the group, which are the same on all participating servers."""
        return (self.name, self.op.operation, self.op.group)

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

    def convert(self, answer: Any) -> tuple[Info, ...]:
        if not self.construct:
            # A destruct has no membership, but a handler of both operations may return one for both.
            return answer.infos if isinstance(answer, GroupResults) else _read_infos(self, answer)
        if answer is None:
            answer = GroupResults(infos=self.shared)
        if not isinstance(answer, GroupResults):
            return _read_infos(self, answer)
        members = answer.members or self.members
        for member in members:
            if not isinstance(member, Proc):
                raise TypeError(f"the members of a group are Procs, not a {type(member).__name__}")
        found = [attrs.GROUP_MEMBERSHIP(list(members))]
        if answer.context_id is not None:
            found.append(attrs.GROUP_CONTEXT_ID(answer.context_id))
        return (*found, *answer.infos)


def failure(request: Request[Any], error: BaseException) -> PMIxError:
    """Return the error to send to a peer for an exception of a handler."""
    if isinstance(error, PMIxError):
        return error
    # The exception's text may contain private data; it is in the log.
    return PMIxError("the host failed", status=statuses.ERROR, operation=request.name)
