"""Sets of procs have an order and do not change; what servers tell of process sets is read in every form."""

from __future__ import annotations

import copy
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypmix import Client, EventCode, Job, NotFound, Proc, ProcSet, attrs
from pypmix.cli.options import parse
from pypmix.cli.usage import UsageError
from pypmix.engine.psets import names_of, new_pset
from pypmix.host import Application
from pypmix.host.job import JobLayout, NodeLayout
from pypmix.psets import begun_with, change_in, members_in, names_in, spread, wild
from pypmix.standard import codes, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import Notification
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Value
from pypmix.types import ProcSets, PsetChange

A, B, C, D = (Proc("demo", rank) for rank in range(4))

procs = st.lists(st.builds(Proc, st.sampled_from(["demo", "other"]), st.integers(0, 20)), max_size=40)


def ordered(*parts):
    return tuple(dict.fromkeys([proc for part in parts for proc in part]))


@given(procs, procs)
def test_algebra(left, right):
    """Each operator is that of sets, in the order of the left operand and then of the right one."""
    one, two = ProcSet(left), ProcSet(right)
    assert one == ordered(left) and set(one) == set(left) and len(one) == len(set(left))
    assert (one | two) == (one | right) == (left | two) == ordered(left, right)
    assert (one & two) == (one & right) == (left & two) == tuple(proc for proc in one if proc in right)
    assert (one - two) == (one - right) == (left - two) == tuple(proc for proc in one if proc not in right)
    assert (one ^ two) == (one ^ right) == (left ^ two) == (one - two) + (two - one)
    for found in (one | two, one & two, one - two, one ^ two, left | two, left & two, left - two, left ^ two):
        assert type(found) is ProcSet and len(found) == len(set(found)) and found.name is None
    assert one.issubset(right) == set(left).issubset(right)
    assert one.issuperset(right) == set(left).issuperset(right)
    assert one.isdisjoint(right) == set(left).isdisjoint(right)
    assert all((proc in one) == (proc in left) for proc in (*left, *right))


@given(procs)
def test_it_is_a_tuple(found):
    members = ProcSet(found, "gpu")
    assert members == tuple(members) and hash(members) == hash(tuple(members)) and isinstance(members, tuple)
    for other in (pickle.loads(pickle.dumps(members)), copy.copy(members), copy.deepcopy(members)):
        assert other == members and other.name == "gpu" and type(other) is ProcSet
    assert eval(repr(members)) == members
    assert type(members[1:]) is ProcSet and members[1:].name is None and members[:] == members
    assert {members: 1}[ProcSet(found)] == 1


def test_one_proc_is_one_and_not_its_fields():
    members = ProcSet([A, B, C])
    assert members - B == (A, C) and members | D == (A, B, C, D) and members & A == (A,) and D | members == (D, A, B, C)
    assert members.issuperset(A) and members.isdisjoint(D) and ProcSet(A) == (A,)
    assert A in members and D not in members and ("demo", 0) in members


def test_what_is_no_set_of_procs():
    members = ProcSet([A])
    for wrong in ("demo", b"demo", 5, None, [("demo", 0)], [A, "demo:1"]):
        with pytest.raises(TypeError):
            ProcSet(wrong)
        with pytest.raises(TypeError):
            members | wrong
        with pytest.raises(TypeError):
            wrong ^ members
        with pytest.raises(TypeError):
            members.issubset(wrong)
    with pytest.raises(TypeError):
        ProcSet([A], 5)
    with pytest.raises(AttributeError):
        members.name = "other"
    with pytest.raises(AttributeError):
        del members.name
    with pytest.raises(AttributeError):
        members.more = 1


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([0], "demo:0"),
        ([0, 1, 2, 5], "demo:0-2,5"),
        ([2, 1, 0], "demo:2,1,0"),
        ([3, 4, 9, 10], "demo:3-4,9-10"),
    ],
)
def test_for_people(ranks, text):
    assert str(ProcSet([Proc("demo", rank) for rank in ranks])) == text
    assert str(ProcSet([*[Proc("demo", rank) for rank in ranks], Proc("x", 1)])) == f"{text} x:1".strip()


def test_a_mapping_of_sets():
    sets = ProcSets([ProcSet([A, B], "ocean"), ProcSet([C], "ice")])
    assert list(sets) == ["ocean", "ice"] and sets["ice"] == (C,) and sets["ice"].name == "ice"
    assert repr(sets) == "{'ocean': 2 procs, 'ice': 1 proc}"
    assert sets.of(A) == ("ocean",) and sets.of(D) == ()
    assert sets.get("gone") is None and "gone" not in sets
    for kind in (NotFound, KeyError, LookupError):
        with pytest.raises(kind, match="no process set 'gone'; known: ocean, ice"):
            sets["gone"]
    with pytest.raises(TypeError):
        sets["new"] = ProcSet()


def test_a_client_alone():
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PMIX", "PYPMIX"))}
    with Client(engine="python", env=env) as me:
        assert type(me.job.procs) is ProcSet and me.job.procs - [me.proc] == ()
        assert type(me.node.local_procs) is ProcSet
        assert me.psets == {} and me.get(attrs.PSET_NAMES, default=None) is None
        with me.watch_psets() as changes:
            infos = {attrs.PSET_NAME: "ocean", attrs.PSET_MEMBERS: [me.proc]}
            for code in (EventCode.PROCESS_SET_DELETE, EventCode.PROCESS_SET_DEFINE, EventCode.PROCESS_SET_DEFINE):
                me.notify(code, info=infos, targets=me.proc)
            me.notify(EventCode.PROCESS_SET_DELETE, info={attrs.PSET_NAME: "ocean"}, targets=me.proc)
            # What was never seen to come is not seen to go, and what has come does not come twice.
            assert changes.get(5) == PsetChange("define", "ocean", ProcSet([me.proc]))
            assert changes.get(5) == PsetChange("delete", "ocean", ProcSet([me.proc]))
        assert list(changes) == []
        assert isinstance(me.job, Job) and ProcSet(me.job) == me.job.procs


# What servers say


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (Value(codes.STRING, "ocean,ice"), ["ocean", "ice"]),
        (Value(codes.STRING, ""), []),
        (Value(codes.STRING, None), []),
        (Value(codes.STRING, "ocean,,ocean"), ["ocean"]),
        (Value(codes.DATA_ARRAY, DataArray(codes.STRING, ("ocean", "ice"))), ["ocean", "ice"]),
        (Value(codes.DATA_ARRAY, DataArray(codes.STRING, ())), []),
        (Value(codes.DATA_ARRAY, DataArray(codes.STRING, (None, "", "ice"))), ["ice"]),
        (Value(codes.DATA_ARRAY, DataArray(codes.UINT32, (1, 2))), []),
    ],
)
def test_names(value, names):
    assert names_in(value) == names


def test_members_and_events():
    array = Value(codes.DATA_ARRAY, DataArray(codes.PROC, (A, B)))
    assert members_in(array) == [A, B]
    assert members_in(Value(codes.STRING, "demo:0")) == []
    named = Info("pmix.pset.nm", Value(codes.STRING, "ocean"))
    assert change_in(Notification(-55, A, None, (named, Info("pmix.pset.mems", array)))) == ("ocean", [A, B])
    assert change_in(Notification(-56, A, None, (named,))) == ("ocean", [])
    assert change_in(Notification(-56, A, None, (Info("pmix.pset.nm", Value(codes.UINT32, 5)),))) == ("", [])
    whole = [Proc("demo", RANK_WILDCARD), Proc("x", RANK_WILDCARD), Proc("y", 3)]
    assert wild(whole) == ["demo", "x"]
    assert spread(whole, {"demo": 2}) == [A, B, Proc("x", RANK_WILDCARD), Proc("y", 3)]


def test_what_a_stream_begins_with():
    """The answer of the server and the events until then, which may be older and newer than it."""

    def change(kind, name):
        return PsetChange(kind, name, ProcSet([A], name))

    sets = ProcSets([ProcSet([A], "ocean"), ProcSet([B], "ice")])
    both = [PsetChange("define", "ocean", sets["ocean"]), PsetChange("define", "ice", sets["ice"])]
    kept = [change("define", "gone"), change("define", "ice"), change("delete", "gone")]
    assert begun_with(sets, kept) == both
    assert begun_with(sets, [*kept, change("define", "new")]) == [*both, change("define", "new")]
    assert begun_with(sets, [*kept, change("delete", "ice")]) == both[:1]
    assert begun_with(sets, [change("delete", "ice"), change("define", "ice")]) == both
    assert begun_with(ProcSets(), []) == []


# What makes one


def test_rules():
    jobs = {"demo": range(4)}
    known = {"ocean": {A: None}}
    assert list(new_pset("ice", [C, A, C], known, jobs.get, False)) == [C, A]
    assert list(new_pset("all", [C, Proc("demo", RANK_WILDCARD)], known, jobs.get, False)) == [C, A, B, D]
    for name, members, status in (
        ("ocean", [A], statuses.ERR_EXISTS),
        ("demo", [A], statuses.ERR_EXISTS),
        ("a,b", [A], statuses.ERR_BAD_PARAM),
        ("", [A], statuses.ERR_BAD_PARAM),
        ("ice", [], statuses.ERR_BAD_PARAM),
    ):
        with pytest.raises(PMIxError) as caught:
            new_pset(name, members, known, jobs.get, True)
        assert caught.value.code == status and caught.value.operation == "define_process_set"
    with pytest.raises(NotFound, match="'gone' is registered"):
        new_pset("ice", [A, Proc("gone", 0)], known, jobs.get, False)
    assert list(new_pset("ice", [Proc("gone", 0)], known, jobs.get, True)) == [Proc("gone", 0)]
    with pytest.raises(NotFound, match="no rank 4"):
        new_pset("ice", [Proc("demo", 4)], known, jobs.get, True)
    assert names_of({**known, "all": {Proc("demo", RANK_WILDCARD): None}}, A) == ["ocean", "all"]


# Jobs


def test_the_command_line():
    request = parse(["-n", "2", "--pset", "ocean", "a", ":", "-n", "3", "--pset=ice", "b", ":", "c"], {})
    assert [(app.np, app.pset) for app in request.apps] == [(2, "ocean"), (3, "ice"), (1, "")]
    for words, text in ((["--pset"], "needs a value"), (["--pset", "", "a"], "not empty")):
        with pytest.raises(UsageError, match=text):
            parse(words, {})
    with pytest.raises(ValueError, match="comma"):
        parse(["--pset", "a,b", "a"], {})
    with pytest.raises(ValueError, match="255"):
        parse(["--pset", "x" * 256, "a"], {})


def test_the_sets_of_a_job():
    apps = [Application((name,), np, pset=pset) for name, np, pset in (("a", 2, "x"), ("b", 1, ""), ("c", 1, "x"))]
    job = JobLayout("demo", tuple(apps), (NodeLayout("n0", (0, 1, 2, 3)),))
    assert job.psets() == {"x": (A, B, D)}
    keys = [{info.key: info.value.data for info in app} for app in job.info().apps]
    assert [app.get("pmix.pset.nm") for app in keys] == ["x", None, "x"]
    with pytest.raises(TypeError):
        Application(("a",), pset=5)
