"""Commit and get on a server: the values of the procs of this node, and of procs of other servers.

Theory of operation. The values of a proc are in its `Process` (`processes.py`), which packs them for each kind of
reader. This module decides when a reader gets which of them.

- **Commit.** `commit` stores the received bytes, numbers the commit, and looks again at the gets that wait for this
  proc, or for any proc of its nspace (`_changed`).
- **Get.** A request is decoded once; readers of one value send equal requests, so `GetRequest` objects are remembered.
  Its rank and key choose the way: the wildcard rank and reserved keys of no rank are job info (`_get_job`), reserved
  keys of a rank are known here (`_get_rank`; the groups of a proc elsewhere are asked for, `_get_groups`), and all
  other keys are values that procs put (`_get_put`). A proc that is named by its rank in a group gets its own name
  first (`_ungroup`).
- **Waiting.** A get of a value that does not exist yet becomes a `Waiting`, listed by the proc or nspace that it waits
  for. It ends once: by a commit (`_look_again`), by the data of another server (`_fetched`), by its time limit, when
  the proc or its job will commit nothing further (`forsake`), or with its reader (`forget`). A get with `immediate`, or
  of a proc that has ended, fails at once.
- **Other servers.** The values of a proc of another server are fetched by the host, once for all gets of a key
  (`_fetch`, the upcall `DirectModex`), and stored by `take_in`, as the data of collecting fences and constructs is. The
  other direction, requests of other servers for procs of this node, is `modexrequests.py` (`Modex.sharing`).
- **Answer.** `_answer` sends more than the value that was asked for: small procs whole, and after a collecting fence
  also the values of the other members, so that most later gets need no request. A proc with more than `SMALL` sends
  pypmix's readers what is new to them (`_news`), so that the cost of a get does not grow with the number of commits.
"""

from __future__ import annotations

from itertools import chain, count

from pypmix.engine.common import Pending
from pypmix.engine.python.modexrequests import ModexRequests
from pypmix.engine.python.node import reason_of, refuse, status_of
from pypmix.engine.python.processes import MUCH, SMALL, Process, named, object_of, qualifiers_of
from pypmix.engine.times import GET_SECONDS
from pypmix.standard import codes, keys, statuses
from pypmix.standard._typing import TypeVar
from pypmix.standard.errors import NotFound, PMIxError, RemoteProtocolError
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.ops import DEL_REMOTE, RESERVED_PREFIX, SCOPE_GLOBAL, SCOPE_LOCAL, SCOPE_REMOTE, QueryInfo
from pypmix.standard.ops.hosting import DirectModex
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import RANK_UNDEF, RANK_VALID, RANK_WILDCARD, DataArray, Info, Proc, Query, Value
from pypmix.wire.codec import Packer, Unpacker
from pypmix.wire.frames import TAG_DATA_DELETE
from pypmix.wire.messages import decode_commit, decode_get, encode_kval, encode_status
from pypmix.wire.modex import decode_modex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from pypmix.engine.collective.machine import Clock, Membership, Timer
    from pypmix.engine.python.node import Call, Host, Peer
    from pypmix.engine.python.processes import Name, Namespace, Stored
    from pypmix.engine.python.serverdata import Cache, Store
    from pypmix.standard.limits import Limits
    from pypmix.standard.releases import Release
    from pypmix.wire.modex import Contribution

    Reply = Callable[[Peer, int, "GetRequest", Process], None]

K = TypeVar("K")

REFRESH_CACHE = 33
"""A command of 5.0 and later without a layout."""

MAX_ASKED = 4096
MAX_ASKED_BYTES = 512
"""Bounds of the requests that are remembered with their meaning; the readers of one value send equal requests."""

MAX_SENT = 4096
"""Bound of the procs with much data for which it is remembered, for each reader, which values were sent."""


def _group_names(names: Iterable[str], kind: int, rule: int) -> list[bytes]:
    """Return a list of the KVAL with the groups of a proc, empty if it has no groups."""
    array = Value(codes.DATA_ARRAY, DataArray(codes.STRING, tuple(names)))
    return [encode_kval(kind, keys.GROUP_NAMES, array, rule)] if names else []


def _remove(waits: dict[K, dict[Waiting, None]], key: K, waiting: Waiting) -> None:
    """Remove a get that no longer waits from one of the tables of waiting gets."""
    found = waits[key]
    del found[waiting]
    if not found:
        del waits[key]


def is_true(info: Info) -> bool:
    """Return True if a boolean directive is set; a directive without a value is set."""
    return info.value.type == codes.UNDEF or bool(info.value.data)


def seconds(info: Info) -> float:
    """Return the seconds that a directive gives.

    Raises:
        PMIxError: It gives none (`ERR_BAD_PARAM`).
    """
    data = info.value.data
    if isinstance(data, bool) or not isinstance(data, int) or data < 0:
        raise PMIxError(f"{info.key} is a number of seconds, not {data!r}", status=statuses.ERR_BAD_PARAM)
    return float(data)


class GetRequest:
    """The meaning of a get.

    Attributes:
        alias: The group's name and the rank in it by which the reader names the proc.
        scope: The scope that the reader names; 0 for none.
        timeout: Its timeout in seconds; 0 for none.
    """

    __slots__ = ("alias", "immediate", "infos", "key", "nspace", "qualifiers", "rank", "refresh", "scope", "timeout")

    def __init__(self, nspace: str, rank: int, infos: tuple[Info, ...], key: str | None) -> None:
        self.nspace = nspace
        self.rank = rank
        self.infos = infos
        self.key = key or ""
        self.alias: Proc | None = None
        self.immediate = False
        self.refresh = False
        self.timeout = 0.0
        self.scope = 0
        self.qualifiers = qualifiers_of(infos)
        for info in infos:
            if info.key == keys.IMMEDIATE:
                self.immediate = is_true(info)
            elif info.key == keys.GET_REFRESH_CACHE:
                self.refresh = is_true(info)
            elif info.key == keys.TIMEOUT:
                self.timeout = seconds(info)
            elif info.key == keys.DATA_SCOPE:
                if info.value.type != codes.SCOPE:
                    raise PMIxError("the scope of a get is of type SCOPE", status=statuses.ERR_BAD_PARAM)
                scope = info.value.data
                self.scope = scope if scope in (SCOPE_LOCAL, SCOPE_REMOTE) else SCOPE_GLOBAL

    def scope_of(self, process: Process) -> int:
        """Return the scope of the values that the reader sees of a proc."""
        return self.scope or (SCOPE_LOCAL if process.local else SCOPE_REMOTE)

    @property
    def put(self) -> bool:
        """Whether it asks for a value that a proc puts, not for job info."""
        return bool(self.key) and (not self.key.startswith(RESERVED_PREFIX) or bool(self.qualifiers))


class Waiting:
    """A get that waits for its value to be committed, or for another server."""

    __slots__ = ("peer", "place", "reply", "request", "since", "tag", "timer")

    def __init__(
        self, peer: Peer, tag: int, request: GetRequest, place: Process | Namespace, reply: Reply, since: float
    ) -> None:
        self.peer = peer
        self.tag = tag
        self.request = request
        self.place = place
        self.reply = reply
        self.since = since
        self.timer: Timer | None = None


class Fetch:
    """A question to the host after a proc of another server, and the time limit of the get that had it asked."""

    __slots__ = ("since", "timeout")

    def __init__(self, since: float, timeout: float) -> None:
        self.since = since
        self.timeout = timeout


class Modex:
    """The values that procs exchange, and the gets that wait for some.

    Args:
        clock: The clock.
        store: The committed data.
        everyone: The connected procs.
        host: The host, which fetches the committed data of procs of other servers.
        limits: The limits of a proc's commits, and of the waiting gets of a connection.
    """

    def __init__(
        self,
        clock: Clock,
        store: Store,
        everyone: Callable[[], Iterator[Peer]],
        host: Host,
        limits: Limits = DEFAULTS,
    ) -> None:
        self._clock = clock
        self._store = store
        self._everyone = everyone
        self._host = host
        self._limits = limits
        self._waiting: dict[Process | Namespace, dict[Waiting, None]] = {}
        """The waiting gets by what they wait for, the oldest first; a dict, since each is removed by itself."""
        self._readers: dict[Peer, dict[Waiting, None]] = {}
        self._fetching: dict[Process, dict[str, Fetch]] = {}
        """The questions that the host has before it, by proc and key; an empty key asks for all values."""
        self.sharing = ModexRequests(clock, store)
        # One counter for all procs, so that a job that is registered again gets no lower stamps.
        self._stamps = count(1)
        self._requests: Cache[tuple[bytes, int, Release], GetRequest] = store.cache(MAX_ASKED)

    def pending(self) -> list[Pending]:
        """Return the gets that wait."""
        found = []
        for waits in self._waiting.values():
            for wait in waits:
                target = Proc(wait.request.nspace, wait.request.rank)
                reader = wait.peer.process.proc
                found.append(Pending("get", wait.request.key, (reader,), (target,), wait.since))
        return found + self.sharing.pending()

    def forsake(self, place: Process | Namespace) -> None:
        """End the requests that wait for a proc or an nspace that will commit no further data."""
        for waiting in list(self._waiting.get(place, ())):
            self._give_up(waiting, statuses.ERR_NOT_FOUND)
        if isinstance(place, Process):
            self.sharing.answer_departed(place)
            return
        for process in place.processes.values():
            if not process.local:
                self._fetching.pop(process, None)
                self.forsake(process)
        self.sharing.refuse_job(place)

    def forget(self, peer: Peer) -> None:
        """Forget the waiting gets of a reader that has disconnected."""
        for waiting in list(self._readers.get(peer, ())):
            self._end_wait(waiting)

    def commit(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Store a client's commit, and answer the gets that wait for it."""
        process = peer.process
        blocks = decode_commit(payload, peer.buffer_type)
        deleted = process.commit(blocks, peer.buffer_type, peer.release, self._limits, repeats=not peer.pypmix)
        process.stamp = next(self._stamps)
        # Natives commit all values again: a commit that was too large before may fit now.
        peer.denied = 0
        peer.status_now(tag, statuses.SUCCESS)
        for scope, key in deleted:
            self._tell_deleted(process.proc, scope, key, peer)
        self.sharing.committed(process)
        self._changed(process)

    def _changed(self, process: Process) -> None:
        """Check the gets that wait for a value of a proc, or of any proc in its nspace."""
        for place in (process, process.namespace):
            for waiting in list(self._waiting.get(place, ())):
                self._look_again(waiting, process)

    def _tell_deleted(self, proc: Proc, scope: int, key: str, deleter: Peer | None = None) -> None:
        """Make clients that may have the value drop it; older ones than 7.0 have no ear for that."""
        for peer in self._everyone():
            if peer is not deleter and peer.release >= (7,) and not peer.finalized:
                packer = Packer(peer.buffer_type).pack(codes.PROC, proc)
                peer.send(TAG_DATA_DELETE, packer.pack(codes.SCOPE, scope).pack(codes.STRING, key).bytes())

    def get(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Answer a get, now or when its value is committed."""
        name = payload, peer.buffer_type, peer.release
        request = self._requests.get(name)
        if request is None:
            request = GetRequest(*decode_get(*name))
            if len(payload) <= MAX_ASKED_BYTES:
                self._requests.put(name, request)
        namespace = self._store.get(request.nspace)
        if namespace is None and request.rank > RANK_VALID:
            own = self._store.get(self._store.aliases.get(request.nspace))
            if own is not None:
                self._get_job(peer, tag, own, request.key, request.nspace)
                return
        if namespace is None and request.rank <= RANK_VALID:
            request = self._ungroup(request, peer)
            namespace = self._store.get(request.nspace)
        if namespace is None:
            raise NotFound(f"no nspace {request.nspace!r} is registered here")
        if request.rank == RANK_WILDCARD:
            self._get_job(peer, tag, namespace, request.key)
        elif request.rank == RANK_UNDEF:
            if request.put:
                self._get_put(peer, tag, request, namespace, namespace.processes.values())
            else:
                self._get_job(peer, tag, namespace, request.key)
        else:
            target = self._store.process(Proc.unchecked(request.nspace, request.rank))
            if request.put:
                self._get_put(peer, tag, request, target, (target,))
            elif request.key == keys.GROUP_NAMES and not target.local:
                self._get_groups(peer, tag, request, target)
            elif (
                not request.key
                and not target.local
                and (request.refresh or not target.committed)
                and not request.immediate
            ):
                self._wait(peer, tag, request, target, self._get_rank)
            else:
                self._get_rank(peer, tag, request, target)

    def _ungroup(self, request: GetRequest, peer: Peer) -> GetRequest:
        """Return a get in which a proc that is named by its rank in a group is replaced by its own name."""
        named = Proc.unchecked(request.nspace, request.rank)
        (proc,) = self._store.ungrouped(self._store.resolve((named,), peer.process.proc))
        if proc == named:
            return request
        resolved = GetRequest(proc.nspace, proc.rank, request.infos, request.key)
        resolved.alias = named
        return resolved

    def _get_put(
        self, peer: Peer, tag: int, request: GetRequest, place: Process | Namespace, candidates: Iterable[Process]
    ) -> None:
        """Answer a get with a value that one of the candidates has put, or let it wait."""
        exists = False
        refetch = request.refresh and isinstance(place, Process) and not place.local
        for process in candidates:
            if (process.data or process.internal) and not refetch:
                visible, there = process.find(request.key, request.qualifiers, request.scope_of(process))
                if visible:
                    self._answer(peer, tag, request, process)
                    return
                exists = exists or there
        if (
            not exists
            and isinstance(place, Process)
            and request.key in self._store.resources
            and not request.qualifiers
        ):
            pack = place.namespace.pack(peer.buffer_type, peer.release, peer.rule)
            value = self._store.resources[request.key].value
            kval = encode_kval(peer.buffer_type, request.key, value, peer.rule)
            kvals = [*place.kvals(peer.buffer_type, request.scope_of(place), peer.rule), kval]
            data = pack.rank_object(place.proc, "", kvals)
            peer.send(tag, encode_status(peer.buffer_type, statuses.SUCCESS) + data)
            return
        if (
            exists
            or request.immediate
            or (request.refresh and not refetch)
            or all(process.left and process.local for process in candidates)
        ):
            raise NotFound(f"{request.key} of {request.nspace}:{request.rank} is not there")
        self._wait(peer, tag, request, place, self._answer)

    def _wait(self, peer: Peer, tag: int, request: GetRequest, place: Process | Namespace, reply: Reply) -> None:
        """Let a get wait: for a commit here, or for data that the host fetches from another server."""
        peer.count_request("get")
        waiting = Waiting(peer, tag, request, place, reply, self._clock.now())
        self._waiting.setdefault(place, {})[waiting] = None
        self._readers.setdefault(peer, {})[waiting] = None
        remote = isinstance(place, Process) and not place.local
        # The host decides how long another server may take.
        timeout = request.timeout or (0.0 if remote else GET_SECONDS)
        if timeout:
            waiting.timer = self._clock.call_later(timeout, lambda: self._give_up(waiting, statuses.ERR_TIMEOUT))
        if remote:
            assert isinstance(place, Process)
            self._fetch(place, waiting)

    def _fetch(self, process: Process, waiting: Waiting) -> None:
        """Ask the host for the committed data of a proc of another server, once for all gets that wait for it."""
        request = waiting.request
        fetches = self._fetching.setdefault(process, {})
        if request.key in fetches:
            return
        fetch = fetches[request.key] = Fetch(self._clock.now(), request.timeout)
        directives = tuple([info for info in request.infos if info.key != keys.REQUIRED_KEY])
        if request.key:
            directives += (Info(keys.REQUIRED_KEY, Value(codes.STRING, request.key)),)

        def answer(data: bytes | None, error: BaseException | None) -> None:
            if self._fetching.get(process, {}).get(request.key) is not fetch:
                # Its job has ended.
                return
            self._end_fetch(process, request.key)
            status = status_of(error)
            if error is None:
                status = self.take_in(data, (process.proc,), f"the data of {process.proc}")
            for waiting in list(self._waiting.get(process, ())):
                if waiting.request.key != request.key or waiting not in self._waiting.get(process, ()):
                    continue
                if status == statuses.ERR_TIMEOUT and (
                    waiting.since > fetch.since or waiting.request.timeout != fetch.timeout
                ):
                    # It arrived later, or may wait for longer, than the get whose time has passed.
                    self._fetch(process, waiting)
                else:
                    self._fetched(waiting, process, status, reason_of(error))

        self._host.upcall(DirectModex(process.proc, directives), answer, waiting.peer.process)

    def _end_fetch(self, process: Process, key: str) -> None:
        fetches = self._fetching[process]
        del fetches[key]
        if not fetches:
            del self._fetching[process]

    def _fetched(self, waiting: Waiting, process: Process, status: int, reason: str) -> None:
        request = waiting.request
        if status == statuses.SUCCESS and request.put:
            visible, _ = process.find(request.key, request.qualifiers, request.scope_of(process))
            # libpmix asks once for all gets of a proc that wait at a time, and finds in the answer what there is.
            if not visible and (waiting.peer.pypmix or not process.data):
                status = statuses.ERR_NOT_FOUND
        if status != statuses.SUCCESS:
            self._give_up(waiting, status, reason)
            return
        self._end_wait(waiting)
        try:
            waiting.reply(waiting.peer, waiting.tag, request, process)
        except PMIxError as error:
            waiting.peer.status(waiting.tag, error.code)

    def take_in(
        self,
        data: object,
        procs: Container[Proc],
        what: str,
        senders: set[Proc] | None = None,
        contributions: list[Contribution] | None = None,
        own_numbers: Container[int] = (),
    ) -> int:
        """Store the data of other servers' procs, whole or not at all; return a status.

        Args:
            data: The servers' blobs.
            procs: The procs whose data is accepted; the data of other procs is ignored.
            what: A description of the data, for the log.
            senders: A set to which the procs of the data are added.
            contributions: Receives the servers' parts in the collective; it stays empty if the data is not complete.
            own_numbers: The numbers of this server's own contributions.
        """
        if data is None or data == b"":
            return statuses.SUCCESS
        staged: list[tuple[Process, dict[Name, Stored]]] = []
        stamps: dict[Proc, int] = {}
        bases: dict[Proc, int] = {}
        parts: list[Contribution] = []
        is_known = True
        try:
            if not isinstance(data, bytes | bytearray | memoryview):
                raise RemoteProtocolError(f"it is {type(data).__name__}, not bytes")
            for proc, values in decode_modex(bytes(data), stamps, bases, parts, own_numbers):
                process = self._store.find(proc)
                if process is None:
                    is_known = is_known and proc not in procs
                elif not process.local and proc in procs:
                    staged.append((process, named(values) if values else {}))
                    if senders is not None:
                        senders.add(proc)
        except RemoteProtocolError as error:
            self._host.log(f"{what}, as the host has it, does not parse: {error.detail}")
            return error.code
        for process, found in staged:
            proc = process.proc
            if proc in bases:
                # Data that extends other data is of no use without it.
                is_known = process.extend(found, stamps[proc], bases[proc]) and is_known
                continue
            for name in process.replace(found, stamps[proc]):
                if isinstance(name, str):
                    self._tell_deleted(proc, DEL_REMOTE, name)
        if contributions is not None and is_known:
            contributions += parts
        for process, _ in staged if self._waiting else ():
            self._changed(process)
        return statuses.SUCCESS

    def _look_again(self, waiting: Waiting, committed: Process) -> None:
        request = waiting.request
        visible, exists = committed.find(request.key, request.qualifiers, request.scope_of(committed))
        if visible:
            self._end_wait(waiting)
            waiting.reply(waiting.peer, waiting.tag, request, committed)
        elif not committed.local:
            return
        elif exists:
            self._give_up(waiting, statuses.ERR_NOT_FOUND)
        elif not waiting.peer.pypmix and waiting.place is committed:
            # libpmix asks once for all gets of a proc that wait at a time: the others wait for this answer too.
            self._end_wait(waiting)
            waiting.reply(waiting.peer, waiting.tag, request, committed)

    def _end_wait(self, waiting: Waiting) -> None:
        _remove(self._waiting, waiting.place, waiting)
        _remove(self._readers, waiting.peer, waiting)
        waiting.peer.waiting -= 1
        if waiting.timer is not None:
            waiting.timer.cancel()

    def _give_up(self, waiting: Waiting, status: int, reason: str = "") -> None:
        self._end_wait(waiting)
        if reason:
            refuse(waiting.peer, waiting.tag, PMIxError(reason, status=status))
        else:
            waiting.peer.status(waiting.tag, status)

    def _answer(self, peer: Peer, tag: int, request: GetRequest, process: Process) -> None:
        """Send all values of a proc that the reader may see, and after a collecting fence also the others' values.

        If that is more than `SMALL`, pypmix's own readers get the value that they ask for and the values of `_news`: a
        get must not cost more with each commit. Natives get all values, since an answer makes them drop their other
        waiting gets for the proc.
        """
        kind = peer.buffer_type
        scope = request.scope_of(process)
        unknown = process.unknown(request.key)
        if process.marks(request.key) & peer.unfit or (unknown is not None and unknown[2] != kind):
            # It cannot be packed for this reader, or the reader cannot decode it.
            peer.status(tag, statuses.ERR_UNKNOWN_DATA_TYPE)
            return
        parts = [encode_status(kind, statuses.SUCCESS)]
        much = process.size > MUCH
        own = process.namespace is peer.process.namespace
        kvals: list[bytes] = []
        repeated = False
        if process.size > SMALL and peer.pypmix and request.put:
            kvals = process.part(kind, scope, peer.rule, request.key, request.qualifiers)
            if not request.qualifiers and not request.scope and request.key in process.data:
                names, repeated = self._news(peer, process, request.key)
                kvals += process.pack_values([name for name in names if name != request.key], kind, scope, peer.rule)
        elif unknown is not None or request.alias is not None or not own:
            kvals = process.kvals(kind, scope, peer.rule, request.key)
        if own and not kvals:
            parts.append(process.object(kind, scope, peer.rule))
        elif request.alias is None or not much:
            # Twice, by two names, may be more than the reader takes.
            pack = process.namespace.pack(kind, peer.release, peer.rule)
            parts += () if own else (pack.job_object(),)
            parts.append(object_of(kind, process.proc, kvals) if own else pack.rank_object(process.proc, "", kvals))
        if peer.bundle is not None and not request.scope and not much:
            parts += self._bundle(peer, peer.bundle, process, request.key if repeated else "")
        peer.bundle = None
        if request.alias is not None:
            # Its library looks for it under the name that it has asked for.
            parts.append(object_of(kind, request.alias, kvals))
        peer.send(tag, b"".join(parts))

    def _news(self, peer: Peer, process: Process, key: str) -> tuple[list[Name], bool]:
        """Return the names of the values in an answer about a proc with much data, and whether `key` was sent before.

        Each value is sent once without a request. A reader that asks for a value again has dropped it after a fence, or
        another reader of its process has it: then the reader is likely to ask for the neighbouring values, too.
        """
        names = self._unsent(peer, process)
        again = key not in names
        if again or process.size_of(names) > MUCH:
            names = process.near(key)
        return names, again

    def _unsent(self, peer: Peer, process: Process) -> list[Name]:
        """Return the names of the values of a proc that a reader has not been sent, and count them as sent."""
        mark = peer.sent.get(process.proc, 0)
        if len(peer.sent) >= MAX_SENT:
            peer.sent.clear()
        peer.sent[process.proc] = process.written
        # A lower number belongs to a job that was registered again.
        return process.since(mark if mark <= process.written else 0)

    def _bundle(self, peer: Peer, membership: Membership[Process, Call], target: Process, key: str) -> list[bytes]:
        """Return the data of the procs that were in a fence with a reader, unless it is too much.

        The reader's data is left out: it may have put newer values that it has not committed.

        Args:
            peer: The reader.
            membership: The membership of the fence.
            target: The proc whose value it asks for.
            key: The key, if it was sent to the reader before; empty otherwise.
        """
        budget = MUCH
        objects = []
        kind, rule = peer.buffer_type, peer.rule
        for member in chain(membership.members, map(self._store.find, membership.others)):
            if member is None or member is target or member.namespace is not peer.process.namespace:
                continue
            if member is peer.process:
                continue
            scope = SCOPE_LOCAL if member.local else SCOPE_REMOTE
            if member.size > SMALL and peer.pypmix:
                names = self._unsent(peer, member)
                if key in member.data:
                    names = member.near(key)
                if not names or member.size_of(names) > budget:
                    # The reader asks for values that do not fit when it needs them.
                    continue
                kvals = member.pack_values(names, kind, scope, rule)
                data = object_of(kind, member.proc, kvals) if kvals else b""
            elif member.size > budget:
                return []
            else:
                data = member.object(kind, scope, rule)
            budget -= len(data)
            if budget < 0:
                return []
            objects.append(data)
        return objects

    def _get_job(self, peer: Peer, tag: int, namespace: Namespace, key: str, alias: str = "") -> None:
        pack = namespace.pack(peer.buffer_type, peer.release, peer.rule)
        data = pack.job_object(key, alias)
        if not data:
            raise NotFound(f"the job info of {namespace.name} has no {key or 'data'}")
        if namespace is not peer.process.namespace:
            data = pack.job_object(name=alias)
        peer.send(tag, encode_status(peer.buffer_type, statuses.SUCCESS) + data)

    def _get_rank(
        self, peer: Peer, tag: int, request: GetRequest, target: Process, more: list[bytes] | None = None
    ) -> None:
        kind, key = peer.buffer_type, request.key
        pack = target.namespace.pack(kind, peer.release, peer.rule)
        if more is None:
            more = (
                self._reserved_values(target, key, peer)
                if key
                else target.kvals(kind, request.scope_of(target), peer.rule)
            )
        data = pack.rank_object(target.proc, key, more)
        if not data:
            raise NotFound(f"{target.proc} has no {key or 'data'}")
        parts = [encode_status(kind, statuses.SUCCESS)]
        if target.namespace is not peer.process.namespace:
            parts.append(pack.job_object())
        if request.alias is not None:
            parts.append(pack.rank_object(target.proc, key, more, request.alias))
        peer.send(tag, b"".join((*parts, data)))

    def _get_groups(self, peer: Peer, tag: int, request: GetRequest, target: Process) -> None:
        """Answer a get of the groups of a proc of another server; this server knows only groups with members here."""
        peer.count_request("get")

        def answer(result: object, error: BaseException | None) -> None:
            peer.waiting -= 1
            if not peer.open:
                return
            names = self._store.groups_of(target.proc)
            infos = result if error is None and isinstance(result, tuple | list) else ()
            for info in infos:
                data = info.value.data if isinstance(info, Info) and info.key == keys.QUERY_GROUP_NAMES else None
                if isinstance(data, DataArray) and data.type == codes.STRING:
                    names += data.items
            kvals = _group_names(dict.fromkeys(names), peer.buffer_type, peer.rule)
            try:
                self._get_rank(peer, tag, request, target, kvals)
            except PMIxError as problem:
                peer.status(tag, problem.code)

        range = Info(keys.RANGE, Value(codes.DATA_RANGE, RANGE_CUSTOM))
        whose = Info(keys.EVENT_CUSTOM_RANGE, Value(codes.PROC, target.proc))
        self._host.upcall(QueryInfo((Query((keys.QUERY_GROUP_NAMES,), (range, whose)),)), answer, peer.process)

    def _reserved_values(self, target: Process, key: str, peer: Peer) -> list[bytes]:
        """Return the values of a proc under a reserved key that are not in the job info, such as its groups."""
        kind, rule = peer.buffer_type, peer.rule
        if key == keys.GROUP_NAMES:
            return _group_names(self._store.groups_of(target.proc), kind, rule)
        if key == keys.PSET_NAMES:
            names = self._store.psets_of(target.proc)
            return [encode_kval(kind, key, Value(codes.STRING, ",".join(names)), rule)] if names else []
        value = target.internal.get(key)
        return [] if value is None else [encode_kval(kind, key, value, rule)]

    def refresh_cache(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Send all values of a rank to a client that takes its own for outdated."""
        unpacker = Unpacker(payload, peer.buffer_type, peer.release)
        unpacker.skip(codes.COMMAND)
        target = self._store.process(Proc.unchecked(unpacker.one(codes.STRING) or "", unpacker.one(codes.PROC_RANK)))
        request = GetRequest(target.proc.nspace, target.proc.rank, (), None)
        if target.local:
            self._send_all(peer, tag, request, target)
        else:
            self._wait(peer, tag, request, target, self._send_all)

    def _send_all(self, peer: Peer, tag: int, request: GetRequest, target: Process) -> None:
        kvals = target.kvals(peer.buffer_type, request.scope_of(target), peer.rule)
        peer.send(tag, b"".join((encode_status(peer.buffer_type, statuses.SUCCESS), *kvals)))
