"""Proves what a server makes of connections: their nspaces, ranks, directives and events, and who may end them."""

from __future__ import annotations

import pytest

from lib.server_cluster import Cluster
from lib.server_world import Client, World
from pypmix.engine.groups import talk
from pypmix.engine.python.serverside import connecting
from pypmix.standard import attrs, codes, keys, ops, statuses
from pypmix.standard.errors import NotSupported, PartialSuccess, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Connected, Notification
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_ID,
    CONNECT_MADE,
    CONNECT_NAME,
    CONNECT_NOTIFY_EACH,
    CONNECT_NOTIFY_REQ,
    CONNECT_OPTIONAL,
    CONNECT_PROCS,
    CONNECT_TOKEN,
)
from pypmix.standard.ops.events import RANGE_LOCAL
from pypmix.standard.ops.hosting import FenceUpcall
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Query, Value
from pypmix.wire.additions import decode_connected, decode_late, greeting
from pypmix.wire.codec import Unpacker
from pypmix.wire.frames import TAG_NOTIFY
from pypmix.wire.messages import EVENT, Command, encode_status, reply_layout, request_layout

RELEASE = (7, 0, 0)
TERMINATED = -200
LEFT = -160
CODES = (statuses.PROC_HAS_CONNECTED, statuses.PROC_HAS_DISCONNECTED, statuses.CONNECT_REQUESTED, TERMINATED)
JOB = Proc("job", RANK_WILDCARD)
FAR = Proc("far", RANK_WILDCARD)
ASSIGN = talk.flag(CONNECT_ASSIGN)
EACH = talk.flag(CONNECT_NOTIFY_EACH)
REQUEST = talk.flag(CONNECT_NOTIFY_REQ)
OPTIONAL = talk.flag(CONNECT_OPTIONAL)
EARLY = talk.flag(CONNECT_EARLY_TERM)


def called(id):
    return talk.text(CONNECT_ID, id)


def whole(nspace):
    return Proc(nspace, RANK_WILDCARD)


def job(*ranks):
    return tuple([Proc("job", rank) for rank in ranks])


class Party:
    """A client that hears of all that happens to connections."""

    def __init__(self, node, rank, nspace="job", pypmix=True):
        infos = (greeting("1"),) if pypmix else ()
        self.client = Client(node, rank, nspace, version="7.0.0", infos=infos).connect()
        self.ask(Command.REGEVENTS, codes=list(CODES), infos=())

    def ask(self, command, **fields):
        return self.client.send(request_layout(command, RELEASE).encode(1, RELEASE, **fields))

    def connect(self, *infos, procs=(JOB,), assign=True):
        return self.ask(Command.CONNECTNB, procs=procs, infos=(*infos, *((ASSIGN,) if assign else ())))

    def disconnect(self, *procs, infos=()):
        return self.ask(Command.DISCONNECTNB, procs=procs, infos=infos)

    def status(self, tag):
        return self.client.status(tag)

    def missing(self, tag):
        assert self.status(tag) is not None
        return decode_late(self.client.replies[tag], 1)

    def made(self, tag):
        """Return the nspace and the procs of a connection, and whose job info came along."""
        assert self.status(tag) == statuses.SUCCESS
        nspace, procs, foreign = "", (), []
        for item in reply_layout(Command.CONNECTNB, RELEASE).decode(self.client.replies[tag], 1, RELEASE)["objects"]:
            unpacker = Unpacker(item, 1, RELEASE)
            name = unpacker.one(codes.STRING)
            if name:
                foreign.append(name)
            else:
                nspace, procs = decode_connected(unpacker)
        return nspace, procs, foreign

    def events(self):
        """Return what has been heard: the code, whom it is about, and of which connection or connect."""
        self.client.read()
        found = []
        for tag, payload in self.client.pushed:
            if tag == TAG_NOTIFY:
                fields = EVENT.decode(payload, 1, RELEASE)
                given = {info.key: info.value.data for info in fields["infos"]}
                about = given.get("pmix.evproc") or fields["source"]
                name = given.get(CONNECT_NAME) or given.get(CONNECT_ID)
                found.append((fields["code"], tuple(about), name))
        self.client.pushed.clear()
        return found

    def query(self, key, *qualifiers):
        tag = self.ask(Command.QUERY, queries=(Query((key,), qualifiers),))
        self.client.read()
        return reply_layout(Command.QUERY, RELEASE).decode(self.client.replies[tag], 1, RELEASE)


class Node(World):
    """One server with the jobs `job` and `far`, whose host assigns nspaces where it is asked for one."""

    def __init__(self, size=3, far=0, reply=None):
        self.reply = reply
        self.held = None
        self.answers = []
        self.assigned = 0
        super().__init__(size)
        if far:
            self.add("far", far)
        self.parties = [Party(self, rank) for rank in range(size)]
        self.far = [Party(self, rank, "far") for rank in range(far)]

    def upcall(self, op, answer, process=None):
        self.upcalls.append(op)
        if self.held is not None and isinstance(op, ops.Connect | ops.Disconnect):
            self.answers.append(answer)
            self.held.append(lambda: self.respond(op, answer))
        else:
            self.respond(op, answer)

    def respond(self, op, answer):
        if not isinstance(op, ops.Connect):
            answer(None, None)
        elif self.reply is not None:
            answer(self.reply, None)
        elif any(info.key == CONNECT_ASSIGN for info in op.directives):
            self.assigned += 1
            answer(Connected(f"c{self.assigned}"), None)
        else:
            answer(None, None)

    def connected(self, *infos, parties=None, procs=(JOB,)):
        """Connect some, and return the nspace."""
        parties = self.parties if parties is None else parties
        tags = [party.connect(*infos, procs=procs) for party in parties]
        return parties[0].made(tags[0])[0]

    def statuses(self, tags):
        return [party.status(tag) for party, tag in zip(self.parties, tags, strict=False)]

    def fence(self, nspace):
        return [party.client.fence(whole(nspace)) for party in self.parties]

    def heard(self, *parties):
        return [party.events() for party in parties or self.parties]


# Identity


def test_all_get_one_nspace_and_the_job_info_of_the_others():
    node = Node(2, far=1)
    tags = [node.parties[0].connect(procs=(FAR, JOB)), node.parties[1].connect(procs=(*job(1, 0), FAR))]
    assert node.parties[0].status(tags[0]) is None
    last = node.far[0].connect(procs=(JOB, FAR))
    everyone = Proc("far", 0), *job(0, 1)
    assert node.parties[0].made(tags[0]) == ("c1", everyone, ["far"])
    assert node.parties[1].made(tags[1]) == ("c1", everyone, ["far"])
    assert node.far[0].made(last) == ("c1", everyone, ["job"])
    assert node.server.store.groups["c1"] == everyone


@pytest.mark.promise("connect: the host assigns")
def test_the_host_says_who_has_which_rank():
    node = Node(3, reply=Connected("mine", job(2, 0, 1)))
    tags = [party.connect() for party in node.parties]
    assert node.parties[0].made(tags[0]) == ("mine", job(2, 0, 1), [])


@pytest.mark.parametrize("assign", [True, False])
def test_who_did_not_ask_is_told_what_natives_are(assign):
    node = Node(1, far=1)
    native = Party(node, 0, pypmix=False)
    tags = native.connect(procs=(JOB, FAR), assign=assign), node.far[0].connect(procs=(JOB, FAR), assign=True)
    assert native.made(tags[0]) == ("", (), ["far"])
    payload = native.client.replies[tags[0]]
    assert payload.startswith(encode_status(1, statuses.SUCCESS))
    assert node.far[0].made(tags[1])[0] == "c1"


def test_nothing_is_assigned_where_nobody_asks():
    node = Node(2)
    tags = [party.connect(assign=False) for party in node.parties]
    assert [party.made(tag) for party, tag in zip(node.parties, tags, strict=True)] == [("", (), [])] * 2
    assert not node.server.store.groups


def test_connects_of_the_same_procs_are_told_apart_by_their_ids():
    node = Node(2)
    zero, one = node.parties
    tags = [zero.connect(called("a")), zero.connect(called("b")), zero.connect()]
    assert one.made(one.connect(called("b")))[0] == "c1"
    assert [zero.status(tag) for tag in tags] == [None, statuses.SUCCESS, None]
    assert one.made(one.connect())[0] == "c2"
    assert one.made(one.connect(called("a")))[0] == "c3"
    assert [zero.made(tag)[0] for tag in tags] == ["c3", "c1", "c2"]


@pytest.mark.parametrize("id", [Value(codes.UINT32, 1), Value(codes.STRING, ""), Value(codes.STRING, "x" * 300)])
def test_an_id_is_a_name(id):
    node = Node(1)
    assert node.parties[0].status(node.parties[0].connect(Info(CONNECT_ID, id))) == statuses.ERR_BAD_PARAM


@pytest.mark.parametrize(
    "nonsense",
    [
        "c",
        Connected("job", job(0, 1)),
        Connected("x" * 300),
        Connected("c", job(0)),
        Connected("c", job(0, 1, 1)),
        Connected("c", (*job(0, 1), FAR)),
        Connected("c", (*job(0, 1), None)),
    ],
    ids=["type", "taken", "long", "lacking", "twice", "wildcard", "none"],
)
def test_nonsense_of_a_host_is_an_error_and_logged(nonsense):
    node = Node(2, reply=nonsense)
    tags = [party.connect() for party in node.parties]
    assert node.statuses(tags) == [statuses.ERROR, statuses.ERROR]
    assert len(node.logged) == 1
    assert not node.server.store.connections


def test_a_library_asks_for_what_it_does_not_return_once():
    node = Node(1, far=1)
    native = Party(node, 0, pypmix=False)
    token = Info(CONNECT_TOKEN, Value(codes.UINT64, 2**63 + 5))
    native.connect(token, procs=(JOB, FAR))
    node.far[0].connect(procs=(JOB, FAR))
    assert not any(
        info.key == CONNECT_TOKEN for op in node.upcalls if type(op) is ops.Connect for info in op.directives
    )
    assert native.query(CONNECT_MADE, Info(CONNECT_TOKEN, Value(codes.UINT64, 1)))["status"] == statuses.ERR_NOT_FOUND
    (info,) = native.query(CONNECT_MADE, token)["infos"]
    assert talk.found(info.value.data.items, CONNECT_NAME, str) == "c1"
    assert talk.listed(info.value.data.items, CONNECT_PROCS) == (Proc("far", 0), Proc("job", 0))
    assert native.query(CONNECT_MADE, token)["status"] == statuses.ERR_NOT_FOUND


def test_few_answers_wait_for_a_library(monkeypatch):
    monkeypatch.setattr(connecting, "MAX_TOKENS", 2)
    node = Node(0, far=0)
    node.add("lone", 1)
    native = Party(node, 0, "lone", pypmix=False)
    tokens = [Info(CONNECT_TOKEN, Value(codes.UINT64, number)) for number in (1, 2, 3)]
    for token in tokens:
        native.connect(token, procs=(whole("lone"),))
    assert [native.query(CONNECT_MADE, token)["status"] for token in tokens] == [
        statuses.ERR_NOT_FOUND,
        statuses.SUCCESS,
        statuses.SUCCESS,
    ]


# Addresses


def test_the_nspace_is_an_address():
    node = Node(3)
    node.connected(parties=node.parties[:2], procs=job(1, 0))
    zero, one, two = node.parties
    one.client.commit(("key", Value(codes.UINT32, 7)))
    tag = zero.client.get(1, "key", nspace="c1")
    assert zero.client.value(tag, 1, "key", nspace="c1").data == 7
    tags = zero.client.fence(whole("c1")), one.client.fence(whole("c1"))
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    # Who names the procs means the same.
    tags = zero.client.fence(whole("c1")), one.client.fence(*job(0, 1))
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    assert two.status(two.client.fence(whole("c1"))) == statuses.ERR_BAD_PARAM
    # In further connects.
    procs = Proc("c1", 1), Proc("job", 2)
    tags = one.connect(procs=procs), two.connect(procs=procs)
    assert one.made(tags[0])[:2] == ("c2", job(1, 2))
    # In the range of events, here.
    zero.ask(Command.NOTIFY, code=TERMINATED, range=RANGE_CUSTOM, infos=(talk.procs("pmix.evrange", (whole("c2"),)),))
    assert [bool(events) for events in node.heard()] == [False, True, True]


def test_a_connection_is_no_group():
    node = Node(3)
    node.connected(parties=node.parties[:2], procs=job(0, 1))
    zero, _, two = node.parties
    assert zero.query("pmix.qry.pgrp")["infos"][0].value.data.items == ()
    assert zero.query("pmix.qry.pgrpmems", talk.text(keys.GROUP_ID, "c1"))["status"] == statuses.ERR_NOT_FOUND
    construct = two.ask(Command.GROUP_CONSTRUCT, group="c1", procs=job(2), infos=())
    assert two.status(construct) == statuses.ERR_EXISTS
    destruct = zero.ask(Command.GROUP_DESTRUCT, group="c1", members=(), infos=())
    assert zero.status(destruct) == statuses.ERR_NOT_FOUND
    infos = talk.text(keys.GROUP_ID, "c1"), talk.procs(keys.EVENT_CUSTOM_RANGE, job(1))
    zero.ask(Command.NOTIFY, code=LEFT, range=RANGE_CUSTOM, infos=infos)
    assert node.server.store.groups["c1"] == job(0, 1)


# Disconnect


def test_all_leave_together_and_once():
    node = Node(2)
    nspace = node.connected()
    zero, one = node.parties
    tag = zero.disconnect(whole(nspace))
    assert zero.status(tag) is None
    assert zero.status(zero.disconnect(whole(nspace))) == statuses.ERR_EXISTS
    assert one.status(one.disconnect(whole(nspace))) == zero.status(tag) == statuses.SUCCESS
    assert zero.status(zero.disconnect(whole(nspace))) == statuses.ERR_NOT_FOUND
    assert not node.server.store.groups
    one.client.die()
    assert node.heard(zero) == [[]]


def test_only_members_disconnect():
    node = Node(3)
    node.connected(parties=node.parties[:2], procs=job(0, 1))
    two = node.parties[2]
    assert two.status(two.disconnect(whole("c1"))) == statuses.ERR_BAD_PARAM
    assert two.status(two.disconnect(whole("nowhere"))) == statuses.ERR_NOT_FOUND


def test_who_names_the_procs_disconnects_from_their_connection():
    node = Node(2)
    node.connected(called("a"))
    node.connected()
    zero, one = node.parties
    tags = zero.disconnect(whole("c1")), one.disconnect(*job(1, 0), infos=(called("a"),))
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    tags = zero.disconnect(JOB), one.disconnect(whole("c2"))
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    assert not node.server.store.connections
    # What the Standard has today.
    tags = [party.disconnect(JOB) for party in node.parties]
    assert node.statuses(tags) == [statuses.SUCCESS, statuses.SUCCESS]


def test_a_name_beside_the_procs_stands_for_them():
    node = Node(2)
    node.connected(called("a"))
    node.connected(called("b"))
    stamp = talk.text(keys.GROUP_ID, "c2")
    tags = [party.disconnect(*job(0, 1), infos=(stamp,)) for party in node.parties]
    assert node.statuses(tags) == [statuses.SUCCESS, statuses.SUCCESS]
    assert [*node.server.store.connections] == ["c1"]


def test_who_has_ended_is_not_waited_for():
    node = Node(3)
    nspace = node.connected()
    zero, one, two = node.parties
    tags = [zero.disconnect(whole(nspace))]
    one.client.die()
    assert zero.status(tags[0]) is None
    tags.append(two.disconnect(whole(nspace)))
    assert [zero.status(tags[0]), two.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    assert node.heard(zero, two) == [[(TERMINATED, ("job", 1), "c1")]] * 2
    # Nor the last one that was missing, of whom the others hear as well.
    nspace = node.connected(parties=[zero, two], procs=job(0, 2))
    tag = zero.disconnect(whole(nspace))
    two.client.die()
    assert zero.status(tag) == statuses.SUCCESS
    assert node.heard(zero) == [[(TERMINATED, ("job", 2), "c2")]]


def test_nobody_hears_of_an_end_when_all_have_called_the_disconnect():
    node = Node(2)
    nspace = node.connected()
    node.held = []
    tags = [party.disconnect(whole(nspace)) for party in node.parties]
    node.parties[1].client.die()
    node.held.pop()()
    assert node.parties[0].status(tags[0]) == statuses.SUCCESS
    assert node.heard(node.parties[0]) == [[]]


@pytest.mark.parametrize("named", [True, False])
def test_members_hear_of_an_end_before_the_host_decided(named):
    """A server whose members have all called does not know whether other servers wait for more: the host says it."""
    node = Node(3)
    nspace = node.connected()
    node.held = []
    tags = [party.disconnect(whole(nspace)) for party in node.parties]
    node.parties[1].client.die()
    assert node.heard(node.parties[0], node.parties[2]) == [[], []]
    node.answers[-1]((talk.procs(talk.ABSENT, job(1)),) if named else (), None)
    told = [(TERMINATED, ("job", 1), nspace)] if named else []
    assert node.heard(node.parties[0], node.parties[2]) == [told, told]
    assert node.parties[0].status(tags[0]) == node.parties[2].status(tags[2]) == statuses.SUCCESS
    assert not node.server.store.connections


def test_members_hear_of_an_end_during_a_disconnect_that_fails():
    node = Node(3)
    nspace = node.connected()
    node.held = []
    tags = [party.disconnect(whole(nspace)) for party in node.parties]
    node.parties[1].client.die()
    node.answers[-1](None, PMIxError("not now", status=statuses.ERR_TIMEOUT))
    assert node.heard(node.parties[0]) == [[(TERMINATED, ("job", 1), nspace)]]
    assert node.parties[0].status(tags[0]) == statuses.ERR_TIMEOUT
    # The connection still exists, and the next end is reported at once.
    node.parties[2].client.die()
    assert node.heard(node.parties[0]) == [[(TERMINATED, ("job", 2), nspace)]]


def test_a_disconnect_that_the_host_answers_with_nonsense_ends():
    node = Node(2)
    nspace = node.connected()
    node.held = []
    tags = [party.disconnect(whole(nspace)) for party in node.parties]
    node.answers[-1]("nonsense", None)
    assert node.statuses(tags) == [statuses.SUCCESS] * 2
    assert [line for line in node.logged if "nonsense" in line]


def test_a_disconnect_by_the_procs_waits_for_nobody_who_has_ended():
    node = Node(3)
    zero, one, two = node.parties
    for party in node.parties:
        party.connect(assign=False)
    one.client.die()
    tags = zero.disconnect(JOB), two.disconnect(JOB)
    assert [zero.status(tags[0]), two.status(tags[1])] == [statuses.SUCCESS] * 2


# Who ends


def test_without_all_there_is_no_connection():
    node = Node(3)
    zero, one, two = node.parties
    tags = zero.connect(), one.connect()
    two.client.die()
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.ERR_PARTIAL_SUCCESS] * 2
    assert zero.missing(tags[0]) == job(2)
    assert not node.server.store.connections
    assert not any(isinstance(op, ops.Connect) for op in node.upcalls)


def test_who_does_not_come_is_left_out_where_coming_is_optional():
    node = Node(3)
    zero, one, two = node.parties
    tags = zero.connect(), two.connect(OPTIONAL)
    one.client.die()
    assert zero.made(tags[0]) == two.made(tags[1]) == ("c1", job(0, 2), [])
    (op,) = [op for op in node.upcalls if isinstance(op, ops.Connect)]
    assert talk.listed(op.directives, talk.ABSENT) == job(1)


def test_a_timeout_names_who_is_missing():
    node = Node(2)
    tag = node.parties[0].connect(attrs.TIMEOUT(3), OPTIONAL)
    node.advance(4)
    assert node.parties[0].status(tag) == statuses.ERR_TIMEOUT
    assert node.parties[0].missing(tag) == job(1)


@pytest.mark.parametrize("finalizes", [True, False])
def test_the_others_hear_of_one_that_ends_without_disconnecting(finalizes):
    node = Node(3)
    node.connected(called("mine"))
    zero, one, two = node.parties
    tags = zero.client.fence(whole("c1")), two.client.fence(whole("c1"))
    if finalizes:
        one.ask(Command.FINALIZE)
    else:
        one.client.die()
    assert [zero.status(tags[0]), two.status(tags[1])] == [statuses.ERR_PARTIAL_SUCCESS] * 2
    assert zero.missing(tags[0]) == two.missing(tags[1]) == job(1)
    assert node.heard(zero, two) == [[(TERMINATED, ("job", 1), "c1")]] * 2
    # It is no member any more, and the others keep their ranks.
    tags = zero.client.fence(whole("c1")), two.client.fence(whole("c1"))
    assert [zero.status(tags[0]), two.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    two.client.commit(("key", Value(codes.UINT32, 7)))
    assert zero.client.value(zero.client.get(2, "key", nspace="c1"), 2, "key", nspace="c1").data == 7
    assert zero.status(zero.client.get(1, "key", nspace="c1")) == statuses.ERR_NOT_FOUND


def test_where_an_early_end_is_allowed_all_goes_on_without_it():
    node = Node(3)
    zero, one, two = node.parties
    tags = zero.connect(EARLY), one.connect(), two.connect()
    assert zero.made(tags[0])[0] == "c1"
    tags = zero.client.fence(whole("c1")), two.client.fence(whole("c1"))
    one.client.die()
    assert [zero.status(tags[0]), two.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    assert node.heard(zero, two) == [[], []]
    tags = zero.client.fence(whole("c1")), two.client.fence(whole("c1"))
    assert [zero.status(tags[0]), two.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]


def test_who_ends_while_the_host_is_at_it_has_left_its_rank_vacant():
    node = Node(3)
    node.held = []
    tags = [party.connect() for party in node.parties]
    node.reply = Connected("c1", job(0, 1, 2))
    node.parties[1].client.die()
    node.held.pop()()
    assert node.parties[2].made(tags[2]) == ("c1", job(0, 1, 2), [])
    assert node.heard(node.parties[2]) == [[(TERMINATED, ("job", 1), "c1")]]
    assert node.server.store.groups["c1"] == job(0, 2)


def test_a_connection_ends_with_its_last_member():
    node = Node(2)
    node.connected()
    for party in node.parties:
        party.client.die()
    assert not node.server.store.connections and not node.server.store.groups


# Events


def test_each_one_that_comes_and_goes_is_told_of():
    node = Node(3)
    zero, one, two = node.parties
    zero.connect()
    assert node.heard() == [[], [], []]
    one.connect(EACH, called("x")), zero.connect(called("x"))
    assert node.heard() == [
        [(statuses.PROC_HAS_CONNECTED, ("job", 1), "x")],
        [(statuses.PROC_HAS_CONNECTED, ("job", 0), "x")],
        [(statuses.PROC_HAS_CONNECTED, ("job", 1), "x"), (statuses.PROC_HAS_CONNECTED, ("job", 0), "x")],
    ]
    # Of those that came before one is told who asks for it now.
    two.connect(EACH)
    assert node.heard() == [
        [(statuses.PROC_HAS_CONNECTED, ("job", 2), None)],
        [(statuses.PROC_HAS_CONNECTED, ("job", 0), None), (statuses.PROC_HAS_CONNECTED, ("job", 2), None)],
        [(statuses.PROC_HAS_CONNECTED, ("job", 0), None)],
    ]
    two.connect(called("x"))
    node.heard()
    zero.disconnect(whole("c1"))
    assert node.heard() == [[], *[[(statuses.PROC_HAS_DISCONNECTED, ("job", 0), "c1")]] * 2]


def test_a_disconnect_may_ask_for_it_as_well():
    node = Node(2)
    node.connected()
    node.parties[0].disconnect(whole("c1"), infos=(EACH,))
    node.parties[1].disconnect(whole("c1"))
    assert node.heard() == [[], [(statuses.PROC_HAS_DISCONNECTED, ("job", 0), "c1")]]


def test_those_asked_for_hear_of_it_once_while_they_are_to_come():
    node = Node(3)
    zero, one, two = node.parties
    zero.connect(called("x"))
    one.connect(REQUEST, called("x"))
    assert node.heard() == [[], [], [(statuses.CONNECT_REQUESTED, ("job", 1), "x")]]
    two.connect(REQUEST, called("x"))
    assert node.heard() == [[], [], []]
    # Who registers when it is over hears nothing.
    again = Party(node, 2)
    assert again.events() == []


def test_a_job_goes_by_the_name_that_it_has_for_other_clusters():
    node = Node(2)
    node.server.register_nspace(JobInfo("B:job", (attrs.JOB_SIZE(1), attrs.CLUSTER_ID("B"))), ())
    node.add("mine", 2, job=(attrs.CLUSTER_ID("A"),))
    zero, one = [Party(node, rank, "mine") for rank in range(2)]
    tags = zero.connect(procs=(whole("A:mine"),)), one.connect(procs=(whole("mine"),))
    assert zero.made(tags[0])[1] == one.made(tags[1])[1] == (Proc("mine", 0), Proc("mine", 1))
    tags = zero.client.fence(whole("A:mine")), one.client.fence(whole("mine"))
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    one.client.commit(("key", Value(codes.UINT32, 7)))
    tag = zero.client.get(1, "key", nspace="A:mine")
    assert zero.client.value(tag, 1, "key", nspace="A:mine").data == 7
    tag = zero.client.get(RANK_WILDCARD, attrs.JOB_SIZE.key, nspace="A:mine")
    assert zero.client.value(tag, RANK_WILDCARD, attrs.JOB_SIZE.key, nspace="A:mine").data == 2
    zero.ask(
        Command.NOTIFY, code=TERMINATED, range=RANGE_CUSTOM, infos=(talk.procs("pmix.evrange", (whole("A:mine"),)),)
    )
    assert one.events() != []
    tags = zero.disconnect(whole("mine")), one.disconnect(Proc("A:mine", 0), Proc("mine", 1))
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    node.server.deregister_nspace("mine")
    tag = node.parties[0].connect(procs=(whole("A:mine"), JOB))
    node.parties[1].connect(procs=(whole("A:mine"), JOB))
    assert node.parties[0].status(tag) == statuses.ERR_NOT_FOUND


# Several servers


class Cluster2(Cluster):
    """Two servers, whose host assigns nspaces and brings events across."""

    def upcall(self, node, op, answer):
        if isinstance(op, ops.NotifyEvent):
            self.later(lambda: self.bring(node, op))
            answer(None, None)
        elif isinstance(op, ops.Connect | ops.Disconnect):
            procs = tuple([proc for proc in self.flat(op.procs) if proc not in self.lost])
            self.meet(node, (type(op).__name__, self.named(op)), op.replace(procs=procs), answer)
        else:
            super().upcall(node, op, answer)

    def flat(self, procs):
        found = set()
        for proc in procs:
            space = self.nodes[0].server.store.get(proc.nspace) or self.nodes[1].server.store.get(proc.nspace)
            found |= {each.proc for each in space.processes.values()} if proc.rank == RANK_WILDCARD else {proc}
        return sorted(found)

    @staticmethod
    def named(op):
        return talk.found(op.directives, keys.GROUP_ID, str) or talk.found(op.directives, CONNECT_ID, str)

    def bring(self, node, op):
        for other in self.nodes:
            if other is not node:
                other.server.events.notify(Notification(op.code, Proc("job", 0), op.range, op.infos))

    def finish(self, batch):
        first = batch[0][1]
        if not isinstance(first, ops.Connect):
            super().finish(batch)
            return
        infos = [info for _, op, _ in batch for info in op.directives]
        absent = {proc for _, op, _ in batch for proc in talk.listed(op.directives, talk.ABSENT)}
        optional = any(info.key == CONNECT_OPTIONAL for info in infos)
        for _, op, answer in batch:
            if absent and not optional:
                error = PartialSuccess("some are gone")
                error.missing = frozenset(absent)
                answer(None, error)
            else:
                came = tuple([proc for proc in op.procs if proc not in absent])
                flags = tuple([info for info in infos if info.key in (CONNECT_OPTIONAL, CONNECT_EARLY_TERM)])
                answer(Connected(f"c{next(self.context_ids)}"[:2], came, (), flags), None)

    def gone(self, proc):
        super().gone(proc)
        for node in self.nodes:
            if self.home(proc) is not node:
                infos = talk.text(talk.SAYS, "gone"), talk.proc(keys.EVENT_AFFECTED_PROC, proc)
                node.server.events.notify(Notification(statuses.TALK, Proc("elsewhere", 0), RANGE_LOCAL, infos))


def two_servers(*layout):
    cluster = Cluster2(*layout)
    ranks = sorted(rank for ranks in layout for rank in ranks)
    return cluster, [Party(cluster.home(Proc("job", rank)), rank) for rank in ranks]


def test_servers_know_the_same_connection():
    cluster, (zero, one, two) = two_servers((0, 2), (1,))
    tags = zero.connect(), one.connect(assign=False), two.connect()
    assert zero.made(tags[0])[:2] == two.made(tags[2])[:2] == ("c1", job(0, 1, 2))
    assert one.made(tags[1]) == ("", (), [])
    assert [node.server.store.groups["c1"] for node in cluster.nodes] == [job(0, 1, 2)] * 2
    # By its name, so that servers may differ in who they think is a member.
    for party in (zero, one, two):
        party.client.fence(whole("c1"))
    for node in cluster.nodes:
        (op,) = node.asked(FenceUpcall)
        assert talk.found(op.directives, keys.GROUP_ID, str) == "c1"
    tags = [party.disconnect(whole("c1")) for party in (zero, one, two)]
    assert [party.status(tag) for party, tag in zip((zero, one, two), tags, strict=True)] == [statuses.SUCCESS] * 3
    assert not any(node.server.store.groups for node in cluster.nodes)


def test_an_end_is_told_on_all_servers():
    cluster, (zero, one, two) = two_servers((0, 2), (1,))
    for party in (zero, one, two):
        party.connect(EACH, called("x"))
    for party in (zero, one, two):
        assert {code for code, _, _ in party.events()} == {statuses.PROC_HAS_CONNECTED}
    two.client.die()
    assert [party.events() for party in (zero, one)] == [[(TERMINATED, ("job", 2), "c1")]] * 2
    assert [node.server.store.groups["c1"] for node in cluster.nodes] == [job(0, 1)] * 2


def test_what_participants_elsewhere_allow_holds_here():
    _, (zero, one, two) = two_servers((0, 2), (1,))
    tags = zero.connect(), one.connect(OPTIONAL, EARLY)
    two.client.die()
    assert zero.made(tags[0])[:2] == one.made(tags[1])[:2] == ("c1", job(0, 1))
    one.client.die()
    assert zero.events() == []


def test_those_meet_who_named_a_job_before_and_after_it_was_known():
    node = Node(2)
    node.held = []
    zero, one = node.parties
    tags = [zero.connect(called("x"), procs=(JOB, whole("B:job")))]
    node.server.register_nspace(JobInfo("B:job", (attrs.JOB_SIZE(2),)), ())
    tags.append(one.connect(called("x"), procs=(JOB, whole("B:job"))))
    node.reply = Connected("c", (*job(0, 1), Proc("B:job", 0)))
    node.held.pop()()
    assert zero.made(tags[0])[0] == one.made(tags[1])[0] == "c"


def test_a_job_that_is_over_is_passed_over_where_coming_was_optional():
    node = Node(1, reply=Connected(directives=(OPTIONAL,)))
    tag = node.parties[0].connect(OPTIONAL, procs=(JOB, FAR))
    assert node.parties[0].made(tag) == ("", (), [])


def test_one_caller_that_wants_to_hear_of_each_hears_of_those_elsewhere():
    cluster, parties = two_servers((0, 1), (2, 3))
    zero, one, two, three = parties
    two.connect()
    zero.connect()
    assert not any(node.server.connecting._notified_elsewhere for node in cluster.nodes)
    # From here on all are told of, whether they have come before or come later, each once and by their own server.
    one.connect(EACH)
    three.connect()
    for number, party in enumerate(parties):
        found = party.events()
        assert sorted(about for _, about, _ in found) == [("job", rank) for rank in range(4) if rank != number]
        assert {code for code, _, _ in found} == {statuses.PROC_HAS_CONNECTED}
    assert not any(node.server.connecting._notified_elsewhere for node in cluster.nodes)
    # The connection is there: late news of how it came about makes the next connect no louder.
    everyone = talk.procs(CONNECT_PROCS, job(0, 1, 2, 3))
    late = Notification(statuses.PROC_HAS_CONNECTED, Proc("job", 2), RANGE_LOCAL, (everyone,))
    cluster.nodes[0].server.events.notify(late)
    assert [code for code, _, _ in zero.events()] == [statuses.PROC_HAS_CONNECTED]
    assert not any(node.server.connecting._notified_elsewhere for node in cluster.nodes)


def test_what_somebody_elsewhere_wants_may_come_to_light_in_the_end():
    node = Node(2, reply=Connected("c", directives=(EACH,)))
    assert node.connected(called("x")) == "c"
    assert node.heard() == [[(statuses.PROC_HAS_CONNECTED, ("job", rank), "x")] for rank in (1, 0)]


def test_a_request_goes_across_once_and_not_to_who_has_come():
    _, (zero, one, two, three) = two_servers((0, 2), (1, 3))
    one.connect()
    zero.connect(REQUEST)
    three.connect(REQUEST)
    heard = [party.events() for party in (zero, one, two, three)]
    assert heard == [
        [],
        [],
        [(statuses.CONNECT_REQUESTED, ("job", 0), None)],
        [(statuses.CONNECT_REQUESTED, ("job", 0), None)],
    ]


def test_a_host_that_cannot_connect_is_believed():
    node = Node(1)
    node.respond = lambda op, answer: answer(None, NotSupported("no"))
    tag = node.parties[0].connect()
    assert node.parties[0].status(tag) == NotSupported("no").code


def test_the_names_of_a_query_are_of_no_other_kind():
    node = Node(1)
    wrong = Info(CONNECT_TOKEN, Value(codes.DATA_ARRAY, DataArray(codes.PROC, job(0))))
    assert node.parties[0].query(CONNECT_MADE, wrong)["status"] == statuses.ERR_NOT_FOUND
