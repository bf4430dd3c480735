"""The engine that needs no libpmix: it speaks OpenPMIx's wire protocol itself."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pypmix.engine.base import ClientSession
    from pypmix.standard.types import Info


def open_client(env: Mapping[str, str] | None = None, directives: tuple[Info, ...] = ()) -> ClientSession:
    """Open a client on this engine; see `pypmix.engine.python.session.open_client`."""
    from pypmix.engine.python.session import open_client

    return open_client(env, directives)
