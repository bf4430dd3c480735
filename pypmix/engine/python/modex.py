"""Commit and get on a server: direct modex between the procs of one node."""

from __future__ import annotations

from pypmix.engine.base import Pending
from pypmix.engine.python.serverdata import qualifiers_of
from pypmix.standard import codes
from pypmix.standard.errors import (
    ERR_BAD_PARAM,
    ERR_NOT_FOUND,
    ERR_OUT_OF_RESOURCE,
    ERR_TIMEOUT,
    SUCCESS,
    NotFound,
    PMIxError,
)
from pypmix.standard.ops import RESERVED_PREFIX, SCOPE_GLOBAL, SCOPE_LOCAL, SCOPE_REMOTE
from pypmix.standard.types import RANK_UNDEF, RANK_WILDCARD, Proc
from pypmix.wire.codec import Packer, Unpacker
from pypmix.wire.frames import TAG_DATA_DELETE
from pypmix.wire.messages import decode_commit, decode_get, encode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pypmix.engine.python.collectives import Clock, Roster, Timer
    from pypmix.engine.python.server import Peer, Ticket
    from pypmix.engine.python.serverdata import Namespace, Process, Store
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Info

REFRESH_CACHE = 33
"""A command of 5.0 and later without a layout of its own."""

GET_SECONDS = 2.0
"""How long a value is waited for when its reader gives no timeout, as natives do."""

MAX_BUNDLE = 256 << 10
"""The most bytes of other procs' data that go along with the first get after a collecting fence."""

MAX_WAITING = 4096
"""How many gets of one connection may wait at a time."""

MAX_ASKED = 4096
MAX_ASKED_BYTES = 512
"""How many requests, and how long ones, are remembered with what they mean; readers of one value send equal ones."""

TIMEOUT = "pmix.timeout"
IMMEDIATE = "pmix.immediate"
REFRESH = "pmix.get.refresh"
DATA_SCOPE = "pmix.scope"


def is_true(info: Info) -> bool:
    """Tell whether a boolean directive is set; one without a value is."""
    return info.value.type == codes.UNDEF or bool(info.value.data)


def seconds(info: Info) -> float:
    """Return the seconds that a directive gives.

    Raises:
        PMIxError: It gives none (`ERR_BAD_PARAM`).
    """
    data = info.value.data
    if isinstance(data, bool) or not isinstance(data, int) or data < 0:
        raise PMIxError(f"{info.key} is a number of seconds, not {data!r}", status=ERR_BAD_PARAM)
    return float(data)


class Asked:
    """What a get asks for."""

    __slots__ = ("immediate", "key", "nspace", "qualifiers", "rank", "scope", "timeout")

    def __init__(self, payload: bytes, buffer_type: int, release: Release) -> None:
        self.nspace, self.rank, infos, key = decode_get(payload, buffer_type, release)
        self.key = key or ""
        self.immediate = False
        self.timeout = GET_SECONDS
        self.scope = SCOPE_LOCAL
        self.qualifiers = qualifiers_of(infos)
        for info in infos:
            if info.key in (IMMEDIATE, REFRESH):
                self.immediate = self.immediate or is_true(info)
            elif info.key == TIMEOUT:
                self.timeout = seconds(info) or GET_SECONDS
            elif info.key == DATA_SCOPE:
                if info.value.type != codes.SCOPE:
                    raise PMIxError("the scope of a get is of type SCOPE", status=ERR_BAD_PARAM)
                scope = info.value.data
                self.scope = scope if scope in (SCOPE_LOCAL, SCOPE_REMOTE) else SCOPE_GLOBAL

    @property
    def put(self) -> bool:
        """Whether it asks for a value that a proc puts, not for job info."""
        return bool(self.key) and (not self.key.startswith(RESERVED_PREFIX) or bool(self.qualifiers))


class Waiting:
    """A get that waits for its value to be committed."""

    __slots__ = ("asked", "peer", "place", "since", "tag", "timer")

    def __init__(self, peer: Peer, tag: int, asked: Asked, place: Process | Namespace, since: float) -> None:
        self.peer = peer
        self.tag = tag
        self.asked = asked
        self.place = place
        self.since = since
        self.timer: Timer | None = None


class Modex:
    """The values that procs exchange, and the gets that wait for some.

    Args:
        clock: Where time comes from.
        store: What has been committed.
        everyone: Who is connected.
    """

    def __init__(self, clock: Clock, store: Store, everyone: Callable[[], Iterator[Peer]]) -> None:
        self._clock = clock
        self._store = store
        self._everyone = everyone
        self._waiting: dict[Process | Namespace, list[Waiting]] = {}
        self._asked: dict[tuple[bytes, int, Release], Asked] = {}

    def pending(self) -> list[Pending]:
        """Return the gets that wait."""
        found = []
        for waits in self._waiting.values():
            for wait in waits:
                target = Proc(wait.asked.nspace, wait.asked.rank)
                reader = wait.peer.process.proc
                found.append(Pending("get", f"{wait.asked.key} of {target}", (reader,), (target,), wait.since))
        return found

    def forsake(self, place: Process | Namespace) -> None:
        """Nothing will come any more from a proc, or an nspace: whoever waits for it is told."""
        for waiting in self._waiting.get(place, [])[:]:
            self._give_up(waiting, ERR_NOT_FOUND)

    def forget(self, peer: Peer) -> None:
        """A reader has gone."""
        if peer.waiting:
            for waits in list(self._waiting.values()):
                for waiting in [wait for wait in waits if wait.peer is peer]:
                    self._end_wait(waiting)

    def commit(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Take in what a client commits, and serve those who wait for it."""
        process = peer.process
        blocks = decode_commit(payload, peer.buffer_type)
        deleted = process.commit(blocks, peer.buffer_type, peer.release)
        peer.status(tag, SUCCESS)
        for scope, key in deleted:
            self._tell_deleted(peer, scope, key)
        for place in (process, process.namespace):
            for waiting in self._waiting.get(place, ())[:]:
                self._look_again(waiting, process)

    def _tell_deleted(self, deleter: Peer, scope: int, key: str) -> None:
        """Make clients that may have the value drop it; older ones than 7.0 have no ear for that."""
        for peer in self._everyone():
            if peer is not deleter and peer.release >= (7,) and not peer.finalized:
                packer = Packer(peer.buffer_type).pack(codes.PROC, deleter.process.proc)
                peer.send(TAG_DATA_DELETE, packer.pack(codes.SCOPE, scope).pack(codes.STRING, key).bytes())

    def get(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Answer a get, now or when its value comes."""
        name = payload, peer.buffer_type, peer.release
        asked = self._asked.get(name)
        if asked is None:
            asked = Asked(*name)
            if len(payload) <= MAX_ASKED_BYTES:
                if len(self._asked) >= MAX_ASKED:
                    self._asked.clear()
                self._asked[name] = asked
        namespace = self._store.get(asked.nspace)
        if namespace is None:
            raise NotFound(f"no nspace {asked.nspace!r} is registered here")
        if asked.rank == RANK_WILDCARD:
            self._get_job(peer, tag, namespace, asked.key)
        elif asked.rank == RANK_UNDEF:
            if asked.put:
                self._get_put(peer, tag, asked, namespace, namespace.processes.values())
            else:
                self._get_job(peer, tag, namespace, asked.key)
        else:
            target = self._store.process(Proc.unchecked(asked.nspace, asked.rank))
            if asked.put:
                self._get_put(peer, tag, asked, target, (target,))
            else:
                self._get_rank(peer, tag, target, asked.key, asked.scope)

    def _get_put(
        self, peer: Peer, tag: int, asked: Asked, place: Process | Namespace, candidates: Iterable[Process]
    ) -> None:
        """Answer a get with a value that one of the candidates has put, or let it wait."""
        exists = False
        for process in candidates:
            if process.data:
                visible, there = process.find(asked.key, asked.qualifiers, asked.scope)
                if visible:
                    self._answer(peer, tag, asked.scope, process)
                    return
                exists = exists or there
        if exists or asked.immediate or all(process.left for process in candidates):
            raise NotFound(f"{asked.key} of {asked.nspace}:{asked.rank} is not there")
        if peer.waiting >= MAX_WAITING:
            raise PMIxError(f"{peer.waiting} gets wait already", status=ERR_OUT_OF_RESOURCE)
        waiting = Waiting(peer, tag, asked, place, self._clock.now())
        peer.waiting += 1
        self._waiting.setdefault(place, []).append(waiting)
        waiting.timer = self._clock.call_later(asked.timeout, lambda: self._give_up(waiting, ERR_TIMEOUT))

    def _look_again(self, waiting: Waiting, committed: Process) -> None:
        visible, exists = committed.find(waiting.asked.key, waiting.asked.qualifiers, waiting.asked.scope)
        if visible:
            self._end_wait(waiting)
            self._answer(waiting.peer, waiting.tag, waiting.asked.scope, committed)
        elif exists:
            self._give_up(waiting, ERR_NOT_FOUND)
        elif not waiting.peer.pypmix and waiting.place is committed:
            # libpmix asks once for all gets of a proc that wait at a time: the others wait for this answer too.
            self._end_wait(waiting)
            self._answer(waiting.peer, waiting.tag, waiting.asked.scope, committed)

    def _end_wait(self, waiting: Waiting) -> None:
        waits = self._waiting[waiting.place]
        waits.remove(waiting)
        if not waits:
            del self._waiting[waiting.place]
        waiting.peer.waiting -= 1
        if waiting.timer is not None:
            waiting.timer.cancel()

    def _give_up(self, waiting: Waiting, status: int) -> None:
        self._end_wait(waiting)
        waiting.peer.status(waiting.tag, status)

    def _answer(self, peer: Peer, tag: int, scope: int, process: Process) -> None:
        """Send all that the reader may see of a proc, and after a collecting fence of the others too."""
        kind = peer.buffer_type
        parts = [encode_status(kind, SUCCESS)]
        if process.namespace is peer.process.namespace:
            parts.append(process.object(kind, scope))
        else:
            pack = process.namespace.pack(kind, peer.release)
            parts += (pack.job_object(), pack.rank_object(process.proc, "", process.kvals(kind, scope)))
        if peer.bundle is not None and scope == SCOPE_LOCAL:
            parts += self._bundle(peer, peer.bundle, process)
        peer.bundle = None
        peer.send(tag, b"".join(parts))

    def _bundle(self, peer: Peer, roster: Roster[Process, Ticket], asked: Process) -> list[bytes]:
        """Return the data of those who were in a fence with a reader, unless it is too much.

        Its own is left out: it may have put newer values that it has not committed.
        """
        left = MAX_BUNDLE
        found = []
        for member in roster.members:
            if member is peer.process or member is asked or member.namespace is not peer.process.namespace:
                continue
            data = member.object(peer.buffer_type, SCOPE_LOCAL)
            left -= len(data)
            if left < 0:
                return []
            found.append(data)
        return found

    def _get_job(self, peer: Peer, tag: int, namespace: Namespace, key: str) -> None:
        pack = namespace.pack(peer.buffer_type, peer.release)
        data = pack.job_object(key)
        if not data:
            raise NotFound(f"the job info of {namespace.name} has no {key or 'data'}")
        if namespace is not peer.process.namespace:
            data = pack.job_object()
        peer.send(tag, encode_status(peer.buffer_type, SUCCESS) + data)

    def _get_rank(self, peer: Peer, tag: int, target: Process, key: str, scope: int) -> None:
        kind = peer.buffer_type
        pack = target.namespace.pack(kind, peer.release)
        data = pack.rank_object(target.proc, key, () if key else target.kvals(kind, scope))
        if not data:
            raise NotFound(f"{target.proc} has no {key or 'data'}")
        parts = [encode_status(kind, SUCCESS)]
        if target.namespace is not peer.process.namespace:
            parts.append(pack.job_object())
        peer.send(tag, b"".join((*parts, data)))

    def refresh_cache(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Send all values of a rank to a client that takes its own for outdated."""
        unpacker = Unpacker(payload, peer.buffer_type, peer.release)
        unpacker.skip(codes.COMMAND)
        target = self._store.process(Proc.unchecked(unpacker.one(codes.STRING) or "", unpacker.one(codes.PROC_RANK)))
        kvals = target.kvals(peer.buffer_type, SCOPE_LOCAL)
        peer.send(tag, b"".join((encode_status(peer.buffer_type, SUCCESS), *kvals)))
