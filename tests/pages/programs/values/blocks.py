# pypmix run -n 2
import json

from lib.blocks import Session

from pypmix import Client

session = Session("docs/how-to/values.md", globals())
with Client() as me:
    session.run(0)
    assert state == {"epoch": 3}
