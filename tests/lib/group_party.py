"""Parties of clients that make groups, on one server and on several."""

from __future__ import annotations

from lib.group_member import NEW, Member
from lib.server_cluster import Cluster
from lib.server_world import Client, World
from pypmix.engine.groups import talk
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.enums import Range
from pypmix.standard.errors import NotSupported
from pypmix.standard.ops.hosting import (
    FenceUpcall,
    GroupUpcall,
)
from pypmix.standard.types import RANK_WILDCARD, DataArray, Proc, Query
from pypmix.wire.additions import encode_withdrawal, greeting
from pypmix.wire.frames import TAG_NOTIFY
from pypmix.wire.messages import EVENT, Command, reply_layout, request_layout

EVENTS = (*range(-170, -158), statuses.TALK)


EVERYONE = Proc("g", RANK_WILDCARD)


OPTIONAL = attrs.GROUP_OPTIONAL(True)


NOTIFY = attrs.GROUP_NOTIFY_TERMINATION(True)


TOLERANT = attrs.GROUP_FT_COLLECTIVE(True)


LEAD = attrs.GROUP_LEADER(True)


REACTS = talk.flag(talk.REACTS)


def job(*ranks):
    return tuple([Proc("job", rank) for rank in ranks])


class Party(World):
    """A server whose host cares for no groups, and its clients, each with what it hears of groups."""

    def __init__(self, size, *versions, pypmix=True):
        super().__init__(size)
        infos = (greeting("1"),) if pypmix else ()
        versions = versions or (NEW,) * size
        self.members = [
            Member(Client(self, rank, version=version, infos=infos).connect(), version)
            for rank, version in enumerate(versions)
        ]
        for member in self.members:
            layout = request_layout(Command.REGEVENTS, member.release)
            member.client.send(layout.encode(1, member.release, codes=list(EVENTS), infos=()))

    def upcall(self, op, answer, process=None):
        self.upcalls.append(op)
        if isinstance(op, GroupUpcall):
            answer(None, NotSupported("no groups"))
        else:
            answer(None, None)

    def construct(self, *ranks, infos=(), name="g", procs=None):
        procs = procs or job(*range(len(self.members)))
        return [
            self.members[rank].construct(*infos, name=name, procs=procs) for rank in ranks or range(len(self.members))
        ]

    def made(self, name="g", infos=()):
        tags = self.construct(name=name, infos=infos)
        assert self.statuses(tags) == [statuses.SUCCESS] * len(tags)

    def statuses(self, tags, ranks=None):
        ranks = ranks or range(len(tags))
        return [self.members[rank].status(tag) for rank, tag in zip(ranks, tags, strict=True)]

    def heard(self, rank):
        """Return the events that a client has got since it was asked last: code and affected proc or leader."""
        client, release = self.members[rank].client, self.members[rank].release
        client.read()
        found = []
        for tag, payload in client.pushed:
            assert tag == TAG_NOTIFY
            event = EVENT.decode(payload, 1, release)
            infos = {info.key: info.value.data for info in event["infos"]}
            found.append((event["code"], infos.get(keys.EVENT_AFFECTED_PROC) or infos.get(keys.GROUP_LEADER)))
        client.pushed.clear()
        return found

    def notify(self, rank, code, *infos, range=Range.CUSTOM, to=EVERYONE, group="g"):
        if range == Range.CUSTOM:
            infos = (attrs.EVENT_CUSTOM_RANGE(to), *infos)
        infos = (talk.text(keys.GROUP_ID, group), *infos)
        return self.members[rank].ask(Command.NOTIFY, code=code, range=range, infos=infos)

    def react(self, rank, failed, verdict):
        said = (talk.text(talk.SAYS, talk.REACTION), talk.proc(keys.EVENT_AFFECTED_PROC, failed))
        self.notify(rank, statuses.TALK, *said, talk.text(talk.VERDICT, verdict), range=Range.LOCAL)

    def withdraw(self, rank, tag):
        """Let a client give up a collective that it has called."""
        self.members[rank].client.send(encode_withdrawal(1, tag), answered=False)

    def die(self, rank):
        self.members[rank].client.die()

    def query(self, rank, key, *qualifiers):
        member = self.members[rank]
        tag = member.ask(Command.QUERY, queries=(Query((key,), qualifiers),))
        member.client.read()
        layout = reply_layout(Command.QUERY, member.release)
        fields = layout.decode(member.client.replies[tag], 1, member.release)
        return fields["infos"][0].value.data if fields["status"] == statuses.SUCCESS else fields["status"]

    def is_clean(self):
        """Nothing is left of any group."""
        groups = self.server.groups
        store = self.server.store
        assert not self.server.pending()
        assert not store.groups
        assert not store.namesakes
        assert not groups.under_way
        assert not groups.records._groups
        assert not groups.records._invitations
        assert not self.server.collectives._named
        return True


def added(party, rank, *infos):
    return party.members[rank].construct(*infos, procs=())


class Several(Cluster):
    """Servers whose group operations and fences wait for the test to answer them."""

    def upcall(self, node, op, answer):
        if isinstance(op, GroupUpcall | FenceUpcall):
            self.held.append((op, answer))
        else:
            answer(None, None)

    def member(self, rank):
        member = Member(self.client(rank, version=NEW, infos=(greeting("1"),)), NEW)
        layout = request_layout(Command.REGEVENTS, member.release)
        member.client.send(layout.encode(1, member.release, codes=list(EVENTS), infos=()))
        return member

    def asked(self):
        op, answer = self.held.pop()
        return {info.key: info.value.data for info in op.directives}, op, answer

    def react(self, member, failed, verdict):
        said = (talk.text(keys.GROUP_ID, "g"), talk.text(talk.SAYS, talk.REACTION), talk.text(talk.VERDICT, verdict))
        infos = (*said, talk.proc(keys.EVENT_AFFECTED_PROC, failed))
        member.ask(Command.NOTIFY, code=statuses.TALK, range=Range.LOCAL, infos=infos)


def invite(party, *ranks, name="g", infos=()):
    to = DataArray(codes.PROC, job(*ranks[1:]))
    party.notify(ranks[0], statuses.GROUP_INVITED, *infos, group=name, to=to)


def complete(party, rank, *ranks, name="g", infos=()):
    members = talk.procs(keys.GROUP_MEMBERSHIP, job(*ranks))
    party.notify(
        rank, statuses.GROUP_CONSTRUCT_COMPLETE, members, *infos, group=name, to=DataArray(codes.PROC, job(*ranks))
    )


def leader(party, rank, count, *infos):
    return party.members[rank].construct(talk.size(keys.GROUP_BOOTSTRAP, count), *infos, procs=job(rank))
