"""The interface of `PMIxClient` that its base classes use."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.client import Client
    from pypmix.compat.asking import Shape
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc


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
