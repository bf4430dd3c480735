from lib.blocks import Session

from pypmix import Server


def on_upcall(call):
    raise AssertionError(call)


Session("tools", globals()).run(0)
