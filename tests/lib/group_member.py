"""Members of groups at Python servers without sockets."""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.messages import Command, reply_layout, request_layout

ABORT = -165


OLD, MIDDLE, NEW = "4.2.2", "5.0.11", "7.0.0"


RELEASES = {OLD: (4, 2, 2), MIDDLE: (5, 0, 11), NEW: (7, 0, 0)}


ALL = Proc("job", RANK_WILDCARD)


def group_info(*infos, proc=None):
    first = () if proc is None else (Info("pmix.procid", Value(codes.PROC, proc)),)
    return Info("pmix.grp.info", Value(codes.DATA_ARRAY, DataArray(codes.INFO, (*first, *infos))))


def note(value):
    return Info("acme.note", Value(codes.STRING, value))


class Member:
    """A client of some release, and what it knows of groups."""

    def __init__(self, client, version=MIDDLE):
        self.client = client
        self.release = RELEASES[version]

    def ask(self, command, **fields):
        layout = request_layout(command, self.release)
        return self.client.send(layout.encode(1, self.release, **fields))

    def construct(self, *infos, name="g", procs=(ALL,)):
        return self.ask(Command.GROUP_CONSTRUCT, group=name, procs=procs, infos=infos)

    def destruct(self, *infos, name="g", members=()):
        fields = {"members": members} if self.release >= (4, 2, 4) else {}
        return self.ask(Command.GROUP_DESTRUCT, group=name, infos=infos, **fields)

    def result(self, tag):
        self.client.read()
        layout = reply_layout(Command.GROUP_CONSTRUCT, self.release)
        return layout.decode(self.client.replies[tag], 1, self.release)

    def status(self, tag):
        return self.client.status(tag)


def context(number):
    return Info("pmix.grp.ctxid", Value(codes.SIZE, number))
