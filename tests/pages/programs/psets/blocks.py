# pypmix run -n 2 --pset gpu
from lib.blocks import Session

from pypmix import Client, attrs
from pypmix.host import Host

session = Session("psets", globals())


class Enough(Exception):
    pass


with Client() as me:
    rank = me.rank
    other = me.job[1]
    session.run(0)
    assert sets.of(me.proc) == ("gpu",)
    session.run(1)
    assert not cpu
    shown = print

    def print(kind, name, members):
        assert (str(kind), name, members) == ("define", "gpu", gpu)
        raise Enough

    try:
        session.run(2)
    except Enough:
        shown("ran block 2")
    print = shown
    me.fence(timeout=60)
if rank == 0:
    with Host() as rm:
        job = rm.job("acme", np=3)
        session.run(3)
