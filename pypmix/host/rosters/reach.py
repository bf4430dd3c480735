"""Whether the nodes of an engine reach each other, and the launcher: tried before their daemons are started.

Each node listens where its daemon would, and so does the launcher. Then each node dials the launcher and all other
nodes. Connections are made and closed, nothing is sent.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
import time
from queue import Empty, SimpleQueue

from pypmix.host.addresses import (
    ANYWHERE,
    REACH_SECONDS,
    connections,
    hang_up,
    listen,
    listening_address,
    with_port,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pypmix.host.addresses import Address

LISTEN_SECONDS = 300.0
"""Seconds that a node listens at most: a launcher that is lost does not end it."""

SILENCE = 15.0
"""Seconds without an answer of any node after which the others are not waited for."""

AT_A_TIME = 256
"""The most connections that are tried at a time, and the most nodes that are asked."""


class Probe:
    """Listens, and takes connections that it closes."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None

    def offer(self, interface: str, launcher: Sequence[Address]) -> Address | str:
        """Listen where a daemon would; return the address, or why the launcher cannot be reached from here.

        Raises:
            OSError: There is no such interface.
        """
        try:
            return self.listen(listening_address(interface, launcher))
        except OSError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return error.strerror or str(error)

    def listen(self, host: str) -> Address:
        """Listen on an address; return it."""
        self._listener = listen((host, 0))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        found: Address = self._listener.getsockname()[:2]
        return found

    @staticmethod
    def _accept(listener: socket.socket) -> None:
        with listener:
            for connection in connections(listener, LISTEN_SECONDS):
                connection.close()

    def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            # The thread that waits there closes it.
            hang_up(self._listener)
            self._listener = None


def unreached(places: Sequence[Sequence[Address]], seconds: float = REACH_SECONDS) -> list[int]:
    """Return which of some processes cannot be reached, by their places in a list of their addresses.

    Args:
        places: The addresses of each; it is reached if one of them is.
        seconds: How long an attempt may take.
    """
    found: list[int] = []
    for begin in range(0, len(places), AT_A_TIME):
        found += [begin + each for each in _unreached(places[begin : begin + AT_A_TIME], seconds)]
    return found


def _unreached(places: Sequence[Sequence[Address]], seconds: float) -> list[int]:
    left = dict.fromkeys(range(len(places)))
    with selectors.DefaultSelector() as selector:
        for place, addresses in enumerate(places):
            for host, port in addresses:
                for sock in _dialed(host, port):
                    selector.register(sock, selectors.EVENT_WRITE, (place, sock))
        deadline = time.monotonic() + seconds
        while left and selector.get_map() and (rest := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(rest):
                place, sock = key.data
                selector.unregister(sock)
                if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    left.pop(place, None)
                sock.close()
        for key in list(selector.get_map().values()):
            key.data[1].close()
    return list(left)


def _dialed(host: str, port: int) -> list[socket.socket]:
    """Return sockets that are on their way to an address."""
    made = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        if sock.connect_ex(address) in (0, errno.EINPROGRESS):
            made.append(sock)
        else:
            sock.close()
    return made


def apart(names: Sequence[str], call: Callable[..., Any], addresses: Sequence[str], interface: str = "") -> str:
    """Say who does not reach whom, for a person; return nothing if all reach all, or where that cannot be found out.

    Args:
        names: The names of the nodes.
        call: Has the agent of a node (`agent.Agent`) carry out a method.
        addresses: By which the launcher may be reached.
        interface: What daemons listen on, as the user has said it.
    """
    probe = Probe()
    offers: dict[str, Any] = {}
    try:
        _, port = probe.listen(ANYWHERE)
        places = [(host, port) for host in addresses]
        offers = _each([(name, "offer", interface, places) for name in names], call)
        for name, offer in offers.items():
            if isinstance(offer, str):
                return f"{name}: {offer}"
        known = [(name, tuple(offers[name])) for name in names if offers.get(name) is not None]
        reached = {
            name: [("this program", places), *[(each, [place]) for each, place in known if each != name]]
            for name, _ in known
        }
        missed = _each([(name, "reach", [place for _, place in reached[name]]) for name, _ in known], call)
        for name, numbers in missed.items():
            for number in numbers or ():
                other, (place, *_) = reached[name][number]
                return f"{name} does not reach {other} at {with_port(*place)}"
    finally:
        probe.close()
        _each([(name, "rest") for name in offers], call)
    return ""


def _each(calls: Sequence[tuple[Any, ...]], call: Callable[..., Any]) -> dict[str, Any]:
    """Make calls of nodes at a time; return their results, None where one fails: what is wrong there shows later.

    Nodes that do not answer are left out, when none has answered for long, as those whose engine is stopped. One that
    answers later is told to listen no more.
    """
    over = threading.Event()
    answers: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def make() -> None:
        while True:
            try:
                name, *arguments = left.pop()
            except IndexError:
                return
            try:
                answers.put((name, call(name, *arguments)))
                if over.is_set():
                    call(name, "rest")
            except Exception:
                answers.put((name, None))

    left = list(calls)
    for _ in range(min(len(calls), AT_A_TIME)):
        threading.Thread(target=make, daemon=True).start()
    found: dict[str, Any] = {}
    try:
        for _ in calls:
            name, answer = answers.get(timeout=SILENCE)
            found[name] = answer
    except Empty:
        left.clear()
        over.set()
    return found
