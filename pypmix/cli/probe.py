"""The program that `pypmix doctor` runs on nodes; its source is sent there, so it needs a Python 3.7 and nothing else.

It reads lines of JSON, a question each, and answers with a line for each until its input ends.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import selectors
import socket
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARK = "pypmix-doctor: "
"""The prefix of each answer: the output of a shell's start-up files arrives on the same stream."""

STATEMENT = b"pypmix doctor"
"""The payload of a credential of munge."""


def facts(request: dict[str, Any], listening: list[socket.socket]) -> dict[str, Any]:
    """Return facts about this node; keep the sockets on which it listens for the others until the end."""
    answers: dict[str, Any] = {
        "hostname": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "cpus": len(os.sched_getaffinity(0)),
        "tmpdir": os.environ.get("TMPDIR") or tempfile.gettempdir(),
        "uid": os.geteuid(),
    }
    try:
        import pypmix

        answers["pypmix"] = pypmix.__version__
        answers["pypmix_path"] = os.path.dirname(str(pypmix.__file__))
    except Exception as error:
        answers["no_pypmix"] = str(error) or type(error).__name__
    try:
        handle, path = tempfile.mkstemp(prefix="pypmix-doctor-", dir=answers["tmpdir"])
        os.close(handle)
        os.unlink(path)
    except OSError as error:
        answers["tmpdir_trouble"] = error.strerror or str(error)
    answers["wdir"] = os.path.isdir(request["wdir"])
    answers["shared"] = os.path.exists(request["mark"]) if request["mark"] else None
    answers["unresolved"] = [name for name in request["names"] if not resolves(name)]
    answers["loopback"] = loopback(answers["hostname"])
    if request["munge"]:
        answers["munge"], answers["munge_trouble"] = munge()
    address, answers["no_route"] = towards(request["launcher"])
    named, answers["no_interface"] = on_interface(request["interface"])
    address = named or address
    try:
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        listening.append(listener)
        listener.bind((address, 0))
        listener.listen(128)
        answers["listens"] = listener.getsockname()[:2]
    except OSError as error:
        answers["listen_trouble"] = error.strerror or str(error)
    return answers


def resolves(name: str) -> bool:
    """Return True if a name has an address here."""
    try:
        return bool(socket.getaddrinfo(name, 9, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False


def loopback(name: str) -> bool:
    """Return True if a name has only addresses of the loopback interface."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, 9, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(address.startswith("127.") or address == "::1" for address in found)


def munge() -> tuple[str, str]:
    """Return a credential of munge, or the error instead."""
    try:
        from pypmix.engine.munge import seal

        return seal(STATEMENT, socket=os.environ.get("PYPMIX_MUNGE_SOCKET", "")).decode("ascii"), ""
    except Exception as error:
        return "", str(error) or type(error).__name__


def on_interface(interface: str) -> tuple[str, str]:
    """Return this node's address on a network interface, empty if none is named, and the error if it has none."""
    if not interface:
        return "", ""
    try:
        from pypmix.host.addresses import listening_address
    except ImportError:
        # This is reported separately.
        return "", ""
    try:
        return listening_address(interface, ()), ""
    except OSError as error:
        return "", error.strerror or str(error)


def towards(places: list[tuple[str, int]]) -> tuple[str, str]:
    """Return this node's address on the route to the first place that has one, or else the error."""
    trouble = "there is no address to dial"
    for host, port in places:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:
            trouble = f"{host}: {getattr(error, 'strerror', '') or error}"
            continue
        for family, kind, _, _, address in found:
            try:
                with socket.socket(family, kind) as probe:
                    # Nothing is sent: the system only looks for the route.
                    probe.connect(address)
                    return str(probe.getsockname()[0]), ""
            except OSError as error:
                trouble = f"{host}: {error.strerror or error}"
    return "0.0.0.0", trouble


def lines(host: str, port: int) -> list[socket.socket]:
    """Dial all addresses of a name; raise `OSError` if none can be dialed."""
    found = []
    code = 0
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            line = socket.socket(family, kind)
        except OSError as error:
            # This kernel does not support such addresses.
            code = error.errno or errno.EAFNOSUPPORT
            continue
        line.setblocking(False)
        failed = line.connect_ex(address)
        if failed in (0, errno.EINPROGRESS):
            found.append(line)
        else:
            line.close()
            code = failed
    if code and not found:
        raise OSError(code, os.strerror(code))
    return found


def dial(request: dict[str, Any], node: str) -> dict[str, str]:
    """Dial others, and return for each the reason why it is not reached; empty if it is.

    Each has several addresses, of which one is enough.

    Args:
        request: The question: `to` has the others of each node that reads it, by the node's name. A node that is the
            only reader may have another name here.
        node: The name of this node.
    """
    troubles: dict[str, str] = {}
    dialing = selectors.DefaultSelector()
    others = request["to"]
    for name, places in (others[node] if node in others else next(iter(others.values()))).items():
        troubles[name] = "no answer"
        for host, port in places:
            try:
                for line in lines(host, port):
                    dialing.register(line, selectors.EVENT_WRITE, name)
            except (OSError, UnicodeError) as error:
                troubles[name] = getattr(error, "strerror", "") or str(error)
    deadline = time.monotonic() + request["seconds"]
    while dialing.get_map() and time.monotonic() < deadline and any(troubles.values()):
        for key, _ in dialing.select(max(0.0, deadline - time.monotonic())):
            line = key.fileobj  # type: ignore[assignment]
            code = line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not code:
                troubles[key.data] = ""
            elif troubles[key.data]:
                troubles[key.data] = os.strerror(code)
            dialing.unregister(line)
            line.close()
    for key in list(dialing.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    return troubles


def main() -> None:
    """Answer questions until the input ends."""
    listening: list[socket.socket] = []
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"node": name, "asked": request["ask"]}
        if request["ask"] == "facts":
            answer.update(facts(request, listening))
        elif request["ask"] == "time":
            answer["time"] = time.time()
        else:
            answer["troubles"] = dial(request, name)
        sys.stdout.write(MARK + json.dumps(answer) + "\n")
        sys.stdout.flush()
