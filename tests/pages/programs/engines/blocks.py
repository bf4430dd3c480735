# pypmix run -n 1
import pypmix
from harness.blocks import Session

Session("docs/how-to/engines.md", globals()).run(0)
