from lib.blocks import Session

Session("cluster-sessions", globals()).run(0)
