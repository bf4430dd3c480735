from lib.blocks import Session

Session("session", globals()).run(0)
