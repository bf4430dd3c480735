"""The tool: a process that looks at jobs from outside."""

from __future__ import annotations

from _thread import allocate_lock

from pypmix.aio.client import Client
from pypmix.aio.operations.servers import Servers, server_infos
from pypmix.aio.waits import call, shielded
from pypmix.arguments import flag
from pypmix.engine.select import open_tool
from pypmix.lazy import renamed
from pypmix.standard import codes, keys
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import Info, Proc, Value
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Self

    from pypmix.arguments import Infos
    from pypmix.engine.base import ToolSession


class Tool(Servers, Client):
    """A tool: a process that no server needs to have launched, connected to the servers of other people's jobs.

    Use it as a context manager: entering finds a server and connects (`PMIx_tool_init`), leaving finalizes
    (`PMIx_tool_finalize`). It has all operations of a `Client`; its primary server carries them out.

    One of `pid`, `nspace`, `uri`, `file` and `system` chooses the server. If none of them is given,
    `PMIX_LAUNCHER_RNDZ_URI`, `PMIX_LAUNCHER_RNDZ_FILE` or, in a process of a job, `PMIX_SERVER_URI*` names it; without
    these it is the newest of this user's servers on this node that lets the tool in.

    Args:
        pid: The server's process id, such as that of a `pypmix run` or `prterun`.
        nspace: The server's own nspace.
        uri: Its URI, `nspace.rank;tcp4://address:port`, or `file:` and the path of a file that holds it.
        file: Its rendezvous file.
        system: True (or `"only"`) for the system server of this node, `"first"` to try that one before others.
        host: The name under which the server knows its node, if that is not its host name.
        tmpdir: The folder to search for rendezvous files; `PMIX_SERVER_TMPDIR`, `PMIX_SYSTEM_TMPDIR` and `TMPDIR` by
            default. The folders below it are searched too.
        timeout: Seconds to wait for a server that is not there yet. None and 0 do not wait.
        proc: The name to connect under. By default a process of a job has the name that it was launched with, to its
            own server; other servers name the tool themselves.
        launcher: Say that the tool launches jobs itself (`PMIX_LAUNCHER`).
        connect: False not to connect at all (`PMIX_TOOL_DO_NOT_CONNECT`), `"optional"` to continue without
            a server (`PMIX_TOOL_CONNECT_OPTIONAL`).
        engine: `python`, `native` (one tool in a process, and no client beside it) or `auto`, which is `python` here;
            by default what `PYPMIX_ENGINE` says, else `auto`.
        env: The environment that tells of servers; the process's own by default.
        info: Further infos or a mapping for `PMIx_tool_init`.

    Raises:
        TypeError, ValueError: The arguments make no sense.

    Example:
        >>> async with Tool(pid=4711) as tool:
        ...     jobs = await tool.query(attrs.QUERY_NAMESPACES)
        ...     print("jobs:", jobs, "still connected:", tool.is_connected)

    PMIx Standard: "Tools and Debuggers", Connection Mechanisms.
    """

    @renamed("pypmix.Tool")
    def __init__(
        self,
        *,
        pid: int | None = None,
        nspace: str | None = None,
        uri: str | None = None,
        file: str | os.PathLike[str] | None = None,
        system: bool | str = False,
        host: str | None = None,
        tmpdir: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        proc: Proc | None = None,
        launcher: bool = False,
        connect: bool | str = True,
        engine: str | None = None,
        env: Mapping[str, str] | None = None,
        info: Infos = None,
    ) -> None:
        super().__init__(engine=engine, env=env)
        self._dropping = allocate_lock()
        if connect not in (True, False, "optional"):
            raise ValueError(f"connect is True, False or 'optional', not {connect!r}")
        directives = server_infos(pid, nspace, uri, file, system, host, tmpdir, timeout)
        if proc is not None:
            if not isinstance(proc, Proc):
                raise TypeError(f"a tool's name is a Proc, not a {type(proc).__name__}")
            directives += (
                Info(keys.TOOL_NSPACE, Value(codes.STRING, proc.nspace)),
                Info(keys.TOOL_RANK, Value(codes.PROC_RANK, proc.rank)),
            )
        if launcher:
            directives += (flag(keys.LAUNCHER),)
        if connect == "optional":
            directives += (flag(keys.TOOL_CONNECT_OPTIONAL),)
        elif not connect:
            directives += (flag(keys.TOOL_DO_NOT_CONNECT),)
        self._directives = directives + infos(info)

    @property
    def is_connected(self) -> bool:
        """`PMIx_tool_is_connected`: whether the tool has an open connection to a primary server."""
        session: ToolSession = self._session  # type: ignore[assignment]
        return session.connected

    def _open(self) -> None:
        self._begin(open_tool(self._engine, self._env, self._directives))
        if self._given_up:
            self._drop()

    def _drop(self) -> None:
        """End what was opened for a caller that has given up: here or on the thread that opens it, once."""
        with self._dropping:
            session = self._port.session if self.is_open else None
            if session is not None:
                self._port.end()
        if session is not None:
            session.close()

    async def open(self) -> Self:
        """`PMIx_tool_init`: find the server and connect to it; returns the tool itself.

        Raises:
            EngineUnavailable: The requested engine has no tools.
            Unreachable: There is no such server, or it does not let this tool in.

        Example:
            >>> tool = await Tool(system=True, timeout=10).open()
            >>> await tool.close()
        """
        if self.is_open:
            raise PMIxError("the tool is open already", operation="open", hint="a tool is opened once")
        self._given_up = False
        try:
            # To look for a server and to wait for one takes its time.
            with shielded(None):
                await call(self._open)
        except BaseException:
            # A thread continues although the task that waits for it is cancelled.
            self._given_up = True
            self._drop()
            raise
        self._port.attach()
        return self
