"""Process sets: their definitions by the host, and the events that clients get."""

from __future__ import annotations

from pypmix.engine.psets import missing, new_pset
from pypmix.engine.python.node import Topic
from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops import Notification
from pypmix.standard.ops.events import RANGE_LOCAL
from pypmix.standard.types import DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Psets(Topic):
    """Process sets. They are the host's: no client makes one, and none ends with its members."""

    def define(self, name: str, members: Iterable[Proc], elsewhere: bool = False) -> None:
        """See `ServerSession.define_process_set`."""
        store = self.server.store
        made = new_pset(name, members, store.psets, self._ranks_of, elsewhere)
        store.psets[name] = made
        array = Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(made)))
        self._tell(statuses.PROCESS_SET_DEFINE, name, Info(keys.PSET_MEMBERS, array))

    def delete(self, name: str) -> None:
        """See `ServerSession.delete_process_set`."""
        if self.server.store.psets.pop(name, None) is None:
            raise missing(name)
        self._tell(statuses.PROCESS_SET_DELETE, name)

    def _ranks_of(self, nspace: str) -> Collection[int] | None:
        namespace = self.server.store.get(nspace)
        return None if namespace is None else namespace.processes

    def _tell(self, code: int, name: str, *more: Info) -> None:
        infos = (
            Info(keys.EVENT_NON_DEFAULT, Value(codes.BOOL, True)),
            Info(keys.PSET_NAME, Value(codes.STRING, name)),
            *more,
        )
        self.server.events.notify(Notification(code, self.server.proc, RANGE_LOCAL, infos))
