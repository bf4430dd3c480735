"""The lists of nodes and of ranks per node in job info, in the form that every release of libpmix reads."""

from __future__ import annotations

from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import RANK_VALID
from pypmix.wire.regex import expand_nodes, expand_ppn, make_raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    T = TypeVar("T")


def generate_nodes(nodes: Iterable[str]) -> str:
    """Return the list of node names in the form that all releases read.

    Raises:
        TypeError: A name is not a str.
        ValueError: There are no names, or a name is empty or contains a comma, a semicolon or a NUL.
    """
    names = [nodes] if isinstance(nodes, str) else list(nodes)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of a node is a str, not {type(name).__name__}")
    if not names:
        raise ValueError("there are no nodes")
    return make_raw(names)


def generate_ppn(ranks: Iterable[Iterable[int]]) -> str:
    """Return the list of the ranks on each node in the form that all releases read.

    Raises:
        TypeError: A rank is not an int.
        ValueError: There are no nodes, or a number is not a rank.
    """
    found = [list(node) for node in ranks]
    for rank in [rank for node in found for rank in node]:
        if type(rank) is not int:
            raise TypeError(f"a rank is an int, not {type(rank).__name__}")
        if not 0 <= rank < RANK_VALID:
            raise ValueError(f"{rank} is not a rank")
    if not found:
        raise ValueError("there are no nodes")
    return make_raw(found)


def parse_nodes(nodes: str | bytes) -> list[str]:
    """Return the names in a list of nodes, of any release.

    Raises:
        ValueError: It is not such a list.
    """
    return _read(expand_nodes, nodes)


def parse_ppn(ppn: str | bytes) -> list[list[int]]:
    """Return the ranks on each node in a list of ranks, of any release.

    Raises:
        ValueError: It is not such a list.
    """
    return _read(expand_ppn, ppn)


def _read(parse: Callable[[str | bytes], T], text: str | bytes) -> T:
    if not isinstance(text, str | bytes):
        raise TypeError(f"a regex is a str or bytes, not {type(text).__name__}")
    try:
        return parse(text)
    except RemoteProtocolError as error:
        raise ValueError(f"this is not a list of nodes or ranks: {error.detail}") from error
