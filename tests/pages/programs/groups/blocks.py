# pypmix run -n 2
import threading
import time

from harness.blocks import Session

from pypmix import Client, EventCode, LeaderSelected, Left, MemberFailed, Proc

session = Session("docs/how-to/groups.md", globals())


def print(text):
    if "is gone" in text:
        threading.Thread(target=lambda: g.destruct(timeout=60)).start()


def leave():
    while g.name != "acme.pool":
        time.sleep(0.05)
    g.leave()


with Client() as me:
    evens = me.job.procs
    me.put("endpoint", me.rank)
    session.run(0)
    if me.rank == 1:
        threading.Thread(target=leave).start()
    session.run(1)
