"""Each rank gives the address of its endpoint to all others, and sends data to its neighbour."""

import socket

from pypmix import Client
from pypmix.types import uint32

LOCALHOST = "127.0.0.1"  # on several nodes, an address of this node that the others reach


def open_endpoint() -> tuple[socket.socket, bytes]:
    """Stand for UCX: `ucp.create_worker()`, and the address that it has."""
    listener = socket.create_server((LOCALHOST, 0))
    host, port = listener.getsockname()
    return listener, f"{host}:{port}".encode()


def connect(address: bytes) -> socket.socket:
    host, _, port = address.decode().rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


with Client() as me:
    listener, address = open_endpoint()
    me.put("acme.ucx.address", address)  # bytes stay bytes
    me.put("acme.ucx.lanes", uint32(me.rank + 1))  # a peer in C reads a uint32
    me.fence(collect=True, timeout=30)  # all have put, and get needs no further message

    right = me.job[(me.rank + 1) % me.job.size]
    lanes = [me.get("acme.ucx.lanes", proc) for proc in me.job]
    with connect(me.get("acme.ucx.address", right)) as out:
        out.sendall(f"from rank {me.rank}".encode())
    with listener, listener.accept()[0] as incoming:
        text = incoming.makefile().read()
    print(f"rank {me.rank}: {text}, lanes {lanes}")
