"""The choice of the engine for a session.

`PYPMIX_ENGINE` (or the `engine` argument) is `python`, `native` or `auto`. A requested engine never falls back to the
other one. `auto` chooses the native engine if a library of the server's generation is found, because group operations
of native clients are compatible only within a generation, and the Python engine otherwise. It also chooses the Python
engine if this process can no longer open libpmix: most releases cannot be initialized a second time.

Under a server of pypmix, `auto` is the Python engine, which starts faster. The exception is a process that has loaded
libpmix, as MPI does, under a server on a libpmix: it uses only the library's connection, for the reason in the Python
engine's `Connection._part`.
"""

from __future__ import annotations

import os
from sys import modules

from pypmix.engine.common import URI_VARIABLES, has_libpmix
from pypmix.standard.errors import EngineUnavailable
from pypmix.standard.record import Record
from pypmix.standard.releases import generation, parse_release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.engine.base import ClientSession, OnUpcall, ServerSession, ToolSession
    from pypmix.engine.native.library import Availability, LibraryChoice
    from pypmix.engine.serving import ServerOptions
    from pypmix.standard.types import Info

ENGINES = ("auto", "native", "python")
SERVER_ENGINES = ("native", "python")
_URI_VARIABLES = sorted(URI_VARIABLES)


if TYPE_CHECKING:
    Opener = Callable[[str | None, Mapping[str, str] | None, tuple[Info, ...]], ClientSession | None]

opener: Opener | None = None
"""Opens the clients of simulated ranks of a test; `open_client` opens a client if it returns None."""


class Launcher(Record):
    """The variables of the server that launched this process; all empty for a process without a launcher."""

    nspace: str = ""
    rank: str = ""
    server: str = ""
    release: str = ""
    pypmix: str = ""
    gds: str = ""
    psec: str = ""
    buffer_type: str = ""
    uris: tuple[tuple[str, str], ...] = ()


class Choice(Record):
    """The chosen engine, the reason, and the native library that was found for it."""

    engine: str
    reason: str
    native: LibraryChoice | None = None


class Report(Record):
    """The findings and the decision of `choose` in an environment, for a person to read.

    Args:
        launcher: The variables of the server.
        native: The native engine, with every examined library.
        missing: Why this installation has no native engine; empty if it has one.
        choice: The engine that a client would use; None if it would fail.
        trouble: Why it would fail.
    """

    launcher: Launcher
    native: Availability
    missing: str = ""
    choice: Choice | None = None
    trouble: str = ""


def owners_trouble() -> str:
    """Return why the kernel does not report the user of a connection to servers and clients; empty if it does."""
    from pypmix.engine.peeruid import Owners

    owners = Owners()
    try:
        owners.probe()
        return owners.trouble
    finally:
        owners.close()


def launcher(env: Mapping[str, str] | None = None) -> Launcher:
    """Read the variables that a PMIx server has set for its client."""
    env = os.environ if env is None else env
    # In the order of their names. A lookup of each is cheaper than a search of all variables.
    uris = tuple([(name, uri) for name in _URI_VARIABLES if (uri := env.get(name)) is not None])
    server = uris[0][1].partition(";")[0] if uris else ""
    nspace, _, version = env.get("PYPMIX_SERVER", "").partition(" ")
    return Launcher(
        nspace=env.get("PMIX_NAMESPACE", ""),
        rank=env.get("PMIX_RANK", ""),
        server=server,
        release=env.get("PMIX_VERSION", ""),
        pypmix=version if nspace and nspace == server.rpartition(".")[0] else "",
        gds=env.get("PMIX_GDS_MODULE", ""),
        psec=env.get("PMIX_SECURITY_MODE", ""),
        buffer_type=env.get("PMIX_BFROP_BUFFER_TYPE", ""),
        uris=uris,
    )


def requested(engine: str | None, env: Mapping[str, str]) -> str:
    """Return the engine that the argument or the environment requests, by default `auto`.

    Raises:
        ValueError: It is not an engine.
    """
    name = engine or env.get("PYPMIX_ENGINE") or "auto"
    if name not in ENGINES:
        source = "engine" if engine else "PYPMIX_ENGINE"
        raise ValueError(f"{source}={name!r} is not an engine: it is one of {', '.join(ENGINES)}")
    return name


def choose(engine: str | None = None, env: Mapping[str, str] | None = None) -> Choice:
    """Choose the engine of a client in this environment, without opening it.

    Raises:
        EngineUnavailable: The native engine was requested and cannot be used.
        ValueError: The requested engine does not exist.
    """
    env = os.environ if env is None else env
    name = requested(engine, env)
    if name == "python":
        return Choice("python", "requested")
    if name == "native":
        return _native(env)
    here = launcher(env)
    if not here.nspace:
        return Choice("python", "no server launched this process, so there is none to match")
    if here.pypmix and not (env.get("PYPMIX_SERVER_ENGINE") == "native" and has_libpmix()):
        return Choice("python", f"the server is pypmix {here.pypmix}")
    try:
        wanted = generation(parse_release(here.release))
    except ValueError:
        return Choice("python", "the server does not tell its release (PMIX_VERSION)")
    found = _find(env, wanted)
    if isinstance(found, str):
        return Choice("python", found)
    if found.library is None:
        return Choice("python", f"no libpmix of the server's generation {wanted} was found", found)
    opened = modules.get("pypmix.engine.native.session")
    reason = "" if opened is None else opened.refusal(found.library)
    if reason:
        return Choice("python", reason, found)
    return Choice("native", f"{found.library.path} is of the server's generation {wanted}", found)


def _find(env: Mapping[str, str], generation_name: str | None) -> LibraryChoice | str:
    from pypmix.engine import native

    if native.missing:
        return native.missing
    from pypmix.engine.native.library import find_library

    return find_library(env, generation_name)


def _native(env: Mapping[str, str]) -> Choice:
    found = _find(env, None)
    if isinstance(found, str):
        raise EngineUnavailable(
            f"the native engine was requested and cannot be used: {found}",
            operation="open",
            hint="run `pypmix doctor`, or set PYPMIX_ENGINE=python",
        )
    if found.library is None:
        refused = "; ".join(f"{refusal.path}: {refusal.reason}" for refusal in found.refused)
        raise EngineUnavailable(
            f"the native engine was requested and no usable libpmix was found ({refused or 'no candidates'})",
            operation="open",
            hint="name one with PYPMIX_LIBPMIX=/path/to/libpmix.so.2, or set PYPMIX_ENGINE=python",
        )
    return Choice("native", "requested", found)


def report(env: Mapping[str, str] | None = None) -> Report:
    """Examine everything that `choose` may examine, without loading or changing anything."""
    from pypmix.engine import native
    from pypmix.engine.native.library import availability

    env = os.environ if env is None else env
    choice, trouble = None, ""
    try:
        choice = choose(None, env)
    except EngineUnavailable as error:
        trouble = error.detail
    except ValueError as error:
        trouble = str(error)
    return Report(launcher(env), availability(env), native.missing, choice, trouble)


def open_client(
    engine: str | None = None,
    env: Mapping[str, str] | None = None,
    directives: tuple[Info, ...] = (),
) -> ClientSession:
    """Open a client session on the engine that `choose` returns.

    Args:
        engine: `python`, `native` or `auto`; None for the value of `PYPMIX_ENGINE`.
        env: The environment from the launcher; by default that of this process.
        directives: Infos for `PMIx_Init`.

    Raises:
        EngineUnavailable: The requested engine cannot be used here.
        Unreachable: There is a server, but it cannot be reached or refuses this process.
    """
    if opener is not None:
        session = opener(engine, env, directives)
        if session is not None:
            return session
    env = os.environ if env is None else env
    choice = choose(engine, env)
    if choice.engine == "python":
        from pypmix.engine.python.session import open_client as open_python

        return open_python(env, directives)
    from pypmix.engine.native.session import open_client as open_native

    assert choice.native is not None and choice.native.library is not None
    return open_native(env, choice.native.library, directives)


def open_tool(
    engine: str | None = None,
    env: Mapping[str, str] | None = None,
    directives: tuple[Info, ...] = (),
) -> ToolSession:
    """Open a tool session.

    Args:
        engine: `python`, `native` or `auto`, which is `python` here; None for the value of `PYPMIX_ENGINE`.
        env: The environment that names servers; by default that of this process.
        directives: Infos for `PMIx_tool_init`.

    Raises:
        EngineUnavailable: The requested engine cannot be used here.
        Unreachable: The server does not exist, or refuses this tool.
        TypeError, ValueError: The directives are invalid.
    """
    env = os.environ if env is None else env
    if requested(engine, env) == "native":
        choice = _native(env)
        from pypmix.engine.native.tool import open_tool as open_native

        assert choice.native is not None and choice.native.library is not None
        return open_native(env, choice.native.library, directives)
    from pypmix.engine.python.toolsession import open_tool as open_python

    return open_python(env, directives)


def open_server(on_upcall: OnUpcall, engine: str = "python", options: ServerOptions | None = None) -> ServerSession:
    """Start a server of this node.

    Args:
        on_upcall: Called with each request to the host, in the engine's thread; it must not block.
        engine: `python` or `native`.
        options: Its options; None for the defaults.

    Raises:
        EngineUnavailable: The native engine cannot serve here.
        ValueError: The engine does not exist.
    """
    if engine not in SERVER_ENGINES:
        raise ValueError(f"engine={engine!r} runs no server: it is one of {', '.join(SERVER_ENGINES)}")
    from pypmix.engine.serving import ServerOptions as Options

    options = options or Options()
    if engine == "native":
        choice = _native({**os.environ, "PYPMIX_LIBPMIX": options.library} if options.library else os.environ)
        from pypmix.engine.native.serversession import open_server as open_native

        assert choice.native is not None and choice.native.library is not None
        return open_native(on_upcall, options, choice.native.library)
    from pypmix.engine.python.serversession import ServerSession as PythonServer

    return PythonServer(on_upcall, options)
