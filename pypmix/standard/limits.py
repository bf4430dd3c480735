"""Limits of the resources of a server that one peer may use, their defaults, and the parser of settings.

Each limit is counted by the owner of the resource, which refuses further use of it with `Limits.reached`:

- `engine/python/node.py`: `requests` in `Peer.count_request`, which each request that has to wait calls; `unfinished`
- `engine/python/processes.py`: `committed`, `committed_values`; `engine/python/collectives.py`: `collected`
- `engine/collective/machine.py`: `collectives`
- `engine/python/serverside/`: `connections` in `handshakes.py`, `codes` and `events` in `events.py`, `pulls`, `output`
  and `input` in `forwarding.py`
- `engine/python/reactor.py`: `unread`
- `host/publisheddata.py`: `published`, `published_values`, `directory`, `directory_values`

They are settings of servers of the Python engine. A new limit is a field of `Limits` and the place that counts it.
Bounds that no user sets are constants of their modules, such as `MAX_GROUPS`; those between servers are in
`host/exchange/limits.py`.
"""

from __future__ import annotations

from pypmix.standard.errors import OutOfResources, PMIxError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "PYPMIX_LIMITS"

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST = 1 << 40


class Limits(Record):
    """Limits of the resources of a server and its host that one peer may use.

    Args:
        committed: Bytes that a rank may have committed, each value counted once.
        committed_values: The number of values that a rank may have committed.
        collected: Bytes that the members of a collecting fence on several nodes send along; other values are fetched
            on request.
        published: Bytes that a proc may have published.
        published_values: The number of values that a proc may have published.
        directory: Bytes that all procs may have published.
        directory_values: The number of values that all procs may have published.
        connections: The number of connections that a rank may have at a time.
        unfinished: Bytes of incomplete messages of a rank, on all of its connections.
        requests: The number of requests of a connection that may wait at a time, gets and requests to the host.
        collectives: The number of incomplete collectives that a rank may have begun.
        codes: The number of event codes that a connection may register.
        pulls: The number of pulls of output of a connection.
        events: Bytes of past events that are kept for late registrations.
        output: Bytes of past output that are kept for late pulls.
        input: Bytes of input of a connection that may be in transit.
        unread: Bytes that wait for a connection that does not read, before it is closed.

    Example:
        >>> server = Server(limits=Limits(published=64 << 20, connections=8))
    """

    committed: int = 31 << 20
    committed_values: int = 1 << 17
    collected: int = 128 << 20
    published: int = 32 << 20
    published_values: int = 25_000
    directory: int = 256 << 20
    directory_values: int = 100_000
    connections: int = 64
    unfinished: int = 64 << 20
    requests: int = 4096
    collectives: int = 4096
    codes: int = 4096
    pulls: int = 256
    events: int = 16 << 20
    output: int = 64 << 20
    input: int = 64 << 20
    unread: int = 64 << 20

    def __validate__(self) -> None:
        for name in NAMES:
            value = getattr(self, name)
            if type(value) is not int:
                raise TypeError(f"the limit {name} is an int, not {type(value).__name__}")
            if not 0 < value <= _MOST:
                raise ValueError(f"the limit {name} lies between 1 and {_MOST}, not {value}")

    @property
    def message(self) -> int:
        """Bytes of the longest accepted message: natives repeat all data in each commit, and global data twice."""
        return min(2 * self.committed + (1 << 20), 0xFFFFFFFF)

    @classmethod
    def read(cls, text: str) -> Limits:
        """Parse a text such as `committed=64M,connections=32`; all other limits have their defaults.

        Raises:
            ValueError: A limit does not exist, or a number is invalid.

        Example:
            >>> Limits.read("published=64M,connections=8").connections
            8
        """
        found: dict[str, int] = {}
        for part in filter(None, [part.strip() for part in text.split(",")]):
            name, _, number = part.partition("=")
            if name not in NAMES:
                raise ValueError(f"{name!r:.80} is not a limit: it is one of {', '.join(NAMES)}")
            digits, unit = (number[:-1], _UNITS[number[-1]]) if number[-1:] in _UNITS else (number, 1)
            if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
                raise ValueError(f"the limit {name} is a number, perhaps with K, M or G, not {number!r:.80}")
            found[name] = int(digits) * unit
        return cls(**found)

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Limits:
        """Return the limits that an environment sets.

        Raises:
            ValueError: They are invalid.

        Example:
            >>> Limits.of({"PYPMIX_LIMITS": "connections=8"}).connections
            8
        """
        try:
            return cls.read(env.get(VARIABLE, ""))
        except ValueError as error:
            raise ValueError(f"{VARIABLE}: {error}") from None

    def reached(self, name: str, what: str, operation: str = "") -> PMIxError:
        """Return the error for a peer that has reached a limit.

        Args:
            name: The limit.
            what: The request that exceeds the limit.
            operation: The requested operation.
        """
        # The hint is a part of the text, as a client receives only one text.
        how = f"`pypmix run --limits {name}=...` or {VARIABLE} set it"
        detail = f"{what}; the limit {name!r} is {getattr(self, name)}, and {how}"
        return OutOfResources(detail, operation=operation)


NAMES: tuple[str, ...] = Limits.__match_args__
DEFAULTS = Limits()
