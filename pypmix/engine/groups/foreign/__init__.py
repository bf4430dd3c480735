"""Servers that are not of the Python engine: what they lack for groups, which the members make up for.

This package alone knows what kind of server there is. All other code reads the facts about it in a `Support`.
"""

from __future__ import annotations

from pypmix.standard import statuses
from pypmix.standard.record import Record

ENDS = (statuses.ERR_PROC_ABORTED, statuses.PROC_TERMINATED)
"""The events of procs that end: each server of ours reports every end under one of these."""

FURTHER_ENDS = (
    statuses.ERR_PROC_TERM_WO_SYNC,
    statuses.EVENT_PROC_TERMINATED,
    statuses.ERR_PROC_ABORTED_BY_SIG,
    statuses.ERR_EXIT_NONZERO_TERM,
)
"""The further events under which other servers may report an end: `PROC_TERM_WO_SYNC`, `EVENT_PROC_TERMINATED`,
`PROC_ABORTED_BY_SIG` and `EXIT_NONZERO_TERM`."""


class Support(Record):
    """The services of a server for the groups of its clients.

    Args:
        constructing: The module and the class that carry out constructs and destructs.
        decides: It checks constructs and destructs, knows the groups and their names, and decides how calls of their
            members end. Otherwise the members do.
        reports_failures: It reports members and leaders that fail.
        keeps_events: It keeps all events for handlers that are registered later.
        answers_partially: It answers an incomplete construct with the group, and names missing procs.
        identifies_callers: It knows which procs have called a collective: a caller can withdraw, and is told who took
            part.
        ends: The events under which it reports procs that end.
    """

    constructing: tuple[str, str] = ("foreign.constructing", "ForeignConstructing")
    decides: bool = False
    reports_failures: bool = False
    keeps_events: bool = False
    answers_partially: bool = False
    identifies_callers: bool = False
    ends: tuple[int, ...] = (*ENDS, *FURTHER_ENDS)


OWN = Support(("constructing", "Constructing"), True, True, True, True, True, ENDS)
"""The support of servers of the Python engine."""


FOREIGN = Support()
"""The support of all other servers."""


def support_of(same_engine: bool) -> Support:
    """Return the support of a server, which may be of the Python engine."""
    return OWN if same_engine else FOREIGN
