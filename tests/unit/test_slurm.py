"""Both engines ask before they ask Slurm's server: what goes there, what does not, and what `supports` says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lib.fake_server import RELEASE, FakeServer, serving
from pypmix.engine import slurm
from pypmix.engine.python.session import FEATURES, Session, open_client
from pypmix.standard import attrs, ops
from pypmix.standard.errors import NotSupported
from pypmix.standard.types import RANK_WILDCARD, Proc, Query, Value
from pypmix.standard.values import infos, uint32
from pypmix.wire.messages import Command, decode_fence

NSPACE = "slurm.pmix.17.0"
ME = Proc(NSPACE, 0)
EVERYBODY = Proc(NSPACE, RANK_WILDCARD)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setattr("lib.fake_server.NSPACE", NSPACE)
    with serving() as made:
        yield made


@pytest.fixture
def session(server: FakeServer) -> Iterator[Session]:
    made = open_client(server.env)
    yield made
    made.close()


def fences(server: FakeServer) -> list[Any]:
    return [decode_fence(payload, 1, RELEASE) for command, payload in server.requests if command == Command.FENCENB]


@pytest.mark.parametrize(
    "op",
    [
        ops.Fence(),
        ops.Fence(collect=True),
        ops.Fence(directives=infos({attrs.COLLECT_DATA: False})),
        ops.Fence((EVERYBODY,)),
        ops.Fence(tuple([Proc(NSPACE, rank) for rank in (2, 1, 0, 3)])),
    ],
    ids=["plain", "collect", "told not to", "by nspace", "each rank"],
)
def test_a_fence_of_the_job_brings_data_and_names_its_nspace(
    server: FakeServer, session: Session, op: ops.Fence
) -> None:
    session.run(op)
    ((procs, directives),) = fences(server)
    assert tuple(procs) == (EVERYBODY,)
    assert [(info.key, info.value.data) for info in directives] == [(attrs.COLLECT_DATA.key, True)]


def test_the_barrier_of_a_finalize_brings_data_too(server: FakeServer, session: Session) -> None:
    session.run(ops.Finalize(infos({attrs.EMBED_BARRIER: True})))
    ((_, directives),) = fences(server)
    assert [info.key for info in directives] == [attrs.COLLECT_DATA.key]


def test_other_servers_are_asked_for_what_was_said() -> None:
    with serving() as server:
        session = open_client(server.env)
        session.run(ops.Fence())
        session.close()
        ((_, directives),) = fences(server)
        assert not directives and session.supports("notify")


def on_node(peers: str | None) -> Any:
    """Return what looks up a job of four ranks, and those of this node as far as they are known."""
    known: dict[tuple[Proc, str], Value] = {(EVERYBODY, "pmix.job.size"): uint32(4)}
    if peers is not None:
        known[EVERYBODY, "pmix.lpeers"] = Value(3, peers)
    return lambda proc, key: known.get((proc, key))


def test_procs_of_one_node_are_fenced_and_others_refused() -> None:
    some = (Proc(NSPACE, 0), Proc(NSPACE, 2))
    assert slurm.fence_procs(ME, some, on_node("0,2")) == some
    assert slurm.fence_procs(ME, (ME,), on_node(None)) == (ME,)
    for peers in "0,1", "0", "", None:
        with pytest.raises(NotSupported, match="several nodes"):
            slurm.fence_procs(ME, some, on_node(peers))
    elsewhere = (ME, Proc("other", 0))
    assert slurm.fence_procs(ME, elsewhere, on_node(None)) == elsewhere


REFUSED = (
    ops.Publish(infos({"acme.k": 1})),
    ops.Lookup(("acme.k",)),
    ops.Unpublish(),
    ops.Connect((EVERYBODY,)),
    ops.Disconnect((EVERYBODY,)),
    ops.JobControl((EVERYBODY,), infos({attrs.JOB_CTRL_KILL: True})),
    ops.Heartbeat(),
    ops.GetCredential(),
    ops.GroupConstruct("acme.g", (ME,)),
    ops.GroupDestruct("acme.g"),
    ops.GroupLeave("acme.g"),
    ops.GroupEnter("acme.g", lambda proc: True),
    ops.GroupAdmit("acme.g", ME),
    ops.Log(infos({attrs.LOG_STDERR: "words"})),
    ops.NotifyEvent(-4000, 2),
    ops.NotifyEvent(-4000, 4),
    ops.NotifyEvent(-4000, 6, infos({attrs.EVENT_CUSTOM_RANGE: ME})),
    ops.RegisterEventHandler(print, (-159,)),
    ops.RegisterEventHandler(print, (-55, -56)),
    ops.QueryInfo((Query(("pmix.qry.ns",)),)),
)


@pytest.mark.parametrize("op", REFUSED, ids=[f"{op.name}-{number}" for number, op in enumerate(REFUSED)])
def test_what_does_harm_or_nothing_never_reaches_the_server(server: FakeServer, session: Session, op: Any) -> None:
    before = len(server.requests)
    with pytest.raises(NotSupported, match="Slurm's PMIx plugin") as caught:
        session.run(op)
    assert caught.value.operation == op.name and caught.value.procs and caught.value.hint
    assert len(server.requests) == before


def test_what_is_known_is_answered_beside_what_is_not(server: FakeServer, session: Session) -> None:
    found = session.run(ops.QueryInfo((Query(("pmix.job.size", "pmix.qry.ns")),)))
    assert [(info.key, info.value) for info in found] == [("pmix.job.size", uint32(4))]


def test_an_event_for_this_process_is_raised(server: FakeServer, session: Session) -> None:
    session.run(ops.NotifyEvent(-4000, 7))
    assert session.run(ops.RegisterEventHandler(lambda delivery: delivery.done(), (-4000, -159))) > 0


def test_supports_says_no_to_each_of_them(session: Session) -> None:
    assert slurm.LACKS.keys() - FEATURES.keys() <= {
        "query.attributes",
        "get.group_names",
        "connect.nspace",
        "connect.directives",
    }
    for feature in (*slurm.LACKS, "group.construct", "group.invite", "group.leave", "group.request", "group.leader"):
        assert not session.supports(feature), feature
    for feature in ("put", "fence", "get", "events", "abort", "finalize", "resolve_peers"):
        assert session.supports(feature), feature
