"""The errors that users see.

Every failed operation raises a `PMIxError` or a subclass, with the operation, the procs, the status, the engine and a
hint. Bad arguments raise Python's own `TypeError`, `ValueError` and `OverflowError` at the call.
"""

from __future__ import annotations

from pypmix.standard import statuses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.standard.enums import Status
    from pypmix.standard.types import Proc


SUCCESSES = frozenset({statuses.SUCCESS, statuses.OPERATION_SUCCEEDED})

# PRRTE 3.0.8 answers a lookup with the status of a query.
PARTIAL_SUCCESSES = frozenset({statuses.ERR_PARTIAL_SUCCESS, statuses.QUERY_PARTIAL_SUCCESS})


class PMIxError(Exception):
    """An operation failed; also the base of all errors of pypmix.

    Attributes:
        status: The `Status` of the operation.
        operation: Its name, such as `fence`.
        detail: The description of the failure.
        procs: The procs, or the group's members, of the operation.
        engine: The engine that ran it, such as `python` or `native 5.0.11`.
        missing: For collectives, the procs that had not arrived; None if the server does not report them.
        hint: A remedy.
        job: The nspace of the caller's job, whose procs the text names by their ranks alone; empty if it has none.
    """

    default_status = statuses.ERROR

    def __init__(
        self,
        detail: str = "",
        *,
        status: int | None = None,
        operation: str = "",
        procs: Iterable[Proc] = (),
        engine: str = "",
        missing: Iterable[Proc] | None = None,
        hint: str = "",
        job: str = "",
    ) -> None:
        super().__init__(detail)
        code = int(self.default_status if status is None else status)
        check_status(code)
        self.code = code
        self.operation = operation
        self.detail = detail
        self.procs = tuple(procs)
        self.engine = engine
        self.missing = None if missing is None else frozenset(missing)
        self.hint = hint
        self.job = job

    @property
    def status(self) -> Status:
        from pypmix.standard.enums import Status

        return Status(self.code)

    def __str__(self) -> str:
        from pypmix.standard.naming import name_procs

        of = f" of {name_procs(self.procs, self.job)}" if self.procs else ""
        text = f"{self.operation or 'PMIx'}{of}: {self.detail or 'failed'} [{self._status_name()} {self.code}"
        text += f", engine {self.engine}]" if self.engine else "]"
        if self.missing:
            text += f"; still missing: {name_procs(self.missing, self.job)}"
        if self.hint:
            text += f"; {self.hint}"
        return text

    def _status_name(self) -> str:
        from pypmix.standard.enums import EventCode

        # Some operations end with the code of an event, such as the abort of a group's construction.
        names = self.status.name, EventCode(self.code).name
        return next((name for name in names if not name.startswith(("UNKNOWN_", "CUSTOM_"))), names[0])

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.detail, self.__dict__)


def _rebuild(cls: type[PMIxError], detail: str, state: dict[str, object]) -> PMIxError:
    error = cls.__new__(cls, detail)
    Exception.__init__(error, detail)
    error.__dict__.update(state)
    return error


class NotFound(PMIxError, LookupError):
    """`PMIX_ERR_NOT_FOUND`: the key, proc or nspace does not exist."""

    default_status = statuses.ERR_NOT_FOUND


class OperationTimeout(PMIxError, TimeoutError):
    """`PMIX_ERR_TIMEOUT`: the time limit of the operation expired; `missing` names the procs that had not arrived."""

    default_status = statuses.ERR_TIMEOUT

    def __str__(self) -> str:
        return PMIxError.__str__(self)


class NotSupported(PMIxError, NotImplementedError):
    """`PMIX_ERR_NOT_SUPPORTED`: this library, server or host does not offer the operation."""

    default_status = statuses.ERR_NOT_SUPPORTED


class WrongType(PMIxError, TypeError):
    """`PMIX_ERR_BAD_PARAM`: a directive has a value of a wrong type, or out of its range."""

    default_status = statuses.ERR_BAD_PARAM


class PartialSuccess(PMIxError):
    """`PMIX_ERR_PARTIAL_SUCCESS`: the operation completed without some of its procs.

    Some servers return `PMIX_ERR_LOST_CONNECTION` for a collective with an exited participant; `code` has it then.
    """

    default_status = statuses.ERR_PARTIAL_SUCCESS


class ConstructAborted(PMIxError):
    """`PMIX_GROUP_CONSTRUCT_ABORT`: the construction of a group was aborted, by a member or for lack of members."""

    default_status = statuses.GROUP_CONSTRUCT_ABORT


class LostConnection(PMIxError, ConnectionError):
    """`PMIX_ERR_LOST_CONNECTION`: the connection to the server is lost; only `close` still works on this client."""

    default_status = statuses.ERR_LOST_CONNECTION

    def __str__(self) -> str:
        return PMIxError.__str__(self)


class Unreachable(PMIxError, ConnectionError):
    """`PMIX_ERR_UNREACH`: no server could be reached, or it refused the connection."""

    default_status = statuses.ERR_UNREACH

    def __str__(self) -> str:
        return PMIxError.__str__(self)


class PermissionDenied(PMIxError, PermissionError):
    """`PMIX_ERR_NO_PERMISSIONS` or `PMIX_ERR_INVALID_CRED`: the peer may not do this."""

    default_status = statuses.ERR_NO_PERMISSIONS

    def __str__(self) -> str:
        return PMIxError.__str__(self)


class NotInitialized(PMIxError):
    """`PMIX_ERR_INIT`: the client or server is not open, or closed already."""

    default_status = statuses.ERR_INIT


class WouldDeadlock(PMIxError):
    """`PMIX_ERR_WOULD_BLOCK`: a blocking call from a place that must not block, such as an event handler."""

    default_status = statuses.ERR_WOULD_BLOCK


class OutOfResources(PMIxError):
    """`PMIX_ERR_OUT_OF_RESOURCE`: a limit is reached, or there is no room for what was asked.

    It stands for `PMIX_ERR_NOMEM`, `PMIX_ERR_JOB_INSUFFICIENT_RESOURCES` and the limits of the system
    (`PMIX_ERR_SYS_LIMITS_PIPES`, `..._CHILDREN`, `..._FILES`), too. Ask for less, or raise the limit that the text
    names.
    """

    default_status = statuses.ERR_OUT_OF_RESOURCE


class ResourceBusy(PMIxError):
    """`PMIX_ERR_RESOURCE_BUSY`: something else uses it at the moment; try again later."""

    default_status = statuses.ERR_RESOURCE_BUSY


class EngineUnavailable(PMIxError, ImportError):
    """The requested engine cannot be used here; the text says why each candidate was refused."""

    default_status = statuses.ERR_NOT_SUPPORTED

    def __str__(self) -> str:
        return PMIxError.__str__(self)


class ProtocolError(PMIxError):
    """The wire protocol was violated; the subclass tells by which side."""

    default_status = statuses.ERR_UNPACK_FAILURE


class LocalProtocolError(ProtocolError):
    """This process requested a message that the protocol cannot express for this peer."""

    default_status = statuses.ERR_PACK_FAILURE


class RemoteProtocolError(ProtocolError):
    """The peer sent a malformed message, which was dropped."""


BY_STATUS: dict[int, type[PMIxError]] = {
    statuses.ERR_NOT_FOUND: NotFound,
    statuses.ERR_TIMEOUT: OperationTimeout,
    statuses.ERR_NOT_SUPPORTED: NotSupported,
    statuses.ERR_PARTIAL_SUCCESS: PartialSuccess,
    statuses.ERR_LOST_CONNECTION: LostConnection,
    statuses.GROUP_CONSTRUCT_ABORT: ConstructAborted,
    statuses.ERR_UNREACH: Unreachable,
    statuses.ERR_NO_PERMISSIONS: PermissionDenied,
    statuses.ERR_INVALID_CRED: PermissionDenied,
    statuses.ERR_INIT: NotInitialized,
    statuses.ERR_WOULD_BLOCK: WouldDeadlock,
    statuses.ERR_OUT_OF_RESOURCE: OutOfResources,
    statuses.ERR_NOMEM: OutOfResources,
    statuses.ERR_JOB_INSUFFICIENT_RESOURCES: OutOfResources,
    statuses.ERR_SYS_LIMITS_PIPES: OutOfResources,
    statuses.ERR_SYS_LIMITS_CHILDREN: OutOfResources,
    statuses.ERR_SYS_LIMITS_FILES: OutOfResources,
    statuses.ERR_RESOURCE_BUSY: ResourceBusy,
}


def check_status(code: int) -> None:
    """Raise an error if a number is not a status."""
    if not -(2**31) <= code < 2**31:
        raise OverflowError(f"a status has 32 bits, which {code} does not fit into")


def error_for(status: int) -> type[PMIxError]:
    """Return the class of error for a status."""
    return BY_STATUS.get(status, PMIxError)


def answered_error_for(status: int) -> type[PMIxError]:
    """Return the class of error for a status with which the server has answered a collective.

    As the caller is connected, `ERR_LOST_CONNECTION` means that another participant is lost.
    """
    return PartialSuccess if status == statuses.ERR_LOST_CONNECTION else error_for(status)
