"""The interface that the methods of a topic need of the class that they are methods of."""

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
        """One that carries out operations: a client, a tool, or the host of a server."""

        @property
        def proc(self) -> Proc:
            """Its name."""

        def carry_out(self, op: Op[Any]) -> Any:
            """Carry out an operation and return its result, or raise its error."""

        def begin(self, op: Op[Any], done: Done[Any]) -> None:
            """Begin an operation; `done` is called once, on any thread."""


class Methods:
    """A `PMIxClient`, as the classes see it that it is made of."""

    if TYPE_CHECKING:
        _fabric: int | None

        def _peer(self) -> Client:
            """Return the client or tool of pypmix that carries out what is asked."""

        def _me(self) -> Proc:
            """Return the caller's name."""

        def _run(self, op: Op[Any]) -> Any:
            """Carry out an operation and return its result, or raise its error."""

        def _do(self, make: Callable[..., Op[Any]], *args: object) -> int:
            """Carry out what returns nothing but a status."""

        def _answer(self, shape: Shape, make: Callable[..., Op[Any]], *args: object) -> tuple[int, Any]:
            """Carry out what returns something beside its status."""

        def _begin(
            self, shape: Shape | None, cbfunc: object, cbdata: object, make: Callable[..., Op[Any]], *args: object
        ) -> int:
            """Start an operation, and have the caller's function called at its end."""
