"""Collective operations: fence, connect, disconnect, group construct and destruct, for any level of a tree of servers.

`machine` is the state machine; `rules` contains the decisions that must be the same on every server. Neither uses a
socket, a clock or the wire protocol.
"""
