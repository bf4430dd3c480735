from lib.blocks import Session

Session("docs/reference/compat.md", globals()).run(0)
