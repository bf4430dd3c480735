"""The one check of messages between servers: may their sender send them, about these procs and servers?

A broken or captured server must not harm other servers, so a message counts only if its sender owns what it is about:

    ==================================  ======================================  =================================
    message or entry                    sender                                  about
    ==================================  ======================================  =================================
    `ORDERED` (entries in their order)  the launcher; without one, the root     everything
    `SUBMITTED` (entries of a server)   any server, to the root                 the entries of the sender itself
    entry `LOSS`, and `LOST`            the root alone                          any server
    entries `NEWS`, `PROCS`             any server                              procs on the sender
    entries `JOB`, `FORGET`             any server; with a launcher, only that  jobs; running procs keep their server
    entries `DEFINE`, `DELETE`, `SETS`  any server; with a launcher, only that  process sets
    entry `BROADCAST`                   any server of a session with a launcher what the sender may send itself
    `MEET`, `PASSED_ON`                 the root                                servers that it connects
    `LEAVES`                            any server                              the sender itself
    `DOUBT`                             any server                              the sender; without a launcher, also
                                                                                one that does not reach the root
    `AGREE`, `AGREED`                   any server, if there is no launcher     the sender itself
    `PART`, `AGAIN`                     a server of its procs                   the sender itself
    `UP`                                a server of its procs                   the sender, and the servers below it
    `GIVE_UP`                           any server                              the contribution of the sender
    `TIME_IS_OVER`                      a server of its procs                   the collective of these procs
    `DATA`, `VOID`                      the server whose turn it is             the data of a fence
    `RAISED`, `DIRECTORY`               any server                              procs on the sender, or on no server
    answers about jobs, groups, data    the server that was asked               what it was asked for
    ==================================  ======================================  =================================

Anything else raises `RemoteProtocolError`: it is dropped and logged with the name of its sender (`Arrivals`), or is the
answer to its request. There are two exceptions, where an honest server may be behind. Without a launcher, servers learn
at different times who the root is: `StateLog` skips entries of a server that is not the root here, which reports them
to the root later; and `LOST` of another server is a doubt about that server (`Membership`). A lost server reports
nothing any longer, so without a launcher the others report the end of its procs.

The launcher's orders to its daemons have the same check in `orders.Inbox`.
"""

from __future__ import annotations

from pypmix.host.exchange import statelog
from pypmix.host.exchange.codec import broken
from pypmix.host.exchange.detours import MEET, PASSED_ON
from pypmix.host.exchange.membership import AGREE, AGREED, LOST
from pypmix.host.exchange.places import Places
from pypmix.host.exchange.statelog import ORDERED, SUBMITTED
from pypmix.host.naming import shown
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Parts

RESTRICTED = frozenset((ORDERED, SUBMITTED, LOST, MEET, PASSED_ON, AGREE, AGREED))
"""The topics of messages without an answer that not every server may send to every other."""

OF_DAEMONS = frozenset((statelog.NEWS, statelog.BROADCAST))
"""The kinds of entries that servers other than the launcher submit in a session with one."""


class Authority:
    """The checks of one server.

    Args:
        exchange: This server's exchange.

    Attributes:
        places: The server of each proc; empty without a `Crossing`.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.places = Places()
        self._exchange = exchange

    def check_sender(self, sender: str, topic: str) -> None:
        """Check that a server may send messages of a topic of `RESTRICTED` to this one.

        Raises:
            RemoteProtocolError: It may not.
        """
        exchange = self._exchange
        launcher = exchange.launcher
        if topic in (ORDERED, LOST):
            is_allowed = launcher in ("", sender)
        elif topic in (MEET, PASSED_ON):
            is_allowed = sender == exchange.root
        elif topic == SUBMITTED:
            is_allowed = launcher in ("", exchange.name)
        else:
            is_allowed = not launcher
        if not is_allowed:
            raise broken(f"{shown(sender)} may not send {topic!r} to {shown(exchange.name)}")

    def check_entry(self, sender: str, origin: str, kind: int) -> None:
        """Check that a server may submit an entry of a kind; what it is about is checked by its kind.

        Raises:
            RemoteProtocolError: It may not.
        """
        if origin != sender:
            raise broken(f"{shown(sender)} submits an entry of {shown(origin)}")
        if kind not in OF_DAEMONS if self._exchange.launcher else kind in (statelog.LOSS, statelog.MARK):
            raise broken(f"{shown(sender)} submits an entry of kind {kind}, which only the root may add")

    def check_parts(self, sender: str, parts: Parts, below: Container[str]) -> None:
        """Check that contributions are of a server and of those below it, and that these have procs that take part.

        Args:
            sender: The server.
            parts: The contributions.
            below: The servers below it, and itself.

        Raises:
            RemoteProtocolError: They are not.
        """
        for server, part in parts:
            names = part.covers or (server,)
            takes_part = part.servers or part.party.servers
            is_open = part.rule.unknown or part.party.unknown
            for name in names:
                if name not in below or not (is_open or name in takes_part):
                    raise broken(f"{shown(sender)} contributes for {shown(name)}")

    def check_procs(self, sender: str, procs: Iterable[Proc], *, is_report: bool = False) -> None:
        """Check that procs are on a server, or on none that is known.

        Args:
            sender: The server.
            procs: The procs.
            is_report: Whether the procs may also be on a server that is lost, or does not know their job any longer.

        Raises:
            RemoteProtocolError: One of them is on another server.
        """
        places = self.places
        for proc in procs:
            where = places.server_of(proc)
            if where in (None, sender):
                continue
            if not (is_report and not (self._exchange.has(where) and places.is_described_by(proc.nspace, (where,)))):
                raise broken(f"{shown(sender)} sends a message about {proc}, which is on {shown(where)}")

    def check_places(self, sender: str, nspace: str, described: Mapping[int, str]) -> None:
        """Check that the places that a server submits leave the running procs of other servers where they are.

        Raises:
            RemoteProtocolError: They move one of them.
        """
        places = self.places
        for rank, where in (places.of(nspace) or {}).items():
            if where in (sender, described.get(rank, where)) or not self._exchange.has(where):
                continue
            if not places.has_departed(Proc.unchecked(nspace, rank)):
                raise broken(f"{shown(sender)} moves rank {rank} of {nspace!r}, which is on {shown(where)}")
