import pypmix
from lib.blocks import Session

Session("processes", globals()).run(0)
assert me.job.size == 1
