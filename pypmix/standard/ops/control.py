"""Requests to the resource manager: logs, job control, allocations, monitors, credentials."""

from __future__ import annotations

from pypmix.standard.ops.core import Op
from pypmix.standard.ops.events import check_code
from pypmix.standard.record import Record
from pypmix.standard.types import Info, Proc


class Log(Op[None]):
    """`PMIx_Log`: write data to channels such as `attrs.LOG_STDERR`. Also an upcall.

    Understood directives: `attrs.LOG_SOURCE`, `attrs.LOG_TIMESTAMP`, `attrs.LOG_GENERATE_TIMESTAMP`,
    `attrs.LOG_TAG_OUTPUT`, `attrs.LOG_TIMESTAMP_OUTPUT`, `attrs.LOG_XML_OUTPUT`, `attrs.LOG_ONCE`.

    Attributes:
        timestamp: The time of the request, in seconds since 1970; 0 if unset. Engines set it for a client with the
            directive `attrs.LOG_GENERATE_TIMESTAMP`.
    """

    data: tuple[Info, ...]
    directives: tuple[Info, ...] = ()
    timestamp: int = 0

    def __validate__(self) -> None:
        super().__validate__()
        if not self.data:
            raise ValueError("there is nothing to log")


class JobControl(Op[tuple[Info, ...]]):
    """`PMIx_Job_control`: signal, kill, pause or otherwise control procs; without procs, the caller's nspace.

    Also an upcall. Understood directives: `attrs.JOB_CTRL_SIGNAL`, `attrs.JOB_CTRL_KILL`,
    `attrs.JOB_CTRL_TERMINATE`, `attrs.JOB_CTRL_PAUSE`, `attrs.JOB_CTRL_RESUME`, `attrs.REGISTER_CLEANUP`, ...
    """

    targets: tuple[Proc, ...] = ()
    directives: tuple[Info, ...] = ()


class AllocationRequest(Op[tuple[Info, ...]]):
    """`PMIx_Allocation_request`: new resources, more or fewer of them (`AllocDirective`). Also an upcall."""

    directive: int
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.directive, int) or not 0 <= self.directive < 256:
            raise ValueError(f"{self.directive!r} is not an AllocDirective")


class ProcessMonitor(Op[tuple[Info, ...]]):
    """`PMIx_Process_monitor`: monitor heartbeats or a file, or cancel that; `error` is its event. Also an upcall."""

    monitor: Info
    error: int
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.monitor, Info):
            raise TypeError(f"the monitor is an Info, not {type(self.monitor).__name__}")
        check_code(self.error)


class Heartbeat(Op[None]):
    """`PMIx_Heartbeat`: send a heartbeat of this process to the server. Also an upcall, without an answer."""


class Credential(Record):
    """A credential, with its infos."""

    data: bytes
    infos: tuple[Info, ...] = ()


class GetCredential(Op[Credential]):
    """`PMIx_Get_credential`: a credential of the caller. Also an upcall.

    Understood directives: `attrs.CRED_TYPE`, `attrs.TIMEOUT`.
    """

    directives: tuple[Info, ...] = ()


class ValidateCredential(Op[tuple[Info, ...]]):
    """`PMIx_Validate_credential`: the owner of a credential; an error if it is invalid. Also an upcall."""

    credential: bytes
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.credential, bytes):
            raise TypeError(f"a credential is bytes, not {type(self.credential).__name__}")
