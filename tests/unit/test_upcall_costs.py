"""How many functions are called for a request that a server's host answers at once."""

from __future__ import annotations

import pytest

from lib.server_world import Client, World
from lib.steps import count_calls
from pypmix.host import Application, LocalHost
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.ops import GroupUpcall
from pypmix.standard.ops.hosting import GROUP_CONSTRUCT, GROUP_DESTRUCT
from pypmix.standard.types import Info, Proc, Value
from pypmix.wire.messages import Command, request_layout

RELEASE = (5, 0, 11)


@pytest.fixture
def client():
    return Client(World(1)).connect()


@pytest.mark.parametrize(
    ("command", "fields", "most"),
    [
        (Command.PUBLISHNB, {"uid": 0, "infos": (Info("uid", Value(codes.UINT32, 7)),)}, 50),
        (Command.UNPUBLISHNB, {"uid": 0, "keys": ("uid",), "infos": ()}, 50),
        (Command.JOB_CONTROL, {"procs": (), "infos": (attrs.JOB_CTRL_PAUSE(True),)}, 62),
    ],
)
def test_a_request_takes_few_calls(client, command, fields, most):
    payload = request_layout(command, RELEASE).encode(1, RELEASE, **fields)
    tags = [client.send(payload)]  # imports
    found = count_calls(lambda: tags.append(client.send(payload)))
    assert [client.status(tag) for tag in tags] == [statuses.SUCCESS] * 2
    assert found <= most


class Asked:
    """An upcall of a server, and its answer."""

    requestor = None

    def __init__(self, op):
        self.op = op
        self.answer = None

    def reply(self, result=None):
        self.answer = result


@pytest.mark.parametrize("operation", [GROUP_CONSTRUCT, GROUP_DESTRUCT])
def test_the_launcher_answers_an_upcall_of_a_group_in_four_calls(operation):
    host = LocalHost([Application(("true",))])
    op = GroupUpcall(operation, "g", (Proc("demo", 0), Proc("demo", 1)))
    host.upcall(host.nodes[0], Asked(op))  # imports
    asked = Asked(op)
    assert count_calls(lambda: host.upcall(host.nodes[0], asked)) == 4
    assert asked.answer == ()
