# pypmix run -n 1
import pypmix
from lib.blocks import Session

Session("docs/how-to/launchers.md", globals()).run(0)
