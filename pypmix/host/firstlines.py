"""The first lines that a launcher and the daemon of a node exchange, before they are connected.

The launcher writes one line to the daemon's standard input (`bootstrap`); the daemon answers with one line on its
standard output when it is ready, or with the reason why it is not.
"""

from __future__ import annotations

import json

from pypmix._version import __version__
from pypmix.engine.times import KEEP_ALIVE_SECONDS
from pypmix.host.orders import PROTOCOL
from pypmix.host.terms import GRACE
from pypmix.standard.errors import PMIxError
from pypmix.standard.logtext import printable
from pypmix.standard.record import Record
from pypmix.topology.shape import Shape


class Orders(Record):
    """The first line that a daemon is given.

    Args:
        node: The daemon's name.
        session: The beginning of the nspaces of the session's jobs.
        secret: The secret that all servers of the session share.
        launcher: The launcher's name among them, and its addresses, to try in order.
        number: The node's place among the nodes.
        interface: The network to listen on: a name, an address or a CIDR; empty for the network to the launcher.
        env: Variables to add to the environment of ranks.
        folder: The parent of its folder; empty for TMPDIR.
        wdir: The folder in which ranks run, if it exists here.
        grace: Seconds that ranks have between SIGTERM and SIGKILL.
        keep_alive: Seconds after which another server that does not answer is lost.
        encrypt: See `TCPCarrier`.
        relayed: Whether a relay has started it, which may be lost without the launcher.
        warm: The modules that warm ranks have imported already; None if ranks are not warm.
        trace: Whether the launcher writes a trace.
        connection: The descriptor of a connection to the launcher (`pypmix.host.exchange.bridge`), made by the process
            that starts the daemon; -1 if servers are connected by TCP.
    """

    node: str
    session: str
    secret: bytes
    launcher: tuple[str, tuple[tuple[str, int], ...]]
    number: int = 0
    interface: str = ""
    env: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    wdir: str = ""
    grace: float = GRACE
    keep_alive: float = KEEP_ALIVE_SECONDS
    encrypt: bool | None = None
    relayed: bool = False
    warm: tuple[str, ...] | None = None
    trace: bool = False
    connection: int = -1


class Ready(Record):
    """A daemon that is ready."""

    name: str
    pid: int
    cpus: int
    hostname: str
    version: str
    shape: Shape | None = None


NO_INPUT = (
    "no launcher's line comes on its standard input: the command that starts daemons has to pass that on, "
    "as ssh does without -n, and kubectl exec with -i"
)


def bootstrap(settings: Orders) -> bytes:
    """Return the first line for a daemon. It holds a secret: it must not be in a command line or a file."""
    line = {
        "version": __version__,
        "protocol": PROTOCOL,
        "session": settings.session,
        "node": settings.node,
        "secret": settings.secret.hex(),
        "launcher": [settings.launcher[0], [list(address) for address in settings.launcher[1]]],
        "number": settings.number,
        "interface": settings.interface,
        "env": dict(settings.env),
        "folder": settings.folder,
        "wdir": settings.wdir,
        "grace": settings.grace,
        "keep_alive": settings.keep_alive,
        "encrypt": settings.encrypt,
        "warm": settings.warm,
        "trace": settings.trace,
    }
    return json.dumps(line).encode() + b"\n"


def read_orders(line: bytes) -> Orders:
    """Parse the first line.

    Raises:
        ValueError: It is not a line of a launcher of this version; the text is for a person.
    """
    if not line.strip():
        raise ValueError(NO_INPUT)
    try:
        found = json.loads(line)
        version, protocol = str(found["version"]), found["protocol"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"the first line on standard input is not that of a launcher ({type(error).__name__})"
        ) from None
    if protocol != PROTOCOL or version != __version__:
        raise ValueError(
            f"the launcher has pypmix {version} (protocol {protocol}), "
            f"and this node has {__version__} (protocol {PROTOCOL}): all nodes need the same"
        )
    try:
        name, addresses = found["launcher"]
        return Orders(
            _text(found["node"]),
            _text(found["session"]),
            bytes.fromhex(found["secret"]),
            (_text(name), tuple([(_text(host), int(port)) for host, port in addresses])),
            int(found.get("number", 0)),
            _text(found["interface"]),
            tuple([(_text(key), _text(value)) for key, value in found["env"].items()]),
            _text(found["folder"]),
            _text(found.get("wdir", "")),
            float(found.get("grace", GRACE)),
            float(found.get("keep_alive", KEEP_ALIVE_SECONDS)),
            None if found.get("encrypt") is None else bool(found["encrypt"]),
            found.get("relayed") is True,
            None if found.get("warm") is None else tuple([_text(name) for name in found["warm"]]),
            found.get("trace") is True,
            int(found.get("connection", -1)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # Not the value itself: it may be the secret.
        raise ValueError(f"the launcher's line lacks something, or has it wrong ({type(error).__name__})") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return value


ECHO = b'"secret"'
"""Precedes the secret in the launcher's line."""


def first_line(output: bytes) -> tuple[bytes, bytes, bytes]:
    """Divide the output of a node.

    Returns:
        Other text before the daemon's first line, as a shell's start-up files print it; the line, empty until it is
        complete; and the text after it.
    """
    begin = 0 if output.startswith(b'{"') else output.find(b'\n{"') + 1 or len(output)
    end = output.find(b"\n", begin)
    return (output, b"", b"") if end < 0 else (output[:begin], output[begin:end], output[end + 1 :])


def read_ready(line: bytes, node: str) -> Ready:
    """Parse the line with which a daemon reports that it is ready.

    Args:
        line: Its first line; empty if it has ended without one.
        node: The node, for the error.

    Raises:
        PMIxError: It is not ready; the text gives the reason.
    """
    if not line:
        raise PMIxError(
            f"node {node}: its daemon has ended without a word",
            hint="does `python -m pypmix --version` run there? Its standard error may say more",
        )
    if ECHO in line:
        raise PMIxError(
            f"node {node}: what is sent to its daemon comes back",
            hint="the command that starts daemons has to use no terminal there, as ssh does with -T, and kubectl exec "
            "without -t",
        )
    try:
        found = json.loads(line)
        if not isinstance(found, dict):
            raise TypeError("no object")
    except (ValueError, TypeError, RecursionError):
        raise PMIxError(
            f"node {node}: something else than a daemon answers: {printable(line[:200].decode(errors='replace'))}",
            hint="does the command that starts daemons run `python -m pypmix node` there?",
        ) from None
    if "error" in found:
        raise PMIxError(f"node {node}: {printable(str(found['error']))}")
    version = str(found.get("version", ""))
    if version != __version__:
        raise PMIxError(f"node {node} has pypmix {version or 'of an unknown version'}, and this is {__version__}")
    try:
        shape = Shape.read(_text(found["shape"])) if found.get("shape") else None
        return Ready(
            _text(found["ready"]), int(found["pid"]), int(found["cpus"]), _text(found["hostname"]), version, shape
        )
    except (KeyError, TypeError, ValueError):
        raise PMIxError(f"node {node}: what its daemon answers is incomplete") from None
