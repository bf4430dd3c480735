"""The native engine's client session: PMIx's operations as calls of the library.

Blocking operations wait in C without the GIL, in a wait that a signal interrupts, so that Ctrl-C ends a fence that
will not. Submitted ones end on libpmix's progress thread, which leaves the outcome in a queue and touches no Python;
the queue's descriptor is watched by an event loop or, without one, by a thread that the first such operation starts.

libpmix is one per process: a second session shares it and its identity, and the last `Finalize` ends it.
"""

from __future__ import annotations

import os
from _thread import RLock

from pypmix.engine.base import SLURM, EngineInfo
from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.library import open_library
from pypmix.engine.native.marshal import INTEGERS, Marshal, plain, precision
from pypmix.engine.native.quirks import FEATURES, NOT_ALONE, deadline, last_start, numeric, ordered
from pypmix.engine.native.structs import string, text
from pypmix.standard import codes, keys, ops, statuses
from pypmix.standard.errors import (
    EngineUnavailable,
    LostConnection,
    NotFound,
    NotInitialized,
    NotSupported,
    PMIxError,
    Unreachable,
    error_for,
)
from pypmix.standard.releases import parse_release, release_text
from pypmix.standard.types import RANK_INVALID, RANK_WILDCARD, Info, Proc, Value, decimal
from pypmix.standard.values import RANGES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn, Protocol

    from pypmix.engine.base import Done, R
    from pypmix.engine.native.background import Background
    from pypmix.engine.native.groupport import GroupPort
    from pypmix.engine.native.inbox import Inbox
    from pypmix.engine.native.library import Library
    from pypmix.standard.ops import GroupState, Op
    from pypmix.standard.releases import Release

    class Topic(Protocol):
        """The operations of one module, for one session; both ways to ask for one are the session's own."""

        def run(self, op: Any) -> Any: ...

        def submit(self, op: Any, done: Done[Any]) -> None: ...


NULL = ffi.NULL
PENDING = lib.PYPMIX_PENDING
_tuple = tuple.__new__
_WORD = 2**64 - 1
_BYTES = (codes.BYTE_OBJECT, codes.COMPRESSED_BYTE_OBJECT, codes.REGEX)

TOPICS = frozenset(
    {"connecting", "control", "events", "fabric", "forwarding", "groups", "publishing", "queries", "spawning"}
)
"""The modules of `pypmix.standard.ops`, and of this package, that are imported when they are needed."""

CORE = ops.Op.__module__

OURS = frozenset(("connect.nspace", "connect.directives"))
"""What works with servers of the Python engine alone."""


COLLECT = Info(keys.COLLECT_DATA, Value(codes.BOOL, True))

_SIGN = {kind: (-low, -2 * low) for kind, (low, _high) in RANGES.items() if low < 0 and kind in INTEGERS}


def open_client(env: Mapping[str, str], library: Library, directives: Sequence[Info] = ()) -> NativeSession:
    """`PMIx_Init`: load a library and connect to the server that launched this process.

    Args:
        env: The environment that the launcher left. libpmix reads the process's own, so it must say the same.
        library: What `find_library` found.
        directives: Infos for `PMIx_Init`.

    Raises:
        EngineUnavailable: The library cannot be loaded, or this process uses another one already.
        Unreachable: There is a server, but it cannot be reached or refuses this process.
        ValueError: `env` names another server than the process's environment.
    """
    _same_environment(env)
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
    """Return why no client can be opened on a library in this process now; empty if one can."""
    name = f"libpmix {release_text(library.release)}"
    if _library.spent:
        return f"{name} cannot be opened again in this process: {_library.spent}"
    return f"{name} serves the tool that this process is, and cannot be a client too" if _library.tool else ""


def _check_server(env: Mapping[str, str]) -> None:
    """See whose server it is before the library tells it anything.

    Raises:
        Unreachable: It is another user's, or the kernel does not tell whose.
    """
    uri = next((env[name] for name in sorted(env) if name.startswith("PMIX_SERVER_URI") and env[name]), "")
    scheme, _, address = uri.partition(";")[2].partition("://")
    host, _, port = address.partition(";")[0].rpartition(":")
    # What is no such address is the library's to judge.
    number = decimal(port, 65535)
    if "PMIX_NAMESPACE" in env and scheme in ("tcp4", "tcp6") and number is not None:
        from pypmix.engine.peeruid import OWNER, check_server

        check_server((host.strip("[]"), number), f"{scheme}://{address}", (), env.get(OWNER, ""))


class _Library:
    """What has happened to libpmix in this process."""

    opened = 0
    spent = ""
    tool = False


_library = _Library()


def _same_environment(env: Mapping[str, str]) -> None:
    for name in sorted({*env, *os.environ}):
        if name.startswith("PMIX_") and env.get(name) != os.environ.get(name):
            raise ValueError(
                f"libpmix reads {name} from this process's environment, which is not what env says; "
                "set os.environ, or use the python engine"
            )


class NativeSession:
    """A client of one process over its libpmix. `open_client` makes it."""

    _again = False
    """Whether the library knows of registrations with a server that is not the one of now."""

    _answers_twice = False
    """Whether the library calls back twice for an event that is raised."""

    slurm = False
    """Whether Slurm's plugin is the server's host; see `pypmix.engine.slurm`."""

    _last_handler = 0
    """The last id of an event handler of before; ids go on from there."""

    def __init__(self, env: Mapping[str, str], library: Library, directives: Sequence[Info]) -> None:
        self.info = EngineInfo("native", release_text(library.release), library.path)
        self._release = library.release
        self._marshal = Marshal(library.release)
        self._runners: dict[type, Callable[[Any], Any]] = {
            ops.Put: self._put,
            ops.Get: self._get,
            ops.Commit: self._commit,
            ops.Fence: self._fence,
            ops.Abort: self._abort,
            ops.Finalize: self._finalize,
        }
        self._topics: dict[str, Topic] = {}
        self._words = (frozenset(INTEGERS) | {codes.BOOL}) - self._marshal.refused
        self._making: Any = RLock()
        """Held while something is made that a session has one of: several threads may want it first."""
        self._background: Background | None = None
        self._inbox: Inbox | None = None
        self.groups: GroupPort | None = None
        self._spare: list[Any] = []
        self._open = False
        self._lost = False
        self._forked = False
        self._kept: dict[str, Value] = {}
        self.proc, self.singleton = self._init(env, directives)
        self.server = _server(env)
        self.server_release = _server_release(env)
        self.slurm = not self.singleton and self.proc[0].startswith(SLURM)
        self._last_start = last_start(library.release, env)
        self._kept[keys.RANK] = Value(codes.PROC_RANK, self.proc[1])
        self._kept[keys.VERSION_NUMERIC] = Value(codes.UINT32, numeric(library.release))
        self._queue = lib.pypmix_queue_new(not self.singleton)
        if not self._queue:
            self._stop()
            raise MemoryError("no memory or no descriptor for a session")
        self._open = True
        _library.opened += 1
        _sessions.add(self)

    def _init(self, env: Mapping[str, str], directives: Sequence[Info]) -> tuple[Proc, bool]:
        launched = bool(env.get("PMIX_NAMESPACE"))
        if launched and decimal(env.get("PMIX_RANK", "")) is None:
            raise Unreachable(
                f"PMIX_NAMESPACE is set and PMIX_RANK={env.get('PMIX_RANK', '')!r} is no rank",
                operation="open",
                engine=str(self.info),
            )
        here = ffi.new("pmix_proc_t *")
        infos, count = self._marshal.infos(directives)
        try:
            status = lib.pypmix_init(here, infos, count)
        finally:
            lib.pypmix_infos_free(infos, count)
        proc = Proc(ffi.string(here.nspace).decode("utf-8", "surrogateescape"), here.rank)
        if status == 0:
            return proc, not launched
        if status == statuses.ERR_UNREACH and not launched:
            return proc, True
        # the library does not get over a failed start, not even by PMIx_Finalize
        _library.spent = "its first connection failed"
        if not launched:
            raise error_for(status)("PMIx_Init failed", status=status, operation="open", engine=str(self.info))
        raise Unreachable(
            " ".join(["the server", *_server(env).split(), "cannot be reached or refuses this process"]),
            status=status,
            operation="open",
            engine=str(self.info),
            hint="is it still running? `pypmix doctor` shows what the environment says",
        )

    # what a session is asked

    def run(self, op: Op[R]) -> R:
        """Carry out an operation and return its result; see `ClientSession.run`."""
        if not self._open and not (self._lost and type(op) is ops.Finalize):
            self._closed(op.name)
        if self.slurm:
            self._check_slurm(op)
        if self.groups is not None:
            if self.groups.takes(op):
                return self._topic_named("groups").run(op)  # type: ignore[no-any-return]
            answer, op = self.groups.translate(op)
            if answer is not None:
                return answer  # type: ignore[no-any-return]
        runner = self._runners.get(type(op))
        if runner is None:
            runner = self._runners[type(op)] = self._topic(op).run
        return runner(op)  # type: ignore[no-any-return]

    def submit(self, op: Op[R], done: Done[R]) -> None:
        """Start an operation and return; see `ClientSession.submit`."""
        asked: Any = op
        if not self._open and not (self._lost and type(asked) is ops.Finalize):
            self._closed(op.name)
        kind = type(asked)
        try:
            if self.slurm:
                self._check_slurm(asked)
            if self.groups is not None:
                if self.groups.takes(asked):
                    self._topic_named("groups").submit(asked, done)
                    return
                answer, asked = self.groups.translate(asked)
                if answer is not None:
                    done(answer, None)
                    return
            if kind is ops.Put:
                self._put(asked)
            elif kind is ops.Get and asked.key not in self._kept:
                self._behind().get(asked, done)
                return
            elif kind is ops.Fence and not self._alone(asked):
                self._behind().fence(asked, done)
                return
            elif kind.__module__ == CORE and kind in self._runners:
                self._behind().call(asked, done)
                return
            else:
                self._topic(asked).submit(asked, done)
                return
        except Exception as error:
            done(None, error)
            return
        done(None, None)

    def fetch_local(self, proc: Proc, key: str) -> Value | None:
        """Return what this process holds already, without a message; None if it is not here."""
        if not self._open and not self._lost:
            self._closed("get")
        if self.groups is not None:
            # The library has ranks of its own in a group.
            proc = self.groups.addresses.proc(proc)
        if key in self._kept:
            return self._own(proc, key)
        call = self._call()
        lib.pypmix_get_optional(call, self._queue, text(proc[0]), proc[1], text(key))
        return None if self._ended(call, -1.0) else self._take(call)

    def group_state(self, name: str) -> GroupState | None:
        """Return how a group stands that this process is in; see `ClientSession.group_state`."""
        return None if self.groups is None else self.groups.state(name)

    def supports(self, feature: str) -> bool:
        """Tell whether a feature works with this library."""
        if self.slurm:
            from pypmix.engine.slurm import works as possible

            if not possible(feature):
                return False
        if feature.startswith("group."):
            from pypmix.engine.groups.features import works
            from pypmix.engine.native.groupport import adapts

            return not self.singleton and works(feature, self.server_release, adapts(self))
        if feature in OURS:
            from pypmix.engine.native.groupport import adapts

            return not self.singleton and adapts(self)
        if feature not in FEATURES or self._release < FEATURES[feature]:
            return False
        return feature not in NOT_ALONE or not self.singleton

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something to complete."""
        return int(lib.pypmix_queue_fd(self._queue)) if self._queue else -1

    def attach(self) -> None:
        """Promise to watch `fileno` and to call `poll`; no thread completes operations then."""
        self._behind().attach()

    def detach(self) -> None:
        """Take that promise back."""
        if self._background is not None:
            self._background.detach()

    def poll(self) -> None:
        """Complete what has ended, without waiting."""
        if self._background is not None and not self._forked:
            self._background.poll()

    def close(self) -> None:
        """Give the session up without `Finalize`: what is under way fails with `LostConnection`.

        libpmix itself stays connected, because only `Finalize` can end that; the server sees this process as lost
        when it exits.
        """
        if self._forked:
            return
        self._leave()
        if self._background is not None:
            self._background.close()
            self._background = None
        while self._spare:
            lib.pypmix_call_free(self._spare.pop())
        if self._queue:
            queue, self._queue = self._queue, None
            lib.pypmix_queue_free(queue)

    def forked(self) -> None:
        """See `ClientSession.forked`: nothing of the library is touched, whose threads the child has not."""
        self._open = False
        self._forked = True

    # the operations

    def _put(self, op: ops.Put) -> None:
        name = op.key
        if name.startswith(ops.RESERVED_PREFIX):
            # libpmix drops these without a word; what was put can be read back, here as with the other engine
            self._kept[name] = op.value
            return
        key = text(name)
        kind, data = op.value
        if op.scope in ops.DELETES:
            needed = self._release if op.scope == ops.DEL_INTERNAL else min(self._release, self.server_release)
            if needed < (7,):
                detail = f"deleting keys needs libpmix and a server of release 7.0, not {release_text(needed)}"
                raise self._with_context(NotSupported(detail), "put")
            status = lib.pypmix_put(op.scope, key, NULL)
        elif kind in self._words:
            status = lib.pypmix_put_word(op.scope, key, kind, data & _WORD)
        elif kind == codes.STRING and data is not None:
            status = lib.pypmix_put_string(op.scope, key, text(data))
        elif kind in _BYTES and kind not in self._marshal.refused:
            status = lib.pypmix_put_bytes(op.scope, key, kind, data, len(data))
        elif kind == codes.DOUBLE or kind == codes.FLOAT:
            precision(kind, (data,))
            status = lib.pypmix_put_double(op.scope, key, kind, data)
        else:
            try:
                made = self._marshal.value(op.value)
            except NotSupported as error:
                raise self._with_context(error, "put") from error.__cause__
            try:
                status = lib.pypmix_put(op.scope, key, made)
            finally:
                self._marshal.clear(made)
        if status:
            raise self._error("put", status, f"the library does not take {name!r}")

    def _get(self, op: ops.Get) -> Value:
        proc, key, directives = op.proc, op.key, op.directives
        if key in self._kept:
            kept = self._own(proc, key)
            if kept is not None:
                return kept
        call = self._call()
        if directives:
            limit = deadline(directives)
            infos, count = self._marshal.infos(ordered(directives))
            lib.pypmix_get(call, self._queue, text(proc[0]), proc[1], text(key), infos, count, limit)
        else:
            limit = -1.0
            lib.pypmix_get(call, self._queue, text(proc[0]), proc[1], text(key), NULL, 0, limit)
        status = self._ended(call, limit)
        if status:
            raise self._get_error(op, status)
        return self._take(call)

    def _commit(self, op: ops.Commit) -> None:
        if self.singleton:
            return
        call = self._call()
        lib.pypmix_commit(call, self._queue)
        status = self._ended(call, -1.0)
        if status:
            raise self._error(op.name, status, hint=_HINTS.get(status, ""))
        self._spare.append(call)

    def _fence(self, op: ops.Fence) -> None:
        if self._alone(op):
            return
        procs, count, infos, ninfos, limit = self._fence_arguments(op)
        call = self._call()
        lib.pypmix_fence(call, self._queue, procs, count, infos, ninfos, limit)
        status = self._ended(call, limit)
        if status:
            raise self._fence_error(op, status)
        self._spare.append(call)

    def _abort(self, op: ops.Abort) -> None:
        if self.singleton:
            raise self._alone_error(op.name, op.procs)
        connected = lib.pypmix_connected()
        message = text(op.message)
        procs, count = self._marshal.procs(op.procs)
        call = self._call()
        lib.pypmix_abort(call, self._queue, op.code, message, procs, count)
        status = self._ended(call, -1.0)
        # a server that ends the job need not answer first
        if status and not (connected and status in _MAYBE_LOST):
            raise self._error(op.name, status, procs=op.procs)
        if not status:
            self._spare.append(call)

    def _finalize(self, op: ops.Finalize) -> None:
        failure = self._barrier(op) if self._open else None
        self._leave()
        status = self._stop()
        _library.opened -= 1
        if not _library.opened:
            _library.spent = self._last_start
        if failure is not None:
            raise failure
        if status:
            raise self._error(op.name, status)

    def _stop(self) -> int:
        return int(lib.pypmix_finalize())

    def _barrier(self, op: ops.Finalize) -> PMIxError | None:
        """Fence before the end if that was asked for; 4.2 would wait for itself if it were left to it."""
        if any(info.key == keys.EMBED_BARRIER and info.value.data is not False for info in op.directives):
            try:
                self._fence(ops.Fence(directives=tuple(info for info in op.directives if info.key == keys.TIMEOUT)))
            except PMIxError as error:
                return error
        return None

    def _outcome(self, op: Op[Any], call: Any) -> Any:
        """Return the result of a submitted operation that has ended, or raise its error."""
        status = self._ended(call, -1)
        if type(op) is ops.Get:
            if status:
                raise self._get_error(op, status)
            return self._take(call)
        assert isinstance(op, ops.Fence)
        if status:
            raise self._fence_error(op, status)
        lib.pypmix_call_free(call)
        return None

    # what they share

    def _topic(self, op: Op[Any]) -> Topic:
        """Return what carries out an operation beyond core; its module is imported when the first of them is asked."""
        name = type(op).__module__.rpartition(".")[2]
        if name not in TOPICS:
            raise self._not_offered(op)
        return self._topic_named(name)

    def _topic_named(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            from sys import modules

            module = f"pypmix.engine.native.{name}"
            __import__(module)
            with self._making:
                topic = self._topics.get(name)
                if topic is None:
                    topic = self._topics[name] = modules[module].Topic(self)
        return topic

    def _fence_arguments(self, op: ops.Fence) -> tuple[Any, int, Any, int, float]:
        if op.procs and all(proc[0] != self.proc[0] for proc in op.procs):
            from pypmix.engine.native.groupport import own_named, refuse_fence

            op = op.replace(procs=own_named(self, op.procs))
            refuse_fence(self, op.procs)
        directives = op.directives
        limit = deadline(directives) if directives else -1.0
        asked = op.procs
        if self.slurm:
            from pypmix.engine.slurm import fence_procs

            try:
                asked = fence_procs(self.proc, asked, self.fetch_local) if asked else asked
            except NotSupported as error:
                error.operation, error.engine, error.procs = op.name, str(self.info), asked
                raise
            # Without data, its fence ends before all have come.
            directives = (COLLECT, *[info for info in directives if info.key != COLLECT.key])
        elif op.collect:
            directives = (COLLECT, *directives)
        infos, ninfos = self._marshal.infos(directives)
        try:
            procs, count = self._marshal.procs(asked)
        except BaseException:
            lib.pypmix_infos_free(infos, ninfos)
            raise
        return procs, count, infos, ninfos, limit

    def _check_slurm(self, op: Op[Any]) -> None:
        """Raise where an operation must not reach Slurm's server."""
        if type(op).__module__ != CORE:
            from pypmix.engine.slurm import refusal

            error = refusal(op)
            if error is not None:
                error.operation, error.engine = op.name, str(self.info)
                error.procs = getattr(op, "procs", ()) or getattr(op, "targets", ()) or (self.proc,)
                raise error

    def _call(self) -> Any:
        """Return a call to carry an operation, a used one if there is one."""
        try:
            return self._spare.pop()
        except IndexError:
            call = lib.pypmix_call_new()
            if not call:
                raise MemoryError("no memory for an operation") from None
            return call

    def _ended(self, call: Any, limit: float) -> int:
        """Return the status of a call that was waited for; one that has failed is freed."""
        status: int = call.status
        if status == 0:
            return 0
        status = self._waited(call, limit)
        if status:
            lib.pypmix_call_free(call)
        return status

    def _waited(self, call: Any, limit: float) -> int:
        """Return the status of a call that was waited for.

        The wait goes on after a signal whose handler returned, and is given up when it raised.
        """
        status: int = call.status
        if status == PENDING:
            import time

            end = time.monotonic() + limit
            try:
                while status == PENDING:
                    lib.pypmix_wait(call, -1.0 if limit < 0 else max(end - time.monotonic(), 0.0))
                    status = call.status
            except BaseException:
                lib.pypmix_call_free(call)
                raise
        return status

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
                raise self._error("get", statuses.ERR_NOT_FOUND, "the library returned no value")
            kind = value.type
            if kind == codes.STRING:
                return Value.unchecked(kind, string(value.data.string))
            try:
                found = self._marshal.read(value)
            except PMIxError as error:
                raise self._with_context(error, "get") from None
            return plain(found)
        finally:
            lib.pypmix_call_free(call)

    def _own(self, proc: Proc, key: str) -> Value | None:
        """Return what the engine knows of itself: libpmix crashes on these questions in some releases, or is silent."""
        if key == keys.RANK:
            ours = proc[1] == RANK_INVALID and proc[0] in ("", self.proc[0])
        else:
            ours = key == keys.VERSION_NUMERIC or proc == self.proc
        return self._kept[key] if ours else None

    def _alone(self, op: ops.Fence) -> bool:
        """Tell whether a fence has nobody to wait for; a singleton's with others cannot be."""
        if not self.singleton:
            return False
        nspace, rank = self.proc
        for proc in op.procs:
            if proc[0] != nspace or proc[1] not in (rank, RANK_WILDCARD):
                raise self._alone_error("fence", op.procs)
        return True

    def _alone_error(self, operation: str, procs: Sequence[Proc]) -> Unreachable:
        return Unreachable(
            "this process is a singleton: no server launched it, so there is nobody else",
            operation=operation,
            procs=procs or (self.proc,),
            engine=str(self.info),
            hint="start it with a launcher, such as `pypmix run`",
        )

    def _get_error(self, op: ops.Get, status: int) -> PMIxError:
        proc, key = op.proc, op.key
        what = f"the get of {key!r} failed"
        hint = ""
        if status == statuses.ERR_NOT_FOUND:
            what = f"nobody has {key!r} of {proc}"
            if not key.startswith(ops.RESERVED_PREFIX):
                hint = "has the proc put and committed it, and has there been a fence with collect=True?"
        elif status == statuses.ERR_EXISTS_OUTSIDE_SCOPE:
            what = f"{key!r} of {proc} was put with another scope"
        elif status == statuses.ERR_TIMEOUT:
            what = f"{key!r} of {proc} did not come in time"
            hint = "has the proc put and committed it?"
        return self._error("get", status, what, (proc,), hint)

    def _fence_error(self, op: ops.Fence, status: int) -> PMIxError:
        procs = op.procs or (Proc.unchecked(self.proc[0], RANK_WILDCARD),)
        return self._error("fence", status, _FENCE_FAILURES.get(status, ""), procs, _HINTS.get(status, ""))

    def _error(
        self, operation: str, status: int, detail: str = "", procs: Sequence[Proc] = (), hint: str = ""
    ) -> PMIxError:
        """Return the error of an operation that has failed; where it shows the loss of the server, end the session."""
        if self._open and not self.singleton and status in _MAYBE_LOST and not lib.pypmix_connected():
            self._leave(lost=True)
        if status == statuses.ERR_LOST_CONNECTION and not self._open:
            detail = "the client was closed while this was under way"
        kind = LostConnection if self._lost else error_for(status)
        if status == statuses.ERR_EXISTS_OUTSIDE_SCOPE:
            kind = NotFound
        return kind(
            self._loss() if self._lost else detail or "the library or its server refused it",
            status=None if self._lost else status,
            operation=operation,
            procs=procs or (self.proc,),
            engine=str(self.info),
            hint="" if self._lost else hint,
        )

    def _loss(self) -> str:
        return f"the connection to the server {self.server} is gone"

    def _with_context(self, error: PMIxError, operation: str) -> PMIxError:
        return type(error)(error.detail, status=error.code, operation=operation, engine=str(self.info), hint=error.hint)

    def _not_offered(self, op: Op[Any]) -> NotSupported:
        return NotSupported("a client has no such operation", operation=op.name, engine=str(self.info))

    def _closed(self, operation: str) -> NoReturn:
        if self._forked:
            raise NotInitialized(
                "this process was forked from the one that opened the client, which stays that one's",
                operation=operation,
                engine=str(self.info),
                hint="open a client of its own in the child",
            )
        if self._lost:
            raise LostConnection(self._loss(), operation=operation, procs=(self.proc,), engine=str(self.info))
        raise NotInitialized(
            "the client is finalized", operation=operation, engine=str(self.info), hint="open a new one"
        )

    def _leave(self, *, lost: bool = False) -> None:
        """Take no more operations and end those under way."""
        self._lost = lost
        if self._open:
            self._open = False
            _sessions.discard(self)
            lib.pypmix_queue_fail(self._queue, statuses.ERR_LOST_CONNECTION)
            if self._inbox is not None:
                self._inbox.end(lost)

    def _behind(self) -> Background:
        if self._background is None:
            from pypmix.engine.native.background import Background

            with self._making:
                if self._background is None:
                    self._background = Background(self)
        return self._background

    def _letters(self) -> Inbox:
        if self._inbox is None:
            from pypmix.engine.native.inbox import Inbox

            with self._making:
                if self._inbox is None:
                    self._inbox = Inbox(self)
        return self._inbox


_HINTS = {
    statuses.ERR_OUT_OF_RESOURCE: (
        "the server limits what one rank may commit, and its log says by how much this one did more: "
        "`pypmix run --limits committed=...` or PYPMIX_LIMITS set it"
    ),
}

_FENCE_FAILURES = {
    statuses.ERR_OUT_OF_RESOURCE: "a commit before it was refused",
    statuses.ERR_TIMEOUT: "not everybody had come when the time ran out",
    statuses.ERR_PARTIAL_SUCCESS: "it ended without some of the procs",
    statuses.ERR_LOST_CONNECTION: "a participant has lost its connection to its server",
}

_MAYBE_LOST = frozenset(
    {
        statuses.ERR_UNREACH,
        statuses.ERR_LOST_CONNECTION,
        statuses.ERR_NOT_FOUND,
        statuses.ERR_TIMEOUT,
        statuses.ERROR,
        statuses.ERR_COMM_FAILURE,
        statuses.ERR_UNPACK_READ_PAST_END_OF_BUFFER,
    }
)

_sessions: set[NativeSession] = set()


def _forked() -> None:
    for session in _sessions:
        session.forked()
    if _sessions and not _library.spent:
        _library.spent = "it belongs to the process that this one was forked from"
    _sessions.clear()


os.register_at_fork(after_in_child=_forked)


def _server(env: Mapping[str, str]) -> str:
    """Return the server as the environment names it: its nspace and rank, and its release."""
    for name in sorted(env):
        if name.startswith("PMIX_SERVER_URI"):
            server = env[name].partition(";")[0]
            try:
                return f"{server} {release_text(parse_release(env.get('PMIX_VERSION', '')))}"
            except ValueError:
                return server
    return ""


def _server_release(env: Mapping[str, str]) -> Release:
    """Return the server's release; nothing but zeros where the environment does not tell."""
    try:
        return parse_release(env.get("PMIX_VERSION", ""))
    except ValueError:
        return (0, 0, 0)
