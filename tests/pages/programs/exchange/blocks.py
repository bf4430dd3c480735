# pypmix run -n 2
import json

from lib.blocks import Session

from pypmix import Client

session = Session("exchange", globals())
with Client() as me:
    session.run(0)
    assert state == {"epoch": 3}
    load = me.rank / 2
    with me.group("acme.values", me.job.procs, ft=True, timeout=20) as g:
        session.run(1)
    assert loads == {proc: proc.rank / 2 for proc in me.job}
    round, value = 1, me.rank
    session.run(2)
    assert values == [0, 1]
