# pypmix run -n 1
import pypmix
from lib.blocks import Session

from pypmix import Client, IOFChannel

session = Session("spawn", globals())
with Client() as me:
    session.run(0)
    assert job.size == 5
    assert job.wait(timeout=60) == 0
    session.run(1)
