from lib.blocks import Session

Session("local-host", globals()).run(0)
