"""Places of a program at which it stops for a debugger."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from pypmix.standard import attrs
from pypmix.standard.enums import EventCode, Range
from pypmix.standard.types import RANK_WILDCARD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.aio.client import Client
    from pypmix.standard.types import Proc


async def stop_at_breakpoint(client: Client, name: str, *, timeout: float | None = None) -> bool:
    """Stop at a named place of the program, if a debugger has asked for that (`PMIX_DEBUG_STOP_IN_APP`).

    The process reports that it waits (`PMIX_READY_FOR_DEBUG`), and continues when the debugger releases it
    (`PMIX_DEBUGGER_RELEASE`). Without a debugger the call returns at once.

    Args:
        client: The client of this process.
        name: The name of the place; if `PMIX_BREAKPOINT` is set, it names the only place to stop at.
        timeout: Seconds to wait for the release; no limit by default.

    Returns:
        True if the process has stopped.

    Raises:
        OperationTimeout: No release came in time.
        LostConnection: The server is gone.

    Example:
        >>> stopped = await stop_at_breakpoint(me, "after the setup")

    PMIx Standard: "Tools and Debuggers", Debugger Support.
    """
    wanted = None if client.singleton else await client.get(attrs.DEBUG_STOP_IN_APP, default=None, optional=True)
    if not _includes_rank(wanted, client.rank) or os.environ.get("PMIX_BREAKPOINT", name) != name:
        return False
    async with client.events(EventCode.DEBUGGER_RELEASE, buffer=1) as releases:
        await client.notify(
            EventCode.READY_FOR_DEBUG,
            data_range=Range.RM,
            non_default=True,
            cache=False,
            info=(attrs.BREAKPOINT(name),),
        )
        await releases.get(timeout)
    return True


def _includes_rank(ranks: object, rank: int) -> bool:
    """Return True if a value that names ranks, in one of the forms of `PMIX_DEBUG_STOP_IN_APP`, names a rank."""
    if ranks is None or isinstance(ranks, bool):
        return bool(ranks)
    named = [ranks] if isinstance(ranks, int) else [proc.rank for proc in cast("Iterable[Proc]", ranks)]
    return rank in named or RANK_WILDCARD in named
