"""Addresses: to listen on, and to reach this machine by."""

from __future__ import annotations

import _socket
import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence
    from typing import Any

    Address = tuple[str, int]

ANYWHERE = "::"
"""All addresses of this machine, IPv4 ones too."""

BACKLOG = 1024
"""The connections that wait in the system's queue."""

LACKING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of `accept` that are not about its connection."""

AGAIN_SECONDS = 0.1

REACH_SECONDS = 2.0
"""The time that the launcher has to answer at one of its addresses, before the next one is tried."""


def set_keep_alive(sock: socket.socket, on: bool = True, **seconds: float) -> None:
    """Let the system check a connection that is silent, or no longer.

    Args:
        sock: The connection.
        on: Whether it checks.
        seconds: The options of TCP by their names; the time of `TCP_USER_TIMEOUT` in milliseconds. Those that the
            system does not have are left out.
    """
    sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, on)
    for option, value in seconds.items():
        if hasattr(_socket, option):
            # The system takes whole numbers, and at most 32767 seconds.
            most = 1 << 30 if option == "TCP_USER_TIMEOUT" else 32767
            sock.setsockopt(_socket.IPPROTO_TCP, getattr(_socket, option), max(1, min(int(value), most)))


def listen(address: Address, reuse_port: bool = False) -> socket.socket:
    """Return a socket that listens on an address.

    Args:
        address: The address and the port.
        reuse_port: Share the port with sockets of this user that have `SO_REUSEPORT` set.

    Raises:
        OSError: The address cannot be used.
    """
    import socket

    host, port = address
    if host == ANYWHERE and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dual = host == ANYWHERE
    return socket.create_server(
        (host, port), family=family, backlog=BACKLOG, reuse_port=reuse_port, dualstack_ipv6=dual
    )


def connections(listener: socket.socket, seconds: float | None = None) -> Iterator[socket.socket]:
    """Yield the connections that arrive, on the caller's thread, until `hang_up` or the end of the time.

    Args:
        listener: The socket that listens.
        seconds: How long it listens; forever by default.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        try:
            if deadline is not None:
                listener.settimeout(max(0.0, deadline - time.monotonic()))
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno not in LACKING:
                return
            # The connection stays queued: the resource that this process lacks may be available again soon.
            time.sleep(AGAIN_SECONDS)
            continue
        yield connection


def hang_up(connection: socket.socket) -> None:
    """Shut a connection down: both ends, and each thread that waits there, see its end.

    A thread that waits for connections is woken in the same way.
    """
    try:
        connection.shutdown(_socket.SHUT_RDWR)
    except OSError:
        # It has ended already.
        return


def resolved(host: str, port: int, kind: int, flags: int = 0) -> list[tuple[Any, ...]]:
    """Return the results of `socket.getaddrinfo` for a name or an address."""
    # For a str, Python imports the tables of IDNA, which takes as long as a small program runs.
    name = host.encode("ascii") if host.isascii() else host
    return list(_socket.getaddrinfo(name, port, type=kind, flags=flags))


def listening_address(interface: str, launcher: Sequence[Address]) -> str:
    """Return the address to listen on.

    Args:
        interface: The name of a network interface, an address, or a CIDR; empty for the network to the launcher.
        launcher: The launcher's addresses.

    Raises:
        OSError: No such address exists.
    """
    if interface:
        return _address_of(interface)
    # By the launcher's address: the address of this machine from which there is a route to it.
    own = {place: found for place in launcher if (found := _source(*place))}
    if len(set(own.values())) > 1:
        import socket

        for place in own:
            try:
                with socket.create_connection(place, REACH_SECONDS) as reached:
                    return str(reached.getsockname()[0])
            except OSError:
                continue
    for found in own.values():
        return found
    where = ", ".join([host for host, _ in launcher])
    raise OSError(errno.EHOSTUNREACH, f"no route from here to the launcher at {where}")


def _source(host: str, port: int) -> str:
    """Return the address of this machine from which another one is reached; empty without a route."""
    try:
        found = resolved(host, port, _socket.SOCK_DGRAM)
    except OSError:
        return ""
    for family, kind, _protocol, _name, address in found:
        probe = _socket.socket(family, kind)
        try:
            # Nothing is sent: the system only looks for the route.
            probe.connect(address)
            return str(probe.getsockname()[0])
        except OSError:
            continue
        finally:
            probe.close()
    return ""


def _address_of(interface: str) -> str:
    import ipaddress

    here = _addresses()
    if interface in [name for name, _ in here]:
        return next(address for name, address in here if name == interface)
    try:
        network = ipaddress.ip_network(interface, strict=False)
    except ValueError:
        names = ", ".join(dict.fromkeys([name for name, _ in here]))
        text = f"{interface!r} is neither an interface of this node ({names}) nor a network such as 10.0.0.0/8"
        raise OSError(errno.ENODEV, text) from None
    if network.num_addresses == 1:
        return str(network.network_address)
    for _, address in here:
        if ipaddress.ip_address(address.partition("%")[0]) in network:
            return address
    raise OSError(errno.EADDRNOTAVAIL, f"this node has no address in {interface}")


def _addresses() -> list[tuple[str, str]]:
    """Return the interfaces of this node with their addresses, IPv4 first."""
    import fcntl
    import struct

    found = []
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        for _, name in _socket.if_nameindex():
            try:
                # SIOCGIFADDR
                answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", os.fsencode(name)[:15]))
            except OSError:
                continue
            found.append((name, _socket.inet_ntoa(answer[20:24])))
    finally:
        probe.close()
    try:
        with open("/proc/net/if_inet6", encoding="utf-8") as file:
            for line in file:
                digits, _, _, scope, _, name = line.split()
                # Link-local addresses need a scope, which is valid on this node only.
                if scope != "20":
                    found.append((name, _socket.inet_ntop(_socket.AF_INET6, bytes.fromhex(digits))))
    except (OSError, ValueError):
        pass
    return found


def all_addresses() -> list[str]:
    """Return the addresses of this machine, with loopback last."""
    return sorted([address for _, address in _addresses()], key=is_loopback)


def offered_addresses(interface: str = "") -> list[str]:
    """Return the addresses by which the other nodes of a job may reach this one, the likeliest first.

    Args:
        interface: The name of a network interface, an address, or a CIDR: then only its address.

    Raises:
        OSError: This node has no such interface or address.
    """
    if interface:
        return [_address_of(interface)]
    found = [address for address in all_addresses() if not is_loopback(address)]
    return list(dict.fromkeys([_socket.gethostname(), *found]))


def is_loopback(address: str) -> bool:
    """Return True if messages to an address stay on this machine."""
    return address == "::1" or (address.startswith("127.") and not address.strip(".0123456789"))


def with_port(host: str, port: object) -> str:
    """Return an address in the form of a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def own_addresses(other: str) -> list[str]:
    """Return the addresses by which this machine may be reached from another, the likeliest first."""
    found = _source(other, 9)
    return list(dict.fromkeys([*([found] if found else []), _socket.gethostname(), _loopback()]))


def _loopback() -> str:
    """Return this machine's loopback address: IPv4, unless it has only IPv6."""
    return "::1" if {address for address in all_addresses() if is_loopback(address)} == {"::1"} else "127.0.0.1"
