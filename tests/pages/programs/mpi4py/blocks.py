# pypmix run -n 2
from lib.blocks import Session

from pypmix import Client

session = Session("mpi4py", globals())
with Client() as me:
    procs = me.job.procs
    session.run(0)
