"""The names of servers and nodes; separate from the exchange, which rosters need not import."""

from __future__ import annotations

MAX_NAME = 255


def check_name(name: str) -> str:
    """Return the name of a server if it is valid, also as the name of a file.

    Raises:
        TypeError: It is not a str.
        ValueError: It is empty, too long, or has characters that no file may have.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a server is a str, not {type(name).__name__}")
    if not name or "/" in name or "\0" in name or len(name.encode("utf-8", "surrogateescape")) > MAX_NAME:
        raise ValueError(f"{name!r:.80} is not a valid name of a server: 1 to {MAX_NAME} bytes without / and NUL")
    return name


def shown(name: str) -> str:
    """Return a server's name as users see it: the launcher's begins with a mark, so that it sorts first."""
    return name.removeprefix("!")
