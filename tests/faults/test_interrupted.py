"""Proves that a signal handler which raises while events and output are taken in loses none and brings none twice."""

from __future__ import annotations

import sys

import pytest

from lib.client_wire import PEER
from lib.event_client import Client
from lib.fake_server import RELEASE
from pypmix.engine import chain
from pypmix.engine.python import client as machine
from pypmix.engine.python.clientside import events, forwarding
from pypmix.standard import attrs
from pypmix.standard.enums import Range
from pypmix.standard.ops import Fence, IOFPull
from pypmix.standard.types import Info, Proc
from pypmix.standard.values import uint32
from pypmix.wire.frames import TAG_IOF, TAG_NOTIFY, frame
from pypmix.wire.messages import EVENT, IOF, Command, encode_status, reply_layout

FILES = {module.__file__ for module in (machine, chain, events, forwarding)}


def raise_at(number):
    """Return a tracer that acts like a signal handler which raises at one step of the client's code."""
    left = number

    def trace(step, event, _):
        nonlocal left
        if step.f_code.co_filename not in FILES:
            return None
        step.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    return trace


def event(code, number):
    fields = {"source": PEER, "infos": (Info("acme.n", uint32(number)),), "range": Range.SESSION}
    return frame(0, TAG_NOTIFY, EVENT.encode(1, RELEASE, code=code, **fields))


def piece(local_id, data):
    fields = {"source": PEER, "channel": 2, "handler": local_id, "infos": ()}
    return frame(0, TAG_IOF, IOF.encode(1, RELEASE, data=data, **fields))


def interrupted(number, again=False):
    """Take in events, output and a reply, be interrupted at one step, and go on; return whether it was reached."""
    client = Client()
    client.on("one", -1)
    client.on("once", -1, directives=(attrs.EVENT_ONESHOT(True),))
    client.on("late", -3)
    output = []
    pull = client.start(IOFPull((Proc("other", 0),), 2, (), lambda found: output.append(found.data)))
    ((tag, _),) = client.sent().items()
    client.reply(tag, reply_layout(Command.IOF_PULL, RELEASE).encode(1, RELEASE, status=0, remote_id=9))
    assert pull.outcome is not None and pull.outcome[1] is None
    fence = client.start(Fence())
    ((tag, _),) = client.sent().items()
    stream = b"".join(
        (
            event(-1, 1),
            piece(pull.outcome[0], b"a"),
            event(-1, 2),
            event(-2, 3),
            frame(0, tag, encode_status(1, 0)),
            piece(pull.outcome[0], b"b"),
            event(-1, 4),
        )
    )
    client.machine.intake.chunks.append(stream[:-3])
    reached = False
    # Python 3.12 looks at this when tracing begins.
    sys._getframe().f_trace_opcodes = True
    step = lambda: client.machine.take(client.now)  # noqa: E731
    for _ in range(2 if again else 1):
        sys.settrace(raise_at(number))
        try:
            step()
        except KeyboardInterrupt:
            reached = True
        finally:
            sys.settrace(None)
        if not reached:
            break
        step = client.machine.resume
    if reached:
        client.machine.resume()
    client.deliver()
    client.feed(stream[-3:])
    numbers = {"one": [], "once": []}
    for label, notification in client.seen:
        numbers[label].append(notification.infos[0].value.data)
    assert numbers == {"one": [1, 2, 4], "once": [1]}
    assert output == [b"a", b"b"]
    assert fence.outcome == (None, None)
    client.seen.clear()
    client.sent()
    client.on("two", -2)
    assert [notification.infos[0].value.data for _, notification in client.seen] == [3]
    return reached


@pytest.mark.parametrize("again", [False, True])
def test_what_is_taken_in_is_handed_on_once(again):
    number = 1
    while interrupted(number, again):
        number += 3 if again else 1
    assert number > 1000
