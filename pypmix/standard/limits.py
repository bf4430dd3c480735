"""Limits of the resources that one peer may take of a server, their defaults, and the reader of settings."""

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
    """Limits of what one peer may take of a server and its host.

    Args:
        committed: Bytes that a rank may have committed, each value counted once.
        committed_values: How many values a rank may have committed.
        collected: Bytes that the members of a collecting fence on several nodes send along; each other value is
            fetched when somebody asks for it.
        published: Bytes that a proc may have published.
        published_values: How many values a proc may have published.
        directory: Bytes that all may have published.
        directory_values: How many values all may have published.
        connections: How many connections a rank may have at a time.
        unfinished: Bytes of messages that a rank has sent a part of, on all of its connections.
        requests: How many requests of a connection may wait at a time: gets as well as those that the host has.
        collectives: How many collectives a rank may have begun that wait for others.
        codes: How many event codes a connection may ask for.
        pulls: How many times a connection may ask for output.
        events: Bytes of past events that are kept for those who ask late.
        output: Bytes of past output that are kept for those who ask late.
        input: Bytes of input that a connection may have on its way to others.
        unread: Bytes that wait for a connection that does not read, before it is closed.
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
        """Bytes of the longest message that is taken in: natives commit all each time, and what is global twice."""
        return min(2 * self.committed + (1 << 20), 0xFFFFFFFF)

    @classmethod
    def read(cls, text: str) -> Limits:
        """Return the limits that a text sets, such as `committed=64M,connections=32`, and the defaults of all others.

        Raises:
            ValueError: There is no such limit, or a number makes no sense.
        """
        found: dict[str, int] = {}
        for part in filter(None, [part.strip() for part in text.split(",")]):
            name, _, number = part.partition("=")
            if name not in NAMES:
                raise ValueError(f"there is no limit {name!r:.80}: it is one of {', '.join(NAMES)}")
            digits, unit = (number[:-1], _UNITS[number[-1]]) if number[-1:] in _UNITS else (number, 1)
            if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
                raise ValueError(f"the limit {name} is a number, perhaps with K, M or G, not {number!r:.80}")
            found[name] = int(digits) * unit
        return cls(**found)

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Limits:
        """Return the limits that an environment sets.

        Raises:
            ValueError: They make no sense.
        """
        try:
            return cls.read(env.get(VARIABLE, ""))
        except ValueError as error:
            raise ValueError(f"{VARIABLE}: {error}") from None

    def reached(self, name: str, what: str, operation: str = "") -> PMIxError:
        """Return the error for a peer that has reached a limit.

        Args:
            name: The limit.
            what: What would have been too much.
            operation: What was asked for.
        """
        # In the one text that a client is told.
        how = f"`pypmix run --limits {name}=...` or {VARIABLE} set it"
        detail = f"{what}; the limit {name!r} is {getattr(self, name)}, and {how}"
        return OutOfResources(detail, operation=operation)


NAMES: tuple[str, ...] = Limits.__match_args__
DEFAULTS = Limits()
