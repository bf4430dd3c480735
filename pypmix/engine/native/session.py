"""The native engine's client session: PMIx's operations as calls of the library.

`connection` has the theory of operation. Put, commit, get and fence have separate, faster paths here, since every rank
of a job makes many of them; all other operations are rows of the topics' tables. A process has one libpmix: a second
session shares the library and its proc, and the last `Finalize` finalizes it.
"""

from __future__ import annotations

import os
from time import monotonic

from pypmix.engine.common import SLURM, TIMED_OUT, suggest_key
from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.connection import MAYBE_LOST, NO_LIMIT, PENDING, Connection
from pypmix.engine.native.library import open_library, same_environment, usage
from pypmix.engine.native.marshal import INTEGERS, Marshal, plain, precision
from pypmix.engine.native.quirks import DENYING, FEATURES, NOT_ALONE, deadline, last_start, numeric, ordered
from pypmix.engine.native.structs import get_name, string, text
from pypmix.standard import codes, keys, ops, statuses
from pypmix.standard.errors import (
    EngineUnavailable,
    NotFound,
    NotSupported,
    PMIxError,
    Unreachable,
    error_for,
)
from pypmix.standard.ops.core import collecting
from pypmix.standard.releases import parse_release, release_text
from pypmix.standard.types import RANGES, RANK_INVALID, RANK_WILDCARD, DataArray, Info, Proc, Query, Value, decimal
from pypmix.wire.readers import rule_of, rule_of_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from pypmix.engine.base import Done, R
    from pypmix.engine.native.library import Library
    from pypmix.standard.ops import GroupState, Op
    from pypmix.standard.releases import Release

NULL = ffi.NULL
_tuple = tuple.__new__
_WORD = 2**64 - 1
_BYTES = (codes.BYTE_OBJECT, codes.COMPRESSED_BYTE_OBJECT, codes.REGEX)

TOPICS = {
    **{name: name for name in ("connecting", "events", "forwarding", "groups", "queries", "spawning")},
    **dict.fromkeys(("control", "fabric", "publishing"), "questions"),
}
"""The module of this package that carries out the operations, for each module of `pypmix.standard.ops`."""

CORE = ops.Op.__module__

OURS = frozenset(("connect.nspace", "connect.directives"))
"""The features that only servers of the Python engine have."""

REFRESH = Info(keys.GET_REFRESH_CACHE, Value(codes.BOOL, True))
REFRESH_QUERY = Info(keys.QUERY_REFRESH_CACHE, Value(codes.BOOL, True))

_SIGN = {kind: (-low, -low * 2) for kind, (low, _high) in RANGES.items() if low < 0 and kind in INTEGERS}


def open_client(env: Mapping[str, str], library: Library, directives: Sequence[Info] = ()) -> NativeSession:
    """`PMIx_Init`: load a library and connect to the server that launched this process.

    Args:
        env: The environment that the launcher set. It must equal the process's environment, which libpmix reads.
        library: The result of `find_library`.
        directives: Infos for `PMIx_Init`.

    Raises:
        EngineUnavailable: The library cannot be loaded, or this process uses another one already.
        Unreachable: There is a server, but it cannot be reached or refuses this process.
        ValueError: `env` names another server than the process's environment.
    """
    same_environment(env)
    open_library(library)
    reason = refusal(library)
    if reason:
        raise EngineUnavailable(
            reason,
            operation="open",
            engine=f"native {release_text(library.release)}",
            hint="keep one client for the life of the process, or use PYPMIX_ENGINE=python",
        )
    _check_server(env)
    return NativeSession(env, library, directives)


def refusal(library: Library) -> str:
    """Return the reason why a client cannot be opened on a library in this process now; empty if it can."""
    name = f"libpmix {release_text(library.release)}"
    if usage.spent:
        return f"{name} cannot be opened again in this process: {usage.spent}"
    return f"{name} serves the tool that this process is, and cannot be a client too" if usage.tool else ""


def _check_server(env: Mapping[str, str]) -> None:
    """Check the user of the server before the library sends it anything.

    Raises:
        Unreachable: The server runs as another user, or the kernel does not report its user.
    """
    uri = next((env[name] for name in sorted(env) if name.startswith("PMIX_SERVER_URI") and env[name]), "")
    scheme, _, address = uri.partition(";")[2].partition("://")
    host, _, port = address.partition(";")[0].rpartition(":")
    # The library checks all other addresses.
    number = decimal(port, 65535)
    if "PMIX_NAMESPACE" in env and scheme in ("tcp4", "tcp6") and number is not None:
        from pypmix.engine.peeruid import OWNER, check_server

        check_server((host.strip("[]"), number), f"{scheme}://{address}", (), env.get(OWNER, ""))


class NativeSession(Connection):
    """A client of one process over its libpmix. `open_client` creates it."""

    def __init__(self, env: Mapping[str, str], library: Library, directives: Sequence[Info]) -> None:
        super().__init__(library)
        self.server_release = _server_release(env)
        self.marshal = Marshal(library.release, _rule(env, library.release, self.server_release))
        self._runners: dict[type, Callable[[Any], Any]] = {
            ops.Put: self._put,
            ops.Get: self._get,
            ops.Commit: self._commit,
            ops.Fence: self._fence,
            ops.Abort: self._abort,
            ops.Finalize: self._finalize,
        }
        self._words = (frozenset(INTEGERS) | {codes.BOOL}) - self.marshal.refused
        infos, count = self.marshal.infos(directives)
        try:
            self.proc, self.singleton = self._init(env, infos, count)
        finally:
            lib.pypmix_infos_free(infos, count)
        self.server = _server(env)
        self.slurm = not self.singleton and self.proc[0].startswith(SLURM)
        self._asked = False
        self._whole_job = (Proc.unchecked(self.proc[0], RANK_WILDCARD),)
        self._renewed: set[Proc] | None = None
        self._last_start = last_start(library.release, env)
        self._names: set[str] = set()
        """The keys that this process has put, for the hints of errors."""
        self._kept: dict[str, Value] = {
            keys.RANK: Value(codes.PROC_RANK, self.proc[1]),
            keys.VERSION_NUMERIC: Value(codes.UINT32, numeric(library.release)),
        }
        self.queue = lib.pypmix_queue_new(not self.singleton)
        if not self.queue:
            self._stop()
            raise MemoryError("no memory or no descriptor for a session")
        self.open = True
        usage.opened += 1
        _sessions.add(self)

    def _init(self, env: Mapping[str, str], infos: Any, count: int) -> tuple[Proc, bool]:
        """Initialise the library; return the proc of this process, and True if it has no server."""
        launched = bool(env.get("PMIX_NAMESPACE"))
        if launched and decimal(env.get("PMIX_RANK", "")) is None:
            raise Unreachable(
                f"PMIX_NAMESPACE is set and PMIX_RANK={env.get('PMIX_RANK', '')!r} is not a rank",
                operation="open",
                engine=str(self.info),
            )
        here = ffi.new("pmix_proc_t *")
        status = lib.pypmix_init(here, infos, count)
        if status == 0 or (status == statuses.ERR_UNREACH and not launched):
            return Proc(get_name(here.nspace), here.rank), not launched
        # The library cannot start again after a failed start, not even after PMIx_Finalize.
        usage.spent = "its first connection failed"
        if not launched:
            raise error_for(status)("PMIx_Init failed", status=status, operation="open", engine=str(self.info))
        raise Unreachable(
            " ".join(["the server", *_server(env).split(), "cannot be reached or refuses this process"]),
            status=status,
            operation="open",
            engine=str(self.info),
            hint="is it still running? `pypmix doctor` shows what the environment says",
        )

    # The interface of `ClientSession`

    def run(self, op: Op[R]) -> R:
        """Carry out an operation and return its result; see `ClientSession.run`."""
        if not self.open and not (self._server_lost and type(op) is ops.Finalize):
            self.closed(op.name)
        if self.slurm:
            self._check_slurm(op)
        kind = type(op)
        # A fence of the whole job names no group.
        if self.groups is not None and (kind is not ops.Fence or op.procs):  # type: ignore[attr-defined]
            if self.groups.takes(op):
                return self.topic("groups").run(op)  # type: ignore[no-any-return]
            answer, op = self.groups.translate(op)
            if answer is not None:
                return answer  # type: ignore[no-any-return]
        runner = self._runners.get(kind)
        if runner is None:
            runner = self._runners[kind] = self._topic_of(op).run
        return runner(op)  # type: ignore[no-any-return]

    def submit(self, op: Op[R], done: Done[R]) -> None:
        """Start an operation and return; see `ClientSession.submit`."""
        participants: Any = op
        if not self.open and not (self._server_lost and type(participants) is ops.Finalize):
            self.closed(op.name)
        try:
            if self.slurm:
                self._check_slurm(participants)
            if self.groups is not None:
                if self.groups.takes(participants):
                    self.topic("groups").submit(participants, done)
                    return
                answer, participants = self.groups.translate(participants)
                if answer is not None:
                    done(answer, None)
                    return
            self.start(participants, done)
        except Exception as error:
            done(None, error)

    def start(self, op: Any, done: Done[Any]) -> None:
        kind = type(op)
        if kind is ops.Get and self._outdated(op.proc, op.key):
            self._start_anew(op, done)
            return
        if kind is ops.Put or (kind is ops.Fence and self._alone(op)):
            self._runners[kind](op)
            done(None, None)
        elif kind is ops.Get and op.key not in self._kept:
            infos, count = self.marshal.infos(ordered(op.directives))
            nspace, rank, key = text(op.proc[0]), op.proc[1], text(op.key)

            def get(queue: Any, token: int) -> int:
                return int(lib.pypmix_get_submit(queue, token, nspace, rank, key, infos, count))

            self.background.start(op, done, get, self._outcome, deadline(op.directives))
        elif kind is ops.Fence:
            self._start_fence(op, done)
        elif kind.__module__ == CORE and kind in self._runners:
            self.background.call(op, done)
        else:
            self._topic_of(op).submit(op, done)

    def _start_fence(self, op: ops.Fence, done: Done[Any]) -> None:
        """Start a fence; the limit is for the call alone, since the library's request may outlast its caller."""
        participants = self._fence_procs(op)

        def begin(finish: Done[Any]) -> None:
            procs, nprocs, infos, ninfos = self._fence_arguments(op, participants)

            def fence(queue: Any, token: int) -> int:
                return int(lib.pypmix_fence_submit(queue, token, procs, nprocs, infos, ninfos))

            self.background.start(op, finish, fence, self._outcome, NO_LIMIT)

        question = self._question(op)
        told = done if question is None else self._then_ask(question, done)
        self.collectives.submit(op, participants or self._whole_job, told, begin, deadline(op.directives), done)

    def fetch_local(self, proc: Proc, key: str) -> Value | None:
        """Return a value that this process holds already, without a message; None if it does not."""
        if not self.open and not self._server_lost:
            self.closed("get")
        if self.groups is not None and proc[0] != self.proc[0]:
            # The library numbers the ranks of a group differently.
            proc = self.groups.addresses.proc(proc)
        if key in self._kept:
            return self._engine_value(proc, key)
        if self._renewed is not None and self._outdated(proc, key):
            return None
        return self._library_value(proc, key)

    def _library_value(self, proc: Proc, key: str) -> Value | None:
        """Return a value of a proc that the library holds, without a message; None if it does not."""
        call = self.call()
        lib.pypmix_get_optional(call, self.queue, text(proc[0]), proc[1], text(key))
        return None if self.finish_call(call, NO_LIMIT) else self._take(call)

    def group_state(self, name: str) -> GroupState | None:
        """Return the state of a group of this process; see `ClientSession.group_state`."""
        return None if self.groups is None else self.groups.state(name)

    def supports(self, feature: str) -> bool:
        """Return True if a feature works with this library."""
        if self.slurm:
            from pypmix.engine.slurm import works as possible

            if not possible(feature):
                return False
        if feature == "get.refresh" and not self.singleton and self.server_release < (5, 0, 0):
            return False
        if feature.startswith("group.") or feature in OURS:
            from pypmix.engine.groups.foreign.rules import works
            from pypmix.engine.native.groupport import has_own_server

            ours = has_own_server(self)
            return not self.singleton and (ours if feature in OURS else works(feature, self.server_release, ours))
        if feature not in FEATURES or self.release < FEATURES[feature]:
            return False
        return feature not in NOT_ALONE or not self.singleton

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something to complete."""
        return int(lib.pypmix_queue_fd(self.queue)) if self.queue else -1

    def attach(self) -> None:
        """Promise to watch `fileno` and to call `poll`; no thread completes operations from then on."""
        self.background.attach()

    def detach(self) -> None:
        """Withdraw the promise of `attach`."""
        if self._background is not None:
            self._background.detach()

    def poll(self) -> None:
        """Complete the operations that have ended, without waiting."""
        if self._background is not None and not self._forked:
            self._background.poll()

    def close(self) -> None:
        """Close the session without `Finalize`: pending operations fail with `LostConnection`.

        libpmix stays connected, because only `Finalize` can disconnect it; the server reports this process as lost
        when it exits.
        """
        if self._forked:
            return
        self.leave()
        if self._background is not None:
            self._background.close()
            self._background = None
        while self._spare:
            lib.pypmix_call_free(self._spare.pop())
        if self.queue:
            queue, self.queue = self.queue, None
            lib.pypmix_queue_free(queue)

    def leave(self, *, server_lost: bool = False) -> None:
        _sessions.discard(self)
        super().leave(server_lost=server_lost)

    def forked(self) -> None:
        """See `ClientSession.forked`: leave the library alone, since the child does not have its threads."""
        self.open = False
        self._forked = True

    # The operations

    def _put(self, op: ops.Put) -> None:
        name = op.key
        if name.startswith(ops.RESERVED_PREFIX):
            # libpmix drops reserved keys silently. A process can read back its own, as with the other engine.
            self._kept[name] = op.value
            return
        key = text(name)
        kind, data = op.value
        if op.scope in ops.DELETES:
            needed = self.release if op.scope == ops.DEL_INTERNAL else min(self.release, self.server_release)
            if needed < (7,):
                detail = f"deleting keys needs libpmix and a server of release 7.0, not {release_text(needed)}"
                raise self.named(NotSupported(detail), op.name)
            status = lib.pypmix_put(op.scope, key, NULL)
        elif kind in self._words:
            status = lib.pypmix_put_word(op.scope, key, kind, data & _WORD)
        elif kind == codes.STRING and data is not None:
            status = lib.pypmix_put_string(op.scope, key, text(data))
        elif kind in _BYTES and kind not in self.marshal.refused:
            status = lib.pypmix_put_bytes(op.scope, key, kind, data, len(data))
        elif kind == codes.DOUBLE or kind == codes.FLOAT:
            precision(kind, (data,))
            status = lib.pypmix_put_double(op.scope, key, kind, data)
        else:
            try:
                made = self.marshal.value(op.value)
            except NotSupported as error:
                raise self.named(error, op.name) from error.__cause__
            try:
                status = lib.pypmix_put(op.scope, key, made)
            finally:
                self.marshal.clear(made)
        if status:
            raise self.failed("put", status, f"the library does not take {name!r}")
        (self._names.discard if op.scope in ops.DELETES else self._names.add)(name)

    def _get(self, op: ops.Get) -> Value:
        proc, key, directives = op.proc, op.key, op.directives
        if key in self._kept:
            kept = self._engine_value(proc, key)
            if kept is not None:
                return kept
        if self._outdated(proc, key):
            self._renew(proc)
            try:
                return self._get(op.replace(directives=(REFRESH, *directives)))
            except NotFound:
                pass  # The server does not have it. The library may have it, or the caller waits for it.
        call = self.call()
        if directives:
            limit = deadline(directives)
            infos, count = self.marshal.infos(ordered(directives))
            lib.pypmix_get(call, self.queue, text(proc[0]), proc[1], text(key), infos, count, limit)
        else:
            limit = NO_LIMIT
            lib.pypmix_get(call, self.queue, text(proc[0]), proc[1], text(key), NULL, 0, limit)
        status = self.finish_call(call, limit)
        return self._answer(op, call, status)

    def _answer(self, op: ops.Get, call: Any, status: int) -> Value:
        """Return the value of a get that has ended, or raise its error."""
        self._asked = self._asked or not status
        if not status:
            return self._take(call)
        if (
            status == statuses.ERR_NOT_FOUND
            and self.server_release < DENYING
            and not op.key.startswith(ops.RESERVED_PREFIX)
            and not any(info.key == keys.DATA_SCOPE for info in op.directives)
        ):
            value = self._library_value(op.proc, op.key)
            if value is not None:
                return value
        raise self._get_error(op, status)

    def _outdated(self, proc: Proc, key: str) -> bool:
        """Return True if the library may hold a value of a peer that is older than the last collecting fence."""
        # The library keeps every value of a proc that it has received. Newer releases ask the server again if a get
        # has the directive `REFRESH`. The values of a job do not change.
        renewed = self._renewed
        return (
            renewed is not None
            and proc not in renewed
            and proc[1] != RANK_WILDCARD
            and proc != self.proc
            and not key.startswith(ops.RESERVED_PREFIX)
        )

    def _renew(self, proc: Proc) -> None:
        if self._renewed is not None:
            self._renewed.add(proc)

    def _collected(self) -> None:
        """A collecting fence has ended: treat all values that were read before as outdated."""
        if self._asked and self.supports("get.refresh"):
            self._renewed = set()

    def _start_anew(self, op: ops.Get, done: Done[Any]) -> None:
        """Start a get of a value that may be outdated here."""
        self._renew(op.proc)

        def finish(result: Any, error: BaseException | None) -> None:
            if isinstance(error, NotFound):
                self.start(op, done)
            else:
                done(result, error)

        self.start(op.replace(directives=(REFRESH, *op.directives)), finish)

    def _commit(self, op: ops.Commit) -> None:
        if self.singleton:
            return
        call = self.call()
        lib.pypmix_commit(call, self.queue)
        status = self.finish_call(call, NO_LIMIT)
        if status:
            raise self.failed(op.name, status, hint=_HINTS.get(status, ""))
        self._spare.append(call)

    def _fence(self, op: ops.Fence) -> frozenset[Proc] | None:
        if self.singleton and self._alone(op):
            return None
        if self._collectives is not None and self._collectives.given_up:
            # This call may take over a fence that an earlier caller gave up.
            found: frozenset[Proc] | None = self.wait_for(op, self._start_fence)
            return found
        if op.procs or op.directives or self.slurm:
            return self._fence_some(op)
        # Nearly all fences are of the whole job: the way of these has no calls that it can do without.
        try:
            call = self._spare.pop()
        except IndexError:
            call = self.call()
        try:
            lib.pypmix_fence_all(call, self.queue, op.collect)
            status = call.status
            if status == PENDING:
                status = self._wait_fence(call, NO_LIMIT)
        except BaseException:
            self._leave_fence(op, self._whole_job, call)
            raise
        if status:
            lib.pypmix_call_free(call)
            raise self._fence_error(op, status)
        self._spare.append(call)
        if op.collect:
            self._collected()
        return None

    def _fence_some(self, op: ops.Fence) -> frozenset[Proc] | None:
        """Carry out a fence that names its procs or has directives."""
        participants, limit = self._fence_procs(op), deadline(op.directives)
        procs = participants or self._whole_job
        arguments = self._fence_arguments(op, participants)
        end = monotonic() + limit if limit >= 0 else NO_LIMIT
        call = self.call()
        try:
            lib.pypmix_fence(call, self.queue, *arguments, limit)
            status = call.status
            if status == PENDING:
                status = self._wait_fence(call, end)
        except BaseException:
            self._leave_fence(op, procs, call)
            raise
        if status == PENDING:
            self._leave_fence(op, procs, call)
            raise self._fence_error(op, statuses.ERR_TIMEOUT)
        if status:
            lib.pypmix_call_free(call)
            raise self._fence_error(op, status)
        self._spare.append(call)
        if op.collect:
            self._collected()
        question = self._question(op) if op.directives else None
        return None if question is None else _participants(self.run(question))

    def _wait_fence(self, call: Any, end: float) -> int:
        """Wait in C for a fence after a signal has ended the first wait; return its status at the end or in time."""
        status: int = call.status
        while status == PENDING:
            remaining = NO_LIMIT if end < 0 else end - monotonic()
            if end >= 0 and remaining <= 0:
                break
            lib.pypmix_wait(call, remaining)
            status = call.status
        return status

    def _leave_fence(self, op: ops.Fence, procs: tuple[Proc, ...], call: Any) -> None:
        """Leave a fence that has not ended to the library; its caller gives up."""
        if call.status == PENDING:
            self.collectives.leave(op, procs, call, self._outcome)

    def _question(self, op: ops.Fence) -> Op[tuple[Info, ...]] | None:
        """Return the query for the participants of a fence, if its caller wants them and the server knows them."""
        expected = next((info for info in op.directives if info.key == ops.FENCE_PARTICIPANTS), None)
        group = next((info for info in op.directives if info.key == keys.GROUP_ID), None)
        if expected is None or group is None or self.groups is None or not self.groups.support.identifies_callers:
            return None
        # Without a refresh, the library answers from its cache.
        return ops.QueryInfo((Query((ops.FENCE_PARTICIPANTS,), (REFRESH_QUERY, group, expected)),))

    def _then_ask(self, question: Op[Any], done: Done[Any]) -> Done[Any]:
        def ask(_result: object, error: BaseException | None) -> None:
            if error is None:
                self.start(question, finish)
            else:
                done(None, error)

        def finish(infos: Any, error: BaseException | None) -> None:
            done(None if error is not None else _participants(infos), error)

        return ask

    def _abort(self, op: ops.Abort) -> None:
        if self.singleton:
            raise self.alone(op.name, op.procs)
        connected = lib.pypmix_connected()
        message = text(op.message)
        procs, count = self.marshal.procs(op.procs)
        call = self.call()
        lib.pypmix_abort(call, self.queue, op.code, message, procs, count)
        status = self.finish_call(call, NO_LIMIT)
        # A server that ends the job need not answer first.
        if status and not (connected and status in MAYBE_LOST):
            raise self.failed(op.name, status, procs=op.procs)
        if not status:
            self._spare.append(call)

    def _finalize(self, op: ops.Finalize) -> None:
        failure = self._barrier(op) if self.open else None
        self.leave()
        status = self._stop()
        usage.opened -= 1
        if not usage.opened:
            usage.spent = self._last_start
        if failure is not None:
            raise failure
        if status:
            raise self.failed(op.name, status)

    def _stop(self) -> int:
        return int(lib.pypmix_finalize())

    def _barrier(self, op: ops.Finalize) -> PMIxError | None:
        """Fence before `PMIx_Finalize` if the caller asked for it; return the error of the fence."""
        # Release 4.2 deadlocks if it does this itself.
        if any(info.key == keys.EMBED_BARRIER and info.value.data is not False for info in op.directives):
            try:
                self._fence(ops.Fence(directives=tuple(info for info in op.directives if info.key == keys.TIMEOUT)))
            except PMIxError as error:
                return error
        return None

    def _outcome(self, op: Op[Any], call: Any) -> Any:
        """Return the result of a submitted operation that has ended, or raise its error."""
        status = self.finish_call(call, NO_LIMIT)
        if type(op) is ops.Get:
            return self._answer(op, call, status)
        assert isinstance(op, ops.Fence)
        if status:
            raise self._fence_error(op, status)
        lib.pypmix_call_free(call)
        if op.collect:
            self._collected()
        return None

    # Parts of several operations

    def _topic_of(self, op: Op[Any]) -> Any:
        """Return the topic that carries out an operation that is not of `ops.core`."""
        name = TOPICS.get(type(op).__module__.rpartition(".")[2])
        if name is None:
            raise self.not_offered(op)
        return self.topic(name)

    def _fence_procs(self, op: ops.Fence) -> tuple[Proc, ...]:
        """Return the procs of a fence as the library gets them; none for all of the job.

        Raises:
            PMIxError: The server cannot end such a fence.
        """
        if op.procs and all(proc[0] != self.proc[0] for proc in op.procs):
            from pypmix.engine.native.groupport import own_named, refuse_fence

            op = op.replace(procs=own_named(self, op.procs))
            refuse_fence(self, op)
        participants = op.procs
        if self.slurm and participants:
            from pypmix.engine.slurm import fence_procs

            try:
                participants = fence_procs(self.proc, participants, self.fetch_local)
            except NotSupported as error:
                error.procs = participants
                raise self.named(error, op.name) from None
        return participants

    def _fence_arguments(self, op: ops.Fence, participants: tuple[Proc, ...]) -> tuple[Any, int, Any, int]:
        directives = op.directives
        if directives and (self.groups is None or not self.groups.support.identifies_callers):
            directives = tuple([info for info in directives if info.key != ops.FENCE_PARTICIPANTS])
        if self.slurm or op.collect:
            # Without data, Slurm's fence ends before all procs have joined.
            directives = collecting(directives)
        infos, ninfos = self.marshal.infos(directives)
        try:
            procs, count = self.marshal.procs(participants)
        except BaseException:
            lib.pypmix_infos_free(infos, ninfos)
            raise
        return procs, count, infos, ninfos

    def _check_slurm(self, op: Op[Any]) -> None:
        """Raise an error if an operation must not reach Slurm's server."""
        if type(op).__module__ != CORE:
            from pypmix.engine.slurm import refusal

            error = refusal(op)
            if error is not None:
                error.procs = getattr(op, "procs", ()) or getattr(op, "targets", ()) or (self.proc,)
                raise self.named(error, op.name)

    def _take(self, call: Any) -> Value:
        """Return the value of a call that has succeeded; the call may be used again."""
        kind = call.kind
        if kind:
            word = call.word
            self._spare.append(call)
            if kind == codes.BOOL:
                return Value.unchecked(kind, word != 0)
            sign = _SIGN.get(kind)
            if sign is not None and word >= sign[0]:
                word -= sign[1]
            return _tuple(Value, (kind, word))
        try:
            value = call.value
            if not value:
                raise self.failed("get", statuses.ERR_NOT_FOUND, "the library returned no value")
            kind = value.type
            if kind == codes.STRING:
                return Value.unchecked(kind, string(value.data.string))
            try:
                found = self.marshal.read(value)
            except PMIxError as error:
                raise self.named(error, "get") from None
            return plain(found)
        finally:
            lib.pypmix_call_free(call)

    def _engine_value(self, proc: Proc, key: str) -> Value | None:
        """Return a value that the engine knows without the library; None if it does not."""
        # Some releases of libpmix crash on these gets, or do not answer them.
        if key == keys.RANK:
            ours = proc[1] == RANK_INVALID and proc[0] in ("", self.proc[0])
        else:
            ours = key == keys.VERSION_NUMERIC or proc == self.proc
        return self._kept[key] if ours else None

    def _alone(self, op: ops.Fence) -> bool:
        """Return True if a fence is of a singleton alone.

        Raises:
            Unreachable: A singleton fences with other procs.
        """
        if not self.singleton:
            return False
        nspace, rank = self.proc
        for proc in op.procs:
            if proc[0] != nspace or proc[1] not in (rank, RANK_WILDCARD):
                raise self.alone("fence", op.procs)
        return True

    def _get_error(self, op: ops.Get, status: int) -> PMIxError:
        proc, key = op.proc, op.key
        what = f"the get of {key!r} failed"
        hint = ""
        if status == statuses.ERR_NOT_FOUND:
            what = f"{key!r} was not found"
            if not key.startswith(ops.RESERVED_PREFIX):
                fence = "has the proc put and committed it, and has there been a fence with collect=True?"
                hint = "; ".join(filter(None, (suggest_key(key, self._names), fence)))
        elif status == statuses.ERR_EXISTS_OUTSIDE_SCOPE:
            what = f"{key!r} was put with another scope"
        elif status == statuses.ERR_TIMEOUT:
            what = f"{key!r} did not come in time"
            hint = suggest_key(key, self._names) or "has the proc put and committed it?"
        return self.failed("get", status, what, (proc,), hint)

    def _fence_error(self, op: ops.Fence, status: int) -> PMIxError:
        procs = op.procs or (Proc.unchecked(self.proc[0], RANK_WILDCARD),)
        detail, hint = _FENCE_FAILURES.get(status, ""), _HINTS.get(status, "")
        return self.failed("fence", status, detail, procs, hint, collective=True)


def _participants(infos: tuple[Info, ...]) -> frozenset[Proc]:
    """Return the participants of a fence from the answer to the query for them; empty if all took part."""
    data = next((info.value.data for info in infos if info.key == ops.FENCE_PARTICIPANTS), None)
    return frozenset(data.items) if isinstance(data, DataArray) else frozenset()


_HINTS = {
    statuses.ERR_OUT_OF_RESOURCE: (
        "the server limits what one rank may commit, and its log says by how much this one did more: "
        "`pypmix run --limits committed=...` or PYPMIX_LIMITS set it"
    ),
}

_FENCE_FAILURES = {
    statuses.ERR_OUT_OF_RESOURCE: "a commit before it was refused",
    statuses.ERR_TIMEOUT: TIMED_OUT,
    statuses.ERR_PARTIAL_SUCCESS: "it ended without some of the procs",
    statuses.ERR_LOST_CONNECTION: "a participant has lost its connection to its server",
}

_sessions: set[NativeSession] = set()


def _forked() -> None:
    for session in _sessions:
        session.forked()
    if _sessions and not usage.spent:
        usage.spent = "it belongs to the process that this one was forked from"
    _sessions.clear()


os.register_at_fork(after_in_child=_forked)


def _server(env: Mapping[str, str]) -> str:
    """Return the name of the server in the environment: its nspace and rank, and its release."""
    for name in sorted(env):
        if name.startswith("PMIX_SERVER_URI"):
            server = env[name].partition(";")[0]
            try:
                return f"{server} {release_text(parse_release(env.get('PMIX_VERSION', '')))}"
            except ValueError:
                return server
    return ""


def _rule(env: Mapping[str, str], release: Release, server: Release) -> int:
    """Return the rule of the encoding that both the library and its server decode; see `pypmix.wire.readers`."""
    older = min(release, server) if server > (0, 0, 0) else release
    # With a server of the Python engine, the library uses the encoding of that engine.
    return rule_of(older) if env.get("PYPMIX_SERVER_ENGINE") == "python" else rule_of_library(older)


def _server_release(env: Mapping[str, str]) -> Release:
    """Return the server's release; zeros if the environment does not name it."""
    try:
        return parse_release(env.get("PMIX_VERSION", ""))
    except ValueError:
        return (0, 0, 0)
