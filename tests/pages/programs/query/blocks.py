# pypmix run -n 4
from lib.blocks import Session

from pypmix import Client, attrs

session = Session("query", globals())
with Client() as me:
    if me.rank == 0:
        session.run(0)
    me.fence()
