"""A tool at a Python server without sockets."""

from __future__ import annotations

from lib.server_world import GID, UID, Client, World
from pypmix.standard.types import Proc
from pypmix.wire.handshake import (
    FLAG_TOOL_NEEDS_ID,
)
from pypmix.wire.toolreply import ToolReply, ToolReplyReader


class Tool(Client):
    """A tool's end of a connection; `welcome` is the server's whole answer, or the status of a refusal."""

    def __init__(self, world: World, flag: int = FLAG_TOOL_NEEDS_ID, name: Proc | None = None, **hello: object) -> None:
        fields = {"flag": flag, "uid": UID, "gid": GID, **hello}
        super().__init__(world, None if name is None else name.rank, None if name is None else name.nspace, **fields)
        self.flag = flag
        self.greeting = ToolReplyReader(flag)
        self.proc = name or Proc("", 0)

    def connect(self) -> Tool:
        super().connect()
        if isinstance(self.welcome, ToolReply) and self.welcome.proc is not None:
            self.proc = self.welcome.proc
        return self

    @property
    def accepted(self) -> bool:
        return isinstance(self.welcome, ToolReply) and not self.link.closed
