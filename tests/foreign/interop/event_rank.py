"""Rank 1 of a job whose rank 0 is events.c: raises and hears events, on the session below the facade."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

from pypmix.engine.select import open_client
from pypmix.standard import attrs, codes
from pypmix.standard.enums import Range
from pypmix.standard.ops import Fence, Finalize, NotifyEvent, RegisterEventHandler
from pypmix.standard.types import DataArray, Proc

me = open_client()
seen = []
arrived = threading.Condition()


def handler(label, status=-331):
    def note(delivery):
        event = delivery.notification
        with arrived:
            keys = [info.key for info in event.infos]
            seen.append((label, event.code, event.source.rank, event.range, keys))
            arrived.notify_all()
        delivery.done(status)

    return note


def on(label, *wanted):
    return me.run(RegisterEventHandler(handler(label), wanted))


def await_event(code):
    with arrived:
        assert arrived.wait_for(lambda: any(entry[1] == code for entry in seen), 10), (code, seen)


def notify(code, range, *infos):
    me.run(NotifyEvent(code, range, infos))


me.run(Fence())
on("early", -4240)
await_event(-4240)
on("some", -4250, -4251, -4252, -4253, -4254)
on("default")
on("last", -4259)
me.run(Fence())
c = Proc(me.proc.nspace, 0)
affected = attrs.EVENT_AFFECTED_PROC(me.proc)
notify(-4242, Range.NAMESPACE, affected, attrs.EVENT_TEXT_MESSAGE("text"))
notify(-4243, Range.CUSTOM, attrs.EVENT_CUSTOM_RANGE(c))
notify(-4242, Range.CUSTOM, attrs.EVENT_CUSTOM_RANGE(DataArray(codes.PROC, (me.proc, Proc("nowhere", 0)))))
notify(-4245, Range.SESSION, attrs.EVENT_NON_DEFAULT(True))
notify(-4246, Range.SESSION)
notify(-4298, Range.LOCAL)
await_event(-4259)
me.run(Fence())
notify(-4242, Range.SESSION)
notify(-4299, Range.LOCAL)
me.run(Fence())
me.run(Finalize())
path = Path(os.environ["PYPMIX_TEST_RESULTS"]) / "1.partial"
path.write_bytes(pickle.dumps((1, str(me.info), seen, None, "")))
path.rename(path.with_suffix(".pickle"))
