"""Collective operations: fence, connect, disconnect, group construct and destruct, for any level of a tree of servers.

`machine` is the state machine, `rules` decides what must come out the same on every server. Neither knows a socket, a
clock or the wire protocol.
"""
