from lib.blocks import Session

Session("servers", globals()).run(0)
