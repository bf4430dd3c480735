import pypmix
from lib.blocks import Session

Session("docs/explanation/processes.md", globals()).run(0)
assert me.job.size == 1
