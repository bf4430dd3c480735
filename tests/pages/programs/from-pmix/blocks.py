from lib.blocks import Session

Session("docs/how-to/from-pmix.md", globals()).run(0)
