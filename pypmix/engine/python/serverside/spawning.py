"""Spawn: a request to the host, and the job info of the new job."""

from __future__ import annotations

from pypmix.engine.common import Pending
from pypmix.engine.python.modex import is_true
from pypmix.engine.python.node import Topic, fields_of, made, refuse
from pypmix.standard import keys, statuses
from pypmix.standard.errors import OutOfResources, PMIxError
from pypmix.standard.ops import Spawn
from pypmix.standard.ops.forwarding import DIAG, STDERR, STDOUT
from pypmix.standard.types import MAX_NSLEN, check_name
from pypmix.wire.messages import Command, encode_status, reply_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.python.node import Node, Peer


FORWARDED = {keys.FWD_STDOUT: STDOUT, keys.FWD_STDERR: STDERR, keys.FWD_STDDIAG: DIAG}


MAX_SPAWNS = 256
"""Bound of the spawns of one connection that the host has before it."""


class Spawning(Topic):
    """Spawn.

    The host registers the new nspace before it answers, so that the caller gets its job info with the answer.
    """

    def __init__(self, server: Node) -> None:
        super().__init__(server)
        self.handlers = {Command.SPAWNNB: self._spawn}
        self._began_at: dict[Peer, dict[int, float]] = {}

    def disconnected(self, peer: Peer) -> None:
        self._began_at.pop(peer, None)

    def pending(self) -> list[Pending]:
        return [
            Pending("spawn", "with the host", (peer.process.proc,), (), since)
            for peer, spawns in self._began_at.items()
            for since in spawns.values()
        ]

    def _spawn(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.SPAWNNB, payload)
        infos = self.server.store.native(tuple(fields["infos"]), keys.PARENT_ID)
        op: Spawn = made(Spawn, tuple(fields["apps"]), infos)
        channels = self._channels(peer, op)
        begun = self._began_at.setdefault(peer, {})
        if len(begun) >= MAX_SPAWNS:
            raise OutOfResources("too many jobs are being started already")
        begun[tag] = self.server.clock.now()

        def answer(nspace: Any, error: BaseException | None) -> None:
            begun.pop(tag, None)
            if error is None:
                try:
                    if not check_name(nspace, MAX_NSLEN, "an nspace"):
                        raise ValueError("an nspace is not empty")
                except (TypeError, ValueError) as problem:
                    self.server.host.log(f"the host answered spawn of {peer.process.proc} with nonsense: {problem!r}")
                    error = PMIxError(status=statuses.ERROR)
            if error is not None:
                refuse(peer, tag, error)
                return
            namespace = self.server.store.get(nspace)
            if namespace is None:
                layout = reply_layout(Command.SPAWNNB, peer.release)
                peer.send(tag, layout.encode(peer.buffer_type, peer.rule, status=statuses.SUCCESS, nspace=nspace))
            else:
                job = namespace.pack(peer.buffer_type, peer.release, peer.rule).reply
                peer.send(tag, encode_status(peer.buffer_type, statuses.SUCCESS) + job)
            self.server.forwarding.spawned(peer, nspace, channels, op.directives)

        self.server.host.upcall(op, answer, peer.process)

    def _channels(self, peer: Peer, op: Spawn) -> int:
        """Return the channels of the job that are forwarded to its caller; by default all, for tools of libpmix."""
        wanted = {info.key: is_true(info) for info in op.directives if info.key in FORWARDED}
        otherwise = self.server.tools.is_one(peer) and not peer.pypmix
        return sum([channel for key, channel in FORWARDED.items() if wanted.get(key, otherwise)])
