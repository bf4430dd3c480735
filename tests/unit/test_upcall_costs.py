"""How many functions a server calls for a request that its host answers at once."""

from __future__ import annotations

import pytest

from lib.server_world import Client, World
from lib.steps import count_calls
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.types import Info, Value
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
