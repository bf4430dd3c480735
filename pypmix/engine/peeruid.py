"""The user of the process at the other end of a connection on this machine, from the kernel.

The credential of the `native` security module is unverified, and any user of the machine can reach the loopback
interface. Linux reports the owner of a TCP socket by its addresses, over netlink, and the owner of a Unix-domain socket
by the socket. Without a definite answer of the kernel, the user is unknown: a socket that is not found may be hidden (a
socket bound to a device is not found by its addresses alone), or closed.
"""

from __future__ import annotations

import _socket
import os
import struct

from pypmix.standard.errors import Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
REQUEST = 1
ESTABLISHED = 1
LISTENING = 10
ANY_STATE = 0xFFFFFFFF
NO_COOKIE = 0xFFFFFFFF

UNKNOWN_USER = -1
"""The kernel does not report the owner."""

MAX_STALE = 64
"""The most answers to earlier requests, or from other senders than the kernel, that are skipped."""

PROBE_SECONDS = 5.0
"""Seconds that a connection of a process to itself may take."""

OWNER = "PYPMIX_SERVER_OWNER"
"""The variable with further users whose servers a process accepts, besides its user and root: uids, or `any`."""

ANYBODY = "any"

_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
_PLACE = struct.Struct("=III")
_REPLY = struct.Struct("=BBBB4s16s16sIIIIIIII")
_PEER = struct.Struct("=iII")
_MAPPED = b"\0" * 10 + b"\xff\xff"
_ALL_IDS = 0xFFFFFFFF


def contents(path: str) -> bytes:
    """Return the contents of a file, read without a file object, which would cost a client more than the file."""
    file, found = os.open(path, os.O_RDONLY | os.O_CLOEXEC), b""
    try:
        while piece := os.read(file, 4096):
            found += piece
    finally:
        os.close(file)
    return found


def unclear() -> int:
    """Return the uid that represents all users outside of this process's user namespace; -1 for none.

    The kernel reports it for sockets of all these users, so that it proves nothing.
    """
    try:
        known = sum([int(line.split()[2]) for line in contents("/proc/self/uid_map").splitlines()])
        if known >= _ALL_IDS:
            return UNKNOWN_USER
    except FileNotFoundError:
        if os.path.exists("/proc/self/status"):
            # A kernel without user namespaces.
            return UNKNOWN_USER
    except (OSError, ValueError, IndexError):
        pass
    try:
        return int(contents("/proc/sys/kernel/overflowuid"))
    except (OSError, ValueError):
        return 65534


def is_current_user(uid: int) -> bool:
    """Return True if this is the user of this process, and can be no other: see `unclear`."""
    return uid == os.geteuid() and uid != unclear()


def described(uid: int) -> str:
    """Return the text for another user, for a person."""
    if uid == unclear():
        return f"user {uid}, who stands for all users that this user namespace does not know"
    return f"user {uid}"


class Listener(_socket.socket):
    """A socket that accepts connections; the class of `socket` costs each start the import of enums."""

    def accept(self) -> tuple[_socket.socket, object]:
        """Return a new connection, and the address of its other end."""
        fd, address = self._accept()  # type: ignore[attr-defined]
        return _socket.socket(self.family, self.type, self.proto, fd), address


def listen_on_loopback(backlog: int = 128) -> Listener:
    """Return a listener on this machine's loopback address of IPv4, or else of IPv6.

    Raises:
        OSError: There is no loopback address.
    """
    try:
        return _listen(_socket.AF_INET, "127.0.0.1", backlog)
    except OSError as error:
        try:
            return _listen(_socket.AF_INET6, "::1", backlog)
        except OSError:
            raise error from None


def _listen(family: int, address: str, backlog: int) -> Listener:
    listener = Listener(family, _socket.SOCK_STREAM)
    try:
        listener.bind((address, 0))
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


class Owners:
    """Finds the owners of the other ends of connections.

    Args:
        tcp: Whether it is needed for TCP connections, too.

    Attributes:
        trouble: Why the kernel does not report the owners of TCP connections here; empty if it does.
    """

    __slots__ = ("_netlink", "_sequence", "_unclear", "trouble")

    def __init__(self, *, tcp: bool = True) -> None:
        self._netlink: _socket.socket | None = None
        self._sequence = 0
        self._unclear = unclear()
        self.trouble = ""
        if not tcp:
            return
        try:
            kind = _socket.SOCK_RAW | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK
            self._netlink = _socket.socket(_socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG)
        except OSError as error:
            self.trouble = f"a netlink socket of the kind sock_diag cannot be opened: {error.strerror}"
        except AttributeError:
            self.trouble = "this Python was built without netlink sockets"

    @property
    def doubt(self) -> str:
        """Why some users cannot be distinguished from others; empty if all can."""
        if self._unclear == UNKNOWN_USER:
            return ""
        return f"this user namespace does not know all users, and shows those as user {self._unclear}"

    def probe(self) -> None:
        """Request the owner of a connection of this process to itself, and set `trouble` if that fails."""
        if self.trouble:
            return
        if os.geteuid() == self._unclear:
            self.trouble = f"{self.doubt}, as which this process runs, too"
            return
        opened: list[_socket.socket] = []
        try:
            opened.append(listener := listen_on_loopback())
            opened.append(here := _socket.socket(listener.family, _socket.SOCK_STREAM))
            here.settimeout(PROBE_SECONDS)
            here.connect(listener.getsockname())
            # The addresses identify this connection, even if other processes connect at the same time.
            uid = self._ask(here.family, here.getsockname(), here.getpeername(), ESTABLISHED)
        except OSError as error:
            self.trouble = f"this process cannot connect to itself: {error.strerror or error}"
            return
        finally:
            for each in opened:
                each.close()
        if uid != os.geteuid():
            self.trouble = "the kernel has no sock_diag for TCP (inet_diag, tcp_diag), or does not let this process ask"

    def uid(self, connection: _socket.socket) -> int:
        """Return the owner of the other end of an accepted connection; `UNKNOWN_USER` if it is uncertain."""
        if connection.family == _socket.AF_UNIX:
            return self._credentials(connection)
        try:
            peer, own = connection.getpeername(), connection.getsockname()
        except OSError:
            return UNKNOWN_USER
        return self._ask(connection.family, peer[:2], own[:2], ESTABLISHED)

    def find(self, connection: _socket.socket) -> int | None:
        """Return the owner of the other end of an accepted connection, as `Admission` needs it.

        `UNKNOWN_USER` if the kernel does not know this connection, and None if it reports the user of none of its kind,
        as `probe` has found.
        """
        if self.trouble and connection.family != _socket.AF_UNIX:
            return None
        return self.uid(connection)

    def server(self, connection: _socket.socket) -> int:
        """Return the owner of the server of a connection; `UNKNOWN_USER` if it is uncertain."""
        # The other end has no owner before the server has accepted it, so the listener's owner is requested.
        if connection.family == _socket.AF_UNIX:
            return self._credentials(connection)
        try:
            host, port = connection.getpeername()[:2]
        except OSError:
            return UNKNOWN_USER
        return self.listener(host, port)

    def listener(self, host: str, port: int) -> int:
        """Return the user who listens at an address of this machine; `UNKNOWN_USER` if it is uncertain."""
        if ":" in host:
            return self._ask(_socket.AF_INET6, (host, port), ("::", 0), LISTENING)
        return self._ask(_socket.AF_INET, (host, port), ("0.0.0.0", 0), LISTENING)

    def close(self) -> None:
        """Close the netlink socket. May be called twice."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _credentials(self, connection: _socket.socket) -> int:
        try:
            data = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _PEER.size)
            _pid, uid, _gid = _PEER.unpack(data)
        except (OSError, struct.error):
            return UNKNOWN_USER
        return UNKNOWN_USER if uid == self._unclear else uid

    def _ask(self, family: int, place: tuple[str, int], other: tuple[str, int], expected_state: int) -> int:
        """Return the owner of the socket in a state that is connected from one address to another."""
        netlink = self._netlink
        if netlink is None:
            return UNKNOWN_USER
        try:
            source, target = _socket.inet_pton(family, place[0]), _socket.inet_pton(family, other[0])
        except (OSError, ValueError):
            return UNKNOWN_USER
        self._sequence = sequence = self._sequence % 0xFFFFFFFF + 1
        ports = _PORTS.pack(place[1], other[1])
        query = b"".join(
            (
                _HEADER.pack(_HEADER.size + 56, SOCK_DIAG_BY_FAMILY, REQUEST, sequence, 0),
                _QUERY.pack(family, _socket.IPPROTO_TCP, 0, 0, ANY_STATE),
                ports,
                source.ljust(16, b"\0"),
                target.ljust(16, b"\0"),
                _PLACE.pack(0, NO_COOKIE, NO_COOKIE),
            )
        )
        try:
            netlink.send(query)
            for _ in range(MAX_STALE):
                data, (sender, _groups) = netlink.recvfrom(4096)
                if sender == 0 and len(data) >= _HEADER.size and _HEADER.unpack_from(data)[3] == sequence:
                    break
            else:
                return UNKNOWN_USER
        except OSError:
            return UNKNOWN_USER
        length, kind, _, _, _ = _HEADER.unpack_from(data)
        if kind != SOCK_DIAG_BY_FAMILY or not _HEADER.size + _REPLY.size <= length <= len(data):
            return UNKNOWN_USER
        reply_family, state, _, _, at, there, beyond, device, _, _, _, _, _, uid, inode = _REPLY.unpack_from(
            data, _HEADER.size
        )
        if expected_state == LISTENING:
            # The socket may listen on all addresses.
            same = at[:2] == ports[:2]
        else:
            same = at == ports and _address(reply_family, there) == source and _address(reply_family, beyond) == target
        # A closed socket remains for a while without an owner: the kernel then reports root.
        sure = same and state == expected_state and inode and not device and uid != self._unclear
        return uid if sure else UNKNOWN_USER


def has_closed(connection: _socket.socket) -> bool:
    """Return True if the other end of an accepted TCP connection has closed it."""
    try:
        return connection.getsockopt(_socket.IPPROTO_TCP, _socket.TCP_INFO, 1)[0] != ESTABLISHED
    except (OSError, AttributeError):
        return False


def check_server(
    server: _socket.socket | tuple[str, int], address: str, owners: Collection[int], allowed: str = ""
) -> None:
    """Check that a server belongs to this user, to root, or to another allowed user.

    Args:
        server: A connection to it, or the host and the port before the connection.
        address: Its address, for a person.
        owners: Further users that it may belong to.
        allowed: The value of `PYPMIX_SERVER_OWNER`.

    Raises:
        Unreachable: It belongs to another user, or the kernel does not report its user.
    """
    if allowed == ANYBODY:
        return
    lookup = Owners(tcp=isinstance(server, tuple) or server.family != _socket.AF_UNIX)
    try:
        uid = lookup.listener(*server) if isinstance(server, tuple) else lookup.server(server)
        why = lookup.trouble or lookup.doubt
    finally:
        lookup.close()
    if uid != UNKNOWN_USER:
        if uid in (0, os.geteuid()) or uid in owners or str(uid) in allowed.replace(" ", "").split(","):
            return
        raise Unreachable(
            f"the server at {address} belongs to user {uid}, and this process to user {os.geteuid()}",
            operation="open",
            engine="python",
            hint="has another server taken the address of yours? "
            f"if that user's server is the right one, set {OWNER}={uid}",
        )
    raise Unreachable(
        f"the kernel does not tell whose server is at {address}" + (f": {why}" if why else ""),
        operation="open",
        engine="python",
        hint=f"if you know that it is the right server, for example on another machine, set {OWNER}={ANYBODY}",
    )


def connections_of_others(ports: Collection[int], users: Collection[int]) -> list[tuple[int, _socket.socket]]:
    """Return the connections to ports of this process from other users than the given ones, with the user of each.

    The sockets are duplicates, which the caller must close.
    """
    # libpmix accepts connections itself, and its request for validation does not name the connection.
    owners = Owners()
    found: list[tuple[int, _socket.socket]] = []
    try:
        for fd in os.listdir("/proc/self/fd"):
            try:
                if not os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                    continue
                further = os.dup(int(fd))
            except OSError:
                # The descriptor has been closed meanwhile.
                continue
            try:
                connection = _socket.socket(fileno=further)
            except OSError:
                # The descriptor has been reused for another file meanwhile.
                os.close(further)
                continue
            tcp = connection.type == _socket.SOCK_STREAM and connection.family != _socket.AF_UNIX
            if (
                tcp
                and not connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_ACCEPTCONN)
                and connection.getsockname()[1] in ports
                and (uid := owners.uid(connection)) not in users
            ):
                found.append((uid, connection))
            else:
                connection.close()
    finally:
        owners.close()
    return found


def _address(family: int, data: bytes) -> bytes:
    """Return an address in the form of the connection: an IPv6 socket may have an IPv4 address."""
    if family == _socket.AF_INET:
        return data[:4]
    return data[12:] if data.startswith(_MAPPED) else data
