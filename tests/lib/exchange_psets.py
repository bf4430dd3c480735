"""Servers that tell each other of process sets."""

from __future__ import annotations

from pypmix.engine.psets import new_pset
from pypmix.standard.errors import NotFound


class Server:
    """A server's process sets; it knows the job where it was told so."""

    def __init__(self, knows=True):
        self.sets = {}
        self.knows = knows
        self.told = []

    def define_process_set(self, name, members, *, elsewhere=False):
        def ranks(nspace):
            return range(4) if self.knows and nspace == "job" else None

        self.sets[name] = tuple(new_pset(name, members, self.sets, ranks, elsewhere))
        self.told.append(("define", name))

    def delete_process_set(self, name):
        if self.sets.pop(name, None) is None:
            raise NotFound("none")
        self.told.append(("delete", name))
