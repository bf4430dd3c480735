"""Test, before daemons are started, whether the nodes of an engine reach each other and the launcher.

Each node listens on the interface of its future daemon, and the launcher listens too. Then each node dials the launcher
and all other nodes. Connections are made and closed; nothing is sent.
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
"""The maximum number of seconds that a node listens, since a lost launcher does not stop it."""

SILENCE = 15.0
"""Seconds without an answer of any node after which the wait for the others ends."""

AT_A_TIME = 256
"""The maximum number of concurrent connection attempts, and of concurrent calls to nodes."""


class Probe:
    """A listener that accepts connections and closes them at once."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None

    def offer(self, interface: str, launcher: Sequence[Address]) -> Address | str:
        """Listen at a daemon's address; return it, or the reason why the launcher cannot be reached from here.

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
        """Stop listening."""
        if self._listener is not None:
            # The accepting thread closes the socket.
            hang_up(self._listener)
            self._listener = None


def unreached(places: Sequence[Sequence[Address]], seconds: float = REACH_SECONDS) -> list[int]:
    """Return the indexes in `places` of the processes that cannot be reached.

    Args:
        places: The addresses of each process; a process is reached if one of its addresses is.
        seconds: The timeout of an attempt.
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
    """Return sockets with a connection attempt in progress, one for each resolved address that allows an attempt."""
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
    """Return a text with a node and another that it does not reach; empty if all reach all, or if the test fails.

    Args:
        names: The names of the nodes.
        call: Calls a method of the agent of a node (`agent.Agent`).
        addresses: The launcher's addresses.
        interface: The interface that daemons listen on, as the user gave it.
    """
    probe = Probe()
    offers: dict[str, Any] = {}
    try:
        _, port = probe.listen(ANYWHERE)
        places = [(host, port) for host in addresses]
        offers = _call_each([(name, "offer", interface, places) for name in names], call)
        for name, offer in offers.items():
            if isinstance(offer, str):
                return f"{name}: {offer}"
        known = [(name, tuple(offers[name])) for name in names if offers.get(name) is not None]
        reached = {
            name: [("this program", places), *[(each, [place]) for each, place in known if each != name]]
            for name, _ in known
        }
        missed = _call_each([(name, "reach", [place for _, place in reached[name]]) for name, _ in known], call)
        for name, numbers in missed.items():
            for number in numbers or ():
                other, (place, *_) = reached[name][number]
                return f"{name} does not reach {other} at {with_port(*place)}"
    finally:
        probe.close()
        _call_each([(name, "rest") for name in offers], call)
    return ""


def _call_each(calls: Sequence[tuple[Any, ...]], call: Callable[..., Any]) -> dict[str, Any]:
    """Call nodes concurrently; return their results, None for a call that fails: its cause is reported later.

    If no node answers for `SILENCE` seconds, such as with a stopped engine, the nodes without an answer are left out. A
    node that answers later is asked to stop listening.
    """
    finished = threading.Event()
    answers: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def make() -> None:
        while True:
            try:
                name, *arguments = left.pop()
            except IndexError:
                return
            try:
                answers.put((name, call(name, *arguments)))
                if finished.is_set():
                    call(name, "rest")
            except Exception:
                answers.put((name, None))

    left = list(calls)
    for _ in range(min(len(calls), AT_A_TIME)):
        threading.Thread(target=make, daemon=True).start()
    results: dict[str, Any] = {}
    try:
        for _ in calls:
            name, answer = answers.get(timeout=SILENCE)
            results[name] = answer
    except Empty:
        left.clear()
        finished.set()
    return results
