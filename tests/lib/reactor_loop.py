"""A reactor that runs on a thread of its own."""

from __future__ import annotations

import socket
import threading

from pypmix.engine.python.reactor import Reactor

WAIT = 10


class Owner:
    """Keeps what comes; echoes it where told to."""

    def __init__(self, link, echo=False):
        self.link = link
        self.data = b""
        self.came = threading.Event()
        self.ended = threading.Event()
        self.emptied = threading.Event()
        self.reason = None
        self.echo = echo

    def received(self, data):
        self.data += data
        if self.echo:
            self.link.send(data)
        self.came.set()

    def drained(self):
        self.emptied.set()

    def handle_disconnect(self, reason=""):
        self.reason = reason
        self.ended.set()


class Loop:
    """A reactor with a listener, and the connections that it accepted."""

    def __init__(self, echo=False):
        self.log = []
        self.owners = []
        self.accepted = threading.Semaphore(0)
        self.reactor = Reactor("loop", self.log.append)
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = listener.getsockname()
        self.echo = echo
        self.reactor.listen(listener, self.opened)
        self.reactor.start()

    def opened(self, link):
        link.owner = Owner(link, self.echo)
        self.owners.append(link.owner)
        self.accepted.release()

    def connect(self):
        client = socket.create_connection(self.address, timeout=WAIT)
        assert self.accepted.acquire(timeout=WAIT)
        return client, self.owners[-1]
