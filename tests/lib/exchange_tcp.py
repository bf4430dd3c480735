"""Servers that are connected by TCP."""

from __future__ import annotations

from queue import SimpleQueue

SECRET = b"a secret of the session"


PATIENCE = 10


class Server:
    """A carrier, and what it is told."""

    def __init__(self, carrier):
        self.carrier = carrier
        self.told = SimpleQueue()
        self.started = False

    def start(self):
        self.started = True
        self.carrier.listen(lambda *what: self.told.put(what), lambda *what: self.told.put(what))
        return self

    def next(self, seconds=PATIENCE):
        return self.told.get(timeout=seconds)

    def send(self, *args):
        self.carrier.send(*args)
