# pypmix run -n 2
from pathlib import Path

from lib.blocks import Session

from pypmix import Client, attrs

session = Session("control", globals())
with Client() as me:
    if me.rank == 0:
        Path("out.log").touch()
        session.run(0)
        other = me
        data = me.credentials.get().data
        session.run(1)
    me.fence()
