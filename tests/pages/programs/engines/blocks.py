# pypmix run -n 1
import pypmix
from lib.blocks import Session

Session("docs/how-to/engines.md", globals()).run(0)
