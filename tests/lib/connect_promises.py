"""What RFC 0003 promises of connect and disconnect: a row for each of its sentences, in its order.

See `lib.promises`, which holds what is promised of groups and process sets.
"""

from __future__ import annotations

from lib.lack import Lack, each_returned, others_get, returned
from lib.promise import Promise, every_native, shipped

KEYS = "RFC 0003, info keys"
DESCRIPTION = "RFC 0003, Description"
CLUSTERS = "RFC 0003, several clusters"
CONNECT = "RFC 0003, PMIx_Connect"
DISCONNECT = "RFC 0003, PMIx_Disconnect"
HOST = "RFC 0003, RM-Interface"

PROMISES = (
    Promise("connect: notify each", KEYS, "PROC_HAS_CONNECTED each time that a proc connects"),
    Promise("disconnect: notify each", KEYS, "PROC_HAS_DISCONNECTED each time that a proc disconnects"),
    Promise("connect: notify request", KEYS, "CONNECT_REQUESTED to all who are to come"),
    shipped("connect: optional"),
    shipped("connect: early termination"),
    Promise("connect: collectives go on", KEYS, "those under way and later ones do without it then"),
    Promise("connect: exchange only", KEYS, "the job info of all nspaces, and neither nspace nor rank"),
    shipped("connect: several at once"),
    shipped("connect: order"),
    Promise("connect: wildcard", DESCRIPTION, "the wildcard rank stands for all procs of an nspace"),
    Promise("connect: ids", DESCRIPTION, "CONNECT_ID tells connects of the same procs apart"),
    Promise("cluster: id", CLUSTERS, "a job reads the name of its cluster as CLUSTER_ID"),
    Promise("cluster: names", CLUSTERS, "procs of other clusters have the cluster and a colon before their nspace"),
    Promise("cluster: rendezvous", CLUSTERS, "jobs of different clusters find each other by publish and lookup"),
    Promise("cluster: connect", CLUSTERS, "they connect, also where their nspaces have the same name"),
    shipped("connect: nspace"),
    Promise("connect: rank", CONNECT, "a rank in it for each of them"),
    shipped("connect: termination"),
    shipped("connect: timeout"),
    Promise("connect: job info", CONNECT, "each has the job info of the others' nspaces"),
    Promise("connect: all have called", CONNECT, "it ends when all have called it"),
    shipped("connect: a participant ends"),
    Promise("disconnect: nspace", DISCONNECT, "it is by the nspace"),
    Promise("disconnect: together", DISCONNECT, "it ends when all have called it"),
    shipped("disconnect: unknown"),
    Promise("disconnect: after an end", DISCONNECT, "it does not wait for one that has ended before"),
    Promise("disconnect: an end meanwhile", DISCONNECT, "it does not wait for one that ends meanwhile"),
    Promise("disconnect: timeout", DISCONNECT, "an error when somebody has not come in time, and another try"),
    shipped("nspace: fence"),
    shipped("nspace: notify"),
    Promise("nspace: requests", HOST, "the nspace and its ranks in a get, and in a further connect"),
    Promise("connect: the host assigns", HOST, "the host says which nspace it is, and who has which rank"),
)

NO_CLUSTERS = "its launcher does not join clusters"
NO_NSPACE = "its server assigns no nspace"
NO_DIRECTIVES = "its server knows the directives of the Standard alone, so that the engine refuses the others"
REFUSED = "test_client_connecting.test_what_other_servers_do_not_know_is_refused_at_the_call"
PLAIN = "test_connecting.test_what_other_servers_do_not_know_is_refused"

TAKEN_FOR_CONNECTED = returned(
    "all others connect, or time out", lambda found: len(found) == 3 and set(found) in ({"connected"}, {"ERR_TIMEOUT"})
)

LACKS: tuple[Lack, ...] = (
    *[
        lack
        for promise in (
            "connect: nspace",
            "connect: rank",
            "connect: termination",
            "connect: the host assigns",
            "disconnect: nspace",
            "disconnect: timeout",
            "nspace: fence",
            "nspace: notify",
            "nspace: requests",
        )
        for lack in every_native(promise, NO_NSPACE, proof=PLAIN)
    ],
    *[
        lack
        for promise in (
            "connect: notify each",
            "disconnect: notify each",
            "connect: notify request",
            "connect: optional",
            "connect: early termination",
            "connect: collectives go on",
            "connect: ids",
        )
        for lack in every_native(promise, NO_DIRECTIVES, proof=REFUSED)
    ],
    *every_native(
        "disconnect: an end meanwhile",
        "it is an error for all others",
        expect=others_get("PartialSuccess", "OperationTimeout"),
        probe="test_connection_ends.test_one_ends_that_others_disconnect_from",
    ),
    *[
        Lack(
            "connect: a participant ends",
            server,
            "*",
            "it takes a proc that has ended before the others came for one that has come, or waits for it",
            expect=TAKEN_FOR_CONNECTED,
            probe="test_connecting.test_a_participant_that_ends_before_it_comes",
        )
        for server in ("prterun*",)
    ],
    Lack(
        "connect: timeout",
        "native-server-4.2.*",
        "*",
        "it lets go of an operation twice when procs end at once that others were waiting in it for, and hangs then",
        proof="how-it-works/libpmix.md#A connect that was given up",
        harm=True,
    ),
    Lack(
        "cluster: id",
        "prterun*",
        "*",
        NO_CLUSTERS,
        expect=each_returned("NotFound"),
        probe="test_connecting.test_the_cluster_of_a_job_has_a_name",
    ),
    *[
        Lack(promise, "prterun*", "*", NO_CLUSTERS, proof="test_connecting.test_the_cluster_of_a_job_has_a_name")
        for promise in ("cluster: names", "cluster: rendezvous", "cluster: connect")
    ],
    *[
        Lack(
            promise,
            "native-server*",
            "*",
            "our choice: our host joins clusters with servers of the python engine only",
            proof="test_run_options.test_what_cannot_be_is_refused",
        )
        for promise in ("cluster: id", "cluster: names", "cluster: rendezvous", "cluster: connect")
    ],
)
"""What pairings do not keep; see `Lack`."""
