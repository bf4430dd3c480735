# pypmix run -n 2
from lib.blocks import Session

from pypmix import Client, EventCode
from pypmix.recipes import Leadership

session = Session("failover", globals())
terms = []


def work_under(leader, epoch):
    terms.append(leader)
    if len(terms) == 1:
        g.destruct(timeout=60)


with Client() as me:
    session.run(0)
    assert set(terms) == {me.job[0]}
    session.run(1)
    me.fence(timeout=60)
