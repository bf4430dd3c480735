"""Refusals of our own engines, by which a server is never asked: rows of `LACKS` have these tests as their proof."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lib import machine
from lib.client_wire import Wire
from lib.group_port import A, B, C, Port, failed
from pypmix.engine.groups.foreign import support_of
from pypmix.engine.groups.foreign.rules import GATHERING
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import EngineUnavailable, NotSupported
from pypmix.standard.ops import GroupConstruct, Put, QueryInfo
from pypmix.standard.ops.core import DEL_GLOBAL, DEL_INTERNAL
from pypmix.standard.releases import Release
from pypmix.standard.types import Query, Value

R42, R50, R70 = (4, 2, 2), (5, 0, 11), (7, 0, 0)
GONE = Value(codes.UNDEF, None)

native = pytest.mark.skipif(not machine.extension(), reason="pypmix was installed without a C compiler")


def topic(module: str, release: Release, server: Release, adapts: bool = False) -> Any:
    """Return a topic of the native engine's session on a library and a server of these releases."""
    import importlib

    kind = getattr(importlib.import_module(f"pypmix.engine.native.{module}"), f"{module.capitalize()}Topic")
    made = kind.__new__(kind)
    made.session = SimpleNamespace(release=release, server_release=server)
    made.port = SimpleNamespace(support=support_of(adapts))
    return made


@native
@pytest.mark.parametrize(
    ("library", "server", "refused"),
    [
        (R42, R50, True),
        (R42, R70, True),
        (R50, R42, True),
        (R70, R42, True),
        (R42, R42, False),
        (R50, R50, False),
        (R70, R70, False),
        (R42, (0, 0, 0), False),
    ],
)
def test_groups_where_a_library_misreads_its_server(library: Release, server: Release, refused: bool) -> None:
    construct = GroupConstruct("acme.g", (A, B))
    groups = topic("groups", library, server)
    if refused:
        with pytest.raises(NotSupported, match="misreads how a server of"):
            groups.check(construct)
    else:
        groups.check(construct)
    topic("groups", library, server, adapts=True).check(construct)


@native
@pytest.mark.parametrize(
    ("release", "env", "why"),
    [
        (R50, {}, "corrupt its memory"),
        (R42, {"PMIX_GDS_MODULE": "ds21,hash"}, "shared memory is gone"),
        (R42, {"PMIX_GDS_MODULE": "hash"}, ""),
        ((5, 0, 8), {}, ""),
        (R70, {}, ""),
    ],
)
def test_a_library_that_cannot_be_opened_again(
    monkeypatch: pytest.MonkeyPatch, release: Release, env: dict[str, str], why: str
) -> None:
    from pypmix.engine.native import session
    from pypmix.engine.native.quirks import last_start

    reason = last_start(release, env)
    assert why in reason and bool(reason) == bool(why)
    library = SimpleNamespace(release=release)
    monkeypatch.setattr(session, "open_library", lambda library: None)
    monkeypatch.setattr(session.usage, "spent", reason)
    monkeypatch.setattr(session.usage, "tool", False)
    monkeypatch.setattr(session, "_check_server", lambda env: None)
    monkeypatch.setattr(session, "NativeSession", lambda *arguments: "opened")
    monkeypatch.setattr(session, "same_environment", lambda env: None)
    if why:
        with pytest.raises(EngineUnavailable, match="cannot be opened again in this process"):
            session.open_client({}, library)
    else:
        assert session.open_client({}, library) == "opened"


@native
def test_the_attributes_of_a_library_that_crashes_of_the_question() -> None:
    op = QueryInfo((Query((attrs.QUERY_ATTRIBUTE_SUPPORT.key,)),))
    from pypmix.engine.queryanswers import OPEN

    known: Any = [SimpleNamespace(value=OPEN)]
    with pytest.raises(NotSupported, match="crashes when it is asked which attributes it has"):
        topic("queries", R42, R50)._questions(op, known)
    assert topic("queries", R50, R42)._questions(op, known)


@native
@pytest.mark.parametrize(("library", "server"), [(R42, R42), (R50, R70), (R70, R50)])
def test_keys_that_a_library_or_its_server_cannot_delete(library: Release, server: Release) -> None:
    from pypmix.engine.native.session import NativeSession

    session: Any = SimpleNamespace(
        release=library, server_release=server, named=lambda error, name: error, _names=set()
    )
    with pytest.raises(NotSupported, match="deleting keys needs libpmix and a server of release 7.0"):
        NativeSession._put(session, Put("acme.k", GONE, DEL_GLOBAL))
    if library < R70:
        with pytest.raises(NotSupported, match="deleting keys needs"):
            NativeSession._put(session, Put("acme.k", GONE, DEL_INTERNAL))


@pytest.mark.parametrize("server", [R42, R50])
def test_keys_that_a_server_cannot_delete(server: Release) -> None:
    wire = Wire(server)
    wire.fails(wire.start(Put("acme.k", GONE, DEL_GLOBAL)), NotSupported, "does not delete keys")
    assert not wire.sent()


LEADERS = GroupConstruct("acme.g", (A,), (attrs.GROUP_BOOTSTRAP(2),))
ADDED = GroupConstruct("acme.g", (A, B), (attrs.GROUP_ADD_MEMBERS([C]),))
BOTH = GroupConstruct("acme.g", (A,), (attrs.GROUP_BOOTSTRAP(2), attrs.GROUP_ADD_MEMBERS([C])))


@pytest.mark.parametrize("op", [LEADERS, BOTH], ids=["leaders", "both"])
def test_leaders_that_know_their_number_alone(op: GroupConstruct) -> None:
    old = Port(R50)
    failed(old.start(op), NotSupported, statuses.ERR_NOT_SUPPORTED)
    assert not old.asked
    new = Port(GATHERING)
    assert not new.start(op)
    assert new.asked


@pytest.mark.parametrize("server", [R42, R50, R70])
def test_members_that_are_added_to_a_collective_construct(server: Release) -> None:
    port = Port(server)
    failed(port.start(ADDED), NotSupported, statuses.ERR_NOT_SUPPORTED)
    assert not port.asked
    ours = Port(server, adapts=True)
    assert not ours.start(ADDED)
    assert ours.asked
