# pypmix run -n 1
import pypmix
from lib.blocks import Session

Session("engines", globals()).run(0)
