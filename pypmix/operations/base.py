# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""The client as its operations, and the objects that these make, see it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from pypmix.arguments import Infos, Key, Procs, Target
    from pypmix.engine.base import ClientSession
    from pypmix.job import Job
    from pypmix.standard.enums import EventCode, Range, Scope
    from pypmix.standard.features import Feature
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc
    from pypmix.waits import Port

    R = TypeVar("R")


class Asks:
    """A client, as its operations see it. Their objects get the port, and the client only for its public methods."""

    if TYPE_CHECKING:
        _port: Port

        @property
        def proc(self) -> Proc: ...

        @property
        def job(self) -> Job: ...

        def supports(self, feature: Feature) -> bool: ...

        def _procs(self, procs: Procs) -> Procs: ...

        def _target(self, proc: Target) -> Proc | None: ...

        @property
        def _session(self) -> ClientSession: ...

        def _run(self, op: Op[R], undo: Callable[[R], Op[None]] | None = None) -> R:
            """Carry out an operation; `undo` returns what takes it back if the caller gives up waiting for it."""

        def _attend(self) -> None:
            """From now on process arriving messages even while no operation waits."""

        def put(self, key: Key, value: object, scope: Scope = ...) -> None: ...

        def commit(self) -> None: ...

        def fence(
            self,
            procs: Procs = None,
            *,
            collect: bool = False,
            timeout: float | None = None,
            commit: bool = True,
            info: Infos = None,
        ) -> None: ...

        def get(
            self,
            key: Key,
            proc: Target = None,
            *,
            default: Any = ...,
            timeout: float | None = None,
            optional: bool = False,
            refresh: bool = False,
            scope: Scope | None = None,
            info: Infos = None,
        ) -> Any: ...

        def notify(
            self,
            code: EventCode,
            *,
            data_range: Range | None = None,
            targets: Procs = None,
            affected: Procs = None,
            non_default: bool = False,
            cache: bool = True,
            info: Infos = None,
        ) -> None: ...
