"""The errors of operations between servers, and their form in messages."""

from __future__ import annotations

from pypmix.host.exchange.codec import NUMBER, STATUS, TEXT, TEXTS, Field, message
from pypmix.host.exchange.limits import MAX_DETAIL
from pypmix.host.naming import shown
from pypmix.standard import statuses
from pypmix.standard.errors import LostConnection, OperationTimeout, PMIxError, error_for
from pypmix.standard.logtext import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

log = get_logger("pypmix.host.exchange")

SHOWN = 8
"""The most servers that an error's text names."""


class ServerLost(PMIxError):
    """`PMIX_ERR_UNREACH`: a server that an operation needs is lost.

    Attributes:
        servers: The names of the lost servers.
    """

    default_status = statuses.ERR_UNREACH

    def __init__(self, detail: str = "", *, servers: Iterable[str] = (), operation: str = "") -> None:
        super().__init__(detail, operation=operation)
        self.servers = tuple(servers)


class ExchangeTimeout(OperationTimeout):
    """`PMIX_ERR_TIMEOUT`: other servers did not answer, or did not contribute, in time.

    Attributes:
        servers: The names of the servers that did not.
    """

    def __init__(self, detail: str = "", *, servers: Iterable[str] = (), operation: str = "") -> None:
        super().__init__(detail, operation=operation)
        self.servers = tuple(servers)


def make(status: int, detail: str, servers: tuple[str, ...], operation: str) -> PMIxError:
    """Return the error that another server has reported."""
    if status == statuses.ERR_TIMEOUT:
        return ExchangeTimeout(detail, servers=servers, operation=operation)
    if status == statuses.ERR_UNREACH and servers:
        return ServerLost(detail, servers=servers, operation=operation)
    # A peer must not send success as an error.
    return error_for(status)(detail, status=status or statuses.ERROR, operation=operation)


def make_loss(names: Iterable[str], operation: str) -> ServerLost:
    """Return the error for lost servers."""
    servers = tuple(sorted(names))
    return ServerLost(
        f"{listed(servers)} {'have' if len(servers) > 1 else 'has'} gone", servers=servers, operation=operation
    )


def listed(names: Iterable[str]) -> str:
    """Return the names of servers for a person."""
    servers = [shown(name) for name in sorted(names)]
    text = ", ".join(servers[:SHOWN]) + (f" and {len(servers) - SHOWN} more" if len(servers) > SHOWN else "")
    return f"server{'s' if len(servers) > 1 else ''} {text}"


def make_departure(operation: str) -> LostConnection:
    """Return the error for operations of an exchange that is closed before they have ended, or before they begin."""
    return LostConnection("this server has left the exchange", operation=operation)


def as_error(error: BaseException, operation: str = "") -> PMIxError:
    """Return the error in a form that can be sent to others."""
    if isinstance(error, PMIxError):
        return error
    return PMIxError(f"{type(error).__name__}: {error}", status=statuses.ERROR, operation=operation)


_ERROR: Field[tuple[int, int, str, tuple[str, ...]]] = message(NUMBER, STATUS, TEXT, TEXTS)


def pack_error(number: int, error: PMIxError) -> bytes:
    """Return the number of a failed operation, and the error."""
    return _ERROR.write((number, error.code, error.detail[:MAX_DETAIL], getattr(error, "servers", ())))


def unpack_error(data: bytes) -> tuple[int, PMIxError]:
    """Return the number of a failed operation, and the error.

    Raises:
        RemoteProtocolError: It does not parse.
    """
    number, status, detail, servers = _ERROR.read(data)
    return number, make(status, detail, servers, "")
