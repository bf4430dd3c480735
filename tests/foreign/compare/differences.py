"""What the upcalls of the Python server and those of libpmix's own servers do not have in common, and why.

The documentation shows this table. A difference that is not in it fails the comparison, and so does a row that is not
seen where it says.
"""

from __future__ import annotations

import fnmatch
from typing import NamedTuple


class Declared(NamedTuple):
    """A difference that is known.

    Attributes:
        op: The name of the upcall.
        where: What of it, as `pypmix.recording.Difference` says.
        releases: The releases of libpmix that differ from the Python server, as patterns.
        libpmix: What libpmix does.
        pypmix: What the Python server does.
        reason: Why that is so, or is to stay so.
        scenarios: The scenarios that show it, as patterns.
        clients: The clients that show it, as patterns.
        always: Whether it is seen each time; where it is not, that is a matter of timing.
    """

    op: str
    where: str
    releases: tuple[str, ...]
    libpmix: str
    pypmix: str
    reason: str
    scenarios: tuple[str, ...]
    clients: tuple[str, ...] = ("*",)
    always: bool = True

    def applies(self, scenario: str, release: str, client: str) -> bool:
        """Tell whether it is to be seen here."""
        return all(
            any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            for name, patterns in ((scenario, self.scenarios), (release, self.releases), (client, self.clients))
        )


EVERY = ("*",)
BEFORE_7 = ("4.2.*", "5.0.*")
PYTHON = ("python-client",)
NATIVE = ("native-*",)

_TIME = "A client of pypmix keeps the time itself where the server is of a release that does not, or does harm."
_HELLO = "What a client says of itself beside that is nothing to a host."
_WHO = "The pid, the uid and the gid of the upcall say it."

DIFFERENCES: tuple[Declared, ...] = (
    Declared(
        "client_connected",
        "directives pypmix.version",
        EVERY,
        "leaves out what it does not know of a client's greeting",
        "passes it on: the release of pypmix",
        _HELLO,
        ("[!t]*",),
        PYTHON,
    ),
    Declared(
        "client_connected",
        "directives pmix.cmd.line",
        ("7.*",),
        "leaves out the command line",
        "passes it on",
        _HELLO,
        ("[!t]*",),
        NATIVE,
    ),
    Declared(
        "client_connected",
        "directives pmix.ppid",
        ("7.*",),
        "takes it out",
        "passes it on",
        _WHO,
        ("[!t]*",),
        NATIVE,
    ),
    Declared(
        "client_finalized",
        "upcall",
        BEFORE_7,
        "tells of no tool that it has finalized",
        "tells of tools as of clients",
        "A host that has admitted a tool is to know when it is gone in order.",
        ("tool",),
    ),
    Declared(
        "client_lost",
        "upcall",
        BEFORE_7,
        "loses a tool that finalizes",
        "tells that it has finalized",
        "libpmix closes the connection and tells no more.",
        ("tool",),
    ),
    Declared(
        "connect",
        "directives pmix.timeout",
        BEFORE_7,
        "is not told the time limit",
        "passes the time limit on",
        _TIME,
        ("connections_across_nodes",),
    ),
    Declared(
        "connect",
        "upcall",
        BEFORE_7,
        "completes a connect of its own clients alone by itself",
        "asks always",
        "A host may count connections, for a job that ends with another; it has to know of all.",
        ("connections",),
    ),
    *[
        Declared(
            "connect",
            "directives pypmix.conn.nspace",
            releases,
            "is told nothing of it by pypmix's clients",
            "tells that callers understand an nspace of the connection's own, which the host may assign",
            "RFC 0003; libpmix has no answer for it.",
            (scenario,),
        )
        for scenario, releases in (("connections", ("7.*",)), ("connections_across_nodes", EVERY))
    ],
    Declared(
        "deregister_events",
        "upcall",
        BEFORE_7,
        "never tells that nobody is interested any more",
        "tells it",
        "A host can stop to watch.",
        ("registrations",),
    ),
    Declared(
        "deregister_events",
        "upcall",
        EVERY,
        "has not asked for these codes, see `register_events`",
        "tells it",
        "A host can stop to watch.",
        ("registrations_of_other_codes", "groups", "groups_across_nodes"),
    ),
    Declared(
        "deregister_events",
        "requestor",
        ("7.*",),
        "names no client",
        "names the last one that was interested",
        "The slot of libpmix's server module has no place for it.",
        ("registrations",),
    ),
    Declared(
        "direct_modex",
        "requestor",
        EVERY,
        "names no client that asks",
        "names it",
        "libpmix asks once for all of its clients.",
        ("direct_modex",),
    ),
    Declared(
        "direct_modex",
        "upcall",
        ("4.2.*",),
        "asks again when the first client's answer was an error",
        "asks once for each request",
        "Gets of one proc that wait are one request to it.",
        ("direct_modex",),
        PYTHON,
        always=False,
    ),
    Declared(
        "disconnect",
        "directives pmix.timeout",
        BEFORE_7,
        "is not told the time limit",
        "passes the time limit on",
        _TIME,
        ("connections_across_nodes",),
    ),
    Declared(
        "disconnect",
        "upcall",
        BEFORE_7,
        "completes a disconnect of its own clients alone by itself",
        "asks always",
        "As for `connect`.",
        ("connections",),
    ),
    Declared(
        "fabric_register",
        "upcall",
        BEFORE_7,
        "asks its own network plugins, which take it for done",
        "asks the host",
        "The Python server has no such plugins.",
        ("fabrics",),
    ),
    Declared(
        "fabric_update",
        "upcall",
        BEFORE_7,
        "asks its own network plugins, which take it for done",
        "asks the host",
        "The Python server has no such plugins.",
        ("fabrics",),
    ),
    Declared(
        "fence",
        "data",
        ("7.*",),
        "sends a header with a fence that collects nothing",
        "sends nothing",
        "There is nothing to send.",
        ("fences_across_nodes",),
    ),
    Declared(
        "group",
        "directives pypmix.grp.order",
        ("*",),
        "says nothing of it",
        "tells in which order the callers have named the procs",
        "That is the order of the group ranks.",
        ("groups", "groups_across_nodes", "refusals"),
        always=False,
    ),
    Declared(
        "group",
        "directives pypmix.grp.round",
        ("*",),
        "says nothing of it",
        "tells the how many-th time it is that it comes to the construct",
        "The callers are heard before a group stands without members that have ended.",
        ("groups", "groups_across_nodes", "refusals"),
        always=False,
    ),
    Declared(
        "group",
        "directives pmix.grp.actxid",
        BEFORE_7,
        "is asked for a context id by every construct",
        "passes on what the caller asks for",
        "Servers of 5.0 may fail without one, and the host of one of 4.2 does not hear of a group of its own clients "
        "alone, so that clients of pypmix ask them for one always.",
        ("groups", "refusals"),
    ),
    Declared(
        "group",
        "directives pmix.grp.endpt",
        BEFORE_7,
        "adds what the members have committed, as a blob",
        "adds nothing",
        "A get of a member's data finds it by direct modex.",
        ("groups", "groups_across_nodes", "refusals"),
        always=False,
    ),
    Declared(
        "group",
        "directives pmix.grp.lcl",
        ("5.0.*",),
        "says that all members are its own",
        "leaves that to the host",
        "A host knows where the procs of its jobs are.",
        ("groups",),
    ),
    Declared(
        "group",
        "directives pmix.timeout",
        BEFORE_7,
        "is not told the time limit",
        "passes the time limit on",
        _TIME,
        ("groups", "refusals"),
        always=False,
    ),
    Declared(
        "heartbeat",
        "upcall",
        EVERY,
        "listens to heartbeats itself",
        "passes them on",
        "The host watches, see `process_monitor`.",
        ("control",),
    ),
    Declared(
        "iof_deregister",
        "id",
        EVERY,
        "leaves out the end of a pull while there is another one",
        "names each pull by the host's own number",
        "As for the upcall: then the first end that is told is that of the second pull.",
        ("forwarding",),
        always=False,
    ),
    Declared(
        "iof_deregister",
        "upcall",
        EVERY,
        "tells the end of a pull, and not of which one",
        "names the pull by the host's own number",
        "Where it can be one of several, the native engine does not guess.",
        ("forwarding",),
        always=False,
    ),
    Declared(
        "iof_pull",
        "requestor",
        EVERY,
        "names no client that asks",
        "names it",
        "The slot of libpmix's server module has no place for it.",
        ("forwarding",),
    ),
    Declared(
        "notify_event",
        "upcall",
        BEFORE_7,
        "tells its host of no event for the resource manager, and never answers who raises it",
        "tells it",
        "It is for the host. libpmix 7 has mended the missing answer.",
        ("a_notification_for_the_host",),
    ),
    Declared(
        "process_monitor",
        "upcall",
        EVERY,
        "watches heartbeats and files itself",
        "asks the host",
        "The Python server does not watch anybody: its host does, and `pypmix run` has one that does.",
        ("control",),
    ),
    Declared(
        "query_info",
        "requestor",
        EVERY,
        "asks in its own name",
        "names the client",
        "It knows the client, and does not say.",
        ("queries", "refusals", "tool"),
    ),
    Declared(
        "query_info",
        "upcall",
        ("5.0.*", "7.*"),
        "is asked for each key in a query of its own",
        "is asked as the caller does",
        "Servers from 5.0 on lose answers to queries of several keys, so that a Python client asks them one by one.",
        ("queries",),
        PYTHON,
    ),
    Declared(
        "register_events",
        "requestor",
        EVERY,
        "names no client",
        "names it",
        "The slot of libpmix's server module has no place for it.",
        ("registrations",),
    ),
    Declared(
        "register_events",
        "upcall",
        EVERY,
        "asks for events of the system (-230 to -330) only",
        "asks for all codes",
        "A host can raise whatever it likes; one that does not care answers `NotSupported`, which is no error. Members "
        "of groups want to know who ends.",
        ("registrations_of_other_codes", "groups", "groups_across_nodes", "refusals"),
    ),
    Declared(
        "tool_connected",
        "directives pmix.cmd.line",
        ("4.2.*",),
        "leaves out the command line",
        "passes it on",
        _HELLO,
        ("tool",),
    ),
    Declared(
        "tool_connected",
        "directives pmix.egid",
        ("5.0.*", "7.*"),
        "takes it out",
        "passes it on",
        _WHO,
        ("tool",),
        NATIVE,
    ),
    Declared(
        "tool_connected",
        "directives pmix.euid",
        ("5.0.*", "7.*"),
        "takes it out",
        "passes it on",
        _WHO,
        ("tool",),
        NATIVE,
    ),
    Declared(
        "tool_connected",
        "directives pmix.srvr.tmpdir",
        ("4.2.*",),
        "leaves out where the tool looks for servers",
        "passes it on",
        _HELLO,
        ("tool",),
        NATIVE,
        always=False,
    ),
    Declared("tool_connected", "directives pmix.ppid", EVERY, "takes it out", "passes it on", _WHO, ("tool",)),
    Declared(
        "tool_connected",
        "directives pypmix.version",
        EVERY,
        "leaves out what it does not know of a tool's greeting",
        "passes it on: the release of pypmix",
        _HELLO,
        ("tool",),
        PYTHON,
    ),
)
