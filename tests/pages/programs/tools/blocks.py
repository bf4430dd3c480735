from lib.blocks import Session

from pypmix import Server


def on_upcall(call):
    raise AssertionError(call)


Session("docs/how-to/tools.md", globals()).run(0)
