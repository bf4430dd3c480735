# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""The operations of a client by topic, in blocking calls."""
