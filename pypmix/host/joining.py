"""Joined runs, each a separate cluster: the connection of their servers, and the values that all of them look up."""

from __future__ import annotations

import errno
import fcntl
import os
from functools import partial

from pypmix.clusters import check_cluster, split_nspace
from pypmix.host.exchange import codec, rendezvous
from pypmix.host.exchange.border import Naming, renamed
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.tcp import TCPCarrier
from pypmix.host.publisheddata import Caller
from pypmix.host.publishing import Publications
from pypmix.standard import statuses
from pypmix.standard.enums import Range
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import Publish, Unpublish
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.host.exchange.carrier import OnChange, OnMessage
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.loop import HostLoop
    from pypmix.host.manager import Manager
    from pypmix.host.publisheddata import Entry

PUBLISHED = "pypmix.cluster.published"
TAKEN_BACK = "pypmix.cluster.unpublished"

CLAIM = "cluster."
"""The prefix of the file in the folder that a cluster's run keeps locked."""

ELSEWHERE = -1
"""The number of all nodes of other clusters: no node of this one has it."""


class Joining(Record):
    """The membership of a host in a set of clusters.

    Args:
        cluster: Its name, unique among the clusters.
        folder: The folder in which the clusters find each other: all of them see it, and only this user may.
        address: The address that its servers listen on, by which the others reach them.
    """

    cluster: str
    folder: str
    address: str = "127.0.0.1"

    def __validate__(self) -> None:
        check_cluster(self.cluster)
        if not self.folder or not self.address:
            raise ValueError("clusters are joined by a folder, and listen on an address")

    def claim(self) -> int:
        """Lock the cluster's name in the folder; return a descriptor that holds it until it is closed.

        A process that is killed releases it.

        Raises:
            PMIxError: Another run has that name (`ERR_EXISTS`), or the folder cannot be used.
        """
        folder = os.path.abspath(self.folder)
        try:
            rendezvous.enter(folder)
            path = os.path.join(folder, CLAIM + self.cluster)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise PMIxError(f"{folder} joins no clusters: {error.strerror or error}", operation="exchange") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.write(fd, f"process {os.getpid()} on {os.uname().nodename}".encode())
        except OSError as error:
            holder = os.read(fd, 300).decode(errors="replace")
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                text = f"{path} cannot be locked: {error.strerror or error}"
                raise PMIxError(text, operation="exchange") from error
            raise PMIxError(
                f"there is a cluster {self.cluster!r} in {folder} already ({holder or 'another run'})",
                status=statuses.ERR_EXISTS,
                operation="exchange",
                hint="each of the runs that are joined has a name of its own",
            ) from error
        return fd

    def carrier(self, hostname: str, loop: HostLoop) -> LoopCarrier:
        """Return the carrier of the messages of a node's server.

        Raises:
            PMIxError: The folder cannot be used (`PermissionDenied` if other users may read it), or the
                address cannot be listened on.
        """
        name = f"{self.cluster}:{hostname}"
        try:
            carrier = TCPCarrier.in_folder(name, os.path.abspath(self.folder), host=self.address)
        except OSError as error:
            text = f"{self.folder} does not join clusters that listen on {self.address}: {error.strerror or error}"
            raise PMIxError(text, operation="exchange") from error
        return LoopCarrier(carrier, loop)


class LoopCarrier:
    """A carrier whose callbacks are called on a host's loop, like all other work of the host.

    Args:
        carrier: The carrier.
        loop: The loop.
    """

    def __init__(self, carrier: TCPCarrier, loop: HostLoop) -> None:
        self.name = carrier.name
        self._carrier = carrier
        self._loop = loop
        self._present = {carrier.name}
        self._lives = {carrier.name: carrier.life(carrier.name)}
        self.keep_alive = carrier.keep_alive
        self._closed = False

    @property
    def members(self) -> tuple[str, ...]:
        """The servers that are connected, as far as the loop has been informed."""
        return tuple(sorted(self._present))

    def life(self, name: str) -> bytes:
        """Return the number of a server's process, as of the last change that the loop knows."""
        return self._lives.get(name, b"")

    def send(self, to: str, message: bytes) -> None:
        """Send a message."""
        self._carrier.send(to, message)

    def listen(self, on_message: OnMessage, on_change: OnChange) -> None:
        """Start to call the callbacks."""

        def changed(name: str, here: bool, life: bytes) -> None:
            if not self._closed:
                self._lives[name] = life
                (self._present.add if here else self._present.discard)(name)
                on_change(name, here)

        def arrived(sender: str, message: bytes) -> None:
            if not self._closed:
                on_message(sender, message)

        def note(name: str, here: bool) -> None:
            life = self._carrier.life(name)
            self._loop.post(lambda: changed(name, here, life))

        self._carrier.listen(
            lambda sender, message: self._loop.post(lambda: arrived(sender, message)),
            note,
        )

    def close(self) -> None:
        """Close the carrier."""
        self._closed = True
        self._carrier.close()


class Shared:
    """The values that are published to all clusters (`Range.GLOBAL`): each cluster has copies of the others' values.

    The cluster of the publisher decides about a value. The first node of each cluster sends its changes to the others.

    Args:
        host: The host.
        exchange: The exchange of its first node.
        names: The names of jobs on both sides of the border.
    """

    def __init__(self, host: Manager, exchange: Exchange, names: Naming) -> None:
        self._exchange = exchange
        self._names = names
        self._first = exchange.name
        self._directory = host.part(Publications).directory
        self._directory.watcher = self._changed
        self._telling = True
        exchange.hear(PUBLISHED, self._told_published)
        exchange.hear(TAKEN_BACK, self._told_taken_back)
        exchange.watch(self._met)

    def _first_nodes(self) -> list[str]:
        """Return the first node of each other cluster."""
        firsts: dict[str | None, str] = {}
        for name in self._exchange.members:
            firsts.setdefault(split_nspace(name)[0], name)
        return [name for cluster, name in firsts.items() if cluster != self._names.cluster]

    def _changed(self, entry: Entry, here: bool) -> None:
        """Send the others a value that was published in this cluster, or its removal."""
        if entry.range != Range.GLOBAL or not self._telling:
            return
        cluster = split_nspace(entry.owner.proc.nspace)[0]
        topic, data = (PUBLISHED, self._published(entry)) if here else (TAKEN_BACK, self._taken_back(entry))
        for name in self._first_nodes():
            # If a copy that may be read once only was read, only its cluster is informed, which informs the rest.
            if cluster in (None, split_nspace(name)[0]):
                self._exchange.tell(name, topic, data)

    def _published(self, entry: Entry) -> bytes:
        op = renamed(Publish((entry.info,), entry.range, entry.persistence, entry.permissions()), self._names.out)
        return self._packed(op, entry)

    def _taken_back(self, entry: Entry) -> bytes:
        return self._packed(Unpublish((entry.info.key,)), entry)

    def _packed(self, op: Publish | Unpublish, entry: Entry) -> bytes:
        owner = entry.owner
        return codec.pack_request(op, renamed(owner.proc, self._names.out), owner.uid, owner.gid)

    def _met(self, name: str, here: bool) -> None:
        cluster = split_nspace(name)[0]
        if cluster == self._names.cluster:
            return
        if here and name in self._first_nodes():
            for entry in self._directory.published(Range.GLOBAL):
                if split_nspace(entry.owner.proc.nspace)[0] is None:
                    self._exchange.tell(name, PUBLISHED, self._published(entry))
        elif cluster not in {split_nspace(member)[0] for member in self._exchange.members}:
            of_cluster = lambda entry: split_nspace(entry.owner.proc.nspace)[0] == cluster  # noqa: E731
            self._quietly(partial(self._directory.remove_all, Range.GLOBAL, of_cluster))

    def _told_published(self, _sender: str, data: bytes) -> None:
        op, proc, uid, gid = codec.unpack_request(data)
        assert isinstance(op, Publish)
        self._telling = False
        try:
            home = self._names.home
            self._directory.publish(Caller(renamed(proc, home), uid, gid, ELSEWHERE), renamed(op, home))
        except PMIxError as error:
            log.warning("%s: what %s has published is not seen here: %s", self._first, proc, error)
        finally:
            self._telling = True

    def _told_taken_back(self, _sender: str, data: bytes) -> None:
        op, proc, _uid, _gid = codec.unpack_request(data)
        assert isinstance(op, Unpublish)
        owner = renamed(proc, self._names.home)
        remove = partial(self._directory.remove_keys, Range.GLOBAL, owner, op.keys)
        if split_nspace(owner.nspace)[0] is None:
            # A proc there has read a value that may be read once.
            remove()
        else:
            self._quietly(remove)

    def _quietly(self, remove: Callable[[], None]) -> None:
        """Remove copies without informing the other clusters."""
        self._telling = False
        try:
            remove()
        finally:
            self._telling = True
