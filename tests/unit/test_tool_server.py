"""Proves whom a server takes for a tool, under which name, and that nothing of one is left when it has gone."""

from __future__ import annotations

import pytest

from lib.server_world import GID, UID, Client, World
from lib.tool_world import Tool
from pypmix.engine.python.serverside import tools
from pypmix.standard import codes, ops, statuses
from pypmix.standard.errors import PermissionDenied
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.wire.codec import Unpacker
from pypmix.wire.handshake import (
    FLAG_CLIENT,
    FLAG_LAUNCHER_CLIENT,
    FLAG_LAUNCHER_GIVEN_ID,
    FLAG_LAUNCHER_NEEDS_ID,
    FLAG_LEGACY_LAUNCHER,
    FLAG_LEGACY_TOOL,
    FLAG_SCHEDULER,
    FLAG_SINGLETON,
    FLAG_TOOL_CLIENT,
    FLAG_TOOL_GIVEN_ID,
    FLAG_TOOL_NEEDS_ID,
    native_credential,
)
from pypmix.wire.messages import Command
from pypmix.wire.toolreply import NEEDS_ID, ToolReply

NAMED = [FLAG_TOOL_GIVEN_ID, FLAG_TOOL_CLIENT, FLAG_LAUNCHER_GIVEN_ID, FLAG_LAUNCHER_CLIENT, FLAG_SCHEDULER]


@pytest.fixture
def world() -> World:
    made = World()
    made.server.tools.owner = UID
    return made


# Who is admitted


@pytest.mark.parametrize("flag", sorted(NEEDS_ID))
def test_a_tool_without_a_name_gets_one(world: World, flag: int) -> None:
    first, second = Tool(world, flag).connect(), Tool(world, flag).connect()
    assert first.accepted
    assert second.accepted
    assert first.welcome.server == world.server.proc
    assert first.proc != second.proc
    assert all(isinstance(op, ops.ToolConnected) and op.proc is None for op in world.upcalls)
    assert world.upcalls[0].launcher == (flag == FLAG_LAUNCHER_NEEDS_ID)


def test_the_host_may_name_it(world: World) -> None:
    world.answer = []
    tool = Tool(world).connect()
    assert tool.welcome is None
    world.answer.pop()(Proc("console", 7), None)
    tool.read()
    assert tool.welcome == ToolReply(Proc("console", 7), world.server.proc)
    assert world.server.store.process(Proc("console", 7)).uid == UID


@pytest.mark.parametrize("flag", NAMED)
def test_a_tool_that_brings_its_name_keeps_it(world: World, flag: int) -> None:
    tool = Tool(world, flag, Proc("console", 3)).connect()
    assert tool.welcome == ToolReply(None, world.server.proc)
    (op,) = world.upcalls
    assert (op.proc, op.launcher) == (Proc("console", 3), flag in tools.LAUNCHERS)
    (asker,) = world.askers
    assert (asker.proc, asker.uid, asker.gid) == (Proc("console", 3), UID, GID)


@pytest.mark.parametrize("flag", [FLAG_TOOL_CLIENT, FLAG_LAUNCHER_CLIENT])
def test_a_tool_that_was_launched_as_a_client_is_that_proc(world: World, flag: int) -> None:
    tool = Tool(world, flag, Proc("job", 1)).connect()
    assert tool.accepted
    others = world.clients(0, 2)
    tags = [each.fence() for each in (*others, tool)]
    assert [each.status(tag) for each, tag in zip((*others, tool), tags, strict=True)] == [statuses.SUCCESS] * 3
    tool.die()
    world.advance(1)
    assert world.server.store.process(Proc("job", 1)).registered


@pytest.mark.parametrize(
    ("version", "as_client"),
    [("4.2.2", False), ("5.0.9", False), ("5.0.10", True), ("6.0.0", False), ("6.1.0", True), ("7.0.0", True)],
)
def test_a_singleton_is_answered_as_its_release_expects(world: World, version: str, as_client: bool) -> None:
    tool = Tool(world, FLAG_SINGLETON, Proc("singleton.vm.7", 0), version=version)
    if as_client:
        tool.greeting = Client(world).greeting
    tool.connect()
    assert (tool.welcome == ToolReply(None, world.server.proc)) != as_client
    assert (isinstance(tool.welcome, tuple) and tool.welcome[0] == statuses.SUCCESS) == as_client
    assert tool.status(tool.ask(Command.FINALIZE)) == statuses.SUCCESS


@pytest.mark.parametrize("described", [1, 2])
def test_what_a_tool_says_reaches_the_host(world: World, described: int) -> None:
    said = (Info("pmix.ppid", Value(codes.PID, 77)), Info("pmix.cmd.line", Value(codes.STRING, "pps")))
    Tool(world, infos=said, version="4.2.2rc2", buffer_type=described).connect()
    (op,) = world.upcalls
    assert (op.pid, op.release, op.directives) == (77, "4.2.2", said)


# Who is not


@pytest.mark.parametrize(
    ("flag", "name", "hello", "status"),
    [
        (FLAG_LEGACY_TOOL, None, {}, statuses.ERR_NOT_SUPPORTED),
        (FLAG_LEGACY_LAUNCHER, None, {}, statuses.ERR_NOT_SUPPORTED),
        (FLAG_TOOL_NEEDS_ID, None, {"bfrops": "v3"}, statuses.ERR_NOT_SUPPORTED),
        (FLAG_TOOL_NEEDS_ID, None, {"gds": "ds21"}, statuses.ERR_NOT_SUPPORTED),
        (FLAG_TOOL_NEEDS_ID, None, {"credential": b"short"}, statuses.ERR_INVALID_CRED),
        (FLAG_TOOL_NEEDS_ID, None, {"uid": UID + 1}, statuses.ERR_INVALID_CRED),
        (
            FLAG_TOOL_NEEDS_ID,
            None,
            {"uid": UID + 1, "credential": native_credential(UID + 1, GID)},
            statuses.ERR_INVALID_CRED,
        ),
        (
            FLAG_TOOL_GIVEN_ID,
            Proc("console", 0),
            {"uid": UID + 1, "credential": native_credential(UID + 1, GID)},
            statuses.ERR_INVALID_CRED,
        ),
        (
            FLAG_TOOL_CLIENT,
            Proc("job", 0),
            {"uid": UID + 1, "credential": native_credential(UID + 1, GID)},
            statuses.ERR_INVALID_CRED,
        ),
        (FLAG_TOOL_GIVEN_ID, Proc("job", 0), {}, statuses.ERR_EXISTS),
        (FLAG_SINGLETON, Proc("job", 0), {}, statuses.ERR_EXISTS),
        (FLAG_SCHEDULER, Proc("job", 9), {}, statuses.ERR_EXISTS),
        (FLAG_TOOL_CLIENT, Proc("job", 9), {}, statuses.ERR_NOT_FOUND),
        (FLAG_TOOL_GIVEN_ID, Proc("console", RANK_WILDCARD), {}, statuses.ERR_BAD_PARAM),
        (FLAG_TOOL_GIVEN_ID, Proc("pypmix-server", 0), {}, statuses.ERR_EXISTS),
    ],
)
def test_who_is_refused(world: World, flag: int, name: Proc | None, hello: dict[str, object], status: int) -> None:
    tool = Tool(world, flag, name, **hello).connect()
    assert tool.welcome == status
    assert tool.link.closed
    assert len(world.logged) == 1
    assert not world.upcalls
    assert not world.server.handshakes.incomplete
    assert Tool(world).connect().accepted


def test_tools_of_root_are_admitted(world: World) -> None:
    tool = Tool(world, uid=0, gid=0, credential=native_credential(0, 0)).connect()
    assert tool.accepted
    assert world.server.store.process(tool.proc).uid == 0


@pytest.mark.parametrize(("user", "accepted"), [(UID, True), (0, True), (UID + 1, False), (-1, False)])
def test_what_the_kernel_knows_outweighs_the_credential(world: World, user: int, accepted: bool) -> None:
    tool = Tool(world)
    tool.link.user = user
    assert tool.connect().accepted == accepted


def test_the_name_of_another_users_tool_is_not_to_be_had(world: World) -> None:
    root = {"uid": 0, "gid": 0, "credential": native_credential(0, 0)}
    assert Tool(world, FLAG_TOOL_GIVEN_ID, Proc("console", 0), **root).connect().accepted
    for rank in (0, 1):
        assert Tool(world, FLAG_TOOL_GIVEN_ID, Proc("console", rank)).connect().welcome == statuses.ERR_INVALID_CRED


@pytest.mark.parametrize(("version", "status"), [("5.0.11", -23), ("5.0.8", None), ("4.2.2", None)])
def test_the_host_refuses(world: World, version: str, status: int | None) -> None:
    world.answer = []
    tool = Tool(world, version=version).connect()
    world.answer.pop()(None, PermissionDenied("not today"))
    tool.read()
    # Most releases go on as if they were welcome, so that they must see the connection close.
    assert tool.welcome == status
    assert tool.link.closed
    assert "not today" in world.logged[0]
    assert [namespace.name for namespace in world.server.store] == ["job"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("console", statuses.ERR_BAD_PARAM),
        (Proc("console", RANK_WILDCARD), statuses.ERR_BAD_PARAM),
        (Proc("job", 0), statuses.ERR_EXISTS),
        (Proc("of root", 1), statuses.ERR_INVALID_CRED),
    ],
)
def test_a_name_that_the_host_must_not_give(world: World, name: object, status: int) -> None:
    root = {"uid": 0, "gid": 0, "credential": native_credential(0, 0)}
    assert Tool(world, FLAG_TOOL_GIVEN_ID, Proc("of root", 0), **root).connect().accepted
    world.answer = []
    tool = Tool(world).connect()
    world.answer.pop()(name, None)
    tool.read()
    assert tool.welcome == status
    assert tool.link.closed


def test_a_tool_that_leaves_before_the_host_has_answered(world: World) -> None:
    world.answer = []
    tool = Tool(world).connect()
    tool.die()
    world.answer.pop()(Proc("console", 0), None)
    world.advance(1)
    assert [namespace.name for namespace in world.server.store] == ["job"]


def test_a_job_that_ends_before_the_host_has_answered(world: World) -> None:
    world.answer = []
    tool = Tool(world, FLAG_TOOL_CLIENT, Proc("job", 0)).connect()
    world.server.deregister_nspace("job")
    world.answer.pop()(None, None)
    tool.read()
    assert tool.welcome == statuses.ERR_NOT_FOUND


def test_there_is_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_TOOLS", 3)
    names = [Proc("console", rank) for rank in range(4)]
    there = [Tool(world, FLAG_TOOL_GIVEN_ID, name).connect() for name in names]
    assert [tool.accepted for tool in there] == [True, True, True, False]
    assert there[3].welcome == statuses.ERR_OUT_OF_RESOURCE
    for tool in there[:3]:
        tool.die()
    world.advance(1)
    assert Tool(world, FLAG_TOOL_GIVEN_ID, names[3]).connect().accepted


# What a tool can do, and what is left of it


def test_a_tool_gets_an_answer_to_the_request_for_its_job_info(world: World) -> None:
    tool = Tool(world).connect()
    tag = tool.ask(Command.REQ)
    assert Unpacker(tool.replies[tag]).one(codes.STRING) == tool.proc.nspace


def test_a_tool_publishes_under_its_own_name_and_user(world: World) -> None:
    tool = Tool(world).connect()
    tag = tool.ask(Command.PUBLISHNB, uid=0, infos=(Info("key", Value(codes.STRING, "text")),))
    assert tool.status(tag) == statuses.SUCCESS
    assert isinstance(world.upcalls[-1], ops.Publish)
    assert (world.askers[-1].proc, world.askers[-1].uid) == (tool.proc, UID)


@pytest.mark.parametrize("finalizes", [True, False])
def test_nothing_is_left_of_a_tool_that_has_gone(world: World, finalizes: bool) -> None:
    tool = Tool(world).connect()
    if finalizes:
        assert tool.status(tool.ask(Command.FINALIZE)) == statuses.SUCCESS
    tool.die()
    told = world.upcalls[-1]
    assert isinstance(told, ops.ClientFinalized if finalizes else ops.ClientLost)
    assert told.proc == tool.proc
    world.advance(0)
    assert [namespace.name for namespace in world.server.store] == ["job"]
    assert list(world.server.everyone()) == []


def test_a_name_can_be_used_again_and_by_several_connections(world: World) -> None:
    name = Proc("console", 0)
    first, second = (Tool(world, FLAG_TOOL_GIVEN_ID, name).connect() for _ in range(2))
    assert first.accepted
    assert second.accepted
    first.die()
    world.advance(1)
    assert world.server.store.process(name).registered
    second.die()
    world.advance(1)
    assert world.server.store.get("console") is None
    assert Tool(world, FLAG_TOOL_GIVEN_ID, name).connect().accepted


def test_a_tool_that_comes_back_at_once_stays(world: World) -> None:
    name = Proc("console", 0)
    Tool(world, FLAG_TOOL_GIVEN_ID, name).connect().die()
    back = Tool(world, FLAG_TOOL_GIVEN_ID, name).connect()
    world.advance(1)
    assert back.accepted
    assert back.status(back.ask(Command.FINALIZE)) == statuses.SUCCESS


def test_names_that_the_server_makes_are_nobody_elses(world: World) -> None:
    for _ in range(3):
        Tool(world, FLAG_TOOL_GIVEN_ID, Proc(f"{world.server.proc.nspace}-tool{_ + 1}", 0)).connect()
    assert Tool(world).connect().proc.nspace == f"{world.server.proc.nspace}-tool4"


def test_simple_clients_are_none_of_its_business(world: World) -> None:
    assert Client(world, 0, flag=FLAG_CLIENT).connect().welcome[0] == statuses.SUCCESS
    assert isinstance(world.upcalls[0], ops.ClientConnected)
