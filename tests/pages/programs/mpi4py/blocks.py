# pypmix run -n 2
from lib.blocks import Session

from pypmix import Client

session = Session("docs/how-to/mpi4py.md", globals())
with Client() as me:
    procs = me.job.procs
    session.run(0)
