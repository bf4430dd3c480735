# pypmix run -n 2
from lib.blocks import Session

from pypmix import Client, ConnectEvent

session = Session("connect", globals())
with Client() as me:
    procs = me.job.procs
    session.run(1 - me.rank)
    assert both.procs == procs
    both.disconnect(timeout=60)
