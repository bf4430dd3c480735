"""Requests about groups, decoded: requests that differ only in the group's name are read once.

All members of a group send the same request, with the names of all members, and programs make further groups of the
same procs. To decode each request costs a server more than the rest of its work for it.
"""

from __future__ import annotations

from pypmix.engine.collective.rules import CONSTRUCT_FT
from pypmix.engine.groups.talk import COMES_ADDED, REACTS, listed
from pypmix.engine.python.collectives import timeout_of
from pypmix.engine.python.node import fields_of
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops.events import is_set
from pypmix.standard.types import RANK_WILDCARD, DataArray
from pypmix.wire.codec import PLAIN, Packer
from pypmix.wire.messages import Command, reply_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.engine.python.node import Form, Peer
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.serverdata import Cache, Store
    from pypmix.standard.types import Info, Proc, Value
    from pypmix.wire.layout import Field

MAX_PLANS = 64
MAX_PLAN = 64 << 10
"""Bounds of the requests that are remembered: their number, and the length of each in bytes."""

WORKED_OUT = frozenset(
    (
        keys.GROUP_INFO,
        keys.GROUP_ENDPT_DATA,
        keys.GROUP_ADD_MEMBERS,
        keys.GROUP_FINAL_MEMBERSHIP_ORDER,
        keys.GROUP_LEADER,
    )
)
"""Directives that make the question to the host, or its answer, different each time."""

GIVEN = CONSTRUCT_FT | {keys.GROUP_LEADER, REACTS}
"""Directives about the handling of failures."""

_NO_PROCS: frozenset[Process] = frozenset()


class Plan:
    """A request to construct or to destruct a group, but for the group's name.

    Attributes:
        named: The procs that it names.
        infos: Its directives.
        nspaces: The nspaces of the procs.
        timeout: Its time limit in seconds, 0 for none.
        given: Its directives about failures.
        ft: Those that have an effect on the group (`CONSTRUCT_FT`).
        leads: Whether its caller declares itself the leader.
        reacts: Whether its caller's library sends reactions to failures.
        adds_all: Whether it adds all procs of a job.
        offers: Whether its caller does not know all future members of the group.
        numbered: Whether it asks for a context id.
        plain: Whether constructs with this request differ only in the group's name and context id.
        members: The procs of this server.
        others: The procs of other servers.
        version: The version of the store for which `members` and `others` hold.
        question: The procs, the directives and the order with which the host was asked about the last plain construct.
        answer: The members of the last group of this plan, if they are exactly the named procs; else empty.
    """

    __slots__ = (
        "_replies",
        "_whole_replies",
        "adds_all",
        "answer",
        "ft",
        "given",
        "infos",
        "leads",
        "members",
        "named",
        "nspaces",
        "numbered",
        "offers",
        "others",
        "plain",
        "question",
        "reacts",
        "timeout",
        "version",
    )

    def __init__(self, named: tuple[Proc, ...], infos: tuple[Info, ...]) -> None:
        if is_set(infos, COMES_ADDED):
            # Its library does not allow an empty list.
            named, infos = (), tuple([info for info in infos if info.key != COMES_ADDED])
        given = frozenset([info.key for info in infos])
        self.named = named
        self.infos = infos
        self.nspaces = frozenset([each[0] for each in named])
        self.timeout = timeout_of(infos)
        self.given = frozenset([info.key for info in infos if info.key in GIVEN and is_set((info,), info.key)])
        self.ft = self.given & CONSTRUCT_FT
        self.leads = keys.GROUP_LEADER in self.given
        self.reacts = REACTS in self.given
        self.numbered = is_set(infos, keys.GROUP_ASSIGN_CONTEXT_ID)
        self.offers = not named or keys.GROUP_BOOTSTRAP in given
        self.adds_all = any(each.rank == RANK_WILDCARD for each in listed_all(infos, keys.GROUP_ADD_MEMBERS))
        self.plain = given.isdisjoint(WORKED_OUT)
        self.members: frozenset[Process] = _NO_PROCS
        self.others: frozenset[Proc] = frozenset()
        self.version = -1
        self.question: tuple[tuple[Proc, ...], tuple[Info, ...], tuple[Proc, ...]] | None = None
        self.answer: tuple[Proc, ...] = ()
        self._replies: dict[Form, tuple[bytes, Field, bytes]] = {}
        self._whole_replies: dict[Form, bytes] = {}
        """The replies without a context id."""

    def expand(self, store: Store) -> None:
        """Find the procs that the request names, unless they are known.

        Raises:
            NotFound: A proc is not known.
            PMIxError: A rank is not valid here (`ERR_BAD_PARAM`).
        """
        if self.version != store.version:
            self.members, self.others = store.expand(self.named, remote=True)
            self.version = store.version
            self.question, self.answer = None, ()
            self._forget_replies()

    def keep_members(self, members: tuple[Proc, ...]) -> bool:
        """Keep the members of a group of this plan.

        Returns:
            True if the members are exactly the named procs; they are not kept otherwise.
        """
        if self.answer == members:
            return bool(members)
        everyone = {*[process.proc for process in self.members], *self.others}
        if len(members) != len(everyone) or {*members} != everyone:
            return False
        self.answer = members
        self._forget_replies()
        return True

    def _forget_replies(self) -> None:
        self._replies.clear()
        self._whole_replies.clear()

    def reply(self, form: Form, members: tuple[Proc, ...], context_id: int | None) -> bytes:
        """Return the reply to a plain construct of procs of one nspace; `members` are the members in `answer`."""
        if context_id is None and form in self._whole_replies:
            return self._whole_replies[form]
        parts = self._replies.get(form)
        if parts is None:
            layout = reply_layout(Command.GROUP_CONSTRUCT, form[1])
            parts = self._replies[form] = layout.around("context_id", *form, status=0, members=members)
        before, field, after = parts
        packer = Packer(*form)
        field.put(packer, context_id)
        reply = before + packer.bytes() + after
        if context_id is None:
            self._whole_replies[form] = reply
        return reply


class Plans:
    """The requests that are remembered.

    Args:
        store: The store of the server.
    """

    def __init__(self, store: Store) -> None:
        self._known: Cache[tuple[bytes, int, Form], Plan] = store.cache(MAX_PLANS)

    def read(self, peer: Peer, command: int, payload: bytes) -> tuple[str | None, Plan]:
        """Return the group that a request names, and the rest of the request as a plan.

        Raises:
            RemoteProtocolError: The request cannot be parsed.
            PMIxError: Group info is not an array of infos (`ERR_BAD_PARAM`).
        """
        key = None
        size = len(payload)
        if 4 < size <= MAX_PLAN and peer.buffer_type == PLAIN and payload[2] == 2 and not payload[3] & 0x81:
            # The name is a string of less than 64 bytes, or it is read in the general way.
            end = 4 + (payload[3] >> 1)
            name = payload[4 : end - 1]
            if 4 < end <= size and not payload[end - 1] and 0 not in name:
                key = payload[end:], command, peer.form
                plan = self._known.get(key)
                if plan is not None:
                    return name.decode("utf-8", "surrogateescape"), plan
        fields = fields_of(peer, command, payload)
        infos = fields["infos"]
        constructs = command == Command.GROUP_CONSTRUCT
        if constructs and not all(is_infos(info.value) for info in infos if info.key == keys.GROUP_INFO):
            raise PMIxError("group info is an array of infos", status=statuses.ERR_BAD_PARAM)
        plan = Plan(fields.get("procs", ()), infos)
        if key is not None:
            self._known.put(key, plan)
        return fields["group"], plan


def listed_all(infos: Iterable[Info], key: str) -> list[Proc]:
    """Return the procs of all infos under a key."""
    return [each for info in infos for each in listed((info,), key)]


def is_infos(value: Value) -> bool:
    """Return True if a value is an array of infos that is not empty."""
    data = value.data
    return isinstance(data, DataArray) and data.type == codes.INFO and bool(data.items)
