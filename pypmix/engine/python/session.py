"""Opening a client on the Python engine: the environment, the handshake, and the session that results."""

from __future__ import annotations

import os
from time import monotonic

from pypmix.engine.common import COMMON, SOCKET_VARIABLE, URI_VARIABLES, EngineInfo
from pypmix.engine.python.client import ENGINE, Client, ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.standard import codes, keys
from pypmix.standard.errors import NotSupported, Unreachable
from pypmix.standard.releases import NEWEST, OLDEST_PEER, parse_release, release_text
from pypmix.standard.types import MAX_NSLEN, Info, Proc, Value, decimal
from pypmix.wire.additions import greeting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from pypmix.engine.base import Done
    from pypmix.engine.python.alone import Alone
    from pypmix.engine.python.client import Call
    from pypmix.standard._typing import TypeVar
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.ops import GroupState, Op
    from pypmix.standard.releases import Release
    from pypmix.wire.handshake import Hello

    R = TypeVar("R")

    class Connection(Protocol):
        """The driver of a client's machine; see `pypmix.engine.python.transport.Connection`."""

        def open(self, call: Call, /) -> None: ...

        def run(self, op: Op[Any], /) -> Any: ...

        def put(self, key: str, value: Value, scope: int, /) -> None: ...

        def submit(self, op: Op[Any], done: Done[Any], /) -> None: ...

        def fileno(self) -> int: ...

        def attach(self) -> None: ...

        def detach(self) -> None: ...

        def poll(self) -> None: ...

        def withdraw(self, done: Done[Any], /) -> bool: ...

        def close(self) -> None: ...

        def forked(self) -> None: ...

    Dial = Callable[[Client], Connection]

ENCODING = "v41"
STORE = "hash"

OPEN_WAIT = 60.0
"""Seconds that a server may take for the handshake and the job info; natives wait for ever."""

OURS = frozenset(("connect.nspace", "connect.directives"))
"""Features that only servers of this engine have."""

FEATURES: dict[str, Release] = {
    **dict.fromkeys(COMMON, OLDEST_PEER),
    "get.refresh": OLDEST_PEER,
    "get.pset_names": (5, 0, 0),
}
"""Features of this engine, each with the first release of a server that has it."""

_ALONE = (
    "put commit fence fence.collect fence.timeout get get.timeout get.immediate get.refresh query resolve_peers "
    "resolve_nodes events notify finalize"
)
_LONE = frozenset(_ALONE.split())
"""Features that need no server."""


class Session:
    """An open client; see `pypmix.engine.base.ClientSession`."""

    def __init__(self, machine: Client, connection: Connection | None) -> None:
        self.proc = machine.proc
        self.singleton = connection is None
        release = machine.release if machine.server else NEWEST
        self.info = EngineInfo(ENGINE, release_text(release))
        self.server = f"{machine.server.name} {release_text(release)}" if machine.server else ""
        self._machine = machine
        self._connection = connection
        if connection is None:
            from pypmix.engine.python.alone import Alone

            driver: Connection | Alone = Alone(machine)
        else:
            driver = connection
        # Each of these is on the way of many operations, and does nothing itself.
        self.submit: Callable[[Op[Any], Done[Any]], None] = driver.submit
        self.run: Callable[[Op[Any]], Any] = driver.run
        self.close: Callable[[], None] = driver.close
        self.put: Callable[[str, Value, int], None] = driver.put
        self.fetch_local: Callable[[Proc, str], Value | None] = machine.store.lookup

    def group_state(self, name: str) -> GroupState | None:
        groups = self._machine.groups
        if groups is None:
            return None
        state: GroupState | None = self._machine.read(groups.state, name)
        return state

    def fileno(self) -> int:
        return -1 if self._connection is None else self._connection.fileno()

    def attach(self) -> None:
        if self._connection is not None:
            self._connection.attach()

    def detach(self) -> None:
        if self._connection is not None:
            self._connection.detach()

    def poll(self) -> None:
        if self._connection is not None:
            self._connection.poll()

    def withdraw(self, done: Done[Any]) -> bool:
        return self._connection is not None and self._connection.withdraw(done)

    def supports(self, feature: str) -> bool:
        if self.singleton:
            return feature in _LONE
        if self._machine.slurm:
            from pypmix.engine.slurm import works as possible

            if not possible(feature):
                return False
        if feature.startswith("group.") or feature == "get.group_names":
            from pypmix.engine.groups.foreign.rules import works

            server = self._machine.server
            return works(feature, self._machine.release, server is not None and server.adapts)
        if feature in OURS:
            return self._machine.server is not None and self._machine.server.adapts
        return feature in FEATURES and self._machine.release >= FEATURES[feature]

    def forked(self) -> None:
        if self._connection is not None:
            self._connection.forked()


def open_client(
    env: Mapping[str, str] | None = None,
    directives: tuple[Info, ...] = (),
    *,
    dial: Dial | None = None,
    now: Callable[[], float] = monotonic,
) -> Session:
    """Open a client (`PMIx_Init`): connect to the server that the environment names, or be a singleton without one.

    Args:
        env: The environment from the launcher; by default the environment of this process.
        directives: `attrs.TIMEOUT` bounds the handshake, 60 s by default.
        dial: Connects a machine without a socket, in a simulation.
        now: The clock of time limits.

    Raises:
        Unreachable: The environment names a server that cannot be reached or refuses this process.
        NotSupported: This engine does not support the server's release or security module.
        OperationTimeout: The handshake took too long.
    """
    env = os.environ if env is None else env
    if "PMIX_NAMESPACE" not in env:
        return Session(singleton(env), None)
    proc = _identity(env)
    name, address = _address(env)
    server = ServerInfo(
        name,
        _release(env),
        2 if env.get("PMIX_BFROP_BUFFER_TYPE") == "PMIX_BFROP_BUFFER_FULLY_DESC" else 1,
        any(store in ("ds12", "ds21") for store in env.get("PMIX_GDS_MODULE", "").split(",")),
        adapts=adapts(env, name.rpartition(".")[0]),
    )
    hello = client_hello(env, proc, server)
    dial = dial or dialer(env, name, address)
    deadline = now() + (_limit(directives) or OPEN_WAIT)
    hostname = env.get("PMIX_HOSTNAME") or os.uname().nodename
    tries = 3
    while True:
        tries -= 1
        store = DataStore(proc, hostname, server.release)
        machine = Client(proc, store, server)
        connection = dial(machine)
        try:
            call = machine.connect(hello, deadline)
            connection.open(call)
        except BaseException:
            connection.close()
            raise
        assert call.outcome is not None
        error = call.outcome[1]
        if error is None:
            nspace, _, rank = name.rpartition(".")
            store.keep(keys.SERVER_NSPACE, Value.unchecked(codes.STRING, nspace))
            store.keep(keys.SERVER_RANK, Value.unchecked(codes.PROC_RANK, int(rank)))
            store.keep(keys.SERVER_URI, Value.unchecked(codes.STRING, f"{name};{address}"))
            session = Session(machine, connection)
            if machine.is_to_stop():
                from pypmix.engine.python.stopping import wait_for_release

                wait_for_release(session)
            return session
        connection.close()
        if not tries or not machine.misdirected:
            raise error


def dialer(env: Mapping[str, str], name: str, address: str) -> Dial:
    from pypmix.engine.peeruid import OWNER
    from pypmix.engine.python.transport import Connection, connect

    local = local_socket(env, f"{name};{address}")
    return lambda machine: Connection(connect(address, local, (), env.get(OWNER, "")), machine)


def singleton(env: Mapping[str, str], proc: Proc | None = None) -> Client:
    """Return the machine of a process without a server: a separate job of one proc."""
    hostname = env.get("PMIX_HOSTNAME") or os.uname().nodename
    proc = proc or Proc(f"singleton.{hostname}.{os.getpid()}"[:MAX_NSLEN], 0)
    store = DataStore(proc, hostname, NEWEST)
    store.add_job(lone_job(proc, hostname))
    return Client(proc, store, None)


def lone_job(proc: Proc, hostname: str) -> JobInfo:
    """Return the job info of a job of one proc."""
    from pypmix.standard.jobinfo import JobInfo

    nspace = proc.nspace
    one = Value.unchecked(codes.UINT32, 1)
    zero = Value.unchecked(codes.UINT32, 0)
    first = Value.unchecked(codes.UINT16, 0)
    rank = Value.unchecked(codes.PROC_RANK, proc.rank)
    host = Value.unchecked(codes.STRING, hostname)
    job = {
        keys.JOB_SIZE: one,
        keys.UNIV_SIZE: one,
        keys.MAX_PROCS: one,
        keys.NUM_NODES: one,
        keys.JOB_NUM_APPS: one,
        keys.JOBID: Value.unchecked(codes.STRING, nspace),
        keys.NODE_LIST: host,
    }
    node = {
        keys.HOSTNAME: host,
        keys.NODEID: zero,
        keys.LOCAL_SIZE: one,
        keys.NODE_SIZE: one,
        keys.LOCAL_PEERS: Value.unchecked(codes.STRING, str(proc.rank)),
        keys.LOCALLDR: rank,
    }
    app = {keys.APPNUM: zero, keys.APP_SIZE: one, keys.APPLDR: rank}
    own = {
        keys.RANK: rank,
        keys.GLOBAL_RANK: rank,
        keys.APP_RANK: rank,
        keys.APPNUM: zero,
        keys.LOCAL_RANK: first,
        keys.NODE_RANK: first,
        keys.NODEID: zero,
        keys.HOSTNAME: host,
    }
    return JobInfo(nspace, _infos(job), (_infos(node),), (_infos(app),), (), ((proc.rank, _infos(own)),))


def _infos(values: dict[str, Value]) -> tuple[Info, ...]:
    return tuple([Info.unchecked(key, value, 0) for key, value in values.items()])


def _identity(env: Mapping[str, str]) -> Proc:
    text = env.get("PMIX_RANK", "")
    rank = decimal(text)
    if rank is None:
        raise _bad_environment(f"PMIX_RANK={text!r:.40} is not a valid rank, although PMIX_NAMESPACE is set")
    try:
        if not env["PMIX_NAMESPACE"]:
            raise ValueError("it is empty")
        return Proc(env["PMIX_NAMESPACE"], rank)
    except ValueError as error:
        raise _bad_environment(f"PMIX_NAMESPACE is not a valid nspace: {error}") from None


def _address(env: Mapping[str, str]) -> tuple[str, str]:
    uri = next((env[name] for name in URI_VARIABLES if env.get(name)), None)
    if uri is None:
        raise _bad_environment("PMIX_NAMESPACE is set, but no PMIX_SERVER_URI* tells where the server is")
    name, _, address = uri.partition(";")
    nspace, _, rank = name.rpartition(".")
    if not nspace or decimal(rank) is None or not address:
        raise _bad_environment(f"{uri!r:.200} is not the address of a server (nspace.rank;tcp4://address:port)")
    return name, address.partition(";")[0]


def _bad_environment(detail: str) -> Unreachable:
    return Unreachable(
        detail, operation="open", engine=ENGINE, hint="unset PMIX_NAMESPACE to run without a server, as a singleton"
    )


def _release(env: Mapping[str, str]) -> Release:
    text = env.get("PMIX_VERSION", "")
    try:
        release = parse_release(text)
    except ValueError:
        release = (0, 0, 0)
    if release < OLDEST_PEER:
        said = f"release {text!r:.40}" if text else "no release (PMIX_VERSION is not set)"
        raise NotSupported(
            f"the server names {said}: an unsupported release; "
            f"this engine speaks to {release_text(OLDEST_PEER)} and later",
            operation="open",
            engine=ENGINE,
            hint="try PYPMIX_ENGINE=native",
        )
    return release


def _credential(offered: str) -> tuple[str, bytes]:
    """Return the first offered security module that this process has, and its credential."""
    lacking = ""
    for module in offered.split(","):
        if module == "native":
            from pypmix.wire.handshake import native_credential

            return module, native_credential(os.geteuid(), os.getegid())
        if module == "none":
            return module, b""
        if module == "munge":
            from pypmix.engine import munge

            try:
                return module, munge.encode()
            except NotSupported as error:
                lacking = f" ({error.detail})"
    raise NotSupported(
        f"the server offers the security modules {offered!r:.100}, of which none can be used here{lacking}",
        operation="open",
        engine=ENGINE,
        hint="this engine has native, munge and none; try PYPMIX_ENGINE=native",
    )


def client_hello(env: Mapping[str, str], proc: Proc, server: ServerInfo) -> Hello:
    """Return the hello of a client for the server that the environment names."""
    from pypmix._version import __version__
    from pypmix.wire.handshake import FLAG_CLIENT, Hello

    module, credential = _credential(env.get("PMIX_SECURITY_MODE") or "native")
    # Some servers fit their answers to the release that the client names, others do not: naming theirs suits both.
    version = env["PMIX_VERSION"][:64]
    ours = env.get("PYPMIX_SERVER", "").partition(" ")[0]
    infos = (greeting(__version__),) if ours and ours == server.name.rpartition(".")[0] else ()
    return Hello(
        module,
        credential,
        FLAG_CLIENT,
        None,
        None,
        proc[0],
        proc[1],
        version,
        ENCODING,
        server.buffer_type,
        STORE,
        infos,
    )


def adapts(env: Mapping[str, str], nspace: str) -> bool:
    """Return True if a server is of this engine, according to the environment."""
    return env.get("PYPMIX_SERVER", "").partition(" ")[0] == nspace and env.get("PYPMIX_SERVER_ENGINE") == ENGINE


def local_socket(env: Mapping[str, str], uri: str) -> str:
    """Return the path of the Unix-domain socket of the server at a URI, empty if the environment names none."""
    ours, _, path = env.get(SOCKET_VARIABLE, "").partition(" ")
    return path if ours == uri else ""


def _limit(directives: tuple[Info, ...]) -> int:
    for info in directives:
        if info.key == keys.TIMEOUT:
            return max(0, int(info.value.data))
    return 0
