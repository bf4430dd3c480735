"""The states of groups and of what forms them, and the steps between them.

The other modules keep these states, and take each next one from these tables. The documentation shows the tables.
"""

from __future__ import annotations

from pypmix.engine.states import Machine, Row, rows_of
from pypmix.standard.ops.groups import ACCEPTED, DECLINED, FAILED


class InvitationStates(Machine):
    """An invitation, at its leader."""

    UNDER_WAY = START = "in progress"
    COMPLETE = "complete"
    GIVEN_UP = "given up"

    COMPLETES = "all have answered"
    GIVES_UP = "it is cancelled"
    LOST = "the session ends"

    ROWS = (
        Row(
            UNDER_WAY,
            COMPLETES,
            COMPLETE,
            "`GROUP_CONSTRUCT_COMPLETE` to the members; `GROUP_CONSTRUCT_ABORT` to procs that have not answered",
        ),
        Row(UNDER_WAY, GIVES_UP, GIVEN_UP, "`GROUP_CONSTRUCT_ABORT` to all"),
        Row(UNDER_WAY, LOST, GIVEN_UP),
    )


class AnswerStates(Machine):
    """An invited proc, as the leader sees it."""

    NOT_INVITED = START = "not invited"
    PENDING = "pending"
    ACCEPTED = ACCEPTED
    DECLINED = DECLINED
    FAILED = FAILED

    IS_INVITED = "the leader invites it"
    ACCEPTS = "it accepts"
    DECLINES = "it declines"
    FAILS = "it ends, or its time runs out"
    LEFT_OUT = "the leader continues without it"

    ROWS = (
        Row(NOT_INVITED, IS_INVITED, PENDING, "`GROUP_INVITED` to it"),
        *rows_of((PENDING, FAILED), ACCEPTS, ACCEPTED, "the invited procs, to it, if they have changed"),
        *rows_of((PENDING, ACCEPTED, FAILED), DECLINES, DECLINED, "the leader's handlers and caller"),
        *rows_of((PENDING, ACCEPTED), FAILS, FAILED, "`GROUP_INVITE_FAILED` to the leader's handlers"),
        *rows_of((PENDING, ACCEPTED), LEFT_OUT, NOT_INVITED, "`GROUP_CONSTRUCT_ABORT` to it"),
        *rows_of((DECLINED, FAILED), IS_INVITED, PENDING, "`GROUP_INVITED` to it"),
        Row(DECLINED, LEFT_OUT, NOT_INVITED),
        Row(FAILED, LEFT_OUT, NOT_INVITED, "`GROUP_CONSTRUCT_ABORT` to it, if it lives"),
    )


class InviteeStates(Machine):
    """An invitation, at an invited proc."""

    INVITED = START = "invited"
    JOINS = "accepted"
    LEADERLESS = "invited, no leader"
    WAITS = "accepted, no leader"
    LEADS = "leads"
    LEADS_AND_JOINS = "accepted, leads"
    MEMBER = "member"
    DECLINED = "declined"
    OVER = "no group"

    ACCEPTS = "the program accepts"
    DECLINES = "the program declines"
    TIME_OUT = "the time to join runs out"
    LEADER_FAILS = "the leader fails"
    IS_LED = "another one leads"
    IS_CHOSEN = "this one leads"
    STANDS = "the group is formed"
    ENDS = "there is no group"

    ROWS = (
        Row(INVITED, ACCEPTS, JOINS, "`GROUP_INVITE_ACCEPTED` to the leader"),
        Row(INVITED, DECLINES, DECLINED, "`GROUP_INVITE_DECLINED` to the leader"),
        Row(INVITED, LEADER_FAILS, LEADERLESS, "`GROUP_LEADER_FAILED` to the handlers"),
        *rows_of((INVITED, JOINS, LEADS, LEADS_AND_JOINS), ENDS, OVER),
        *rows_of((JOINS, WAITS, LEADS, LEADS_AND_JOINS), STANDS, MEMBER),
        Row(JOINS, TIME_OUT, DECLINED, "`GROUP_INVITE_DECLINED` to the leader"),
        Row(JOINS, LEADER_FAILS, WAITS, "`GROUP_LEADER_FAILED` to the handlers"),
        Row(LEADERLESS, ACCEPTS, WAITS),
        Row(LEADERLESS, DECLINES, DECLINED, "the other members that choose"),
        Row(LEADERLESS, IS_LED, INVITED),
        Row(LEADERLESS, IS_CHOSEN, LEADS),
        *rows_of((LEADERLESS, WAITS), ENDS, OVER, "the other members that choose"),
        Row(WAITS, TIME_OUT, DECLINED, "the other members that choose"),
        Row(WAITS, IS_LED, JOINS, "`GROUP_INVITE_ACCEPTED` to the new leader"),
        Row(WAITS, IS_CHOSEN, LEADS_AND_JOINS),
        Row(LEADS, ACCEPTS, LEADS_AND_JOINS),
    )


class ElectionStates(Machine):
    """The choice of a leader, at a participant."""

    BEGUN = START = "begun"
    REPORTS = "reports"
    WAITS = "coordinates"
    ASKS = "coordinates, has asked"
    DECIDED = "decided"
    OUT = "withdrawn"

    FOLLOWS = "another one coordinates"
    COORDINATES = "this one coordinates"
    MISSES = "members have not reported in time"
    CHOOSES = "all have reported, and it chooses"
    HEARS = "it learns the choice"
    DROPS = "it no longer takes part in the group"
    LOST = "the session ends"

    ROWS = (
        *rows_of((BEGUN, REPORTS, WAITS, ASKS), FOLLOWS, REPORTS, "its vote to the coordinator"),
        *rows_of((BEGUN, REPORTS), COORDINATES, WAITS),
        Row(WAITS, MISSES, ASKS, "the members that have not reported"),
        *rows_of((WAITS, ASKS), CHOOSES, DECIDED, "`GROUP_LEADER_SELECTED` to all participants"),
        *rows_of((BEGUN, REPORTS), HEARS, DECIDED),
        *rows_of((WAITS, ASKS), HEARS, DECIDED, "`GROUP_LEADER_SELECTED` to all participants"),
        *rows_of((REPORTS, WAITS, ASKS), DROPS, OUT, "the other participants"),
        *rows_of((REPORTS, WAITS, ASKS), LOST, OUT),
    )


class GroupStates(Machine):
    """A group, at one of its members."""

    UNDER_WAY = START = "in progress"
    LED = "formed, with a leader"
    LEADERLESS = "formed, no leader"
    CHOOSES = "formed, choosing a leader"
    OVER = "over"

    STANDS = "it is complete"
    STANDS_LED = "it is complete, with a leader"
    NOTHING = "it fails"
    DECLARES = "a member says that it leads"
    JOINS = "a proc is admitted"
    LEAVES = "a member leaves"
    FAILS = "a member fails"
    LEADER_LEAVES = "the leader leaves"
    NEEDS_LEADER = "a leader has failed, or another is wanted"
    IS_CALLED = "other members choose"
    IS_LED = "a leader is chosen"
    NOT_LED = "no leader is chosen"
    GOES = "this process leaves"
    DESTRUCTED = "it is destructed"
    LOST = "the session ends"

    ROWS = (
        Row(UNDER_WAY, STANDS, LEADERLESS),
        Row(UNDER_WAY, STANDS_LED, LED, "that it leads, by the leader to the others, if it has declared itself"),
        Row(UNDER_WAY, NOTHING, OVER),
        *rows_of((LED, LEADERLESS, CHOOSES), JOINS, said="`GROUP_MEMBERSHIP_UPDATE` to the handlers"),
        *rows_of((LED, LEADERLESS, CHOOSES), LEAVES, said="`GROUP_LEFT` to the handlers"),
        *rows_of(
            (LED, LEADERLESS, CHOOSES), FAILS, said="`GROUP_MEMBER_FAILED` to the handlers, if the group wants it"
        ),
        Row(LED, LEADER_LEAVES, LEADERLESS, "`GROUP_LEFT` to the handlers"),
        *rows_of(
            (LED, LEADERLESS),
            NEEDS_LEADER,
            CHOOSES,
            "`GROUP_LEADER_FAILED` to the handlers; then the members that choose",
        ),
        Row(LEADERLESS, DECLARES, LED),
        Row(LEADERLESS, IS_CALLED, CHOOSES, "the members that choose: no wish"),
        *rows_of((LED, LEADERLESS, CHOOSES), IS_LED, LED, "`GROUP_LEADER_SELECTED` to the handlers"),
        *rows_of(
            (LED, LEADERLESS, CHOOSES), NOT_LED, LEADERLESS, "`GROUP_LEADER_SELECTED` to the handlers, with the error"
        ),
        *rows_of((LED, LEADERLESS), GOES, OVER, "`GROUP_LEFT` to the others"),
        Row(CHOOSES, GOES, OVER, "`GROUP_LEFT` to the others; the members that choose: withdrawn"),
        *rows_of((LED, LEADERLESS, CHOOSES), DESTRUCTED, OVER),
        *rows_of((LED, LEADERLESS, CHOOSES), LOST, OVER),
    )


MACHINES = {
    "invitation": InvitationStates,
    "answer": AnswerStates,
    "invitee": InviteeStates,
    "election": ElectionStates,
    "standing": GroupStates,
}
"""The state machines of the members' libraries, by their names in the documentation."""
