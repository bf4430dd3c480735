"""The interface of `PMIxClient` that its base classes use."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from pypmix.client import Client
    from pypmix.compat.asking import Shape
    from pypmix.engine.base import Done
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc

    class Port(Protocol):
        """An object that carries out operations: a client, a tool, or the host of a server."""

        @property
        def proc(self) -> Proc:
            """The name of this process."""

        def carry_out(self, op: Op[Any]) -> Any:
            """Carry out an operation and return its result, or raise its error."""

        def begin(self, op: Op[Any], done: Done[Any]) -> None:
            """Begin an operation; `done` is called once, on any thread."""


class Methods:
    """The base of the classes that `PMIxClient` consists of; declares the members of it that they use."""

    if TYPE_CHECKING:
        _fabric: int | None

        def _peer(self) -> Client:
            """Return the client or tool of pypmix that carries out operations."""

        def _me(self) -> Proc:
            """Return the caller's name."""

        def _run(self, op: Op[Any]) -> Any:
            """Carry out an operation and return its result, or raise its error."""

        def _do(self, make: Callable[..., Op[Any]], *args: object) -> int:
            """Carry out an operation without a result; return its status."""

        def _answer(self, shape: Shape, make: Callable[..., Op[Any]], *args: object) -> tuple[int, Any]:
            """Carry out an operation; return its status and value."""

        def _begin(
            self, shape: Shape | None, cbfunc: object, cbdata: object, make: Callable[..., Op[Any]], *args: object
        ) -> int:
            """Start an operation, and schedule `cbfunc` at its end; return the status of the start."""
