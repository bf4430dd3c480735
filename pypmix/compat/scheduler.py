"""`PMIxScheduler` of the Standard's Python bindings: a tool that serves requests for sessions and resources."""

from __future__ import annotations

from pypmix.compat.running import attempt
from pypmix.compat.server import handlers
from pypmix.compat.tool import PMIxTool
from pypmix.compat.values import from_info, to_infos
from pypmix.standard import attrs, statuses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONNECTING = frozenset(
    attr.key
    for attr in (
        attrs.CONNECT_TO_SYSTEM,
        attrs.CONNECT_SYSTEM_FIRST,
        attrs.SERVER_PIDINFO,
        attrs.SERVER_URI,
        attrs.SERVER_NSPACE,
        attrs.TCP_URI,
        attrs.TOOL_ATTACHMENT_FILE,
        attrs.TOOL_DO_NOT_CONNECT,
        attrs.TOOL_CONNECT_OPTIONAL,
    )
)
"""The keys of infos that name a server."""


class PMIxScheduler(PMIxTool):
    """A scheduler: a tool whose handlers serve requests for sessions and resources, and which needs no server.

    The handlers are set by `set_server_module`, before or after `init`. If `init` is called with
    `PMIX_SERVER_SCHEDULER`, tools of the node that are to connect to the scheduler find it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._map: object = None

    def init(self, dicts: object = None, map: object = None) -> tuple[int, dict[str, Any]]:
        """`PMIx_tool_init`: returns the status and the scheduler's name; succeeds also without a server."""
        given = attempt(to_infos, dicts)[1]
        if given is not None and not any(info.key in CONNECTING for info in given):
            dicts = [*(dicts if isinstance(dicts, list | tuple) else ()), from_info(attrs.TOOL_CONNECT_OPTIONAL(True))]
        status, name = super().init(dicts)
        if status == statuses.SUCCESS and self._map is not None:
            status = super().set_server_module(self._map)
        return status, name

    def set_server_module(self, map: object) -> int:
        """`PMIx_tool_set_server_module`: serve connections, by the handlers of upcalls.

        Before `init` it stores the handlers for `init`, and returns `PMIX_ERR_INIT`.
        """
        if self._facade is None and handlers(map) is not None:
            self._map = map
            return statuses.ERR_INIT
        return super().set_server_module(map)
