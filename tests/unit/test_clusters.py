"""Clusters whose jobs have the same names understand each other: at the border, names are translated."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from lib.exchange_world import PARTIAL, Asked, Server, fence
from pypmix import cluster_nspace, split_nspace
from pypmix.data import rename_committed
from pypmix.host.exchange import Exchange, Hub
from pypmix.host.exchange.border import Border, renamed
from pypmix.host.joining import Joining, Shared
from pypmix.host.publisheddata import Caller, Directory
from pypmix.standard import attrs, codes
from pypmix.standard.enums import Persist, Range
from pypmix.standard.errors import NotFound, PMIxError, RemoteProtocolError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Connect, DirectModex, FenceUpcall, Lookup, NotifyEvent, Publish, Unpublish
from pypmix.standard.ops.connecting import CONNECT_ASSIGN
from pypmix.standard.ops.hosting import COMMITTED
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.modex import decode_modex, encode_modex

pytestmark = pytest.mark.timeout(30)

ASSIGN = Info(CONNECT_ASSIGN, Value(codes.BOOL, True))
RELEASE = (7, 0, 0)


def job(nspace, cluster=""):
    proc = Value(codes.PROC, Proc(nspace, 0))
    return JobInfo(nspace, (attrs.JOB_SIZE(2), attrs.CLUSTER_ID(cluster or "A"), Info("acme.leader", proc)))


def committed(*procs):
    return encode_modex([(proc, []) for proc in procs], dict.fromkeys(procs, 3))


def who(data):
    return [proc for proc, _ in decode_modex(data)]


class World:
    """Two clusters, A with two servers and B with one; each has a job of the same name with a rank on each server."""

    def __init__(self):
        self.hub = Hub(delay=lambda _from, _to: 0.1)
        self.exchanges, self.borders, self.servers = {}, {}, {}
        for name in ("A:n0", "A:n1", "B:n0"):
            carrier = self.hub.carrier(name)
            self.exchanges[name] = Exchange(carrier, later=self.hub.clock.later, now=self.hub.clock.time)
            self.servers[name] = Server(name)
            self.borders[name] = Border(self.servers[name], self.exchanges[name], name[0])
            self.exchanges[name].start()
        self.hub.run()
        for name, border in self.borders.items():
            border.register(job("job", name[0]), {0: "A:n0", 1: "A:n1"} if name[0] == "A" else {0: "B:n0"})
        self.hub.run()

    def ask(self, name, op, *who):
        asked = Asked(op, *who)
        assert self.borders[name].answers(op) and self.borders[name].answer(asked)
        return asked

    def all_ask(self, op):
        asked = [self.ask(name, op(name)) for name in self.borders]
        self.hub.run()
        return [each.end for each in asked]


@pytest.fixture
def world():
    return World()


def both(name, *more):
    """The jobs of both clusters as one of them names them; its own in full from one of its servers."""
    other = "B" if name[0] == "A" else "A"
    own = "A:job" if name == "A:n1" else "job"
    return Connect((Proc(f"{other}:job", RANK_WILDCARD), Proc(own, RANK_WILDCARD)), (ASSIGN, *more))


def test_names_are_built_and_taken_apart():
    assert cluster_nspace("A", "job") == "A:job"
    assert cluster_nspace("A", "x:y") == "A:x:y"
    assert split_nspace("A:x:y") == ("A", "x:y")
    for plain in ("job", ":job", "A:", ""):
        assert split_nspace(plain) == (None, plain)
    for cluster, nspace in (("", "job"), ("A:B", "job"), ("A/B", "job"), ("A\0", "job"), ("A", ""), ("A", "x" * 254)):
        with pytest.raises(ValueError):
            cluster_nspace(cluster, nspace)
    with pytest.raises(TypeError):
        cluster_nspace(None, "job")


def test_jobs_of_one_name_connect(world):
    first, second, third = world.all_ask(both)
    assert first.nspace == second.nspace == third.nspace != ""
    assert first.procs == second.procs == (Proc("job", 0), Proc("job", 1), Proc("B:job", 0))
    assert third.procs == (Proc("A:job", 0), Proc("A:job", 1), Proc("job", 0))
    (told,) = world.servers["A:n0"].jobs.values()
    assert told == job("B:job", "B")
    (told,) = world.servers["B:n0"].jobs.values()
    assert told == job("A:job", "A")
    world.borders["B:n0"].deregister("job")
    world.hub.run()
    assert not world.servers["A:n0"].jobs and not world.servers["A:n1"].jobs


def test_committed_values_and_events_cross_by_the_names_of_each(world):
    connection = world.all_ask(both)[0]
    address = attrs.GROUP_ID(connection.nspace)
    procs = {name: renamed(connection.procs, world.borders[name].names.home) for name in ("A:n0", "A:n1")}
    procs["B:n0"] = (Proc("A:job", 0), Proc("A:job", 1), Proc("job", 0))

    def op(name):
        own = Proc("job", 1 if name == "A:n1" else 0)
        return FenceUpcall(procs[name], (address,), committed(own))

    for name, data in zip(world.borders, world.all_ask(op), strict=True):
        assert sorted(who(data)) == sorted(procs[name])
    world.servers["B:n0"].committed[Proc("job", 0)] = committed(Proc("job", 0))
    asked = world.ask("A:n1", DirectModex(Proc("B:job", 0)))
    world.hub.run()
    assert who(asked.end) == [Proc("B:job", 0)]
    infos = (attrs.EVENT_CUSTOM_RANGE((Proc("B:job", 0), Proc("job", 1))), attrs.EVENT_AFFECTED_PROC(Proc("job", 0)))
    world.ask("A:n0", NotifyEvent(-3000, Range.CUSTOM, infos), Proc("job", 0))
    world.hub.run()
    ((here,), (there,)) = world.servers["A:n1"].heard, world.servers["B:n0"].heard
    assert (here.source, here.infos) == (Proc("job", 0), infos)
    assert there.source == Proc("A:job", 0)
    targets, affected = [info.value.data for info in there.infos]
    assert targets == DataArray(codes.PROC, (Proc("job", 0), Proc("A:job", 1))) and affected == Proc("A:job", 0)


def test_a_connect_brings_committed_values_by_the_names_of_each(world):
    def op(name):
        own = Proc("job", 1 if name == "A:n1" else 0)
        return both(name, Info(COMMITTED, Value(codes.BYTE_OBJECT, committed(own))))

    here, there = [Proc("job", 0), Proc("job", 1)], [Proc("A:job", 0), Proc("A:job", 1)]
    found = [
        [proc for info in end.directives if info.key == COMMITTED for proc in who(info.value.data)]
        for end in world.all_ask(op)
    ]
    assert found == [[*here, Proc("B:job", 0)], [*here, Proc("B:job", 0)], [*there, Proc("job", 0)]]


def test_a_session_is_one_cluster(world):
    for reach, heard in ((Range.SESSION, [1, 0]), (Range.GLOBAL, [2, 1])):
        world.ask("A:n0", NotifyEvent(-3000, reach), Proc("job", 0))
        world.hub.run()
        assert [len(world.servers[name].heard) for name in ("A:n1", "B:n0")] == heard


def test_errors_and_what_is_pending_have_the_names_of_each(world):
    asked = {name: world.ask(name, both(name, attrs.TIMEOUT(5))) for name in ("A:n0", "B:n0")}
    world.hub.run(world.hub.clock.now + 1)
    found = {name: item for name, border in world.borders.items() for item in border.pending() if item.missing}
    # The one that coordinates knows who is missing.
    ((name, pending),) = found.items()
    here, there = ("", "B:") if name[0] == "A" else ("A:", "")
    assert pending.missing == (Proc(f"{here}job", 1),)
    assert set(pending.arrived) == {Proc(f"{here}job", 0), Proc(f"{there}job", 0)}
    world.borders["A:n1"].departed(Proc("job", 1))
    world.hub.run()
    assert (asked["A:n0"].end.code, asked["A:n0"].end.missing) == (PARTIAL, {Proc("job", 1)})
    assert (asked["B:n0"].end.code, asked["B:n0"].end.missing) == (PARTIAL, {Proc("A:job", 1)})
    with pytest.raises(ValueError, match="colon"):
        world.borders["A:n0"].register(job("x:y"), {0: "A:n0"})
    with pytest.raises(ValueError):
        world.borders["A:n0"].register(job("x" * 255), {0: "A:n0"})


def test_what_servers_of_another_engine_commit_does_not_cross(world):
    with pytest.raises(RemoteProtocolError):
        rename_committed(b"blob", str)
    assert rename_committed(b"", str) == b""
    error = world.ask("A:n0", fence("A:n0")).end
    assert isinstance(error, RemoteProtocolError)


class Run:
    """What is shared of a run asks of its host."""

    def __init__(self, hub, name):
        self.directory = Directory(hub.clock.later)
        exchange = Exchange(hub.carrier(name), later=hub.clock.later, now=hub.clock.time)
        self.shared = Shared(self, exchange, Border(Server(name), exchange, name[0]).names)
        exchange.start()

    def part(self, _kind):
        return SimpleNamespace(directory=self.directory)

    def publish(self, rank, key, range=Range.GLOBAL, persist=Persist.INDEF, *directives):
        op = Publish((Info(key, Value(codes.PROC, Proc("job", rank))),), range, persist, directives)
        self.directory.publish(Caller(Proc("job", rank), 1, 2), op)

    def lookup(self, key, *directives, uid=1):
        ends = []
        self.directory.lookup(Caller(Proc("job", 9), uid, 2), Lookup((key,), directives), lambda *end: ends.append(end))
        return ends

    def finds(self, key, **who):
        ((data, error),) = self.lookup(key, **who)
        assert error is None or isinstance(error, NotFound)
        return [(each.proc, each.value.data) for each in data]


def test_what_is_published_to_all_is_found_in_all_clusters():
    hub = Hub(delay=lambda _from, _to: 0.1)
    first = Run(hub, "A:n0")
    users = Info("pmix.auids", Value(codes.DATA_ARRAY, DataArray(codes.UINT32, (7,))))
    access = Info("pmix.aperms", Value(codes.DATA_ARRAY, DataArray(codes.INFO, (users,))))
    first.publish(0, "early", Range.GLOBAL, Persist.INDEF, access)
    first.publish(1, "own", Range.SESSION)
    first.publish(1, "once", Range.GLOBAL, Persist.FIRST_READ)
    second, third = Run(hub, "B:n0"), Run(hub, "C:n0")
    hub.run()
    for run in (second, third):
        assert run.finds("early") == run.finds("early", uid=7) == [(Proc("A:job", 0), Proc("A:job", 0))]
        assert run.finds("own") == run.finds("early", uid=8) == []
    waits = first.lookup("late", Info("pmix.wait", Value(codes.INT, 1)))
    second.publish(0, "late")
    hub.run()
    assert [each.proc for each in waits[0][0]] == [Proc("B:job", 0)]
    # What may be read once is read once.
    assert second.finds("once") == [(Proc("A:job", 1), Proc("A:job", 1))]
    hub.run()
    assert first.finds("once") == third.finds("once") == []
    first.directory.unpublish(Caller(Proc("job", 0), 1, 2), Unpublish(("early",)))
    hub.run()
    assert second.finds("early") == third.finds("early") == []
    # There is one value under a key, unless two clusters publish it at once: then each has its own, and others either.
    with pytest.raises(PMIxError, match="already"):
        third.publish(0, "late")
    second.publish(0, "both")
    third.publish(0, "both")
    hub.run()
    assert second.finds("both") == third.finds("both") == [(Proc("job", 0), Proc("job", 0))]
    assert first.finds("both")[0][0] in (Proc("B:job", 0), Proc("C:job", 0))
    with pytest.raises(PMIxError):
        first.directory.unpublish(Caller(Proc("job", 0), 1, 2), Unpublish(("late",)))
    hub.lose("B:n0")
    hub.run()
    assert first.finds("late") == third.finds("late") == []
    assert third.finds("both") == [(Proc("job", 0), Proc("job", 0))]


def test_a_host_is_joined_by_what_makes_sense():
    for words in (("A:B", "x"), ("", "x"), ("A", ""), ("A", "x", "")):
        with pytest.raises(ValueError):
            Joining(*words)


def test_a_name_is_one_cluster_s_as_long_as_it_is_there(tmp_path):
    folder = str(tmp_path / "joined")
    held = Joining("A", folder).claim()
    other = Joining("B", folder).claim()
    with pytest.raises(
        PMIxError, match=rf"there is a cluster 'A' in .*joined already \(process {os.getpid()} on .*name of its"
    ):
        Joining("A", folder).claim()
    os.close(held)
    os.close(Joining("A", folder).claim())
    os.close(other)
    with pytest.raises(PMIxError, match="joins no clusters"):
        Joining("A", str(tmp_path / "joined" / "cluster.A")).claim()
