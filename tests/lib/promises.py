"""What the Standard, RFC 0033, its early draft and OpenPMIx promise of groups and process sets, each with its place.

What RFC 0003 promises of connections is in `lib.connect_promises`, what pypmix promises of values in
`lib.value_promises`; `EVERY`, `NAMES` and `LACKS` are of all three.

A test says which promises it proves by `@pytest.mark.promise(name, ...)`; what a pairing of a server and a client does
not keep is a row of `LACKS` here under the promise's name. The documentation's truth table is made of both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lib import connect_promises, value_promises
from lib.lack import Error, Lack, Outcome, each_returned, returned
from lib.promise import Promise, every_native, shipped
from pypmix import OperationTimeout

CONSTRUCT = "Standard, PMIx_Group_construct"
DESTRUCT = "Standard, PMIx_Group_destruct"
INVITE = "Standard, PMIx_Group_invite"
JOIN = "Standard, PMIx_Group_join"
LEAVE = "Standard, PMIx_Group_leave"
GROUPS = "Standard, Process Groups"
ATTRIBUTES = "Standard, Process Group Attributes"
SETS = "Standard, Process Sets"
RFC = "RFC 0033"
DRAFT = "RFC 0033, early draft"
OPENPMIX = "OpenPMIx, Group Construction"


PROMISES = (
    shipped("construct"),
    shipped("construct without blocking"),
    shipped("construct: group ids"),
    Promise("construct: ids again", GROUPS, "an id is free again after the destruct"),
    Promise("construct: rank by position", GROUPS, "the group rank is the place in the array that was given"),
    shipped("construct: final order"),
    shipped("construct: ids side by side"),
    shipped("construct: beside a fence"),
    shipped("construct: context id"),
    Promise("construct: no context id", CONSTRUCT, "none where nobody has asked for one"),
    shipped("construct: group info"),
    Promise("construct: endpoint data", ATTRIBUTES, "each member reads what the others gave as GROUP_ENDPT_DATA"),
    Promise("construct: job info", CONSTRUCT, "the job info of all nspaces in the group"),
    shipped("construct: data"),
    Promise("construct: local only", ATTRIBUTES, "GROUP_LOCAL_ONLY, with a context id too"),
    shipped("construct: timeout"),
    shipped("construct: not a member"),
    Promise("construct: other procs", CONSTRUCT, "different procs under one id are an error, and end"),
    shipped("construct: a member dies"),
    shipped("construct: optional"),
    Promise("construct: optional in time", CONSTRUCT, "a partial success when the time of an optional one runs out"),
    shipped("construct: fault tolerant"),
    shipped("construct: members are told"),
    shipped("construct: the leader is told"),
    shipped("construct: a handler aborts"),
    shipped("construct: the leader fails"),
    shipped("construct: no leader"),
    Promise("construct: no leave", CONSTRUCT, "leaving a group under construction is refused"),
    Promise("bootstrap", OPENPMIX, "leaders know their number alone"),
    Promise("add members", OPENPMIX, "added members call with no procs, and it waits for them"),
    Promise("bootstrap and add members", OPENPMIX, "both together"),
    Promise("destruct", DESTRUCT, "all members take the group apart; its address means nothing afterwards"),
    shipped("destruct: twice"),
    shipped("destruct: a member dies"),
    shipped("destruct: a member has died"),
    shipped("destruct: members are told"),
    shipped("invite"),
    Promise("invite: not before it stands", JOIN, "a join ends after GROUP_CONSTRUCT_COMPLETE alone"),
    Promise("invite: answers", INVITE, "the inviter sees each answer"),
    Promise("invite: decline", JOIN, "who declines is told of nothing further; the reason arrives"),
    shipped("invite: optional"),
    shipped("invite: timeout"),
    Promise("invite: an invitee dies", INVITE, "GROUP_INVITE_FAILED at the inviter"),
    Promise("invite: replacement", INVITE, "somebody else is invited for who declines"),
    Promise("invite: drop", INVITE, "it goes on without who declines"),
    Promise("invite: abort", INVITE, "the leader aborts, and all joins end with GROUP_CONSTRUCT_ABORT"),
    Promise("invite: a handler aborts", INVITE, "GROUP_CONSTRUCT_ABORT from the leader's handler ends it for all"),
    Promise("invite: early invitations", INVITE, "an invitation that comes before the handler is registered"),
    shipped("invite: context id"),
    Promise("invite: endpoint data", INVITE, "each member reads what the others gave with their answers"),
    Promise("invite: the leader fails", JOIN, "GROUP_LEADER_FAILED to all invited; who claims completes it"),
    Promise("invite: nobody leads", JOIN, "joins end with an error"),
    shipped("leave"),
    Promise("leave: fault tolerant", RFC, "a collective in flight goes on without it under GROUP_FT_COLLECTIVE"),
    Promise("leave: standard error", RFC, "a collective in flight ends with its standard error otherwise"),
    shipped("a member fails"),
    shipped("a leader fails"),
    shipped("address: fence"),
    shipped("address: get"),
    Promise("address: notify", GROUPS, "the group as the custom range of an event"),
    Promise("address: notify from outside", GROUPS, "the same, by a process that is not a member"),
    Promise("address: connect", GROUPS, "the group in connect and disconnect"),
    Promise("address: further group", GROUPS, "the group among the procs of another construct"),
    shipped("query: groups"),
    shipped("query: membership"),
    Promise("group names", ATTRIBUTES, "get of GROUP_NAMES for any proc"),
    Promise("pset: define", SETS, "PROCESS_SET_DEFINE to all, with name and members"),
    Promise("pset: delete", SETS, "PROCESS_SET_DELETE to all"),
    shipped("pset: query"),
    Promise("pset: names", SETS, "get of PSET_NAMES for any proc"),
    Promise("pset: launch", SETS, "--pset NAME of an application"),
    Promise("pset: group", SETS, "a group made of a set's members"),
    Promise("admission", DRAFT, "the first member takes a proc into a group that stands; all members are told"),
    Promise("request", DRAFT, "asking to join a group that stands; all of its members approve"),
    Promise("request: refused", DRAFT, "a member refuses, with a reason"),
    Promise("announced construct", DRAFT, "an event to those who are to take part, and one for each who has come"),
    Promise("confirmed leave", DRAFT, "a leave that ends when all others have confirmed it"),
)

PROVEN_ON = ("python-server", "python-server-2-nodes", "prterun-5.0.*", "prterun-7.*", "native-server-*")
"""The servers that each promise is tried on, with Python clients and native ones of releases that fit."""


class Column(NamedTuple):
    """A column of the truth table: pairings of a server, on which each promise is tried or declared to be lacking."""

    title: str
    server: str
    clients: tuple[str, ...]


COLUMNS = (
    Column("Python", "python-server", ("python-client",)),
    Column("Python, native clients", "python-server", ("native-4.2.2", "native-5.0.11", "native-7.0.0")),
    Column("Python, 2 nodes", "python-server-2-nodes", ("python-client",)),
    Column("Python, 2 nodes, native clients", "python-server-2-nodes", ("native-4.2.2", "native-5.0.11")),
    Column("PRRTE 3 (5.0)", "prterun-5.0.11", ("python-client",)),
    Column("PRRTE 3, native clients", "prterun-5.0.11", ("native-5.0.11",)),
    Column("PRRTE 5 (7.0)", "prterun-7.0.0", ("python-client",)),
    Column("PRRTE 5, native clients", "prterun-7.0.0", ("native-7.0.0",)),
    Column("Host on 4.2", "native-server-4.2.2", ("python-client",)),
    Column("Host on 4.2, native clients", "native-server-4.2.2", ("native-4.2.2",)),
    Column("Host on 5.0", "native-server-5.0.11", ("python-client",)),
    Column("Host on 5.0, native clients", "native-server-5.0.11", ("native-5.0.11",)),
    Column("Host on 7.0", "native-server-7.0.0", ("python-client",)),
    Column("Host on 7.0, native clients", "native-server-7.0.0", ("native-7.0.0",)),
)

EVERY = (*PROMISES, *connect_promises.PROMISES, *value_promises.PROMISES)
NAMES = frozenset(promise.name for promise in EVERY)


def _was_told_nothing(found: list[Any]) -> bool:
    """Return True if a construct has ended with an error or a group without a leader, and no event came."""
    made, *events = found
    without_leader = isinstance(made, list) and made[1] is None
    return events == [[], []] and (without_leader or made in ("GROUP_CONSTRUCT_ABORT", "ERR_UNREACH"))


NOBODY_TOLD = Outcome(
    "ranks 1 and 2 get an error from the construct, or a group without a leader, and no event; the others' vary",
    lambda job: all(_was_told_nothing(job.ranks[rank].result) for rank in (1, 2)),
    hangs=None,
)
LEADER_NOT_TOLD = returned(
    "rank 1, the leader, is told no more than rank 0", lambda found: len(found) == 3 and found[0] == found[1]
)
ABORTED_OR_TAKEN = returned(
    "the construct ends with an error, or the proc that has ended is a member",
    lambda found: bool(found) and all(each[0] == "GROUP_CONSTRUCT_ABORT" or each[0] == [0, 1, 2, 3] for each in found),
)
NO_ENDPOINTS = returned("no get finds the data", lambda found: [values for _, values in found] == [[None] * 3] * 3)
A_GROUP = returned("some ranks get a group", lambda found: any(isinstance(each, list) for each in found))
TAKEN_FOR_A_MEMBER = returned(
    "a construct with a proc that has ended is a success",
    lambda found: found[0] == ["GROUP_CONSTRUCT_ABORT", "a group", []],
)

NOBODY_HEARS = each_returned([])

LACKS: tuple[Lack, ...] = (
    *connect_promises.LACKS,
    *value_promises.LACKS,
    Lack(
        "pset: delete",
        "prterun*",
        "*",
        "its sets stay when their jobs have ended, and nobody can delete one",
        expect=Error(OperationTimeout, "^watch_psets"),
        probe="test_psets.test_sets_go_with_their_job",
    ),
    *every_native(
        "address: notify from outside",
        "libpmix knows the procs of a group in its members alone, so the event reaches nobody",
        expect=NOBODY_HEARS,
        probe="test_group_addresses.test_events_for_a_group_from_outside",
    ),
    Lack(
        "invite: context id",
        "prterun-5.0.*",
        "native-4.2.*",
        "libpmix 4.2.2 takes the number of members for the context id, and the launcher tells it in no other way",
        expect=each_returned([None, None]),
        probe="test_group_invitations.test_context_ids",
    ),
    *[
        Lack(
            promise,
            server,
            "*",
            "its server aborts, or takes those who have ended for members, unless they ended before the others came",
            expect=ABORTED_OR_TAKEN,
            probe=f"test_group_failures.{probe}",
        )
        for promise, server, probe in (
            ("construct: optional", "prterun*", "test_members_need_not_come"),
            ("construct: optional", "native-server*", "test_members_need_not_come"),
            ("construct: fault tolerant", "prterun*", "test_who_has_ended_is_gone_on_without"),
            ("construct: fault tolerant", "native-server-[45].*", "test_who_has_ended_is_gone_on_without"),
        )
    ],
    *every_native(
        "construct: optional in time",
        "its server knows of no optional members: the time runs out for all",
        expect=Error(OperationTimeout, "^group_construct"),
        probe="test_group_failures.test_members_need_not_come_in_time",
    ),
    *every_native(
        "construct: members are told",
        "its server tells nobody before the group stands, and asks nobody",
        expect=each_returned(["GROUP_CONSTRUCT_ABORT", []]),
        probe="test_group_failures.test_members_hear_of_those_who_end",
    ),
    *every_native(
        "construct: the leader is told",
        "its server tells nobody before the group stands, and asks nobody",
        expect=LEADER_NOT_TOLD,
        probe="test_group_failures.test_the_leader_alone_hears_of_those_who_end",
    ),
    *every_native(
        "construct: a handler aborts",
        "its server tells nobody before the group stands, and asks nobody",
        expect=NOBODY_TOLD,
        probe="test_group_failures.test_a_handler_gives_the_group_up",
    ),
    *every_native(
        "construct: the leader fails",
        "its server knows of no leaders",
        expect=NOBODY_TOLD,
        probe="test_group_failures.test_one_of_those_who_claim_leads",
    ),
    *every_native(
        "construct: no leader",
        "its server knows of no leaders",
        expect=NOBODY_TOLD,
        probe="test_group_failures.test_nobody_wants_to_lead",
    ),
    *every_native(
        "construct: endpoint data",
        "its server keeps the data where no get finds it",
        expect=NO_ENDPOINTS,
        probe="test_group_construct.test_endpoints_of_members",
    ),
    *every_native(
        "construct: other procs",
        "its server makes a group of the procs that one of the callers has named",
        expect=A_GROUP,
        probe="test_group_construct.test_members_who_name_other_procs",
    ),
    *[
        Lack(
            promise,
            server,
            "*",
            "its server makes a group of its own for each leader, and adds nobody",
            proof=f"test_refusals.{proof}",
        )
        for promise, proof in (
            ("bootstrap", "test_leaders_that_know_their_number_alone"),
            ("add members", "test_members_that_are_added_to_a_collective_construct"),
            ("bootstrap and add members", "test_leaders_that_know_their_number_alone"),
        )
        for server in ("prterun-5.0.*", "native-server-[45].*")
    ],
    *[
        Lack(
            "add members",
            server,
            "*",
            "its server does not wait for those who are added to a collective construct",
            proof="test_refusals.test_members_that_are_added_to_a_collective_construct",
        )
        for server in ("prterun-7.*", "native-server-7.*")
    ],
    Lack(
        "construct: ids side by side",
        "prterun-5.*",
        "*",
        "it tells collectives apart by their procs alone, and now and then answers one of two constructs only",
        proof="how-it-works/libpmix.md#Two constructs of the same procs",
        harm=True,
    ),
    Lack(
        "construct: a member dies",
        "prterun*",
        "*",
        "its server takes a proc that has ended before anybody called for a member",
        expect=TAKEN_FOR_A_MEMBER,
        probe="test_group_failures.test_a_member_that_ends_before_it_comes",
    ),
    Lack(
        "destruct: a member dies",
        "prterun-7.*",
        "*",
        "its server goes on without the member, or ends the destruct with an error: which of them varies",
        proof="how-it-works/libpmix.md#A member that dies before it destructs",
        harm=True,
    ),
    Lack(
        "destruct: members are told",
        "prterun-7.*",
        "*",
        "the group may be gone before anybody is told that a member has ended: whether it is varies",
        proof="how-it-works/libpmix.md#A member that dies before it destructs",
        harm=True,
    ),
    *[
        Lack(
            promise,
            "native-server-[45].*",
            "*",
            "now and then it lets go of a fence twice that nobody comes to any more, when its procs end, and crashes",
            proof="how-it-works/libpmix.md#A connect that was given up",
            harm=True,
        )
        for promise in ("leave: standard error", "leave: fault tolerant")
    ],
)
"""What pairings do not keep; see `Lack`."""
