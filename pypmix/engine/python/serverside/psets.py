"""Process sets: what the host defines, and what clients hear of it."""

from __future__ import annotations

from pypmix.engine.python.serverside.topic import Topic
from pypmix.standard import codes
from pypmix.standard.errors import ERR_BAD_PARAM, ERR_EXISTS, ERR_OUT_OF_RESOURCE, NotFound, PMIxError
from pypmix.standard.ops import Notification
from pypmix.standard.ops.core import instances
from pypmix.standard.ops.events import NON_DEFAULT, RANGE_LOCAL
from pypmix.standard.types import MAX_NSLEN, DataArray, Info, Proc, Value, check_name

DEFINED = -55
DELETED = -56

NAME = "pmix.pset.nm"
MEMBERS = "pmix.pset.mems"

MAX_PSETS = 65536


class Psets(Topic):
    """Process sets. They are the host's: no client makes one, and none ends with its members."""

    def define(self, name: str, members: tuple[Proc, ...]) -> None:
        """See `ServerSession.define_process_set`."""
        operation = "define_process_set"
        if not check_name(name, MAX_NSLEN, "a process set's name") or "," in name:
            raise PMIxError(f"{name!r} is no name of a process set", status=ERR_BAD_PARAM, operation=operation)
        instances("members", members, Proc)
        psets = self.server.store.psets
        if name in psets:
            raise PMIxError(f"there is a process set {name!r} already", status=ERR_EXISTS, operation=operation)
        if len(psets) >= MAX_PSETS:
            raise PMIxError(f"there are {len(psets)} of them", status=ERR_OUT_OF_RESOURCE, operation=operation)
        psets[name] = members
        array = Value(codes.DATA_ARRAY, DataArray(codes.PROC, members))
        self._tell(DEFINED, name, Info(MEMBERS, array))

    def delete(self, name: str) -> None:
        """See `ServerSession.delete_process_set`."""
        if self.server.store.psets.pop(name, None) is None:
            raise NotFound(f"there is no process set {name!r}", operation="delete_process_set")
        self._tell(DELETED, name)

    def _tell(self, code: int, name: str, *more: Info) -> None:
        infos = (Info(NON_DEFAULT, Value(codes.BOOL, True)), Info(NAME, Value(codes.STRING, name)), *more)
        self.server.events.notify(Notification(code, self.server.proc, RANGE_LOCAL, infos))
