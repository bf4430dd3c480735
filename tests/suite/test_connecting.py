"""Jobs connect, know each other's procs and data, and disconnect: what RFC 0003 promises, on every pairing.

What a pairing does not keep of that is declared in `lib.connect_promises`.
"""

from __future__ import annotations

import pytest

from lib import pairings, promises
from pypmix import OperationTimeout, Proc, Unreachable

proven = pytest.mark.servers(*promises.PROVEN_ON)
without = pytest.mark.servers("prterun-*", "mpirun-*", "native-server-*")


@pytest.mark.promise("connect: all have called", "connect: order", "disconnect: together")
def test_within_a_job(run):
    assert run("connecting.within", ranks=4) == ["connected"] * 4


def test_some_procs_of_a_job(run):
    assert run("connecting.pair", ranks=3) == [0, 1, 2]


@proven
@pytest.mark.promise("connect: several at once")
@pytest.mark.forms("sync")
def test_several_connects_at_once(run):
    run.keeps("connect: several at once", ranks=3)


@proven
@pytest.mark.promise("connect: ids")
@pytest.mark.forms("sync")
def test_connects_of_the_same_procs_have_ids(run):
    found = run("connecting.several", ranks=3)
    assert found[0].keys() == {"a", "b", None}
    assert len({nspace for nspace, _ in found[0].values()} - {None}) == 3
    assert found[1] == found[2] == found[0]


@proven
@pytest.mark.promise(
    "connect: nspace",
    "connect: rank",
    "disconnect: nspace",
    "disconnect: unknown",
    "disconnect: timeout",
    "nspace: fence",
    "nspace: notify",
    "nspace: requests",
)
def test_a_connection_is_an_nspace(run):
    found = run("connecting.identity", ranks=4)
    assert found[0] is not None
    nspace, other = found[0]["made"][0], found[1]["some"][0]
    assert len({None, "", nspace, other}) == 4
    for rank, each in enumerate(found):
        assert each["made"] == (nspace, rank, Proc(nspace, rank), [0, 1, 2, 3])
        assert each["values"] == [0, 1, 2, 3]
        assert each["outside"] == "NotFound"
        assert each.get("alone", "OperationTimeout") == "OperationTimeout" and ("alone" in each) == (rank == 0)
        assert each["gone"][0] == "NotFound" and isinstance(each["gone"][1], str)
        if rank % 2:
            assert each["some"] == (other, rank // 2, [1, 3])
        assert each["heard"] == (["all", "some", "end"] if rank % 2 else ["all", "end"])


@proven
@pytest.mark.promise("connect: notify request", "connect: notify each", "disconnect: notify each")
@pytest.mark.forms("sync")
def test_events_of_a_connect(run):
    for rank, each in enumerate(run("connecting.requested", ranks=3)):
        others = [other for other in range(3) if other != rank]
        assert each == (others, others, {"acme.asked"}, True)


@proven
@pytest.mark.promise("connect: termination")
@pytest.mark.forms("sync")
def test_a_participant_that_ends_is_told_of(run):
    run.keeps("connect: termination")


@proven
@pytest.mark.promise("connect: early termination", "connect: collectives go on")
@pytest.mark.forms("sync")
def test_a_participant_may_end(run):
    run.keeps("connect: early termination")


@proven
@pytest.mark.promise("connect: a participant ends")
@pytest.mark.forms("sync")
def test_a_participant_that_ends_before_it_comes(run):
    run.keeps("connect: a participant ends")


@proven
@pytest.mark.promise("connect: optional")
@pytest.mark.forms("sync")
def test_a_participant_need_not_come(run):
    run.keeps("connect: optional")


@without
@pytest.mark.promise("disconnect: unknown")
@pytest.mark.forms("sync")
def test_what_other_servers_do_not_know_is_refused(run):
    for found, refused, supported in run("connecting.plain", ranks=2):
        assert refused.pop("unknown") == "NotFound"
        assert found == (None, None, None, [0, 1])
        assert set(refused.values()) == {"NotSupported"} and len(refused) == 7
        assert supported == [False, False]


@pytest.mark.servers("prterun-*")
@pytest.mark.promise("cluster: id")
@pytest.mark.forms("sync")
def test_the_cluster_of_a_job_has_a_name(run):
    assert set(run("connecting.cluster", ranks=2)).isdisjoint({"NotFound", None, ""})


@pytest.mark.needs("an end after a connect that timed out")
@pytest.mark.promise("connect: timeout")
def test_somebody_never_comes(run):
    error, _ = run("connecting.late", ranks=2)
    assert isinstance(error, OperationTimeout)
    if error.missing is not None:
        assert [proc.rank for proc in error.missing] == [1]


@pytest.mark.needs("the parent of a spawned job")
@pytest.mark.promise("connect: job info", "connect: wildcard", "connect: exchange only")
def test_a_job_and_one_that_it_spawned(run):
    assert run("connecting.across", ranks=2) == [(2, [0, 1])] * 2


@pytest.mark.servers("python-server", "native-server-*")
@pytest.mark.forms("sync")
@pytest.mark.promise("connect: job info", "connect: wildcard")
def test_a_job_and_one_that_it_spawned_on_the_other_engine(run):
    release = run.server.rpartition("-")[2] if run.server.startswith("native") else "4.2.2"
    pairings.require_client(f"native-{release}")
    engine = "native" if run.client == "python-client" else "python"
    library = {"PYPMIX_LIBPMIX": pairings.library_path(release)} if engine == "native" else {}
    assert run("connecting.across", ranks=2, engine=engine, environment=library) == [(2, [0, 1])] * 2


def test_mistakes(run):
    expected = {"none": "ValueError", "empty": "ValueError", "string": "TypeError"}
    for found in run("connecting.refused", ranks=2):
        assert found.items() >= expected.items()
        assert found["unknown"] in ("refused", "timed out")
        if run.server.startswith("python-server"):
            assert found["others"] == "refused"


def test_a_lone_process(alone):
    assert isinstance(alone("connecting.lonely"), Unreachable)
