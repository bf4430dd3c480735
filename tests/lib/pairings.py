"""The pairings of a server with a client that the shared suite runs on, and what each of them lacks.

A feature that a pairing lacks is declared in `LACKS`, with the reason and what must be observed; the tests that need it
say so with `@pytest.mark.needs(...)`. They do not run there, but for one, the probe, which must fail as declared. Where
trying does harm, they are skipped with the reason.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from lib import machine, promises, slurm
from lib.lack import Error, Lack, Outcome, each_returned, others_get, returned
from pypmix import (
    LocalProtocolError,
    LostConnection,
    NotFound,
    NotSupported,
    OperationTimeout,
    PMIxError,
    RemoteProtocolError,
    Unreachable,
)
from pypmix.standard import statuses

NODES = "python-server-2-nodes"
"""`pypmix run --nodes 2`: two servers, each with a half of the ranks."""

HOSTED = "native-server-"
"""`pypmix run --server-engine native` on the libpmix of the release that follows."""

SLURM = "slurm-"
"""`srun --mpi=pmix` of the Slurm of the release that follows, on one node or, with `-2-nodes`, on two."""

SERVERS = (
    "python-server",
    "prterun-5.0.11",
    "mpirun-4.1.4",
    NODES,
    f"{HOSTED}4.2.2",
    f"{HOSTED}5.0.11",
    f"{SLURM}22.05.8",
    f"{SLURM}22.05.8-2-nodes",
)
CLIENTS = ("python-client", "native-4.2.2", "native-5.0.11")

PMIX_OF_ROOTS = {"forky": "7.0.0", "trixie": "5.0.7"}
"""What the roots have, of which none may have been built."""

ROOT_RELEASE = machine.leading_release(found.pmix) if (found := machine.root()) else PMIX_OF_ROOTS[machine.ROOT_NAME]
ROOT_SERVER = f"prterun-{ROOT_RELEASE}"
ROOT_HOSTED = f"{HOSTED}{ROOT_RELEASE}"
ROOT_CLIENT = f"native-{ROOT_RELEASE}"
"""The servers and the client that live in the Debian root, and whose jobs run there."""


class Selection(NamedTuple):
    """What of the suite runs on a server, where that is not all of it.

    Args:
        server: The server's name, or a pattern.
        modules: The modules of tests, without `test_`.
        reason: Why these.
    """

    server: str
    modules: frozenset[str]
    reason: str


SELECTIONS = (
    Selection(
        NODES,
        frozenset(
            {
                "clients",
                "connecting",
                "connection_ends",
                "control",
                "ending",
                "events",
                "exchanging",
                "exchanging_losses",
                "fences",
                "forwarding",
                "given_up",
                "giving_up",
                "group_addresses",
                "group_construct",
                "group_failures",
                "group_invitations",
                "group_objects",
                "group_requests",
                "groups",
                "groups_reduced",
                "identity",
                "modex",
                "nodes",
                "openmpi",
                "pmi",
                "psets",
                "publish",
                "queries",
                "spawning",
            }
        ),
        "what two servers have to do together, or what a host of two nodes has to know; tools see the first server "
        "only, and concurrency and examples are of one client",
    ),
    Selection(
        f"{HOSTED}*",
        frozenset(
            {
                "clients",
                "connecting",
                "connection_ends",
                "control",
                "ending",
                "events",
                "exchanging",
                "exchanging_losses",
                "fences",
                "forwarding",
                "given_up",
                "giving_up",
                "group_addresses",
                "group_construct",
                "group_failures",
                "group_invitations",
                "group_requests",
                "groups",
                "groups_reduced",
                "hosts",
                "identity",
                "kinds",
                "modex",
                "openmpi",
                "pmi",
                "psets",
                "publish",
                "queries",
                "requests",
                "spawn",
                "spawning",
                "tools",
            }
        ),
        "what the host answers and what the server tells it of; how a library's own server serves its clients is what "
        "the launchers that stand on it are there for",
    ),
    Selection(
        f"{SLURM}*",
        frozenset({"ending", "fences", "identity", "modex", "slurm"}),
        "what Slurm's plugin offers; that all else is refused is proven by test_slurm",
    ),
)


NAME_KEPT = Outcome(
    "a construct of the name is refused at once",
    lambda job: [job.ranks[rank].result[3:] for rank in (0, 1)] == [["ERR_EXISTS"]] * 2,
)
NOBODY_NAMED = returned(
    "the fence times out, and its error names nobody",
    lambda found: isinstance(found[0][0], OperationTimeout) and found[0][0].missing is None,
)
SOME_TOLD = returned(
    "some ranks are told of the failure, and some of a success",
    lambda found: set(found) == {None, "ERR_TIMEOUT"},
)
SOURCE_LEFT_OUT = returned(
    "the other rank gets the alarm, whose source is rank 0, and rank 0 does not",
    lambda found: found[0][1] is None and found[1][1] == ("MONITOR_HEARTBEAT_ALERT", found[0][2]),
)
SIX_DECIMALS = each_returned([0.1, 0.0, 1.7976931348623157e308, 0.333333])
NOT_AWAITED = returned("the get ends with NotFound", lambda found: isinstance(found[0][0], NotFound))
REMOTE_SHOWN = returned(
    "each rank reads the REMOTE value of the other one",
    lambda found: found == [[True, "REMOTE of 1"], [True, "REMOTE of 0"]],
)
SLURM_NAMES = returned(
    "the hostname is one of slurm.conf", lambda found: {view["hostname"][:2] for view in found} == {"sn"}
)
PUBLISHED_TWICE = returned("the second publish is a success", lambda found: found[0][0] == [None, 0])
FIRST_FOUND = returned(
    "the second publish is refused, and the lookup finds the first value",
    lambda found: found[0] == [["ERR_DUPLICATE_KEY", "not published"], "first"],
)
ONE_KEY = returned("the lookup ends with one of the keys", lambda found: found[0] == {"acme.one": 0})
PROC_LOCAL_SHOWN = returned("rank 1 finds what is for rank 0 alone", lambda found: found[1][-1] == "PROC_LOCAL")
OUTLIVED = returned("both values are found", lambda found: found[0] == (1, 2))
NOT_ENDED = returned("rank 1 runs on", lambda found: found == [None, False])
NOT_PAUSED = returned("rank 1 goes on", lambda found: found == [(False, True), "went on"])
FIRST_READS = returned(
    "the first proc alone reads it", lambda found: found[0] == {(0, "STDOUT"): b"for all\n", (1, "STDOUT"): b"\n"}
)
NO_PARENT = returned(
    "the child does not know of its parent",
    lambda found: [(seen["spawned"], seen["parent"]) for seen in found[0][0]["child"]] == [(False, None)] * 2,
)
OWN_ORDER = returned(
    "each rank has the order that it has named itself", lambda found: found == [[3, 2, 1, 0], [0, 1, 2, 3]] * 2
)
COMMAND_LINE_SETS = returned(
    "queries tell of the set of the command line", lambda found: [seen[3] for seen in found] == [{"ocean": [0, 1]}] * 3
)
STARTED_NOWHERE = Outcome(
    "the spawn is a success, and the launcher fails",
    lambda job: job.values()[0]["directory"].startswith(("<Job", "<ChildJob")) and job.exit_code not in (0, 1),
)
STARTED_FOR_EVER = Outcome(
    "the spawn is a success, and the launcher does not end",
    lambda job: job.values()[0]["directory"].startswith(("<Job", "<ChildJob")),
    hangs=True,
)
NEVER_RAISED = Outcome(
    "it hangs, and those who wait for the sender run into their time limits",
    lambda job: job.failures and all(Error(OperationTimeout, "^fence").fits(each) for each in job.failures),
    hangs=True,
)
LEFT_UNSEEN = Outcome(
    "rank 1 exits, and the job is a success",
    lambda job: job.exit_code == 0 and [*job.ranks] == [0] and not job.failures,
)
SLURM_PAGE = "use/launchers.md#Slurm 22.05, libpmix 4.2"
COMMITTED = "a limit of what a rank commits"
TOO_MUCH = "test_modex.test_the_amount_of_one_ranks_data_costs_nobody_else_anything"
OLDER = ("prterun-5.*", "mpirun-*", f"{SLURM}*", f"{HOSTED}[45].*")
NEWER = ("prterun-7.*", f"{HOSTED}7.*")
TOO_LONG = Outcome(
    "a reader ends its connection because of the length of the answer",
    lambda job: any(map(Error(RemoteProtocolError, "bytes is announced; the limit is").fits, job.failures)),
)
NOT_SENT = Error(LocalProtocolError, "^commit .* is longer than this server accepts")
CUT_OFF = Error(LostConnection, "^put of")
UNLIMITED = returned(
    "nothing is refused", lambda found: found[0] == {"afterwards": None} and found[1]["first"] == 20 << 20
)


def ended(code: int, pattern: str) -> Outcome:
    """Return the outcome that a job ends with an exit code and prints what matches, but not why it was aborted."""
    return Outcome(
        f"exit code {code} and output that matches {pattern!r}",
        lambda job: (
            job.exit_code == code and "had enough" not in job.output and re.search(pattern, job.output) is not None
        ),
    )


WITHOUT_VALUES = Error(PMIxError, "did not come with the answer", statuses.QUERY_PARTIAL_SUCCESS)

LACKS = (
    *[
        Lack(
            feature,
            "prterun-5.0.7",
            "*",
            "PRRTE 3.0.8 answers a lookup without values unless there is one for each key",
            expect=WITHOUT_VALUES,
            probe=f"test_publish.{probe}",
        )
        for feature, probe in (
            ("a lookup of several keys", "test_every_rank_finds_what_all_have_published"),
            ("a lookup waits for all of its keys", "test_keys_that_come_one_after_the_other"),
            ("duplicate keys are refused", "test_a_key_that_is_there_already"),
        )
    ],
    Lack(
        "a range of the proc itself",
        "prterun-5.0.7",
        "*",
        "PRRTE 3.0.8 shows others what was published to PROC_LOCAL",
        expect=PROC_LOCAL_SHOWN,
        probe="test_publish.test_ranges",
    ),
    *[
        Lack(COMMITTED, server, client, "libpmix has none, " + reason, expect=expect, probe=TOO_MUCH)
        for servers, client, reason, expect in (
            (OLDER, "python-client", "and a Python client takes no answer that is longer than a message", TOO_LONG),
            (NEWER, "python-client", "but for the length of a message, which it refuses as a whole", NOT_SENT),
            (("prterun-5.*", f"{HOSTED}5.*"), "native-4.2.*", "and clients of old releases none either", UNLIMITED),
            (OLDER, "native-5.0.*", "and clients of old releases none either", UNLIMITED),
            (NEWER, "native-7.*", "but for the length of a message, after which it ends the connection", CUT_OFF),
        )
        for server in servers
    ],
    *[
        Lack(
            COMMITTED,
            server,
            "native-4.2.*",
            "libpmix 4.2 has none, and a server of it crashes or hangs of so much data in its shared memory",
            proof="how-it-works/libpmix.md#A commit of many megabytes",
            harm=True,
        )
        for server in ("mpirun-*", f"{SLURM}*", f"{HOSTED}4.2.*")
    ],
    Lack("one node", NODES, "*", "its ranks are on two", proof="suite/test_nodes"),
    Lack(
        "the node id of a proc elsewhere",
        NODES,
        "native-4.2.*",
        "libpmix 4.2 looks for it in what it holds of its own node",
        expect=Error(NotFound, "pmix.nodeid"),
        probe="test_nodes.test_node_ids",
    ),
    Lack(
        "every rank is told of a failed fence",
        f"{HOSTED}5.0.*",
        "*",
        "a server of libpmix 5.0 tells one of its waiting clients of the failure and the others of a success",
        expect=SOME_TOLD,
        probe="test_fences.test_someone_never_comes_and_everyone_is_told",
    ),
    Lack(
        "the missing are named",
        f"{HOSTED}*",
        "*",
        "native servers do not say who is missing",
        expect=NOBODY_NAMED,
        probe="test_fences.test_the_missing_are_named",
    ),
    Lack(
        "a name that a member has left",
        f"{HOSTED}4.2.*",
        "*",
        "libpmix keeps a group until all its first members that live destruct it: a server of 4.2",
        expect=NAME_KEPT,
        probe="test_groups_reduced.test_its_name_is_free_again_if_a_member_has_left",
    ),
    Lack(
        "a name that a member has left",
        f"{HOSTED}[5-9]*",
        "native*",
        "libpmix keeps a group until all its first members that live destruct it: in the clients",
        expect=NAME_KEPT,
        probe="test_groups_reduced.test_its_name_is_free_again_if_a_member_has_left",
    ),
    Lack(
        "a finalize while others wait",
        f"{HOSTED}7.*",
        "*",
        "a server of libpmix 7 waits for a client that has finalized, and its host is not asked",
        expect=others_get("OperationTimeout"),
        probe="test_connection_ends.test_one_finalizes_that_others_wait_for_in_a_connect",
    ),
    Lack(
        "alarms reach who has asked for them",
        f"{HOSTED}*",
        "*",
        "our choice: an alarm names the watched proc as its source, as libpmix's own monitors do, and libpmix hands no "
        "event to its source",
        expect=SOURCE_LEFT_OUT,
        probe="test_control.test_who_stops_hears_of_it_too",
    ),
    Lack(
        "exact floats",
        f"{HOSTED}*",
        "python-client",
        "the server writes what it relays anew, with six decimals",
        expect=SIX_DECIMALS,
        probe="test_modex.test_floats_keep_every_digit",
    ),
    Lack(
        "a get waits through other commits",
        f"{HOSTED}*",
        "*",
        "native servers answer a waiting get when the proc commits next, with or without the key",
        expect=NOT_AWAITED,
        probe="test_modex.test_a_value_that_comes_with_a_later_commit",
    ),
    *[
        Lack("key deletion", server, client, "keys are deleted from libpmix 7 on", proof=proof)
        for server, client, proof in (
            ("*", "native-[45].*", "test_refusals.test_keys_that_a_library_or_its_server_cannot_delete"),
            (f"{HOSTED}[45].*", "*", "test_refusals.test_keys_that_a_server_cannot_delete"),
            ("prterun-5.0.*", "*", "test_refusals.test_keys_that_a_server_cannot_delete"),
            ("mpirun*", "*", "test_refusals.test_keys_that_a_server_cannot_delete"),
            (f"{SLURM}*", "*", "test_refusals.test_keys_that_a_server_cannot_delete"),
        )
    ],
    Lack(
        "refreshed get",
        f"{HOSTED}[5-9]*",
        "native-4.2.*",
        "PMIX_GET_REFRESH_CACHE is an attribute from 5.0 on",
        expect=each_returned(("before", "before")),
        probe="test_modex.test_a_changed_value_is_seen_on_refresh",
    ),
    Lack(
        "refreshed get",
        f"{HOSTED}4.2.*",
        "native-5.0.*",
        "a 4.2 server does not know PMIX_GET_REFRESH_CACHE",
        expect=each_returned(("before", "before")),
        probe="test_modex.test_a_changed_value_is_seen_on_refresh",
    ),
    Lack(
        "abort message",
        "prterun-5.0.*",
        "*",
        "the wheel's prterun does not find its own help texts",
        expect=ended(3, "help-prun.txt: No such file"),
        probe="test_ending.test_an_abort_shows_its_message",
    ),
    Lack(
        "abort and finalize at once",
        "prterun-5.0.*",
        "*",
        "it sometimes hangs for ever when a rank finalizes while its abort ends the job",
        proof="how-it-works/libpmix.md#A finalize that meets an abort",
        harm=True,
    ),
    Lack(
        "abort and finalize at once",
        "mpirun-4.1.*",
        "*",
        "it sometimes hangs for ever when a rank finalizes while its abort ends the job",
        proof="how-it-works/libpmix.md#A finalize that meets an abort",
        harm=True,
    ),
    Lack(
        "abort message",
        "mpirun-4.1.*",
        "*",
        "this mpirun ends an aborted job without a word",
        expect=ended(3, r"\A\Z"),
        probe="test_ending.test_an_abort_shows_its_message",
    ),
    Lack(
        "abort message",
        "prterun-7.*",
        "*",
        "this prterun says who has aborted the job, and nothing of the message",
        expect=ended(3, r"calling\s+.abort."),
        probe="test_ending.test_an_abort_shows_its_message",
    ),
    Lack(
        "every rank is told of a failed fence",
        "prterun-5.0.*",
        "*",
        "a server of libpmix 5.0 tells one of its waiting clients of the failure and the others of a success",
        expect=SOME_TOLD,
        probe="test_fences.test_someone_never_comes_and_everyone_is_told",
    ),
    Lack(
        "the missing are named",
        "prterun*",
        "*",
        "native servers do not say who is missing",
        expect=NOBODY_NAMED,
        probe="test_fences.test_the_missing_are_named",
    ),
    Lack(
        "the missing are named",
        "mpirun*",
        "*",
        "native servers do not say who is missing",
        expect=NOBODY_NAMED,
        probe="test_fences.test_the_missing_are_named",
    ),
    Lack(
        "the missing are named",
        f"{SLURM}*",
        "*",
        "native servers do not say who is missing",
        expect=NOBODY_NAMED,
        probe="test_fences.test_the_missing_are_named",
    ),
    Lack(
        "the missing are named",
        "*",
        "native*",
        "libpmix hands its caller a status and nothing more",
        expect=NOBODY_NAMED,
        probe="test_fences.test_the_missing_are_named",
    ),
    Lack(
        "fence again after a timeout",
        f"{SLURM}*-2-nodes",
        "*",
        "its plugin still counts those who had come to the one that timed out",
        proof=SLURM_PAGE,
        harm=True,
    ),
    Lack("one node", f"{SLURM}*-2-nodes", "*", "its ranks are on two", proof="suite/test_slurm"),
    Lack(
        "abort message",
        f"{SLURM}*",
        "*",
        "srun says that the step was cancelled, and nothing of the message",
        expect=ended(3, "STEP .* CANCELLED"),
        probe="test_ending.test_an_abort_shows_its_message",
    ),
    Lack(
        "the exit code of the rank that failed",
        f"{SLURM}*",
        "*",
        "srun ends the other ranks by a signal then, and often returns that",
        proof=SLURM_PAGE,
        harm=True,
    ),
    *[
        Lack(
            "the node's own name",
            f"{SLURM}*[0-9]",
            client,
            "its nodes have the names of slurm.conf",
            expect=SLURM_NAMES,
            probe="test_identity.test_hello",
        )
        for client in ("python-client", "native-4.2.*")
    ],
    Lack(
        "the number of apps",
        f"{SLURM}*[0-9]",
        "*",
        "it registers no info about applications",
        expect=Error(NotFound, "pmix.job.napps"),
        probe="test_identity.test_job_info",
    ),
    Lack(
        "job info of apps",
        f"{SLURM}*",
        "*",
        "it registers no info about applications",
        expect=Error(NotFound, "pmix.app.size"),
        probe="test_identity.test_app_info",
    ),
    Lack(
        "open again",
        f"{SLURM}22.*",
        "native-4.2.*",
        "after a finalize the job info in the server's shared memory is gone, so that the engine refuses to",
        proof="test_refusals.test_a_library_that_cannot_be_opened_again",
    ),
    Lack(
        "exact floats",
        f"{SLURM}*",
        "python-client",
        "the server writes what it relays anew, with six decimals",
        expect=SIX_DECIMALS,
        probe="test_modex.test_floats_keep_every_digit",
    ),
    Lack(
        "REMOTE stays off the own node",
        f"{SLURM}22.*[0-9]",
        "*-client",
        "a server of libpmix 4.2 hides what its native clients put unless it is asked for REMOTE data",
        expect=REMOTE_SHOWN,
        probe="test_modex.test_remote_scope_is_for_other_nodes",
    ),
    Lack(
        "REMOTE stays off the own node",
        f"{SLURM}22.*[0-9]",
        "native-5.0.*",
        "a client of libpmix 5.0 is not told who is on its node, by which the check goes",
        expect=each_returned([False, None]),
        probe="test_modex.test_remote_scope_is_for_other_nodes",
    ),
    Lack(
        "refreshed get",
        f"{SLURM}22.*",
        "native-5.0.*",
        "a 4.2 server does not know PMIX_GET_REFRESH_CACHE",
        expect=each_returned(("before", "before")),
        probe="test_modex.test_a_changed_value_is_seen_on_refresh",
    ),
    Lack(
        "fences of some procs of several nodes",
        f"{SLURM}22.*",
        "native-5.0.*",
        "libpmix 5.0 does not find the procs of its node in this server's job info, so that the engine refuses",
        proof="test_slurm.test_procs_of_one_node_are_fenced_and_others_refused",
    ),
    Lack(
        "a get without a time limit ends",
        f"{SLURM}*-2-nodes",
        "*",
        "its plugin waits for what the proc of the other node commits next",
        expect=Outcome("no rank ends", lambda job: not job.ranks, hangs=True),
        probe="test_modex.test_a_missing_key_without_a_timeout",
    ),
    Lack(
        "a get waits through other commits",
        f"{SLURM}*-2-nodes",
        "*",
        "native servers answer a waiting get when the proc commits next, with or without the key",
        expect=NOT_AWAITED,
        probe="test_modex.test_a_value_that_comes_with_a_later_commit",
    ),
    Lack(
        "a get waits through other commits",
        f"{SLURM}*",
        "native*",
        "native servers answer a waiting get when the proc commits next, with or without the key",
        expect=NOT_AWAITED,
        probe="test_modex.test_a_value_that_comes_with_a_later_commit",
    ),
    Lack(
        "the procs of the node",
        f"{SLURM}22.*",
        "native-5.0.*",
        "libpmix 5.0 does not find them in the job info of this 4.2 server",
        expect=Error(NotFound, "pmix.lpeers"),
        probe="test_identity.test_the_engine_that_was_asked_for_is_the_one_that_runs",
    ),
    Lack(
        "a rank that leaves without finalize is missed",
        f"{SLURM}*",
        "*",
        "its plugin tells no other node that a rank has gone, and an exit code of 0 says that all is well",
        expect=LEFT_UNSEEN,
        probe="test_fences.test_someone_exits_without_finalize",
    ),
    Lack(
        "fences of some procs of several nodes",
        f"{SLURM}*-2-nodes",
        "*",
        "its plugin never ends them, so that the engine refuses to ask",
        proof="test_slurm.test_procs_of_one_node_are_fenced_and_others_refused",
    ),
    Lack(
        "job info of apps",
        "mpirun-4.1.*",
        "*",
        "it registers no info about applications",
        expect=Error(NotFound, "pmix.app.size"),
        probe="test_identity.test_app_info",
    ),
    Lack(
        "refreshed get",
        "prterun*",
        "native-4.2.*",
        "PMIX_GET_REFRESH_CACHE is an attribute from 5.0 on",
        expect=each_returned(("before", "before")),
        probe="test_modex.test_a_changed_value_is_seen_on_refresh",
    ),
    Lack(
        "refreshed get",
        "prterun*",
        "native-5.0.[78]",
        "libpmix 5.0.7 and 5.0.8 answer from the cache in spite of the attribute",
        expect=each_returned(("before", "before")),
        probe="test_modex.test_a_changed_value_is_seen_on_refresh",
    ),
    Lack(
        "refreshed get",
        "mpirun-4.1.*",
        "native-5.0.*",
        "a 4.2 server does not know PMIX_GET_REFRESH_CACHE",
        expect=each_returned(("before", "before")),
        probe="test_modex.test_a_changed_value_is_seen_on_refresh",
    ),
    Lack(
        "open again",
        "*",
        "native-5.0.11",
        "libpmix 5.0.11 corrupts its memory when it is initialized a second time, so that the engine refuses to",
        proof="test_refusals.test_a_library_that_cannot_be_opened_again",
    ),
    Lack(
        "open again",
        "mpirun-4.1.*",
        "native-4.2.*",
        "after a finalize the job info in the server's shared memory is gone, so that the engine refuses to",
        proof="test_refusals.test_a_library_that_cannot_be_opened_again",
    ),
    Lack(
        "a get waits through other commits",
        "prterun*",
        "*",
        "native servers answer a waiting get when the proc commits next, with or without the key",
        expect=NOT_AWAITED,
        probe="test_modex.test_a_value_that_comes_with_a_later_commit",
    ),
    Lack(
        "a get waits through other commits",
        "python-server",
        "native*",
        "our choice: libpmix asks once for all waiting gets of a proc, so the next commit answers them all",
        expect=NOT_AWAITED,
        probe="test_modex.test_a_value_that_comes_with_a_later_commit",
    ),
    Lack(
        "a get waits through other commits",
        "mpirun*",
        "native*",
        "native servers answer a waiting get when the proc commits next, with or without the key",
        expect=NOT_AWAITED,
        probe="test_modex.test_a_value_that_comes_with_a_later_commit",
    ),
    Lack(
        "exact floats",
        "*",
        "native*",
        "libpmix sends floats as text with six decimals",
        expect=SIX_DECIMALS,
        probe="test_modex.test_floats_keep_every_digit",
    ),
    Lack(
        "exact floats",
        "prterun*",
        "python-client",
        "the server writes what it relays anew, with six decimals",
        expect=SIX_DECIMALS,
        probe="test_modex.test_floats_keep_every_digit",
    ),
    Lack(
        "exact floats",
        "mpirun*",
        "python-client",
        "the server writes what it relays anew, with six decimals",
        expect=SIX_DECIMALS,
        probe="test_modex.test_floats_keep_every_digit",
    ),
    Lack(
        "REMOTE stays off the own node",
        "mpirun-4.1.*",
        "*-client",
        "a server of libpmix 4.2 hides what its native clients put unless it is asked for REMOTE data",
        expect=REMOTE_SHOWN,
        probe="test_modex.test_remote_scope_is_for_other_nodes",
    ),
    Lack(
        "duplicate keys are refused",
        "prterun-5.*",
        "*",
        "it publishes a key twice and answers with either value",
        expect=PUBLISHED_TWICE,
        probe="test_publish.test_a_key_that_is_there_already",
    ),
    Lack(
        "duplicate keys are refused",
        "prterun-7.*",
        "*",
        "it refuses them, and a lookup finds what was published first, not what the caller has published for itself",
        expect=FIRST_FOUND,
        probe="test_publish.test_a_key_that_is_there_already",
    ),
    Lack(
        "duplicate keys are refused",
        "mpirun*",
        "*",
        "it publishes a key twice and answers with either value",
        expect=PUBLISHED_TWICE,
        probe="test_publish.test_a_key_that_is_there_already",
    ),
    Lack(
        "unpublish tells of keys that are not the caller's",
        "prterun-5.*",
        "*",
        "it reports a success in any case",
        expect=each_returned((None, 1)),
        probe="test_publish.test_only_the_publisher_takes_back",
    ),
    Lack(
        "unpublish tells of keys that are not the caller's",
        "prterun-7.*",
        "*",
        "it reports a success, and takes back what others have published",
        expect=each_returned((None, "gone")),
        probe="test_publish.test_only_the_publisher_takes_back",
    ),
    Lack(
        "unpublish tells of keys that are not the caller's",
        "mpirun*",
        "*",
        "it reports a success in any case",
        expect=each_returned((None, 1)),
        probe="test_publish.test_only_the_publisher_takes_back",
    ),
    Lack(
        "unpublish of everything",
        "mpirun*",
        "*",
        "it refuses an unpublish that names no keys",
        expect=Error(PMIxError, status=statuses.ERR_BAD_PARAM),
        probe="test_publish.test_unpublish_of_everything",
    ),
    Lack(
        "a lookup of several keys",
        "mpirun*",
        "*",
        "of several keys of one publisher it finds one",
        expect=Error(KeyError, "acme.port"),
        probe="test_publish.test_every_rank_finds_what_all_have_published",
    ),
    Lack(
        "a lookup waits for all of its keys",
        "prterun-5.*",
        "*",
        "it answers when one of the keys is there",
        expect=ONE_KEY,
        probe="test_publish.test_keys_that_come_one_after_the_other",
    ),
    Lack(
        "a lookup waits for all of its keys",
        "mpirun*",
        "*",
        "it answers when one of the keys is there",
        expect=ONE_KEY,
        probe="test_publish.test_keys_that_come_one_after_the_other",
    ),
    Lack(
        "a range of the proc itself",
        "mpirun*",
        "*",
        "it shows others what was published to PROC_LOCAL",
        expect=PROC_LOCAL_SHOWN,
        probe="test_publish.test_ranges",
    ),
    Lack(
        "data that ends with its publisher",
        "prterun-5.*",
        "*",
        "it keeps what was published with PERSIST_PROC",
        expect=OUTLIVED,
        probe="test_publish.test_data_that_ends_with_its_publisher",
    ),
    Lack(
        "data of a spawned job, early",
        "prterun-5.0.*",
        "native-5.0.*",
        "a server of libpmix 5.0 crashes when a client of its release asks for what a spawned job has not put yet",
        proof="how-it-works/libpmix.md#A get of a job that has not opened a client",
        harm=True,
    ),
    Lack(
        "a spawned job that fails harms no other",
        "prterun-7.*",
        "*",
        "it ends the jobs that are connected, as a job is with what it has spawned",
        expect=ended(3, r"Process name: .*@2,0.*\s+Exit code: +3"),
        probe="test_spawning.test_a_job_that_fails_has_an_exit_code_and_so_has_the_launcher",
    ),
    Lack(
        "an end after a connect that timed out",
        f"{HOSTED}4.2.*",
        "*",
        "it lets go of an operation twice when procs end at once that others were waiting in it for, and hangs then",
        proof="how-it-works/libpmix.md#A connect that was given up",
        harm=True,
    ),
    Lack(
        "an end after a connect that timed out",
        "prterun-5.0.*",
        "*",
        "it takes an operation off its list twice when procs end one after the other, and crashes in its finalize",
        proof="how-it-works/libpmix.md#A connect that was given up",
        harm=True,
    ),
    Lack(
        "an end after a connect that timed out",
        "mpirun-4.1.*",
        "*",
        "it lets go of an operation twice when procs end at once that others were waiting in it for, and hangs then",
        proof="how-it-works/libpmix.md#A connect that was given up",
        harm=True,
    ),
    Lack(
        "events beyond the node",
        "mpirun*",
        "*",
        "it never answers who raises an event for more than its node",
        expect=NEVER_RAISED,
        probe="test_events.test_targets",
    ),
    Lack(
        "a kept event comes once",
        "prterun-7.*",
        "*",
        "now and then a handler that is registered late gets nothing of what its server should have kept",
        proof="use/launchers.md#prterun, libpmix 7.0",
        harm=True,
    ),
    Lack(
        "data that ends with its publisher",
        "mpirun*",
        "*",
        "it keeps what was published with PERSIST_PROC",
        expect=OUTLIVED,
        probe="test_publish.test_data_that_ends_with_its_publisher",
    ),
    Lack(
        "tools",
        "mpirun-4.1.*",
        "*",
        "it refuses tools, and crashes where a rank is one",
        expect=Error(Unreachable, "there is no server of this user"),
        probe="test_tools.test_the_procs_of_a_job",
    ),
    Lack(
        "attribute support",
        "*",
        "native-4.2.*",
        "libpmix 4.2 crashes when it is asked, so that the engine does not",
        proof="test_refusals.test_the_attributes_of_a_library_that_crashes_of_the_question",
    ),
    Lack(
        "attribute support",
        "*",
        "native-5.0.*",
        "libpmix 5.0 does not find the attributes of a single function",
        expect=Error(NotFound, "pmix.qry.attrs"),
        probe="test_queries.test_what_the_client_supports",
    ),
    Lack(
        "namespaces by query",
        "mpirun-4.1.*",
        "native*",
        "its server answers with an error and the data, which libpmix keeps to itself then",
        expect=Error(PMIxError, "^query_info", statuses.ERROR),
        probe="test_queries.test_what_every_process_may_ask",
    ),
    Lack(
        "abandoned collectives",
        "prterun-5.0.*",
        "*",
        "where procs leave while the server keeps a collective that they have given up, it may take that from its list "
        "twice and crash or hang in PMIx_server_finalize (openpmix #4112; the stack is in `unsteady.RACES`)",
        proof="how-it-works/libpmix.md#A connect that was given up",
        harm=True,
    ),
    Lack(
        "signals by job control",
        "mpirun-4.1.*",
        "*",
        "it reports a success and sends no signal",
        expect=each_returned([]),
        probe="test_control.test_a_signal_for_all",
    ),
    Lack(
        "targets of job control",
        "prterun*",
        "*",
        "whomever a signal is for, all procs of the job get it",
        expect=each_returned(["SIGUSR1"]),
        probe="test_control.test_a_signal_for_one",
    ),
    Lack(
        "termination by job control",
        "prterun*",
        "*",
        "its server answers with NOT_SUPPORTED",
        expect=Error(NotSupported, "^job_control"),
        probe="test_control.test_termination",
    ),
    Lack(
        "termination by job control",
        "mpirun-4.1.*",
        "*",
        "it reports a success and does nothing",
        expect=NOT_ENDED,
        probe="test_control.test_termination",
    ),
    Lack(
        "pausing by job control",
        "prterun*",
        "*",
        "its server answers with NOT_SUPPORTED",
        expect=Error(NotSupported, "^job_control"),
        probe="test_control.test_pause_and_resume",
    ),
    Lack(
        "pausing by job control",
        "mpirun-4.1.*",
        "*",
        "it reports a success and does nothing",
        expect=NOT_PAUSED,
        probe="test_control.test_pause_and_resume",
    ),
    Lack(
        "unknown targets are refused",
        "prterun-5.*",
        "*",
        "whomever a signal is for, all procs of the job get it",
        expect=ended(138, ""),
        probe="test_control.test_targets_that_nobody_knows",
    ),
    Lack(
        "unknown targets are refused",
        "prterun-7.*",
        "*",
        "it reports a success and does nothing",
        expect=each_returned(None),
        probe="test_control.test_targets_that_nobody_knows",
    ),
    Lack(
        "unknown targets are refused",
        "mpirun-4.1.*",
        "*",
        "it reports a success and does nothing",
        expect=each_returned(None),
        probe="test_control.test_targets_that_nobody_knows",
    ),
    Lack(
        "alarms reach who has asked for them",
        "prterun*",
        "*",
        "an alarm names the watched proc as its source, and libpmix hands no event to its source",
        expect=SOURCE_LEFT_OUT,
        probe="test_control.test_who_stops_hears_of_it_too",
    ),
    Lack(
        "alarms reach who has asked for them",
        "mpirun*",
        "*",
        "an alarm names the watched proc as its source, and libpmix hands no event to its source",
        expect=SOURCE_LEFT_OUT,
        probe="test_control.test_who_stops_hears_of_it_too",
    ),
    Lack(
        "credentials",
        "prterun*",
        "*",
        "its server answers with NOT_SUPPORTED",
        expect=Error(NotSupported, "^get_credential"),
        probe="test_control.test_credentials",
    ),
    Lack(
        "credentials",
        "mpirun-4.1.*",
        "*",
        "its server answers with NOT_SUPPORTED",
        expect=Error(NotSupported, "^get_credential"),
        probe="test_control.test_credentials",
    ),
    Lack(
        "output for clients",
        "mpirun*",
        "*",
        "its server answers pulls of clients with NOT_SUPPORTED",
        expect=Error(NotSupported, "^iof_pull"),
        probe="test_forwarding.test_the_output_of_a_child",
    ),
    Lack(
        "input from clients",
        "mpirun*",
        "*",
        "its server answers pushes of clients with NOT_SUPPORTED",
        expect=Error(NotSupported, "^iof_push"),
        probe="test_forwarding.test_input_reaches_a_child",
    ),
    Lack(
        "input for every rank",
        "prterun*",
        "*",
        "only the first proc of a spawned job has an input there",
        expect=FIRST_READS,
        probe="test_forwarding.test_input_for_all_procs_of_a_job",
    ),
    Lack(
        "the parent of a spawned job",
        "mpirun*",
        "*",
        "it does not tell a job who has spawned it",
        expect=NO_PARENT,
        probe="test_spawning.test_a_child_knows_its_parent",
    ),
    Lack(
        "the end of a spawned job",
        "mpirun*",
        "*",
        "its server fails to pass the event on",
        expect=Error(OperationTimeout, "^wait of"),
        probe="test_spawning.test_jobs_end_in_any_order",
    ),
    Lack(
        "groups",
        "mpirun*",
        "native-5.0.*",
        "libpmix 5.0 takes the context id for the number of members, so that the engine refuses to ask",
        proof="test_refusals.test_groups_where_a_library_misreads_its_server",
    ),
    Lack(
        "groups",
        "mpirun*",
        "*",
        "its server answers with NOT_SUPPORTED",
        expect=Error(NotSupported, "does not offer it"),
        probe="test_groups.test_all_of_a_job",
    ),
    Lack(
        "groups",
        "prterun-5.0.*",
        "native-4.2.*",
        "libpmix 4.2.2 takes the number of members for the context id, so that the engine refuses to ask",
        proof="test_refusals.test_groups_where_a_library_misreads_its_server",
    ),
    Lack(
        "groups",
        "native-server-5.0.*",
        "native-4.2.*",
        "libpmix 4.2.2 takes the number of members for the context id, so that the engine refuses to ask",
        proof="test_refusals.test_groups_where_a_library_misreads_its_server",
    ),
    Lack(
        "groups",
        "native-server-4.2.*",
        "native-5.0.*",
        "libpmix 5.0 takes the context id for the number of members, so that the engine refuses to ask",
        proof="test_refusals.test_groups_where_a_library_misreads_its_server",
    ),
    Lack(
        "groups of Open MPI 5",
        "native-server-4.2.*",
        "c-client",
        "its libpmix 5.0 takes the context id in the answer of a 4.2 server for the number of members",
        expect=ended(1, "error code: 14"),
        probe="test_openmpi.test_sessions_and_communicators_from_groups",
    ),
    Lack(
        "a second destruct after one that timed out",
        "prterun-[67]*",
        "native-*",
        "libpmix forgets a group whose destruct has failed",
        expect=Error(NotFound, "^group_destruct"),
        probe="test_groups.test_somebody_comes_late_to_the_destruct",
    ),
    Lack(
        "a second destruct after one that timed out",
        "native-server-[67].*",
        "native-*",
        "libpmix forgets a group whose destruct has failed",
        expect=Error(NotFound, "^group_destruct"),
        probe="test_groups.test_somebody_comes_late_to_the_destruct",
    ),
    Lack(
        "a second destruct after one that timed out",
        "prterun-5.0.*",
        "*",
        "its server is told of no timeout and would take a second call for that of another member",
        proof="test_group_constructing.test_a_destruct_that_was_given_up_leaves_the_group",
    ),
    Lack(
        "a second destruct after one that timed out",
        "native-server-[45].*",
        "*",
        "its server is told of no timeout and would take a second call for that of another member",
        proof="test_group_constructing.test_a_destruct_that_was_given_up_leaves_the_group",
    ),
    Lack(
        "one order of members who disagree",
        "prterun*",
        "*",
        "the server sorts the members, so that each has the order that it has named them in itself",
        expect=OWN_ORDER,
        probe="test_groups.test_members_that_name_each_other_in_different_orders",
    ),
    Lack(
        "one order of members who disagree",
        "native-server-[45].*",
        "*",
        "the server sorts the members, so that each has the order that it has named them in itself",
        expect=OWN_ORDER,
        probe="test_groups.test_members_that_name_each_other_in_different_orders",
    ),
    Lack(
        "process sets",
        "mpirun*",
        "*",
        "it knows none: they have no place on its command line",
        expect=ended(1, "unknown option .--pset"),
        probe="test_psets.test_what_every_process_knows_of_them",
    ),
    Lack(
        "process sets by job control",
        "prterun*",
        "*",
        "its answers to queries tell of the sets of its command line alone",
        expect=COMMAND_LINE_SETS,
        probe="test_psets.test_a_set_that_comes_later",
    ),
    Lack(
        "a spawn that fails is reported",
        "prterun-5.*",
        "*",
        "it reports a success where the working directory does not exist, and fails when its job has ended",
        expect=STARTED_NOWHERE,
        probe="test_spawning.test_what_cannot_be_started",
    ),
    Lack(
        "a spawn that fails is reported",
        "prterun-7.*",
        "*",
        "it reports a success where the working directory does not exist, and does not end when its job has ended",
        expect=STARTED_FOR_EVER,
        probe="test_spawning.test_what_cannot_be_started",
    ),
    Lack(
        "a spawn that fails is reported",
        "mpirun*",
        "*",
        "it ends the caller's job as well",
        expect=ended(132, "Executable: /no/such/program"),
        probe="test_spawning.test_what_cannot_be_started",
    ),
)


class Part(NamedTuple):
    """A command that some ranks of a job run, with additions to their environment, and options of the launcher."""

    ranks: int
    command: Sequence[str]
    environment: Mapping[str, str] = MappingProxyType({})
    options: Sequence[str] = ()


class Pairing(NamedTuple):
    server: str
    client: str

    def __str__(self) -> str:
        return f"{self.server}/{self.client}"

    @property
    def in_root(self) -> bool:
        """Whether the job runs in the Debian root."""
        return self.server in (ROOT_SERVER, ROOT_HOSTED) or self.client == ROOT_CLIENT

    @property
    def exists(self) -> bool:
        """Whether the two can meet: the root holds neither the machine's other servers nor its libraries."""
        return not self.in_root or (
            self.server in ("python-server", ROOT_SERVER, ROOT_HOSTED) and self.client in ("python-client", ROOT_CLIENT)
        )

    def runs(self, module: str) -> bool:
        """Tell whether tests of a module run on this pairing."""
        for selection in SELECTIONS:
            if fnmatch.fnmatchcase(self.server, selection.server):
                return module.rpartition(".")[2].removeprefix("test_") in selection.modules
        return True

    def lack(self, feature: str) -> Lack | None:
        """Return why this pairing does not have a feature, None if it has."""
        for lack in (*LACKS, *promises.LACKS):
            if (
                lack.feature == feature
                and fnmatch.fnmatchcase(self.server, lack.server)
                and fnmatch.fnmatchcase(self.client, lack.client)
            ):
                return lack
        return None

    def require(self) -> None:
        """Skip the test if this machine lacks the server or the client."""
        require_server(self.server)
        require_client(self.client)


def servers() -> list[str]:
    """Return the names of the servers that are tested or at hand."""
    names = [*SERVERS, ROOT_SERVER, ROOT_HOSTED]
    found = [launcher.name for launcher in machine.launchers()]
    if slurm.release():
        found += [f"{SLURM}{slurm.release()}", f"{SLURM}{slurm.release()}-2-nodes"]
    return [*names, *(name for name in found if name not in names)]


def clients() -> list[str]:
    """Return the names of the clients that are tested, and of those whose libraries were asked for by path."""
    names = [*CLIENTS, ROOT_CLIENT]
    found = [f"native-{library.release}" for library in machine.libraries() if library.asked_for]
    return [*names, *(name for name in found if name not in names)]


def require_server(name: str) -> None:
    if name.startswith(HOSTED):
        require_client(name.replace(HOSTED, "native-"))
    elif name == ROOT_SERVER:
        require_root()
    elif name.startswith(SLURM):
        if not name.startswith(f"{SLURM}{slurm.release()}"):
            machine.lacking(f"the server {name}")
        if slurm.lacking():
            machine.lacking(slurm.lacking())
    elif not name.startswith("python-server") and machine.launcher(name) is None:
        machine.lacking(f"the server {name}")


def require_client(name: str) -> None:
    if name == "python-client":
        return
    if not machine.extension():
        machine.lacking("the native engine's extension (pypmix was installed without a C compiler)")
    if name == ROOT_CLIENT:
        require_root()
    else:
        require_library(name.removeprefix("native-"))


def require_root() -> None:
    if machine.root_lacking():
        machine.lacking(machine.root_lacking())


def require_library(release: str) -> machine.Library:
    library = machine.library(release)
    if library is None:
        machine.lacking(f"libpmix {release}")
    assert library is not None
    return library


def client_environment(name: str) -> dict[str, str]:
    """Return the variables that make pypmix use this client."""
    if name == "python-client":
        return {"PYPMIX_ENGINE": "python"}
    return {"PYPMIX_ENGINE": "native", "PYPMIX_LIBPMIX": library_path(name.removeprefix("native-"))}


def library_path(release: str) -> str:
    """Return the path of the library of a release, as jobs that use it see it."""
    if release == ROOT_RELEASE:
        root = machine.root()
        assert root is not None
        return root.library
    return require_library(release).path


def command_line(server: str, parts: Sequence[Part], options: Sequence[str] = ()) -> list[str]:
    """Return the command that runs the parts as one job under a server."""
    own = [sys.executable, "-m", "pypmix", "run"]
    if server.startswith(SLURM):
        return _step(server, parts, options)
    if server == "python-server":
        start = own
    elif server == NODES:
        start = [*own, "--nodes", "2"]
    elif server.startswith(HOSTED):
        start = [*own, "--server-engine", "native", "--server-libpmix", library_path(server.removeprefix(HOSTED))]
    elif server == ROOT_SERVER:
        start = [*_one_store(parts), "prterun", *machine.PRTERUN_OPTIONS]
    else:
        launcher = machine.launcher(server)
        assert launcher is not None, server
        wide = machine.PRTERUN_OPTIONS if server.startswith("prterun") else machine.MPIRUN_OPTIONS
        start = [*_one_store(parts), launcher.path, *wide]
    line = [*start, *options]
    for number, part in enumerate(parts):
        variables = [f"{name}={value}" for name, value in part.environment.items()]
        command = [*(("env", *variables) if variables else ()), *part.command]
        line += [*((":",) if number else ()), "-n", str(part.ranks), *part.options, *command]
    return line


def _one_store(parts: Sequence[Part]) -> list[str]:
    """Return what starts a launcher that is not ours, for ranks of several engines, with one store for all.

    Its libpmix answers each client in the form that the last client to connect asked for, so that ranks of the Python
    engine now and then take the job info from those of a libpmix (docs/how-it-works/libpmix.md).
    """
    engines = {part.environment.get("PYPMIX_ENGINE") for part in parts}
    return ["env", "PMIX_MCA_gds=hash"] if len(engines) > 1 else []


def _step(server: str, parts: Sequence[Part], options: Sequence[str]) -> list[str]:
    """Return the command that runs a step under Slurm; its steps have one command for all ranks."""
    assert slurm.running is not None and len(parts) == 1
    (part,) = parts
    nodes = min(part.ranks, 2 if server.endswith("-2-nodes") else 1)
    variables = [f"{name}={value}" for name, value in part.environment.items()]
    start = [*slurm.running.command(nodes), *options, *part.options, "-n", str(part.ranks)]
    return [*start, *(("env", *variables) if variables else ()), *part.command]


def surviving(server: str) -> list[str]:
    """Return the options with which a job goes on, and is told, when ranks of it are killed."""
    if server.startswith("prterun"):
        return ["--runtime-options", "recoverable,notifyerrors"]
    if server.startswith("mpirun"):
        return []
    return ["--keep-going"]
