"""The base of the blocking and the async client, and of the port between a client and its session.

A client, its operations by topic and the objects that they make (groups, streams, invitations) reach the engine by one
`Port`, which each form has in its `waits` module. The list of the ports of open clients is here: a fork leaves their
sessions alone, and an orderly exit finalizes them.
"""

from __future__ import annotations

import os
import sys

from pypmix.arguments import ranked, target
from pypmix.engine.select import open_client
from pypmix.standard.errors import NotInitialized, PMIxError, Unreachable
from pypmix.standard.ops import Finalize
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn, TypeVar

    from pypmix.arguments import Infos, Procs, Target
    from pypmix.engine.base import ClientSession
    from pypmix.engine.common import EngineInfo
    from pypmix.job import Job, Node
    from pypmix.standard.features import Feature
    from pypmix.standard.types import Proc

    T = TypeVar("T")

ENGINES = (None, "auto", "python", "native")

SINGLETON = ("allow", "require", "forbid")

_ports: dict[PortBase, None] = {}
"""Those of open clients, in the order in which they were opened."""


def _at_fork() -> None:
    if not _ports:
        # Each warm rank comes by here.
        return
    ports = list(_ports)
    _ports.clear()
    for port in ports:
        port.forked()


os.register_at_fork(after_in_child=_at_fork)


def _at_exit() -> None:
    """Finalize open clients, unless an uncaught exception ends the process, which the others should learn of."""
    if getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1"):
        return
    for port in reversed(list(_ports)):
        session = port.session
        port.end()
        try:
            session.run(Finalize(()))
        except Exception:  # the exit must not fail, and there is no caller to tell
            continue


class Closed:
    """The session of a client before `open` and after `close`; every use of it raises an error."""

    def __init__(self, reason: str, hint: str = "use `with Client() as me:` or call open()") -> None:
        self._reason = reason
        self._hint = hint

    def __getattr__(self, name: str) -> NoReturn:
        raise NotInitialized(self._reason, operation="client", hint=self._hint)


class Forked(Closed):
    """The session of a client in a child of the process that opened it; it still has the identity of that process."""

    def __init__(self, session: ClientSession) -> None:
        super().__init__(
            "this process was forked from the process that opened the client, and cannot use it",
            "open another client in the child",
        )
        self.proc = session.proc
        self.singleton = session.singleton
        self.info = session.info
        self.server = session.server


NOT_OPEN = Closed("the client is not open")
CLOSED = Closed("the client is closed")


class PortBase:
    """The way from a client, and from the objects that it makes, to its session; `Port` of `waits` is one.

    Attributes:
        session: The engine's session. Before `open`, after `close` and in a forked child it is an object that says so.
        runner: Runs operations, and is closed after the last one: in blocking calls the session itself, in an event
            loop a `pypmix.aio.pump.Pump` of it.
    """

    runner: object

    def __init__(self) -> None:
        self._kept: dict[type, object] = {}
        self._set(NOT_OPEN)  # type: ignore[arg-type]

    @property
    def is_open(self) -> bool:
        """Whether the client is between `open` and `close`."""
        return not isinstance(self.session, Closed)

    def begin(self, session: ClientSession) -> None:
        """Use a session that has been opened."""
        self._set(session)
        if not _ports:
            import atexit

            atexit.unregister(_at_exit)
            atexit.register(_at_exit)
        _ports[self] = None

    def end(self) -> None:
        """Leave the session to the caller; for all other users the client is closed."""
        self._set(CLOSED)  # type: ignore[arg-type]
        _ports.pop(self, None)

    def forked(self) -> None:
        """Leave the session to the parent process."""
        session = self.session
        self._set(Forked(session))
        session.forked()

    def kept(self, kind: type[T]) -> T | None:
        """Return the client's only object of a class; None if it was not made yet."""
        return self._kept.get(kind)  # type: ignore[return-value]

    def keep(self, made: T, *, replace: bool = False) -> T:
        """Keep an object for `kept`, and return the kept object: an earlier one of its class, unless `replace`."""
        if replace:
            self._kept[type(made)] = made
        return self._kept.setdefault(type(made), made)  # type: ignore[return-value]

    def _set(self, session: ClientSession) -> None:
        self.session = self.runner = session


class ClientBase:
    """The base of the blocking and the async client."""

    _port: PortBase
    _new_port: type[PortBase]

    def __init__(
        self,
        *,
        engine: str | None = None,
        env: Mapping[str, str] | None = None,
        info: Infos = None,
        singleton: str = "allow",
        abort_on_error: bool = False,
    ) -> None:
        if engine not in ENGINES:
            raise ValueError(f"an engine is one of {', '.join(map(str, ENGINES[1:]))}, or None, not {engine!r:.80}")
        if singleton not in SINGLETON:
            raise ValueError(f"singleton is one of {', '.join(SINGLETON)}, not {singleton!r}")
        self._engine = engine
        self._env = env
        self._directives = infos(info)
        self._singleton = singleton
        self._abort_on_error = abort_on_error
        self._port = self._new_port()
        self._dirty: object = None

    @property
    def is_open(self) -> bool:
        """Whether the client is between `open` and `close`.

        Example:
            >>> me.is_open
            True
        """
        return self._port.is_open

    @property
    def proc(self) -> Proc:
        """The caller: its nspace and rank.

        Example:
            >>> me.proc == Proc(me.nspace, me.rank)
            True
        """
        return self._session.proc

    @property
    def nspace(self) -> str:
        """The caller's namespace.

        Example:
            >>> whole_job = Proc(me.nspace, Rank.WILDCARD)
        """
        return self._session.proc.nspace

    @property
    def rank(self) -> int:
        """The caller's rank in its job.

        Example:
            >>> if me.rank == 0:
            ...     print("the first of", me.job.size)
        """
        return self._session.proc.rank

    @property
    def singleton(self) -> bool:
        """Whether no server launched this process, so that it is a job with one rank.

        Example:
            >>> if me.singleton:
            ...     print("start me with `pypmix run -n 4 python program.py`")
        """
        return self._session.singleton

    @property
    def engine(self) -> EngineInfo:
        """The engine that this client runs on; as a string `python 5.0.11` or `native 4.2.2`.

        Example:
            >>> print(me.engine.name, me.engine.release)
        """
        return self._session.info

    @property
    def server(self) -> str:
        """The server as the environment names it; empty for a singleton.

        Example:
            >>> print("my server is", me.server)
        """
        return self._session.server

    @property
    def job(self) -> Job:
        """The caller's job, a collection of its procs.

        Example:
            >>> left, right = me.job[me.rank - 1], me.job[(me.rank + 1) % me.job.size]
        """
        from pypmix.job import Job

        return Job(self._session)

    @property
    def node(self) -> Node:
        """The node that the caller runs on.

        Example:
            >>> print(me.rank, "runs on", me.node.hostname)
        """
        from pypmix.job import Node

        return Node(self._session)

    def supports(self, feature: Feature) -> bool:
        """Return True if a feature, such as `fence.timeout` or `group.bootstrap`, works with this engine and server.

        Args:
            feature: A key of `pypmix.standard.features.FEATURES`, which explains each.

        Raises:
            ValueError: There is no feature of this name.

        Example:
            >>> limit = 10 if me.supports("fence.timeout") else None
        """
        from pypmix.standard.features import check

        check(feature)
        return self._session.supports(feature)

    def _procs(self, procs: Procs) -> Procs:
        """Return procs that a caller has named, with ranks of its job as procs."""
        return procs if procs is None else ranked(procs, self.proc)

    def _target(self, proc: Target) -> Proc | None:
        """Return the proc that a caller has named, None for none."""
        return None if proc is None else target(proc, self.proc)

    def _open(self) -> None:
        if self.is_open:
            raise PMIxError("the client is open already", operation="open", hint="a client is opened once")
        if "PMIX_NAMESPACE" in (os.environ if self._env is None else self._env):
            from pypmix.engine.stacks import offer_stacks

            offer_stacks()
        session = open_client(self._engine, self._env, self._directives)
        wanted = self._singleton
        if wanted != "allow" and session.singleton != (wanted == "require"):
            session.close()
            found = "no server launched this process" if session.singleton else "a server launched this process"
            raise Unreachable(
                f"{found}, and singleton={wanted!r}",
                operation="open",
                engine=str(session.info),
                hint="start it with `pypmix run -n N python ...` or another PMIx launcher" if session.singleton else "",
            )
        self._begin(session)

    @property
    def _session(self) -> ClientSession:
        return self._port.session

    def _begin(self, session: ClientSession) -> None:
        self._dirty = None
        self._port.begin(session)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """Return the member with a former name."""
            from pypmix.oldnames import find_member

            return find_member(self, "pypmix.Client", name)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: it is the connection of one process; send `me.proc` or "
            f"`me.job.procs`, and open another client in the other process"
        )

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__name__}"
        return f"<{name} {self.proc} [{self.engine}]>" if self.is_open else f"<{name}, not open>"
