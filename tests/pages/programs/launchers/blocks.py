# pypmix run -n 1
import pypmix
from lib.blocks import Session

Session("launchers", globals()).run(0)
