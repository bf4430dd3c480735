"""How many functions a server calls for a request that its host answers at once."""

from __future__ import annotations

import os
import sys

import pytest

import pypmix
from lib.server_world import Client, World
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.types import Info, Value
from pypmix.wire.messages import Command, request_layout

RELEASE = (5, 0, 11)
ROOT = os.path.dirname(pypmix.__file__) + "/"


def calls_of(function):
    """Return how many functions a call calls, those of the Python library apart."""
    found = []

    def count(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            found.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return len(found)


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
    found = calls_of(lambda: tags.append(client.send(payload)))
    assert [client.status(tag) for tag in tags] == [statuses.SUCCESS] * 2
    assert found <= most
