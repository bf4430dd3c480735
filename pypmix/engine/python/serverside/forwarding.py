"""Output forwarding: the pulls of clients, output that no client has pulled yet, and input on its way to the host.

The host is asked once for each set of procs and channels, however many clients pull it, and asked to stop after the
last of these pulls. Each pull has the form in which its reader wants the output (`OutputForm`): lines with a tag or a
time before each, or XML.
"""

from __future__ import annotations

import time
from collections import deque

from pypmix.engine.python.modex import is_true
from pypmix.engine.python.node import Topic, fields_of, made, refuse
from pypmix.engine.times import OUTPUT_SECONDS
from pypmix.standard import keys, statuses
from pypmix.standard.errors import OutOfResources, PMIxError
from pypmix.standard.keys import (
    IOF_RANK_OUTPUT,
    IOF_TAG_FULLNAME_OUTPUT,
    IOF_TAG_OUTPUT,
    IOF_TIMESTAMP_OUTPUT,
    IOF_XML_OUTPUT,
    TAG_OUTPUT,
    TIMESTAMP_OUTPUT,
)
from pypmix.standard.logtext import printable
from pypmix.standard.ops import IOFDeregister, IOFPull, IOFPush
from pypmix.standard.ops.forwarding import DIAG, STDERR, STDOUT, names_proc
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.wire.frames import TAG_IOF
from pypmix.wire.messages import IOF, Command, reply_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.collective.machine import Timer
    from pypmix.engine.python.node import Node, Peer
    from pypmix.engine.python.processes import Namespace, Process
    from pypmix.standard.ops import Output
    from pypmix.standard.types import Info, Proc

MAX_NAMED = 1 << 16
"""Procs that the pulls of one connection may name."""

CACHE_SIZE = 1 << 20
"""Bytes of each nspace that are kept for late pulls."""

MAX_CACHE_SIZE = 16 << 20
"""The largest cache that a directive can set."""

MANY_OVER = 64
"""Bound of the ended jobs whose output is kept."""

PIECE_COST = 200
"""Bytes that a piece takes besides its data."""

UNASKED = 0x7FFFFFFF
"""The handler number in output that is forwarded because of a spawn. No client has it, so clients show the output.

Native servers send 0, which is also the number of a client's first pull, and so call the handler of that pull.
"""


class _Feed:
    """A pull of the host, which clients with equal pulls share."""

    __slots__ = ("has_answer", "id", "name", "users", "waiting")

    def __init__(self, name: object) -> None:
        self.name = name
        self.has_answer = False
        self.id: int | None = None
        self.users: set[_Pull] = set()
        self.waiting: list[Callable[[BaseException | None], None]] = []


class _Pull:
    """Output that one connection gets: by a pull, or by a spawn."""

    __slots__ = ("channels", "early", "feed", "form", "local_id", "number", "peer", "procs")

    def __init__(self, peer: Peer, number: int, local_id: int, procs: Iterable[Proc], channels: int) -> None:
        self.peer = peer
        self.number = number
        self.local_id = local_id
        self.procs = frozenset(procs)
        self.channels = channels
        self.feed: _Feed | None = None
        self.form: OutputForm | None = None
        self.early: list[Output] | None = None
        """Pieces for it and others that arrived before the host had answered."""

    def covers(self, output: Output) -> bool:
        """Return True if this pull gets an output; a proc never gets its own output."""
        return (
            bool(self.channels & output.channel)
            and names_proc(self.procs, output.source)
            and output.source != self.peer.process.proc
        )

    def deliver(self, output: Output) -> None:
        """Send a piece of output."""
        if self.form is None:
            self._send(output, output.data)
            return
        data = self.form.apply(output)
        if data:
            self._send(output, data)
        if not output.data:
            self._send(output, b"")

    def _send(self, output: Output, data: bytes) -> None:
        peer = self.peer
        fields = {"source": output.source, "channel": output.channel, "handler": self.local_id, "infos": output.infos}
        peer.send(TAG_IOF, IOF.encode_fit(peer.buffer_type, peer.rule, data=data, **fields))


class _Cache:
    """Output of an nspace that no client has pulled yet."""

    __slots__ = ("end", "keep_newest", "limit", "pieces", "size")

    def __init__(self, limit: int = CACHE_SIZE, keep_newest: bool = False) -> None:
        self.limit = limit
        self.keep_newest = keep_newest
        self.pieces: deque[Output] = deque()
        self.size = 0
        self.end: Timer | None = None

    def add(self, output: Output) -> None:
        # The end of a channel is kept in any case: each channel has one, and the reader waits for it.
        cost = _cost(output)
        if self.size + cost > self.limit and output.data:
            if not self.keep_newest:
                return
            while self.pieces and self.size + cost > self.limit:
                self.size -= _cost(self.pieces.popleft())
        self.pieces.append(output)
        self.size += cost

    def take(self, condition: Callable[[Output], bool]) -> list[Output]:
        matches = [piece for piece in self.pieces if condition(piece)]
        if matches:
            self.pieces = deque([piece for piece in self.pieces if not condition(piece)])
            self.size = sum(map(_cost, self.pieces))
        return matches


def _cost(output: Output) -> int:
    return len(output.data) + PIECE_COST


class Forwarding(Topic):
    """Pull, deregister and push."""

    def __init__(self, server: Node) -> None:
        super().__init__(server)
        self.handlers = {
            Command.IOF_PULL: self._pull,
            Command.IOF_DEREG: self._deregister,
            Command.IOF_PUSH: self._push,
        }
        self._pulls: dict[Peer, dict[int, _Pull]] = {}
        self._feeds: dict[object, _Feed] = {}
        self._caches: dict[str, _Cache] = {}
        self._ended_jobs: dict[str, _Cache] = {}
        """The caches of jobs that have ended, oldest first."""
        self._inputs: dict[Peer, int] = {}
        self._last = 0

    # Output from the host.

    def deliver(self, output: Output) -> None:
        """Forward a piece of output to all pulls that want it, or keep it."""
        if not self._pass_on(output):
            self._keep(output)

    def _pass_on(self, output: Output) -> bool:
        found = False
        waiting: list[list[Output]] = []
        for peer, pulls in self._pulls.items():
            if peer.finalized:
                continue
            wanting = [pull for pull in pulls.values() if pull.covers(output)]
            asked = [pull for pull in wanting if pull.feed is not None]
            for pull in asked or wanting[:1]:
                if pull.early is None:
                    pull.deliver(output)
                    found = True
                else:
                    waiting.append(pull.early)
        for early in waiting if found else ():
            early.append(output)
        return found

    def _keep(self, output: Output) -> None:
        nspace = output.source.nspace
        cache = self._caches.get(nspace)
        if cache is None:
            cache = self._caches[nspace] = _Cache()
            if self.server.store.get(nspace) is None:
                self._outlive(nspace, cache)
        cache.add(output)
        total = sum([cache.size for cache in self._caches.values()])
        while total > self.server.limits.output:
            # The oldest nspace loses its output.
            oldest, cache = next(iter(self._caches.items()))
            total -= cache.size
            self._drop(oldest, cache)

    def _catch_up(self, pull: _Pull) -> None:
        """Deliver the output that was kept until now; later output is delivered at once."""
        for nspace in self._cached(pull):
            cache = self._caches[nspace]
            for piece in cache.take(pull.covers):
                pull.deliver(piece)
            if not cache.pieces and self.server.store.get(nspace) is None:
                self._drop(nspace, cache)
        early, pull.early = pull.early, None
        for piece in early or ():
            pull.deliver(piece)

    def _cached(self, pull: _Pull) -> list[str]:
        named = {proc.nspace for proc in pull.procs}
        return [nspace for nspace in self._caches if "" in named or nspace in named]

    # Requests.

    def _pull(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.IOF_PULL, payload)
        op: IOFPull = made(IOFPull, tuple(fields["procs"]), fields["channels"], tuple(fields["infos"]))
        pulls = self._pulls.get(peer, {})
        if len(pulls) >= self.server.limits.pulls:
            raise self.server.limits.reached("pulls", "too much output is pulled already")
        if sum([len(pull.procs) for pull in pulls.values()], len(op.procs)) > MAX_NAMED:
            raise OutOfResources(f"the pulls name more than {MAX_NAMED} procs")
        pull = self._add(peer, fields["local_id"], op.procs, op.channels)
        pull.form = OutputForm.from_directives(op.directives)
        pull.early = []

        def answer(error: BaseException | None) -> None:
            if error is not None:
                self._remove(pull)
                refuse(peer, tag, error)
                return
            layout = reply_layout(Command.IOF_PULL, peer.release)
            reply = layout.encode(peer.buffer_type, peer.rule, status=statuses.SUCCESS, remote_id=pull.number)
            peer.send(tag, reply)
            # If the client has disconnected meanwhile, the kept output is for others.
            if pull.number in self._pulls.get(peer, ()):
                self._catch_up(pull)

        self._ask_host(pull, op, answer, peer.process)

    def _ask_host(
        self, pull: _Pull, op: IOFPull, answer: Callable[[BaseException | None], None], process: Process
    ) -> None:
        name = frozenset(op.procs), op.channels, repr(op.directives)
        feed = self._feeds.get(name)
        if feed is not None:
            pull.feed = feed
            feed.users.add(pull)
            if feed.has_answer:
                answer(None)
            else:
                feed.waiting.append(answer)
            return
        feed = pull.feed = self._feeds[name] = _Feed(name)
        feed.users.add(pull)
        feed.waiting.append(answer)

        def record_answer(number: int | None, error: BaseException | None) -> None:
            feed.has_answer = True
            feed.id = number if isinstance(number, int) and not isinstance(number, bool) else None
            if error is not None:
                self._feeds.pop(name, None)
            waiting, feed.waiting = feed.waiting, []
            for function in waiting:
                function(error)
            if error is None and not feed.users:
                # All pulls have ended meanwhile.
                self._release(feed, ())

        self.server.host.upcall(op, record_answer, process)

    def _deregister(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.IOF_DEREG, payload)
        pull = self._pulls.get(peer, {}).get(fields["remote_id"])
        if pull is None:
            raise PMIxError("there is no such pull", status=statuses.ERR_NOT_FOUND)
        self._remove(pull, tuple(fields["infos"]))
        peer.status(tag, statuses.SUCCESS)

    def _push(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = fields_of(peer, Command.IOF_PUSH, payload)
        op: IOFPush = made(IOFPush, tuple(fields["procs"]), fields["data"] or b"", tuple(fields["infos"]))
        size = len(op.data) + PIECE_COST
        if self._inputs.get(peer, 0) + size > self.server.limits.input:
            raise self.server.limits.reached("input", "too much input is under way already")
        self._inputs[peer] = self._inputs.get(peer, 0) + size

        def answer(_result: None, error: BaseException | None) -> None:
            if peer in self._inputs:
                self._inputs[peer] -= size
            refuse(peer, tag, error)

        self.server.host.upcall(op, answer, peer.process)

    def spawned(self, peer: Peer, nspace: str, channels: int, directives: tuple[Info, ...]) -> None:
        """Forward a new job's output on these channels to the client that has started it, without a pull."""
        cache = _Cache()
        for info in directives:
            if info.key == keys.IOF_CACHE_SIZE and isinstance(info.value.data, int):
                cache.limit = min(max(0, info.value.data), MAX_CACHE_SIZE)
            elif info.key == keys.IOF_DROP_OLDEST:
                cache.keep_newest = is_true(info)
        if self.server.store.get(nspace) is not None:
            found = self._caches.setdefault(nspace, cache)
            found.limit, found.keep_newest = cache.limit, cache.keep_newest
        if channels and peer.open and not peer.finalized and len(self._pulls.get(peer, ())) < self.server.limits.pulls:
            pull = self._add(peer, UNASKED, (Proc.unchecked(nspace, RANK_WILDCARD),), channels)
            pull.form = OutputForm.from_directives(directives)
            self._catch_up(pull)

    # Keeping count.

    def _add(self, peer: Peer, local_id: int, procs: Iterable[Proc], channels: int) -> _Pull:
        self._last += 1
        pull = _Pull(peer, self._last, local_id, procs, channels)
        self._pulls.setdefault(peer, {})[pull.number] = pull
        return pull

    def _remove(self, pull: _Pull, directives: tuple[Info, ...] = ()) -> None:
        pulls = self._pulls.get(pull.peer, {})
        if pulls.pop(pull.number, None) is not None and not pulls:
            del self._pulls[pull.peer]
        feed = pull.feed
        if feed is not None and pull in feed.users:
            feed.users.discard(pull)
            if not feed.users and feed.has_answer:
                self._release(feed, directives)

    def _release(self, feed: _Feed, directives: tuple[Info, ...]) -> None:
        """Report to the host that this output is no longer wanted, if it has given an id."""
        if self._feeds.get(feed.name) is feed:
            del self._feeds[feed.name]
            if feed.id is not None:
                self.server.host.upcall(IOFDeregister(feed.id, directives), lambda _result, _error: None)

    def _forget(self, peer: Peer) -> None:
        for pull in list(self._pulls.get(peer, {}).values()):
            self._remove(pull)

    def disconnected(self, peer: Peer) -> None:
        self._forget(peer)
        self._inputs.pop(peer, None)

    def handle_departure(self, process: Process, failed: bool) -> None:
        for peer in self.server.peers(process):
            self._forget(peer)

    def deregistered(self, namespace: Namespace) -> None:
        whole = frozenset({Proc.unchecked(namespace.name, RANK_WILDCARD)})
        for pulls in list(self._pulls.values()):
            for pull in [pull for pull in pulls.values() if pull.feed is None and pull.procs == whole]:
                self._remove(pull)
        # The output of a job is kept after its end: a pull may be later than the end of a short job.
        cache = self._caches.get(namespace.name)
        if cache is not None and cache.pieces:
            self._outlive(namespace.name, cache)
        elif cache is not None:
            del self._caches[namespace.name]

    def _outlive(self, nspace: str, cache: _Cache) -> None:
        """Keep the output of a job that has ended, and drop the oldest such output beyond `MANY_OVER` jobs."""
        self._ended_jobs[nspace] = cache
        while len(self._ended_jobs) > MANY_OVER:
            oldest = next(iter(self._ended_jobs))
            self._drop(oldest, self._ended_jobs[oldest])
        cache.end = self.server.clock.call_later(OUTPUT_SECONDS, lambda: self._drop(nspace, cache))

    def _drop(self, nspace: str, cache: _Cache) -> None:
        if cache.end is not None:
            # It would keep the output until then.
            cache.end.cancel()
        for found in (self._ended_jobs, self._caches):
            if found.get(nspace) is cache:
                del found[nspace]


# The form of the output

NAMES = {STDOUT: "stdout", STDERR: "stderr", DIAG: "stddiag"}

TAGS = {
    IOF_TAG_OUTPUT: "[{job},{rank}]<{channel}>: ",
    TAG_OUTPUT: "[{job},{rank}]<{channel}>: ",
    IOF_TAG_FULLNAME_OUTPUT: "[{nspace},{rank}]<{channel}>: ",
    IOF_RANK_OUTPUT: "[{rank}]<{channel}>: ",
}
"""The text before each line, by directive, as libpmix has it."""

TIMESTAMPS = frozenset({IOF_TIMESTAMP_OUTPUT, TIMESTAMP_OUTPUT})

MAX_HELD = 64 << 10
"""The longest line that is kept until its end arrives."""


class OutputForm:
    """One reader's form, and the position of each source in its line.

    Args:
        tag: The format of the text before each line; empty for none.
        timestamp: Whether to put the time there too.
        xml: Whether each line is an element.
    """

    def __init__(self, tag: str, timestamp: bool, xml: bool) -> None:
        self._tag = tag
        self._timestamp = timestamp
        self._xml = xml
        self._inside: set[tuple[Proc, int]] = set()
        self._unfinished: dict[tuple[Proc, int], bytes] = {}

    @classmethod
    def from_directives(cls, directives: Iterable[Info]) -> OutputForm | None:
        """Return the form that directives ask for, None if they ask for none."""
        keys = {info.key for info in directives if is_true(info)}
        tag = next((tag for key, tag in TAGS.items() if key in keys), "")
        timestamp, xml = not keys.isdisjoint(TIMESTAMPS), IOF_XML_OUTPUT in keys
        return cls(tag, timestamp, xml) if tag or timestamp or xml else None

    def apply(self, output: Output) -> bytes:
        """Return a piece in this form; empty if no part of it can be shown yet."""
        return self._elements(output) if self._xml else self._lines(output)

    def _lines(self, output: Output) -> bytes:
        key = output.source, output.channel
        before = self._before(output).encode("utf-8", "surrogateescape")
        done = bytearray()
        for line in _split(output.data):
            if key not in self._inside:
                done += before
            done += line
            if line.endswith(b"\n"):
                self._inside.discard(key)
            else:
                self._inside.add(key)
        return bytes(done)

    def _elements(self, output: Output) -> bytes:
        key = output.source, output.channel
        lines = _split(self._unfinished.pop(key, b"") + output.data)
        if lines and output.data and not lines[-1].endswith(b"\n") and len(lines[-1]) < MAX_HELD:
            self._unfinished[key] = lines.pop()
        return b"".join([self._element(output, line) for line in lines])

    def _before(self, output: Output) -> str:
        nspace, rank = printable(output.source.nspace), output.source.rank
        channel = NAMES.get(output.channel, "output")
        tag = self._tag.format(job=nspace.rpartition("@")[2], nspace=nspace, rank=rank, channel=channel)
        if not self._timestamp:
            return tag
        return f"[{time.ctime()}]{tag}" if tag else f"[{time.ctime()}]<{channel}>: "

    def _element(self, output: Output, line: bytes) -> bytes:
        name = NAMES.get(output.channel, "output")
        nspace, rank = output.source
        nspace = "".join(map(_escaped, nspace.encode("utf-8", "surrogateescape"))).replace('"', "&quot;")
        stamp = f' timestamp="{time.ctime()}"' if self._timestamp else ""
        body = "".join(map(_escaped, line))
        return f'<{name} nspace="{nspace}" rank="{rank}"{stamp}>{body}</{name}>\n'.encode("ascii")


def _split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


_NAMED = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}


def _escaped(byte: int) -> str:
    return _NAMED.get(byte) or (chr(byte) if 32 <= byte < 127 else f"&#{byte:03};")
