"""The base of the blocking and the async client: identity, and the reading of local data.

It also keeps the list of open clients, which a fork leaves alone and an orderly exit finalizes.
"""

from __future__ import annotations

import os
import sys

from pypmix.engine.select import open_client
from pypmix.job import Job, Node
from pypmix.requests import CLOSED, NOT_OPEN, Closed, Forked
from pypmix.standard.errors import PMIxError, Unreachable
from pypmix.standard.ops import Finalize
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pypmix.engine.base import ClientSession, EngineInfo
    from pypmix.requests import Infos
    from pypmix.standard.features import Feature
    from pypmix.standard.types import Proc

SINGLETON = ("allow", "require", "forbid")

_clients: dict[ClientBase, None] = {}
"""The open ones, in the order in which they were opened."""


def _at_fork() -> None:
    clients = list(_clients)
    _clients.clear()
    for client in clients:
        session = client._session
        client._session = client._port = Forked(session)
        session.forked()


os.register_at_fork(after_in_child=_at_fork)


def _at_exit() -> None:
    """Finalize what is open still, unless an uncaught exception ends the process, which others are to hear of."""
    if getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1"):
        return
    for client in reversed(list(_clients)):
        session = client._forget()
        try:
            session.run(Finalize(()))
        except Exception:  # the exit must not fail, and there is no caller to tell
            continue


class ClientBase:
    """The base of the blocking and the async client.

    `_session` is the engine's session. `_port` carries out operations: in blocking calls the session itself, in an
    event loop a `pypmix.aio.pump.Pump` of it. Before `open`, after `close` and in a forked child both say so.
    """

    _port: object

    def __init__(
        self,
        *,
        engine: str | None = None,
        env: Mapping[str, str] | None = None,
        info: Infos = None,
        singleton: str = "allow",
        abort_on_error: bool = False,
    ) -> None:
        if singleton not in SINGLETON:
            raise ValueError(f"singleton is one of {', '.join(SINGLETON)}, not {singleton!r}")
        self._engine = engine
        self._env = env
        self._directives = infos(info)
        self._singleton = singleton
        self._abort_on_error = abort_on_error
        self._session: ClientSession = NOT_OPEN  # type: ignore[assignment]
        self._port = NOT_OPEN
        self._dirty: object = None

    @property
    def is_open(self) -> bool:
        """Whether the client is between `open` and `close`."""
        return not isinstance(self._session, Closed)

    @property
    def proc(self) -> Proc:
        """The caller: its nspace and rank."""
        return self._session.proc

    @property
    def nspace(self) -> str:
        """The caller's namespace."""
        return self._session.proc.nspace

    @property
    def rank(self) -> int:
        """The caller's rank in its job."""
        return self._session.proc.rank

    @property
    def singleton(self) -> bool:
        """Whether no server launched this process, so that it is a job of its own."""
        return self._session.singleton

    @property
    def engine(self) -> EngineInfo:
        """The engine that this client runs on; as a string `python 5.0.11` or `native 4.2.2`."""
        return self._session.info

    @property
    def server(self) -> str:
        """The server as the environment names it; empty for a singleton."""
        return self._session.server

    @property
    def job(self) -> Job:
        """The caller's job, a collection of its procs."""
        return Job(self._session)

    @property
    def node(self) -> Node:
        """The node that the caller runs on."""
        return Node(self._session)

    def supports(self, feature: Feature) -> bool:
        """Tell whether a feature, such as `fence.timeout` or `group.bootstrap`, works with this engine and server.

        Args:
            feature: A key of `pypmix.standard.features.FEATURES`, which tells what each means.

        Raises:
            ValueError: There is no feature of this name.
        """
        from pypmix.standard.features import check

        check(feature)
        return self._session.supports(feature)

    def _open(self) -> None:
        if self.is_open:
            raise PMIxError("the client is open already", operation="open", hint="a client is opened once")
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

    def _begin(self, session: ClientSession) -> None:
        self._session = self._port = session
        self._dirty = None
        if not _clients:
            import atexit

            atexit.unregister(_at_exit)
            atexit.register(_at_exit)
        _clients[self] = None

    def _forget(self) -> ClientSession:
        session = self._session
        self._session = self._port = CLOSED  # type: ignore[assignment]
        _clients.pop(self, None)
        return session

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__name__}"
        return f"<{name} {self.proc} [{self.engine}]>" if self.is_open else f"<{name}, not open>"
