"""What a server tells of tools."""

from __future__ import annotations

from pypmix.standard.ops.core import Op
from pypmix.standard.types import Info, Proc


class ToolConnected(Op[Proc]):
    """Upcall `tool_connected2`: a tool wants to connect; the answer is its name, an error refuses it.

    Attributes:
        proc: The name that it brings; None where it asks for one.
        pid: Its process id as it says; None where it does not.
        launcher: Whether it launches jobs itself.
        release: The release of its library.
        directives: What it said of itself.
    """

    proc: Proc | None = None
    pid: int | None = None
    launcher: bool = False
    release: str = ""
    directives: tuple[Info, ...] = ()
