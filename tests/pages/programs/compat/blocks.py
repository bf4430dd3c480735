from lib.blocks import Session

Session("compat", globals()).run(0)
