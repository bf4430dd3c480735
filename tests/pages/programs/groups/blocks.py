# pypmix run -n 2
import threading
import time

from lib.blocks import Session

from pypmix import Client, EventCode, Proc
from pypmix.groups import GroupEvent, LeaderSelected, Left, MemberFailed
from pypmix.recipes.draft import Consent, announce

session = Session("groups", globals())


def print(text):
    if "is gone" in text:
        threading.Thread(target=lambda: g.destruct(timeout=60)).start()


def leave():
    while g.name != "acme.pool":
        time.sleep(0.05)
    g.leave()


asked = []


def finish(event):
    asked.append(event.source.rank)


def work():
    if me.rank == 0:
        with team.changes() as changes:
            assert changes.next(timeout=60).proc == me.job[1]


with Client() as me:
    evens = me.job.procs
    me.put("endpoint", me.rank)
    session.run(0)
    if me.rank == 1:
        threading.Thread(target=leave).start()
    session.run(1)
    procs = me.job.procs
    with me.events(GroupEvent.REQUESTED, GroupEvent.HAS_JOINED) as heard:
        me.fence(timeout=60)
        session.run(2)
        codes = {heard.get(timeout=60).code for _ in range(2)}
    assert codes == {GroupEvent.REQUESTED, GroupEvent.HAS_JOINED}
    assert asked == ([1] if me.rank == 0 else []) and not team.membership.is_open
