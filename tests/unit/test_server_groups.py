"""Proves what a server makes of groups whose members fail, leave, lead, come late, or do not know each other."""

from __future__ import annotations

import pytest

from lib.group_member import ABORT, MIDDLE, NEW, OLD, Member, context, group_info, note
from lib.group_party import (
    EVERYONE,
    LEAD,
    NOTIFY,
    OPTIONAL,
    REACTS,
    TOLERANT,
    Party,
    Several,
    added,
    complete,
    invite,
    job,
    leader,
)
from lib.server_world import Client
from pypmix.engine.groups import talk
from pypmix.engine.python import serverdata
from pypmix.standard import attrs, codes, keys, ops, statuses
from pypmix.standard.enums import Range
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Notification
from pypmix.standard.ops.hosting import (
    GROUP_CLAIMS,
    GROUP_GUEST,
    GROUP_LEADER_PROC,
    GROUP_ORDER,
    GROUP_ROUND,
    FenceUpcall,
    GroupUpcall,
)
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.additions import decode_late
from pypmix.wire.messages import EVENT, Command, reply_layout

EVERYONE_OF_THE_JOB = Proc("job", RANK_WILDCARD)
NOT_A_MEMBER = -66


# Order and what members say of themselves


def test_who_has_formed_a_group_is_told_although_somebody_has_left():
    party = Party(3)
    party.made(infos=(attrs.GROUP_ASSIGN_CONTEXT_ID(True),))
    party.notify(0, statuses.GROUP_LEFT)
    asked = "pmix.qry.pgrpmems", talk.text(keys.GROUP_ID, "g")
    assert party.query(1, *asked).items == job(1, 2)
    assert party.query(1, *asked, talk.flag(GROUP_ORDER)).items == job(0, 1, 2)
    assert party.query(0, *asked, talk.flag(GROUP_ORDER)).items == job(1, 2)


def test_group_ranks_are_places_in_the_array():
    party = Party(3)
    procs = job(2, 0, 1)
    tags = party.construct(procs=procs)
    assert all(member.result(tag)["members"] == procs for member, tag in zip(party.members, tags, strict=True))
    tag = party.members[0].client.get(0, "k", attrs.IMMEDIATE(True), nspace="g")
    party.members[2].client.commit(("k", Value(codes.STRING, "two")))
    tag = party.members[0].client.get(0, "k", nspace="g")
    assert party.members[0].client.value(tag, 2, "k") == Value(codes.STRING, "two")
    assert party.members[0].client.value(tag, 0, "k", "g") == Value(codes.STRING, "two")


@pytest.mark.parametrize(
    ("orders", "infos", "expected"),
    [
        (((0, 1, 2), (2, 1, 0), (1, 0, 2)), ((), (), ()), (0, 1, 2)),
        (((0, 1, 2), (2, 1, 0), (1, 0, 2)), ((), (LEAD,), ()), (2, 1, 0)),
        (
            ((0, 1, 2), (2, 1, 0), (1, 0, 2)),
            ((talk.procs(keys.GROUP_FINAL_MEMBERSHIP_ORDER, job(1, 2, 0)),), (LEAD,), ()),
            (1, 2, 0),
        ),
    ],
    ids=["they differ", "the leader's", "asked for"],
)
def test_which_order_counts(orders, infos, expected):
    party = Party(3)
    tags = [
        member.construct(*given, procs=job(*order))
        for member, order, given in zip(party.members, orders, infos, strict=True)
    ]
    results = [member.result(tag) for member, tag in zip(party.members, tags, strict=True)]
    assert [result["members"] for result in results] == [job(*expected)] * 3


def test_endpoint_data_comes_with_the_group_info_and_by_the_context_id():
    party = Party(2, NEW, OLD)
    endpoint = Info("pmix.grp.endpt", Value(codes.BYTE_OBJECT, b"port 7"))
    asked = attrs.GROUP_ASSIGN_CONTEXT_ID(True)
    tags = [
        party.members[0].construct(asked, group_info(note("x")), procs=job(0, 1)),
        party.members[1].construct(endpoint, procs=job(0, 1)),
    ]
    result = party.members[0].result(tags[0])
    assert list(result["group_info"]) == [
        group_info(note("x"), proc=Proc("job", 0)),
        group_info(endpoint, proc=Proc("job", 1)),
    ]
    qualifier = Info("pmix.grp.ctxid", Value(codes.SIZE, result["context_id"]), 8)
    tag = party.members[1].client.get(1, "pmix.grp.endpt", qualifier)
    assert b"port 7" in party.members[1].client.replies[tag]


# Members that end before the group stands


def test_without_a_directive_everybody_gets_an_error():
    party = Party(3)
    tags = party.construct(0)
    party.die(2)
    tags += party.construct(1)
    assert party.statuses(tags) == [ABORT, ABORT]
    assert decode_late(party.members[0].client.replies[tags[0]], 1) == job(2)
    assert party.heard(0) == []
    assert party.is_clean()


@pytest.mark.parametrize(
    ("directive", "status"),
    [(OPTIONAL, statuses.ERR_PARTIAL_SUCCESS), (NOTIFY, statuses.SUCCESS), (TOLERANT, statuses.SUCCESS)],
)
@pytest.mark.parametrize("moment", ["before", "within", "after its call"])
def test_with_one_it_goes_on_without_the_dead(directive, status, moment):
    party = Party(3)
    if moment == "before":
        party.die(2)
    elif moment == "after its call":
        party.construct(2)
    tags = party.construct(0, infos=(directive,))
    if moment != "before":
        party.die(2)
    tags += party.construct(1)
    assert party.statuses(tags) == [status, status]
    assert all(party.members[rank].client.replies for rank in (0, 1))
    told = [(statuses.GROUP_MEMBER_FAILED, Proc("job", 2))] if directive is NOTIFY else []
    assert [party.heard(0), party.heard(1)] == [told, told]
    assert party.server.store.groups["g"] == job(0, 1)


@pytest.mark.parametrize(
    ("version", "infos", "status"),
    [
        (OLD, (), statuses.ERR_PARTIAL_SUCCESS),
        (MIDDLE, (), statuses.ERR_PARTIAL_SUCCESS),
        (NEW, (), statuses.SUCCESS),
        # pypmix on such a library compares the members, and the library drops what it does not take for a success.
        (MIDDLE, (REACTS,), statuses.SUCCESS),
    ],
)
def test_a_library_is_told_of_a_partial_group_if_it_keeps_the_members(version, infos, status):
    party = Party(2, version, version, pypmix=False)
    tags = party.construct(0, infos=(OPTIONAL, *infos))
    party.die(1)
    member = party.members[0]
    member.client.read()
    fields = reply_layout(Command.GROUP_CONSTRUCT, member.release).decode(
        member.client.replies[tags[0]], 1, member.release
    )
    assert fields["status"] == status
    assert tuple(fields.get("members") or job(0)) == job(0)
    assert party.server.store.groups["g"] == job(0)


@pytest.mark.parametrize(
    ("version", "pypmix", "told"), [(OLD, False, 0), (MIDDLE, False, 0), (NEW, False, 1), (NEW, True, 0)]
)
def test_programs_on_libpmix_7_are_told_whom_a_fault_tolerant_construct_lacks(version, pypmix, told):
    party = Party(3, version, version, version, pypmix=pypmix)
    party.construct(0, infos=(TOLERANT,))
    party.die(2)
    assert party.heard(0) == []
    party.construct(1, infos=(TOLERANT,))
    failed = [(statuses.GROUP_MEMBER_FAILED, Proc("job", 2))] * told
    assert [party.heard(0), party.heard(1)] == [failed, failed]
    assert party.server.store.groups["g"] == job(0, 1)


def test_nobody_is_told_twice_whom_a_construct_lacks():
    party = Party(3, NEW, NEW, NEW, pypmix=False)
    party.construct(0, infos=(TOLERANT, NOTIFY))
    party.die(2)
    party.construct(1, infos=(TOLERANT, NOTIFY))
    failed = [(statuses.GROUP_MEMBER_FAILED, Proc("job", 2))]
    assert [party.heard(0), party.heard(1)] == [failed, failed]


def test_optional_ends_with_those_who_have_come_in_time():
    party = Party(3)
    tags = party.construct(0, 1, infos=(OPTIONAL, attrs.TIMEOUT(5)))
    party.advance(6)
    assert party.statuses(tags) == [statuses.ERR_PARTIAL_SUCCESS] * 2
    assert party.server.store.groups["g"] == job(0, 1)
    assert party.statuses(party.construct(2), (2,)) == [statuses.ERR_TIMEOUT]


def test_a_timeout_names_who_is_missing():
    party = Party(3)
    tags = party.construct(0, 1, infos=(attrs.TIMEOUT(5),))
    (pending,) = party.server.pending()
    assert (pending.operation, pending.missing) == ("group_construct g", job(2))
    party.advance(6)
    assert party.statuses(tags) == [statuses.ERR_TIMEOUT] * 2
    assert decode_late(party.members[0].client.replies[tags[0]], 1) == job(2)
    assert party.is_clean()


def test_only_the_leader_hears_of_failures():
    party = Party(3)
    tags = party.construct(1, infos=(LEAD, NOTIFY, REACTS))
    party.die(2)
    assert [party.heard(0), party.heard(1)] == [[], [(statuses.GROUP_MEMBER_FAILED, Proc("job", 2))]]
    tags += party.construct(0)
    assert party.statuses(tags, (1, 0)) == [None, None]
    (pending,) = [entry for entry in party.server.pending() if entry.label == "reactions to a failure"]
    assert pending.missing == job(1)
    party.react(1, Proc("job", 2), talk.GO_ON)
    assert party.statuses(tags, (1, 0)) == [statuses.SUCCESS, statuses.SUCCESS]
    result = party.members[1].result(tags[0])
    assert result["group_info"][-1] == talk.proc(GROUP_LEADER_PROC, Proc("job", 1))


def test_any_participant_may_abort():
    party = Party(4)
    tags = party.construct(0, 1, infos=(NOTIFY, REACTS))
    party.die(3)
    tags += party.construct(2, infos=(NOTIFY, REACTS))
    party.react(0, Proc("job", 3), talk.GO_ON)
    party.react(1, Proc("job", 3), talk.ABORT)
    assert party.statuses(tags) == [ABORT, ABORT, ABORT]
    expected = [(statuses.GROUP_MEMBER_FAILED, Proc("job", 3)), (statuses.GROUP_CONSTRUCT_ABORT, None)]
    assert [party.heard(rank) for rank in (0, 1, 2)] == [expected] * 3
    assert party.is_clean()


def test_who_comes_after_the_leader_has_aborted_is_told_so():
    party = Party(4)
    tags = party.construct(0, infos=(LEAD, NOTIFY, REACTS)) + party.construct(1, infos=(NOTIFY, REACTS))
    party.die(3)
    party.react(0, Proc("job", 3), talk.ABORT)
    assert party.statuses(tags) == [ABORT, ABORT]
    assert party.statuses(party.construct(2), (2,)) == [ABORT]
    aborted = (statuses.GROUP_CONSTRUCT_ABORT, None)
    failed = (statuses.GROUP_MEMBER_FAILED, Proc("job", 3))
    assert [party.heard(rank) for rank in (0, 1, 2)] == [[failed, aborted], [aborted], [aborted]]
    assert party.is_clean()


def test_a_leader_that_calls_last_hears_of_failures_alone():
    party = Party(4)
    tags = party.construct(1, 2, infos=(NOTIFY, REACTS))
    party.die(3)
    assert [party.heard(rank) for rank in (1, 2)] == [[], []]
    tags += party.construct(0, infos=(LEAD, NOTIFY, REACTS))
    heard = [party.heard(rank) for rank in (0, 1, 2)]
    assert heard == [[(statuses.GROUP_MEMBER_FAILED, Proc("job", 3))], [], []]
    party.react(0, Proc("job", 3), talk.GO_ON)
    assert party.statuses(tags, (1, 2, 0)) == [statuses.SUCCESS] * 3


def test_the_reaction_of_a_caller_that_gives_up_is_not_waited_for():
    party = Party(4)
    tags = party.construct(0, 1, infos=(NOTIFY, REACTS))
    party.die(3)
    tags += party.construct(2, infos=(NOTIFY, REACTS))
    for rank in (0, 1):
        party.react(rank, Proc("job", 3), talk.GO_ON)
    assert party.statuses(tags) == [None] * 3
    party.withdraw(2, tags[2])
    assert party.statuses(tags) == [statuses.SUCCESS] * 3


def test_a_leader_that_gives_up_and_calls_again_is_not_asked_again():
    party = Party(4)
    tags = party.construct(0) + party.construct(1, infos=(LEAD, NOTIFY, REACTS))
    party.die(2)
    assert party.heard(1) == [(statuses.GROUP_MEMBER_FAILED, Proc("job", 2))]
    party.withdraw(1, tags[1])
    assert party.statuses(tags) == [None, statuses.ERR_TIMEOUT]
    tags[1:] = party.construct(1, infos=(LEAD, NOTIFY, REACTS)) + party.construct(3)
    assert party.statuses(tags, (0, 1, 3)) == [statuses.SUCCESS] * 3


def test_a_caller_that_gives_up_another_call_is_asked_as_before():
    party = Party(3)
    tags = party.construct(1, infos=(LEAD, NOTIFY, REACTS))
    fence = party.members[1].client.fence(*job(0, 1))
    party.die(2)
    party.withdraw(1, fence)
    tags += party.construct(0)
    assert party.statuses(tags, (1, 0)) == [None, None]
    party.react(1, Proc("job", 2), talk.ABORT)
    assert party.statuses(tags, (1, 0)) == [ABORT, ABORT]


def test_a_participant_that_raises_the_abort_itself():
    party = Party(3)
    tags = party.construct(0, 1)
    party.notify(2, statuses.GROUP_CONSTRUCT_ABORT, to=DataArray(codes.PROC, job(0, 1)))
    assert party.statuses(tags) == [ABORT, ABORT]
    assert [party.heard(rank) for rank in (0, 1, 2)] == [[(statuses.GROUP_CONSTRUCT_ABORT, None)]] * 2 + [[]]


def test_somebody_elses_abort_means_nothing():
    party = Party(3)
    tags = party.construct(0, procs=job(0, 1))
    party.notify(2, statuses.GROUP_CONSTRUCT_ABORT, to=DataArray(codes.PROC, job(0, 1)))
    tags += party.construct(1, procs=job(0, 1))
    assert party.statuses(tags) == [statuses.SUCCESS, statuses.SUCCESS]


# Leaders that end


@pytest.mark.parametrize("claims", [(), (2,), (1, 2), (2, 1)])
def test_a_new_leader_is_the_first_that_claims(claims):
    party = Party(4)
    party.construct(0, infos=(LEAD, REACTS))
    tags = party.construct(1, 2, infos=(REACTS,))
    party.die(0)
    leader = Proc("job", 0)
    failed = [(statuses.GROUP_LEADER_FAILED, leader)]
    assert [party.heard(rank) for rank in (1, 2, 3)] == [failed] * 3
    for rank in claims:
        party.react(rank, leader, talk.CLAIM)
    for rank in {1, 2} - {*claims}:
        party.react(rank, leader, talk.GO_ON)
    winner = Proc("job", min(claims)) if claims else None
    assert [party.heard(rank) for rank in (1, 2, 3)] == [[(statuses.GROUP_LEADER_SELECTED, winner)]] * 3
    tags += party.construct(3)
    if claims:
        assert party.statuses(tags, (1, 2, 3)) == [statuses.SUCCESS] * 3
        assert party.server.store.groups["g"] == job(1, 2, 3)
        assert party.server.groups.records.get("g").leader == winner
    else:
        assert party.statuses(tags, (1, 2, 3)) == [ABORT] * 3
        assert party.is_clean()


def test_nobody_leads_and_the_rest_may_go_on():
    party = Party(3)
    party.construct(0, infos=(LEAD,))
    tags = party.construct(1, infos=(TOLERANT,))
    party.die(0)
    assert party.heard(1) == [(statuses.GROUP_LEADER_FAILED, Proc("job", 0)), (statuses.GROUP_LEADER_SELECTED, None)]
    tags += party.construct(2)
    assert party.statuses(tags, (1, 2)) == [statuses.SUCCESS, statuses.SUCCESS]


def test_who_ends_while_its_reaction_is_waited_for_does_not_hold_up_the_rest():
    party = Party(4)
    tags = party.construct(0, 1, 2, infos=(NOTIFY, REACTS))
    party.die(3)
    party.die(2)
    for rank in (0, 1):
        party.react(rank, Proc("job", 3), talk.GO_ON)
    assert party.statuses(tags[:2]) == [None, None]
    for rank in (0, 1):
        party.react(rank, Proc("job", 2), talk.GO_ON)
    assert party.statuses(tags[:2]) == [statuses.SUCCESS, statuses.SUCCESS]
    assert party.server.store.groups["g"] == job(0, 1)


# Who means what


def test_different_procs_under_one_name_are_an_error_for_all_of_them():
    party = Party(3)
    tags = party.construct(0, procs=job(0, 1))
    tags += party.construct(1, procs=job(0, 1, 2))
    assert party.statuses(tags) == [statuses.ERR_BAD_PARAM, statuses.ERR_BAD_PARAM]
    assert party.statuses(party.construct(2, procs=job(0, 1, 2)), (2,)) == [statuses.ERR_BAD_PARAM]
    assert party.is_clean()
    party.made()


def test_who_was_not_named_does_not_disturb():
    party = Party(3)
    tags = party.construct(0, procs=job(0, 1))
    assert party.statuses(party.construct(2, procs=job(0, 2)), (2,)) == [statuses.ERR_BAD_PARAM]
    assert party.statuses(party.construct(2, procs=job(0, 1)), (2,)) == [statuses.ERR_BAD_PARAM]
    tags += party.construct(1, procs=job(0, 1))
    assert party.statuses(tags) == [statuses.SUCCESS, statuses.SUCCESS]


def test_disjoint_procs_may_use_one_name_at_the_same_time():
    party = Party(4)
    tags = party.construct(0, procs=job(0, 1)) + party.construct(2, procs=job(2, 3))
    tags += party.construct(1, procs=job(0, 1)) + party.construct(3, procs=job(2, 3))
    assert party.statuses(tags, (0, 2, 1, 3)) == [statuses.SUCCESS] * 4
    fences = [member.client.fence(EVERYONE) for member in party.members[2:]]
    assert party.statuses(fences, (2, 3)) == [statuses.SUCCESS] * 2
    assert party.query(3, "pmix.qry.pgrpmems", talk.text(keys.GROUP_ID, "g")).items == job(2, 3)
    tags = [member.destruct() for member in party.members]
    assert party.statuses(tags) == [statuses.SUCCESS] * 4
    assert party.is_clean()


def test_overlapping_procs_may_not():
    party = Party(3)
    tags = party.construct(0, procs=job(0, 1)) + party.construct(1, procs=job(0, 1))
    assert party.statuses(tags) == [statuses.SUCCESS] * 2
    assert party.statuses(party.construct(1, procs=job(1, 2)), (1,)) == [statuses.ERR_EXISTS]


def test_several_groups_and_a_fence_of_the_same_procs_at_once():
    party = Party(2)
    zero = party.construct(0, name="a") + party.construct(0, name="b") + [party.members[0].client.fence()]
    one = [party.members[1].client.fence(), *party.construct(1, name="b"), *party.construct(1, name="a")]
    assert party.statuses(zero, (0, 0, 0)) == [statuses.SUCCESS] * 3
    assert party.statuses(one, (1, 1, 1)) == [statuses.SUCCESS] * 3


# Groups that stand


@pytest.mark.parametrize("directive", [None, NOTIFY, TOLERANT])
def test_a_member_that_ends(directive):
    party = Party(3)
    party.made(infos=() if directive is None else (directive,))
    party.die(1)
    assert party.server.store.groups["g"] == job(0, 2)
    failed = [(statuses.GROUP_MEMBER_FAILED, Proc("job", 1))] if directive is NOTIFY else []
    assert [party.heard(0), party.heard(2)] == [failed] * 2
    tags = [party.members[rank].client.fence(EVERYONE) for rank in (0, 2)]
    assert party.statuses(tags, (0, 2)) == [statuses.SUCCESS] * 2
    tags = [party.members[rank].destruct() for rank in (0, 2)]
    taken_apart = statuses.ERR_PARTIAL_SUCCESS if directive is None else statuses.SUCCESS
    assert party.statuses(tags, (0, 2)) == [taken_apart] * 2
    assert party.is_clean()


def test_a_member_that_has_left_and_ended_is_not_missed_however_the_news_arrive():
    cluster = Several((0, 1), (2, 3))
    zero, one = cluster.member(0), cluster.member(1)
    stand(cluster, zero, one)
    server = cluster.nodes[0].server
    range = talk.procs(keys.EVENT_CUSTOM_RANGE, job(0, 1))
    gone = talk.text(talk.SAYS, "gone"), talk.proc(keys.EVENT_AFFECTED_PROC, Proc("job", 2)), range
    server.events.notify(Notification(statuses.TALK, Proc("server1", 0), Range.CUSTOM, gone))
    record = server.groups.records.get("g")
    assert record.lost == {Proc("job", 2): True}
    left = talk.text(keys.GROUP_ID, "g"), range
    server.events.notify(Notification(statuses.GROUP_LEFT, Proc("job", 2), Range.CUSTOM, left))
    assert record.lost == {Proc("job", 2): False}
    assert server.store.groups["g"] == job(0, 1, 3)


def test_a_leader_that_ends():
    party = Party(3)
    tags = party.construct(0, infos=(LEAD, NOTIFY)) + party.construct(1, 2)
    assert party.statuses(tags) == [statuses.SUCCESS] * 3
    party.die(0)
    assert [party.heard(1), party.heard(2)] == [[(statuses.GROUP_LEADER_FAILED, Proc("job", 0))]] * 2
    # The members choose another among themselves.
    party.notify(2, statuses.GROUP_LEADER_SELECTED, talk.proc(keys.GROUP_LEADER, Proc("job", 2)))
    assert party.server.groups.records.get("g").leader == Proc("job", 2)


@pytest.mark.parametrize(
    ("directive", "status"),
    [(None, statuses.ERR_PARTIAL_SUCCESS), (NOTIFY, statuses.SUCCESS), (TOLERANT, statuses.SUCCESS)],
)
def test_a_member_that_ends_during_the_destruct(directive, status):
    party = Party(3)
    party.made(infos=() if directive is None else (directive,))
    tags = [party.members[0].destruct()]
    party.die(2)
    tags.append(party.members[1].destruct())
    assert party.statuses(tags) == [status, status]
    assert party.is_clean()


def test_who_leaves_is_not_waited_for_in_a_destruct():
    party = Party(3)
    party.made()
    tags = [party.members[0].destruct()]
    party.notify(2, statuses.GROUP_LEFT)
    tags.append(party.members[1].destruct())
    assert party.statuses(tags) == [statuses.SUCCESS, statuses.SUCCESS]
    assert party.members[2].status(party.members[2].destruct()) == statuses.ERR_NOT_FOUND


def test_who_leaves_is_answered_before_the_others_are_woken(monkeypatch):
    party = Party(3)
    party.made()
    sent = []
    for rank, member in enumerate(party.members):
        link = member.client.link

        def send(data, rank=rank, send=link.send):
            sent.append(rank)
            send(data)

        monkeypatch.setattr(link, "send", send)
        monkeypatch.setattr(link, "send_now", send)
    tag = party.notify(2, statuses.GROUP_LEFT)
    assert sent[0] == 2 and sorted(sent) == [0, 1, 2]
    assert party.members[2].status(tag) == statuses.SUCCESS
    assert party.heard(0) == party.heard(1) == [(statuses.GROUP_LEFT, None)]
    assert party.server.store.groups["g"] == job(0, 1)


def test_the_others_hear_who_leaves_while_the_host_considers_it(monkeypatch):
    party = Party(3)
    party.made()
    answers = []
    monkeypatch.setattr(party, "upcall", lambda op, answer, process=None: answers.append(answer))
    tag = party.notify(2, statuses.GROUP_LEFT)
    assert party.heard(0) == party.heard(1) == [(statuses.GROUP_LEFT, None)]
    assert party.server.store.groups["g"] == job(0, 1)
    assert party.members[2].status(tag) is None
    (answer,) = answers
    answer(None, NotSupported("there is nobody else"))
    assert party.members[2].status(tag) == statuses.SUCCESS


def test_who_leaves_has_one_answer_though_nobody_can_be_told(monkeypatch):
    party = Party(3)
    party.made()

    def refuse(*_):
        raise PMIxError("the event cannot be sent", status=statuses.ERR_BAD_PARAM)

    monkeypatch.setattr(party.server.events, "_raise", refuse)
    assert party.members[2].status(party.notify(2, statuses.GROUP_LEFT)) == statuses.SUCCESS
    assert party.server.store.groups["g"] == job(0, 1)
    assert "cannot be told" in party.logged[-1]


def test_only_members_destruct():
    party = Party(3)
    procs = job(0, 1)
    party.construct(0, 1, procs=procs)
    assert party.members[2].status(party.members[2].destruct()) == NOT_A_MEMBER
    party.notify(1, statuses.GROUP_LEFT)
    assert party.members[1].status(party.members[1].destruct()) == NOT_A_MEMBER
    assert party.members[0].status(party.members[0].destruct()) == statuses.SUCCESS


def test_others_do_not_leave_for_a_member():
    party = Party(3)
    party.construct(0, 1, procs=job(0, 1))
    party.notify(2, statuses.GROUP_LEFT, talk.proc(keys.EVENT_AFFECTED_PROC, Proc("job", 1)))
    assert party.server.store.groups["g"] == job(0, 1)
    party.notify(2, statuses.GROUP_MEMBERSHIP_UPDATE, talk.procs(keys.GROUP_MEMBERSHIP, job(2)))
    party.notify(2, statuses.TALK, talk.text(talk.SAYS, "gone"), talk.proc(keys.EVENT_AFFECTED_PROC, Proc("job", 1)))
    assert party.server.store.groups["g"] == job(0, 1)
    party.notify(1, statuses.GROUP_MEMBERSHIP_UPDATE, talk.procs(keys.GROUP_MEMBERSHIP, job(1, 0, 2)))
    assert party.server.store.groups["g"] == job(1, 0, 2)


@pytest.mark.parametrize(("infos", "status"), [((), statuses.ERR_PARTIAL_SUCCESS), ((TOLERANT,), statuses.SUCCESS)])
@pytest.mark.parametrize("end", ["leave", "die"])
@pytest.mark.parametrize("operation", ["fence", "connect"])
def test_a_departure_between_two_callers_does_not_make_two_collectives_of_one(infos, status, end, operation):
    party = Party(3)
    party.made()

    def call(rank):
        if operation == "fence":
            return party.members[rank].client.fence(EVERYONE, infos=infos)
        return party.members[rank].ask(Command.CONNECTNB, procs=(EVERYONE,), infos=infos)

    tags = [call(0)]
    party.notify(2, statuses.GROUP_LEFT) if end == "leave" else party.die(2)
    tags.append(call(1))
    assert party.statuses(tags) == [status, status]
    # The next one is among those who are left.
    tags = [call(0), call(1)]
    assert party.statuses(tags) == [statuses.SUCCESS, statuses.SUCCESS]
    assert not party.server.pending()


def test_who_names_the_procs_meets_who_names_the_group():
    party = Party(3)
    party.made()
    for first, second in ((EVERYONE, job(0, 1, 2)), (job(0, 1, 2), EVERYONE)):
        named = [
            procs if isinstance(procs, tuple) and not isinstance(procs, Proc) else (procs,)
            for procs in (first, second, first)
        ]
        tags = [member.client.fence(*procs) for member, procs in zip(party.members, named, strict=True)]
        assert party.statuses(tags) == [statuses.SUCCESS] * 3


def test_fences_over_two_groups_of_the_same_procs_are_two():
    party = Party(2)
    party.made("g")
    party.made("h")
    zero = party.members[0].client.fence(EVERYONE)
    one = party.members[1].client.fence(Proc("h", RANK_WILDCARD))
    assert party.statuses([zero, one]) == [None, None]
    other = party.members[1].client.fence(EVERYONE), party.members[0].client.fence(Proc("h", RANK_WILDCARD))
    assert party.statuses([zero, one]) == [statuses.SUCCESS, statuses.SUCCESS]
    assert party.statuses([*other], (1, 0)) == [statuses.SUCCESS, statuses.SUCCESS]


# Addresses


def test_the_host_hears_of_procs_and_not_of_groups():
    party = Party(3)
    party.made()
    party.notify(0, -3001, to=Proc("g", 2))
    (event,) = [op for op in party.upcalls if isinstance(op, ops.NotifyEvent)]
    assert attrs.EVENT_CUSTOM_RANGE(Proc("job", 2)) in event.infos
    assert party.members[0].status(party.notify(0, -3001, to=Proc("g", 9))) == statuses.ERR_NOT_FOUND
    party.members[0].ask(Command.SPAWNNB, infos=(attrs.PARENT_ID(Proc("g", 1)),), apps=())
    party.members[0].ask(Command.JOB_CONTROL, procs=(EVERYONE,), infos=(attrs.JOB_CTRL_TERMINATE(True),))
    (control,) = [op for op in party.upcalls if isinstance(op, ops.JobControl)]
    assert control.targets == job(0, 1, 2)
    range = attrs.EVENT_CUSTOM_RANGE(EVERYONE)
    party.members[0].ask(Command.PUBLISHNB, uid=1000, infos=(note("x"), attrs.RANGE(Range.CUSTOM), range))
    (publish,) = [op for op in party.upcalls if isinstance(op, ops.Publish)]
    assert publish.directives == (attrs.EVENT_CUSTOM_RANGE(DataArray(codes.PROC, job(0, 1, 2))),)


def test_a_group_of_a_group():
    party = Party(3)
    party.construct(0, 1, name="g", procs=job(0, 1))
    tags = party.construct(0, 1, 2, name="h", procs=(Proc("job", 2), EVERYONE))
    assert party.members[0].result(tags[0])["members"] == job(2, 0, 1)


@pytest.mark.parametrize(
    ("rank", "hearing"), [(RANK_WILDCARD, [True, True, False]), (1, [False, True, False]), (5, [False] * 3)]
)
def test_an_event_of_another_server_may_name_a_group_by_its_address(rank, hearing):
    party = Party(3)
    party.construct(0, 1, procs=job(0, 1))
    address = talk.procs(keys.EVENT_CUSTOM_RANGE, (Proc("g", rank),))
    # Of the codes that the clients have registered.
    code = statuses.GROUP_LEADER_SELECTED
    stranger = Proc("elsewhere", 0)
    party.server.events.notify(Notification(code, stranger, Range.CUSTOM, (address, talk.text(keys.GROUP_ID, "h"))))
    assert [bool(party.heard(each)) for each in range(3)] == hearing


# What there is to know of groups


def test_queries_and_the_names_of_ones_groups():
    party = Party(3)
    party.construct(0, 1, name="a", procs=job(0, 1))
    party.construct(1, 2, name="b", procs=job(1, 2))
    mine = attrs.RANGE(Range.PROC_LOCAL)
    assert party.query(0, "pmix.qry.pgrpnum") == 2
    assert party.query(0, "pmix.qry.pgrp").items == ("a", "b")
    assert party.query(0, "pmix.qry.pgrp", mine).items == ("a",)
    assert party.query(0, "pmix.qry.pgrpnum", mine) == 1
    assert party.query(0, "pmix.qry.pgrpmems", talk.text(keys.GROUP_ID, "b")).items == job(1, 2)
    assert party.query(0, "pmix.qry.pgrpmems", talk.text(keys.GROUP_ID, "c")) == statuses.ERR_NOT_FOUND
    client = party.members[0].client
    for rank, names in ((1, ("a", "b")), (2, ("b",))):
        tag = client.get(rank, "pmix.pgrp.nm", attrs.IMMEDIATE(True))
        assert client.value(tag, rank, "pmix.pgrp.nm").data.items == names
    party.notify(2, statuses.GROUP_LEFT, group="b", to=Proc("job", 1))
    assert client.status(client.get(2, "pmix.pgrp.nm", attrs.IMMEDIATE(True))) == statuses.ERR_NOT_FOUND


# Invitations


def test_an_invited_group_is_known_when_its_leader_says_so():
    party = Party(3)
    invite(party, 1, 0, 2, infos=(NOTIFY,))
    complete(party, 1, 1, 0, infos=(context(9),))
    assert party.server.store.groups["g"] == job(1, 0)
    record = party.server.groups.records.get("g")
    assert (record.leader, record.notify, record.context_id) == (Proc("job", 1), True, 9)
    tags = [party.members[rank].client.fence(EVERYONE) for rank in (0, 1)]
    assert party.statuses(tags) == [statuses.SUCCESS] * 2
    tags = [party.members[rank].destruct() for rank in (0, 1)]
    assert party.statuses(tags) == [statuses.SUCCESS] * 2
    assert party.is_clean()


def test_nobody_completes_what_it_has_no_part_in():
    party = Party(3)
    complete(party, 0, 0, 1)
    invite(party, 0, 1)
    complete(party, 2, 2, 0, 1)
    assert not party.server.store.groups
    party.notify(0, statuses.GROUP_CONSTRUCT_ABORT, to=Proc("job", 1))
    complete(party, 0, 0, 1)
    assert not party.server.store.groups
    assert party.is_clean()


def test_an_invited_one_may_take_over():
    party = Party(3)
    invite(party, 0, 1, 2)
    party.die(0)
    complete(party, 1, 1, 2)
    assert party.server.store.groups["g"] == job(1, 2)


def test_invitations_are_forgotten_with_those_whom_they_concern():
    party = Party(3)
    invite(party, 0, 1)
    party.die(0)
    party.die(1)
    assert party.is_clean()


def test_an_inviter_gets_a_context_id():
    party = Party(2)
    found = []
    for _ in range(2):
        member = party.members[0]
        tag = member.ask(Command.JOB_CONTROL, procs=(), infos=(attrs.GROUP_ASSIGN_CONTEXT_ID(True),))
        member.client.read()
        fields = reply_layout(Command.JOB_CONTROL, member.release).decode(member.client.replies[tag], 1, member.release)
        (info,) = fields["infos"]
        assert info.key == "pmix.grp.ctxid"
        found.append(info.value.data)
    assert found[0] != found[1]
    assert party.is_clean()


# Callers that do not know each other


def test_leaders_that_know_their_number_and_whom_they_add():
    party = Party(5, NEW, OLD, NEW, NEW, OLD)
    asked = attrs.GROUP_ASSIGN_CONTEXT_ID(True)
    tags = {4: added(party, 4, group_info(note("four")))}
    tags[2] = leader(party, 2, 2, talk.procs(keys.GROUP_ADD_MEMBERS, job(4, 1)), asked)
    assert party.server.pending()[0].missing == job(1)
    tags[0] = leader(party, 0, 2)
    # Libraries before 6.0 have to name somebody.
    tags[1] = party.members[1].construct(talk.flag(talk.COMES_ADDED), procs=job(1))
    for rank in (0, 2):
        result = party.members[rank].result(tags[rank])
        assert result["members"] == job(0, 2, 4, 1)
        assert list(result["group_info"]) == [group_info(note("four"), proc=Proc("job", 4))]
    assert len({party.members[rank].result(tag)["context_id"] for rank, tag in tags.items()}) == 1
    ends = [party.members[rank].destruct() for rank in (0, 1, 2, 4)]
    assert party.statuses(ends, (0, 1, 2, 4)) == [statuses.SUCCESS] * 4
    assert party.is_clean()


def test_leaders_that_add_all_of_their_jobs():
    """As OpenPMIx's own example of a group over a job and those that it has spawned does, each leader with its own."""
    party = Party(3)
    party.add("more", 2)
    spawned = [Member(Client(party, rank, "more", version=NEW).connect(), NEW) for rank in range(2)]
    more = Proc("more", 0), Proc("more", 1)
    tags = [
        leader(party, 0, 2, talk.procs(keys.GROUP_ADD_MEMBERS, (EVERYONE_OF_THE_JOB,))),
        added(party, 1),
    ]
    all_more = talk.procs(keys.GROUP_ADD_MEMBERS, (Proc("more", RANK_WILDCARD),))
    theirs = [
        spawned[0].construct(talk.size(keys.GROUP_BOOTSTRAP, 2), all_more, procs=more[:1]),
        spawned[1].construct(procs=()),
    ]
    assert party.statuses(tags) == [None, None]
    assert party.server.pending()[0].missing == job(2)
    tags.append(added(party, 2))
    assert party.statuses(tags) == [statuses.SUCCESS] * 3
    for member, tag in zip((*party.members, *spawned), (*tags, *theirs), strict=True):
        assert member.result(tag)["members"] == (*job(0), more[0], *job(1, 2), more[1])


def test_a_collective_construct_that_adds_all_of_a_job():
    party = Party(3)
    everyone = talk.procs(keys.GROUP_ADD_MEMBERS, (EVERYONE_OF_THE_JOB,))
    tags = [party.members[rank].construct(everyone, procs=job(1, 0)) for rank in (0, 1)]
    assert party.statuses(tags) == [None, None]
    tags.append(added(party, 2))
    assert party.statuses(tags) == [statuses.SUCCESS] * 3
    assert party.members[2].result(tags[2])["members"] == job(1, 0, 2)


def test_leaders_that_disagree_on_their_number():
    party = Party(2)
    tags = [leader(party, 0, 2), leader(party, 1, 3)]
    assert party.statuses(tags) == [statuses.ERR_BAD_PARAM] * 2
    assert party.is_clean()


def test_the_final_order_of_leaders_and_whom_they_add():
    # As the coordinator of several servers places them.
    party = Party(3)
    order = talk.procs(keys.GROUP_FINAL_MEMBERSHIP_ORDER, job(2, 1, 0))
    add = talk.procs(keys.GROUP_ADD_MEMBERS, job(2))
    tags = [leader(party, 0, 2, order), leader(party, 1, 2, add), added(party, 2)]
    assert party.statuses(tags) == [statuses.SUCCESS] * 3
    assert {party.members[rank].result(tag)["members"] for rank, tag in enumerate(tags)} == {job(2, 1, 0)}


def test_a_caller_that_no_leader_adds():
    party = Party(3)
    tags = [added(party, 0), leader(party, 1, 2), leader(party, 2, 2)]
    assert party.statuses(tags) == [statuses.ERR_NOT_FOUND, statuses.SUCCESS, statuses.SUCCESS]
    assert party.server.store.groups["g"] == job(1, 2)
    assert not party.server.pending()


def test_callers_that_know_each_other_and_a_leader_under_one_name():
    """Each construct waits for those whom it adds itself, and one that ends takes nobody else along."""
    party = Party(5)
    waiting = [
        party.members[0].construct(talk.procs(keys.GROUP_ADD_MEMBERS, job(1)), procs=job(0)),
        party.members[2].construct(talk.procs(keys.GROUP_ADD_MEMBERS, job(3)), procs=job(2)),
        leader(party, 4, 2),
    ]
    assert [(each.arrived, each.missing) for each in party.server.pending()] == [
        (job(0), job(1)),
        (job(2), job(3)),
        (job(4), ()),
    ]
    tags = [*waiting, added(party, 1)]
    assert party.statuses(tags, (0, 2, 4, 1)) == [statuses.SUCCESS, None, None, statuses.SUCCESS]
    tags = [waiting[1], added(party, 3)]
    assert party.statuses(tags, (2, 3)) == [statuses.SUCCESS] * 2
    assert [each.arrived for each in party.server.pending()] == [job(4)]


def test_members_that_a_collective_construct_adds():
    party = Party(4)
    procs = job(1, 0)
    early = added(party, 3, group_info(note("three")))
    tags = [
        party.members[0].construct(talk.procs(keys.GROUP_ADD_MEMBERS, job(3, 2)), procs=procs),
        party.members[1].construct(procs=procs),
    ]
    assert party.statuses(tags) == [None, None]
    late = added(party, 2)
    assert party.statuses([*tags, late, early]) == [statuses.SUCCESS] * 4
    for rank, tag in enumerate([*tags, late, early]):
        assert party.members[rank].result(tag)["members"] == job(1, 0, 3, 2)
        assert party.members[rank].result(tag)["group_info"]
    assert party.server.store.groups["g"] == job(1, 0, 3, 2)
    (upcall,) = [op for op in party.upcalls if isinstance(op, GroupUpcall) and len(op.procs) == 4]
    assert talk.listed(upcall.directives, GROUP_ORDER) == job(1, 0, 3, 2)


def test_a_final_order_that_names_some():
    # Whom it does not name come behind: first those who have named each other, then those who were added.
    party = Party(4)
    order = talk.procs(keys.GROUP_FINAL_MEMBERSHIP_ORDER, job(2))
    add = talk.procs(keys.GROUP_ADD_MEMBERS, job(0))
    tags = [added(party, 0), *[party.members[rank].construct(order, add, procs=job(1, 2, 3)) for rank in (1, 2, 3)]]
    assert party.statuses(tags) == [statuses.SUCCESS] * 4
    assert party.members[0].result(tags[0])["members"] == job(2, 1, 3, 0)


@pytest.mark.parametrize("first", [0, 1])
def test_the_final_order_is_that_of_the_first_proc_whoever_calls_first(first):
    orders = [talk.procs(keys.GROUP_FINAL_MEMBERSHIP_ORDER, job(*ranks)) for ranks in ((1, 2, 0), (2, 1, 0))]
    party = Party(3)
    tags = {rank: party.members[rank].construct(orders[rank], procs=job(0, 1, 2)) for rank in (first, 1 - first)}
    tags[2] = party.members[2].construct(procs=job(0, 1, 2))
    assert [party.members[rank].result(tags[rank])["members"] for rank in range(3)] == [job(1, 2, 0)] * 3
    (upcall,) = [op for op in party.upcalls if isinstance(op, GroupUpcall)]
    assert talk.listed(upcall.directives, keys.GROUP_FINAL_MEMBERSHIP_ORDER) == job(1, 2, 0)


@pytest.mark.parametrize(
    ("infos", "status"), [((), ABORT), ((TOLERANT,), statuses.SUCCESS), ((OPTIONAL,), statuses.ERR_PARTIAL_SUCCESS)]
)
@pytest.mark.parametrize("who", ["leader", "added"])
def test_one_of_them_ends(infos, status, who):
    party = Party(4)
    tags = [leader(party, 0, 2, talk.procs(keys.GROUP_ADD_MEMBERS, job(2, 3)), *infos)]
    if who == "leader":
        leader(party, 1, 2)
    else:
        added(party, 3)
    party.die(1 if who == "leader" else 3)
    if party.statuses(tags) == [None]:
        if who == "leader":
            tags += [added(party, 2), added(party, 3)]
            assert party.statuses(tags, (0, 2, 3)) == [status] * 3
        else:
            tags += [leader(party, 1, 2), added(party, 2)]
            assert party.statuses(tags) == [status] * 3
    else:
        assert party.statuses(tags) == [status]
        assert party.is_clean()


@pytest.mark.parametrize(("infos", "status"), [((), statuses.ERR_TIMEOUT), ((OPTIONAL,), statuses.ERR_PARTIAL_SUCCESS)])
def test_whom_a_construct_adds_does_not_come_in_time(infos, status):
    party = Party(3)
    add = talk.procs(keys.GROUP_ADD_MEMBERS, job(2))
    tags = [party.members[rank].construct(add, attrs.TIMEOUT(3), *infos, procs=job(0, 1)) for rank in (0, 1)]
    party.advance(5)
    assert party.statuses(tags) == [status] * 2
    if infos:
        assert party.server.store.groups["g"] == job(0, 1)
    else:
        # They are told who has not come.
        assert decode_late(party.members[0].client.replies[tags[0]], 1) == job(2)
        assert party.is_clean()


@pytest.mark.parametrize(("infos", "status"), [((), ABORT), ((TOLERANT,), statuses.SUCCESS)])
def test_whom_a_construct_adds_ends(infos, status):
    party = Party(3)
    add = talk.procs(keys.GROUP_ADD_MEMBERS, job(2))
    tags = [party.members[rank].construct(add, *infos, procs=job(0, 1)) for rank in (0, 1)]
    party.die(2)
    assert party.statuses(tags) == [status] * 2
    assert party.server.store.groups.get("g", ()) == (job(0, 1) if infos else ())


def test_the_callers_of_a_construct_that_waits_for_others_end():
    party = Party(2)
    party.members[0].construct(talk.procs(keys.GROUP_ADD_MEMBERS, job(1)), procs=job(0))
    party.die(0)
    assert party.is_clean()
    assert not party.server.groups.under_way


def test_the_time_of_a_bootstrap_runs_out():
    party = Party(2)
    tag = leader(party, 0, 2, attrs.TIMEOUT(3))
    party.advance(4)
    assert party.members[0].status(tag) == statuses.ERR_TIMEOUT
    assert party.is_clean()


@pytest.mark.parametrize("count", [0, 1 << 21, "two"])
def test_what_is_no_number_of_leaders(count):
    party = Party(1)
    kind = codes.STRING if isinstance(count, str) else codes.SIZE
    tag = party.members[0].construct(Info(keys.GROUP_BOOTSTRAP, Value(kind, count)), procs=job(0))
    assert party.members[0].status(tag) == statuses.ERR_BAD_PARAM
    assert party.is_clean()


def test_an_event_of_the_host_about_a_member_elsewhere():
    # A host tells of each proc of other servers that has ended.
    party = Party(2)
    members = *job(0, 1), Proc("far", 0)
    party.server.groups.records.form("g", members, serverdata.Group(flags={keys.GROUP_NOTIFY_TERMINATION}))
    gone = (
        talk.text(talk.SAYS, "gone"),
        talk.proc(keys.EVENT_AFFECTED_PROC, Proc("far", 0)),
        talk.flag(keys.EVENT_DO_NOT_CACHE),
    )
    for _ in range(2):
        party.server.events.notify(Notification(statuses.TALK, Proc("server9", 0), Range.LOCAL, gone))
    assert party.server.store.groups["g"] == job(0, 1)
    assert party.heard(0) == [(statuses.GROUP_MEMBER_FAILED, Proc("far", 0))]


def test_the_last_member_leaves_and_tells_nobody():
    # As libpmix 7 does: its custom range is an empty array.
    party = Party(2)
    party.made()
    party.notify(0, statuses.GROUP_LEFT, to=Proc("job", 1))
    tag = party.notify(1, statuses.GROUP_LEFT, to=DataArray(codes.PROC, ()))
    assert party.members[1].status(tag) == statuses.SUCCESS
    assert party.is_clean()


@pytest.mark.parametrize(("infos", "status"), [((), statuses.ERR_PARTIAL_SUCCESS), ((TOLERANT,), statuses.SUCCESS)])
def test_any_fence_may_go_on_without_the_dead(infos, status):
    party = Party(3)
    tags = [party.members[0].client.fence(), party.members[1].client.fence(infos=infos)]
    party.die(2)
    assert party.statuses(tags) == [status] * 2


# Several servers, whose host the test is


def codes_heard(member):
    member.client.read()
    found = [EVENT.decode(payload, 1, member.release)["code"] for _, payload in member.client.pushed]
    member.client.pushed.clear()
    return found


class Declaring(Several):
    """Notes what its servers pass on to others."""

    said = ()

    def upcall(self, node, op, answer):
        if isinstance(op, ops.NotifyEvent):
            self.said = (*self.said, (op.code, *(info.value.data for info in op.infos if info.key == talk.SAYS)))
        super().upcall(node, op, answer)


@pytest.mark.parametrize("first", [True, False])
def test_others_are_told_who_leads_if_this_server_waits_for_more_callers(first):
    cluster = Declaring((0, 1), (2, 3))
    members = cluster.member(0), cluster.member(1)
    for rank, leads in enumerate((first, not first)):
        members[rank].construct(*((LEAD,) if leads else ()), NOTIFY, procs=job(0, 1, 2, 3))
    # Who calls last is known by what its server contributes.
    assert cluster.said == (((statuses.TALK, talk.DECLARES),) if first else ())
    assert cluster.asked()[0][GROUP_LEADER_PROC] == Proc("job", 0 if first else 1)


def test_all_hear_of_a_member_if_the_leader_has_ended_as_well():
    cluster = Several((0, 1), (2, 3))
    zero, one = cluster.member(0), cluster.member(1)
    for member in (zero, one):
        member.construct(NOTIFY, REACTS, procs=job(0, 1, 2, 3))
    _, _, answer = cluster.asked()
    answer((talk.procs(talk.ABSENT, job(2, 3)), talk.proc(GROUP_LEADER_PROC, Proc("job", 2))), None)
    assert codes_heard(zero) == codes_heard(one) == [statuses.GROUP_LEADER_FAILED, statuses.GROUP_MEMBER_FAILED]


@pytest.mark.parametrize("led", [True, False])
def test_the_host_says_who_leads_next_and_who_else_has_ended(led):
    """The callers claim to lead, and the next round brings the leader that was chosen with the end of a member."""
    cluster = Several((0, 1), (2, 3))
    zero, one = cluster.member(0), cluster.member(1)
    for member in (zero, one):
        member.construct(NOTIFY, REACTS, procs=job(0, 1, 2, 3))
    _, _, answer = cluster.asked()
    answer((talk.procs(talk.ABSENT, job(2)), talk.proc(GROUP_LEADER_PROC, Proc("job", 2))), None)
    cluster.react(zero, Proc("job", 2), talk.CLAIM if led else talk.GO_ON)
    cluster.react(one, Proc("job", 2), talk.GO_ON)
    _, _, answer = cluster.asked()
    leads = (talk.proc(GROUP_LEADER_PROC, Proc("job", 0)),) if led else ()
    answer((talk.procs(talk.ABSENT, job(2, 3)), *leads, NOTIFY), None)
    before = [statuses.GROUP_LEADER_FAILED, statuses.GROUP_LEADER_SELECTED]
    assert codes_heard(zero) == [*before, statuses.GROUP_MEMBER_FAILED]
    assert codes_heard(one) == ([*before] if led else [*before, statuses.GROUP_MEMBER_FAILED])


def test_the_next_leader_alone_is_told_of_a_member_that_ends_while_it_is_chosen():
    cluster = Several((0, 1, 2, 3, 4))
    zero, one, two, three, _ = [cluster.member(rank) for rank in range(5)]
    for member, infos in ((three, (LEAD,)), (zero, ()), (one, ())):
        member.construct(NOTIFY, REACTS, *infos, procs=job(0, 1, 2, 3, 4))
    three.client.die()
    two.client.die()
    assert codes_heard(zero) == codes_heard(one) == [statuses.GROUP_LEADER_FAILED]
    cluster.react(zero, Proc("job", 3), talk.CLAIM)
    cluster.react(one, Proc("job", 3), talk.GO_ON)
    assert codes_heard(zero) == [statuses.GROUP_LEADER_SELECTED, statuses.GROUP_MEMBER_FAILED]
    assert codes_heard(one) == [statuses.GROUP_LEADER_SELECTED]


@pytest.mark.parametrize("reacts", ["claim", "goes on", "not at all"])
def test_the_next_leader_is_told_of_the_members_that_only_the_former_one_knew(reacts):
    """If nobody leads next, all are told when all have called. Programs on libpmix do not react."""
    cluster = Several((0, 1, 2, 3, 4))
    zero, one, two, three, four = [cluster.member(rank) for rank in range(5)]
    wanted = (NOTIFY,) if reacts == "not at all" else (NOTIFY, REACTS)
    for member, infos in ((three, (LEAD,)), (zero, ()), (one, ())):
        member.construct(*wanted, *infos, procs=job(0, 1, 2, 3, 4))
    two.client.die()
    assert codes_heard(three) == [statuses.GROUP_MEMBER_FAILED]
    three.client.die()
    if reacts != "not at all":
        assert codes_heard(zero) == codes_heard(one) == [statuses.GROUP_LEADER_FAILED]
        cluster.react(zero, Proc("job", 3), talk.CLAIM if reacts == "claim" else talk.GO_ON)
        cluster.react(one, Proc("job", 3), talk.GO_ON)
        before = [statuses.GROUP_LEADER_SELECTED]
    else:
        before = [statuses.GROUP_LEADER_FAILED, statuses.GROUP_LEADER_SELECTED]
    later = [] if reacts == "claim" else [statuses.GROUP_MEMBER_FAILED]
    assert codes_heard(zero) == ([*before, statuses.GROUP_MEMBER_FAILED] if reacts == "claim" else before)
    assert codes_heard(one) == before
    four.construct(*wanted, procs=job(0, 1, 2, 3, 4))
    assert codes_heard(zero) == codes_heard(one) == later


def test_rounds_until_all_servers_know_how_their_callers_react():
    cluster = Several((0, 1), (2, 3))
    zero, one = cluster.member(0), cluster.member(1)
    procs = job(0, 1, 2, 3)
    tags = zero.construct(NOTIFY, REACTS, procs=procs), one.construct(LEAD, REACTS, procs=procs)
    told, _, answer = cluster.asked()
    assert told[GROUP_ROUND] == 1
    assert told[GROUP_LEADER_PROC] == Proc("job", 1)
    assert told[GROUP_ORDER].items == procs
    # A member on the other server has ended: only the leader hears of it.
    answer((talk.procs(talk.ABSENT, job(3)), talk.proc(GROUP_LEADER_PROC, Proc("job", 1))), None)
    assert (codes_heard(zero), codes_heard(one)) == ([], [statuses.GROUP_MEMBER_FAILED])
    assert not cluster.held
    cluster.react(one, Proc("job", 3), talk.GO_ON)
    told, _, answer = cluster.asked()
    assert told[GROUP_ROUND] == 2
    # Now the leader itself ends here; that is the host's to count, and to tell all servers.
    one.client.die()
    answer((talk.procs(talk.ABSENT, job(1, 3)), talk.proc(GROUP_LEADER_PROC, Proc("job", 1))), None)
    assert codes_heard(zero) == [statuses.GROUP_LEADER_FAILED]
    cluster.react(zero, Proc("job", 1), talk.CLAIM)
    told, _, answer = cluster.asked()
    assert (told[GROUP_ROUND], told[GROUP_CLAIMS].items) == (3, job(0))
    # What only the former leader had heard of, the next one hears of as well.
    leads = talk.proc(GROUP_LEADER_PROC, Proc("job", 0))
    answer((talk.procs(talk.ABSENT, job(1, 3)), leads, NOTIFY), None)
    assert codes_heard(zero) == [statuses.GROUP_LEADER_SELECTED, statuses.GROUP_MEMBER_FAILED]
    cluster.react(zero, Proc("job", 3), talk.GO_ON)
    told, _, answer = cluster.asked()
    assert told[GROUP_ROUND] == 4
    members = attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, job(0, 2)))
    answer((members, talk.procs(talk.ABSENT, job(1, 3)), leads, NOTIFY), None)
    assert codes_heard(zero) == []
    assert zero.result(tags[0])["members"] == job(0, 2)
    record = cluster.nodes[0].server.groups.records.get("g")
    assert (record.leader, record.notify) == (Proc("job", 0), True)
    assert not cluster.nodes[0].server.pending()


def test_an_abort_after_the_others_were_told_is_settled_by_the_host():
    for wins in (True, False):
        cluster = Several((0,), (1,))
        zero = cluster.member(0)
        tag = zero.construct(procs=job(0, 1))
        _, _, answer = cluster.asked()
        zero.ask(
            Command.NOTIFY,
            code=statuses.GROUP_CONSTRUCT_ABORT,
            range=Range.CUSTOM,
            infos=(attrs.EVENT_CUSTOM_RANGE(Proc("job", 1)), talk.text(keys.GROUP_ID, "g")),
        )
        _, cancel, agreed = cluster.asked()
        assert cancel == GroupUpcall(3, "g", job(0, 1))
        agreed((), None)
        assert zero.status(tag) is None
        if wins:
            answer(None, PMIxError("given up", status=ABORT))
        else:
            answer((attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, job(0, 1))),), None)
        assert zero.status(tag) == (ABORT if wins else statuses.SUCCESS)
        cluster.advance(60)
        assert not cluster.nodes[0].server.pending()


def test_an_abort_before_that_is_what_the_others_are_told():
    cluster = Several((0, 1), (2,))
    zero = cluster.member(0)
    tag = zero.construct(procs=job(0, 1, 2))
    zero.ask(
        Command.NOTIFY,
        code=statuses.GROUP_CONSTRUCT_ABORT,
        range=Range.CUSTOM,
        infos=(attrs.EVENT_CUSTOM_RANGE(Proc("job", 1)), talk.text(keys.GROUP_ID, "g")),
    )
    told, op, _ = cluster.asked()
    assert (op.operation, told[talk.VERDICT], told["pmix.loc.col.st"]) == (0, "abort", ABORT)
    assert zero.status(tag) == ABORT


def stand(cluster, *members, ranks=(0, 1, 2, 3)):
    for member in members:
        member.construct(NOTIFY, procs=job(*ranks))
    _, _, answer = cluster.asked()
    answer((attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, job(*ranks))), NOTIFY), None)


def test_a_fence_over_a_group_says_so():
    cluster = Several((0, 1), (2, 3))
    zero, one = cluster.member(0), cluster.member(1)
    stand(cluster, zero, one)
    zero.client.fence(EVERYONE)
    one.ask(
        Command.NOTIFY,
        code=statuses.GROUP_LEFT,
        range=Range.CUSTOM,
        infos=(attrs.EVENT_CUSTOM_RANGE(EVERYONE), talk.text(keys.GROUP_ID, "g")),
    )
    told, op, _ = cluster.asked()
    assert isinstance(op, FenceUpcall)
    absent = talk.procs(talk.ABSENT, job(1))
    assert told == {"pmix.grp.id": "g", "pmix.loc.col.st": statuses.ERR_PARTIAL_SUCCESS, absent.key: absent.value.data}
    zero.client.fence(EVERYONE)
    told, op, _ = cluster.asked()
    assert (told, op.procs) == ({"pmix.grp.id": "g"}, job(0, 2, 3))


def test_other_servers_are_told_of_members_that_end():
    cluster = Several((0, 1), (2, 3))
    zero, one = cluster.member(0), cluster.member(1)
    stand(cluster, zero, one)
    one.client.die()
    (event,) = [op for op in cluster.nodes[0].asked(ops.NotifyEvent) if op.code == statuses.TALK]
    assert talk.listed(event.infos, keys.EVENT_CUSTOM_RANGE) == job(2, 3)
    assert codes_heard(zero) == [statuses.GROUP_MEMBER_FAILED]
    # And the other way round.
    gone = (
        talk.text(talk.SAYS, "gone"),
        talk.proc(keys.EVENT_AFFECTED_PROC, Proc("job", 2)),
        talk.procs(keys.EVENT_CUSTOM_RANGE, job(0)),
    )
    cluster.nodes[0].server.events.notify(Notification(statuses.TALK, Proc("server1", 0), Range.CUSTOM, gone))
    assert codes_heard(zero) == [statuses.GROUP_MEMBER_FAILED]
    assert cluster.nodes[0].server.store.groups["g"] == job(0, 3)


def test_what_a_member_has_told_before_its_end_counts_though_its_end_was_heard_of_first():
    cluster = Several((0, 1), (2, 3))
    zero, one = cluster.member(0), cluster.member(1)
    stand(cluster, zero, one)
    server = cluster.nodes[0].server
    range = talk.procs(keys.EVENT_CUSTOM_RANGE, job(0, 1))
    other, (ended, stranger) = Proc("other", 0), job(2, 9)

    def hear(code, *infos, source=ended):
        server.events.notify(Notification(code, source, Range.CUSTOM, (talk.text(keys.GROUP_ID, "g"), range, *infos)))

    def lose(proc):
        gone = talk.text(talk.SAYS, "gone"), talk.proc(keys.EVENT_AFFECTED_PROC, proc), range
        server.events.notify(Notification(statuses.TALK, Proc("server1", 0), Range.CUSTOM, gone))

    lose(ended)
    assert server.store.groups["g"] == job(0, 1, 3)
    members = talk.procs(keys.GROUP_MEMBERSHIP, (*job(0, 1, 2, 3), other))
    hear(statuses.GROUP_MEMBERSHIP_UPDATE, members, talk.proc(talk.ADDED, other), source=stranger)
    assert server.store.groups["g"] == job(0, 1, 3)
    hear(statuses.GROUP_MEMBERSHIP_UPDATE, members, talk.proc(talk.ADDED, other))
    assert server.store.groups["g"] == (*job(0, 1, 3), other)
    hear(statuses.GROUP_LEADER_SELECTED, talk.proc(keys.GROUP_LEADER, other))
    assert server.groups.records.get("g").leader == other
    # As libraries tell it, which name all members.
    hear(statuses.GROUP_MEMBERSHIP_UPDATE, talk.procs(keys.GROUP_MEMBERSHIP, job(0, 1, 2, 3)))
    assert server.store.groups["g"] == job(0, 1, 3)
    # Of a job that is forgotten nothing stays.
    hear(statuses.GROUP_MEMBERSHIP_UPDATE, members, talk.proc(talk.ADDED, other))
    lose(other)
    server.register_nspace(JobInfo("other", (attrs.JOB_SIZE(1),)), ())
    assert server.groups.records.get("g").lost.keys() == {ended, other}
    server.deregister_nspace("other")
    assert server.groups.records.get("g").lost.keys() == {ended}


def test_a_proc_that_a_group_of_other_servers_takes_in():
    cluster = Several((0, 1), (2, 3))
    zero = cluster.member(0)
    notify = cluster.nodes[0].server.events.notify

    def update(source, *ranks, added=0):
        infos = talk.text(keys.GROUP_ID, "g"), talk.procs(keys.EVENT_CUSTOM_RANGE, job(0))
        infos += talk.procs(keys.GROUP_MEMBERSHIP, job(*ranks)), talk.proc(talk.ADDED, Proc("job", added))
        notify(Notification(statuses.GROUP_MEMBERSHIP_UPDATE, Proc("job", source), Range.CUSTOM, infos))

    update(2, 3, 0)
    update(2, 2, 3, 0, added=3)
    assert not cluster.nodes[0].server.store.groups
    update(2, 2, 3, 0)
    assert cluster.nodes[0].server.store.groups["g"] == job(2, 3, 0)
    zero.client.fence(EVERYONE)
    assert cluster.asked()[1].procs == job(0, 2, 3)
    # One has left meanwhile, of which the sender of an update has not heard yet.
    left = talk.text(keys.GROUP_ID, "g"), talk.procs(keys.EVENT_CUSTOM_RANGE, job(0))
    notify(Notification(statuses.GROUP_LEFT, Proc("job", 3), Range.CUSTOM, left))
    update(2, 2, 3, 0, 1, added=1)
    assert cluster.nodes[0].server.store.groups["g"] == job(2, 0, 1)


@pytest.mark.parametrize(
    ("told", "names"), [(("g", "far"), ["g", "far"]), ((), ["g"]), (None, ["g"]), ("nonsense", ["g"])]
)
def test_in_which_groups_a_proc_of_another_server_is(told, names):
    class Asked(Several):
        def upcall(self, node, op, answer):
            if isinstance(op, ops.QueryInfo):
                assert attrs.EVENT_CUSTOM_RANGE(Proc("job", 2)) in op.queries[0].qualifiers
                array = Value(codes.DATA_ARRAY, DataArray(codes.STRING, told or ()))
                infos = told if told == "nonsense" else (Info(op.queries[0].keys[0], array),)
                answer(*((None, NotSupported("no queries")) if told is None else (infos, None)))
            else:
                super().upcall(node, op, answer)

    cluster = Asked((0, 1), (2, 3))
    zero, one = cluster.member(0), cluster.member(1)
    stand(cluster, zero, one)
    key = attrs.GROUP_NAMES.key
    value = zero.client.value(zero.client.get(2, key), 2, key)
    assert list(value.data.items) == names
    assert zero.client.value(zero.client.get(1, key), 1, key).data.items == ("g",)
    assert not cluster.nodes[0].server.pending()


def test_callers_that_meet_others_of_other_servers():
    cluster = Several((0, 1), (2, 3))
    zero, one = cluster.member(0), cluster.member(1)
    add = talk.procs(keys.GROUP_ADD_MEMBERS, job(1))
    tags = [
        zero.construct(talk.size(keys.GROUP_BOOTSTRAP, 2), add, group_info(note("x")), procs=job(0)),
        one.construct(procs=()),
    ]
    offers = [cluster.asked(), cluster.asked()]
    assert [op.procs for _, op, _ in offers] == [job(1), job(0)]
    assert [told[GROUP_GUEST] for told, _, _ in offers] == [Proc("job", 1), Proc("job", 0)]
    members = attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, job(0, 2, 1)))
    for _, _, answer in offers:
        answer((members, context(77), group_info(note("x"), proc=Proc("job", 0)), NOTIFY), None)
    for member, tag in zip((zero, one), tags, strict=True):
        result = member.result(tag)
        assert (result["members"], result["context_id"]) == (job(0, 2, 1), 77)
        assert list(result["group_info"]) == [group_info(note("x"), proc=Proc("job", 0))]
    assert cluster.nodes[0].server.groups.records.get("g").notify
    assert not cluster.nodes[0].server.pending()


def test_a_caller_that_ends_is_offered_no_more():
    cluster = Several((0, 1), (2, 3))
    zero = cluster.member(0)
    zero.construct(talk.size(keys.GROUP_BOOTSTRAP, 2), procs=job(0))
    cluster.asked()
    zero.client.die()
    told, cancel, _ = cluster.asked()
    assert (cancel.operation, cancel.procs, told[talk.ABSENT].items) == (3, job(0), job(0))
    assert not cluster.nodes[0].server.pending()


def test_a_caller_that_loses_one_of_its_connections_may_call_again():
    cluster = Several((0, 1), (2, 3))
    zero, other = cluster.member(0), cluster.member(0)
    zero.construct(talk.size(keys.GROUP_BOOTSTRAP, 2), attrs.TIMEOUT(3), procs=job(0))
    _, _, late = cluster.asked()
    zero.client.die()
    told, cancel, _ = cluster.asked()
    assert (cancel.operation, cancel.procs, told) == (3, job(0), {})
    assert not cluster.nodes[0].server.pending()
    tag = other.construct(talk.size(keys.GROUP_BOOTSTRAP, 2), procs=job(0))
    _, _, answer = cluster.asked()
    # Nothing of the former call is left: not its time, and not the answer to it.
    cluster.advance(4)
    late(None, PMIxError(status=statuses.ERR_TIMEOUT))
    assert other.status(tag) is None
    answer((attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, job(0, 2))),), None)
    assert other.result(tag)["members"] == job(0, 2)


@pytest.mark.parametrize("made", [False, True])
def test_the_time_of_a_caller_runs_out_that_the_host_has(made):
    cluster = Several((0, 1), (2, 3))
    zero = cluster.member(0)
    add = talk.procs(keys.GROUP_ADD_MEMBERS, job(2))
    tag = zero.construct(talk.size(keys.GROUP_BOOTSTRAP, 1), add, attrs.TIMEOUT(3), procs=job(0))
    _, _, answer = cluster.asked()
    cluster.advance(3.1)
    told, cancel, _ = cluster.asked()
    assert (cancel.operation, told) == (3, {keys.LOCAL_COLLECTIVE_STATUS: statuses.ERR_TIMEOUT})
    # The host may have made it by now.
    assert zero.status(tag) is None
    if made:
        answer((attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, job(0, 2))),), None)
        assert zero.result(tag)["members"] == job(0, 2)
    cluster.advance(60)
    if not made:
        assert zero.status(tag) == statuses.ERR_TIMEOUT
    assert not cluster.nodes[0].server.pending()
    assert not cluster.nodes[0].server.groups.under_way


def test_the_time_of_an_optional_construct_runs_out_elsewhere():
    cluster = Several((0,), (1,))
    zero = cluster.member(0)
    tag = zero.construct(OPTIONAL, attrs.TIMEOUT(3), procs=job(0, 1))
    _, _, answer = cluster.asked()
    cluster.advance(4)
    told, cancel, _ = cluster.asked()
    assert (cancel.operation, told) == (3, {"pmix.loc.col.st": statuses.ERR_TIMEOUT})
    answer((attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, job(0))), talk.procs(talk.ABSENT, job(1)), OPTIONAL), None)
    assert zero.status(tag) == statuses.ERR_PARTIAL_SUCCESS
    assert cluster.nodes[0].server.store.groups["g"] == job(0)


def test_all_members_end():
    party = Party(3)
    party.made("g", (NOTIFY,))
    party.made("h")
    party.members[0].client.fence(EVERYONE)
    for rank in range(3):
        party.die(rank)
    assert party.is_clean()


# What it costs


def test_the_members_of_a_group_are_not_copied_for_each_that_destructs_it(monkeypatch):
    party = Party(4)
    party.made()
    asked = []
    store = type(party.server.store)
    ungrouped = store.ungrouped
    monkeypatch.setattr(store, "ungrouped", lambda self, procs: asked.append(procs) or ungrouped(self, procs))
    tags = [party.members[rank].destruct() for rank in range(4)]
    assert party.statuses(tags) == [statuses.SUCCESS] * 4
    assert len(asked) <= 1, "the address of a group is looked up once"


@pytest.mark.parametrize("size", [4, 32])
def test_a_reply_is_made_once_for_all_who_get_the_same(monkeypatch, size):
    from pypmix.engine.python.serverside import forming, plans

    made = []
    for module in forming, plans:
        monkeypatch.setattr(module, "reply_layout", lambda *asked: made.append(asked) or reply_layout(*asked))
    party = Party(size)
    party.made()
    assert len(made) == 1
