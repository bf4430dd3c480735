from lib.blocks import Session

Session("loader", globals()).run(0)
