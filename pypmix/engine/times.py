"""All time constants of servers, in seconds: of both engines, and between servers."""

from __future__ import annotations

# Connections (`handshakes`, `admission`, `server`, `reactor`)

HANDSHAKE_SECONDS = 5.0
"""The limit of a handshake, after which a connection is closed."""

MAX_DELAY = 2.0
"""The longest delay of a new connection of an often refused user; less than a handshake may take."""

REFUSALS_PER_SECOND = 32
"""The number of refusals of one user that are forgiven in a second."""

LINGER_SECONDS = 2.0
"""Time for the connection of an exited process to deliver its last messages, such as its finalize."""

TURN_SECONDS = 0.02
"""Time that a proc may use on all of its connections before the others have their turn."""

CHARGED_SECONDS = 0.001
"""Shorter times are not counted against a turn."""

ACCEPT_PAUSE = 0.1
"""Time without accepting when the process has no descriptor left."""

ATTACHED_SECONDS = 0.02
"""Time within which an attached event loop must call `poll` when a server has work."""

# Modex (`modex`, `modexrequests`)

GET_SECONDS = 2.0
"""Time limit of a get without a timeout, the same as in libpmix's servers."""

UNKNOWN_SECONDS = 30.0
"""Time that a request of another server waits for an nspace that is still to be registered here."""

# Collectives (`collective.machine`, `constructs`, `groups`)

HOST_GRACE = 0.5
"""Time that an expired operation waits for the host, which knows the procs that are missing elsewhere."""

HOST_PATIENCE = 10.0
"""Time for the host to answer whether a construct had ended before it was given up, as other servers decide it."""

OWED_SECONDS = 30.0
"""Time for which late callers of a failed construct receive its error."""

# Topics (`asking`, `events`, `forwarding`)

HEARTBEAT_SECONDS = 0.5
"""Time for a host to answer a heartbeat; after that, the next heartbeat is passed on in any case."""

EVENT_SECONDS = 120.0
"""Time for which events are kept for late registrations."""

OUTPUT_SECONDS = 120.0
"""Time for which the output of a job is kept after its end, for late pulls."""

# The native engine's server (`serversession`, and `modexrequests`, `lingering` and `tools` of its topics)

LIBRARY_SECONDS = 30.0
"""Time limit of a call of libpmix that does not wait for any proc."""

STUCK_SECONDS = 0.2
"""The same after a call has not returned, until another one does: libpmix's progress thread seems to hang."""

FINALIZE_SECONDS = 10.0
"""Time for libpmix to finalize, after which it is abandoned."""

CLOSED_SECONDS = 1.0
"""Time for libpmix to read the end of a connection, before the client is deregistered."""

MODEX_PAUSE = 0.02
MAX_MODEX_PAUSE = 1.0
"""Time between two direct modex requests for one key, doubled each time, as libpmix does not report commits."""

OWNER_PAUSE = 0.02
"""Time between two lookups of the owner of a tool's connection that has none yet."""

# Between servers: collectives (`coordinator`, `participant`)

DECISION_SECONDS = 5.0
"""The time for a coordinator to decide an expired operation, or an operation with a lost server."""

OPTIONAL_SECONDS = 0.25
"""The time for late participants of an optional construct after the time limit of one caller has expired."""

COMBINE_SECONDS = 0.1
"""The time for lower servers in a tree to contribute, before a server passes on the contributions that it has."""

EXPIRY_SECONDS = 0.4
"""The time that a server may take to end what lacks callers there, once the time of a caller elsewhere is over."""

LATE_SECONDS = 10.0
"""The time for which late servers receive the outcome of a construct, before a new construct can begin."""

# Between servers: the state of a session (`statelog`, `membership`)

NEWS_SECONDS = 0.002
"""The time for which news of procs are gathered into one message."""

FORWARD_SECONDS = 0.02
"""The time between two messages by which the root sends entries to all servers."""

PACE_SECONDS = 0.00005
"""The same for each server if there are many: about four times what one of these messages costs the root."""

DOUBT_SECONDS = 1.0
"""The time for the root to declare a loss, after which a server reports that a connection has ended."""

LOSS_SECONDS = 2.0
"""The time for the last messages of a server to arrive after its loss was declared."""

DETOUR_SECONDS = 2.0
"""The time for a connection with a server to be made, after which messages to it go through the root."""

HELD_SECONDS = 60.0
"""The time for which messages wait for the entries on which they are based."""

REPORT_SECONDS = 0.5
"""The time after which a server reports its entries again, if it has sent them to a server that is not the root."""

# Between servers: answers of a `Crossing`

GONE_SECONDS = 2.0
"""The time for a server to answer a direct modex of an exited proc, whose committed data it still has."""

QUERY_SECONDS = 2.0
"""The time for another server to list its groups, after which a query answers without them."""

# Between servers: connections (`tcp`, `stream`, `keepalive`, `census`)

KEEP_ALIVE_SECONDS = 30.0
"""When another server that no longer answers, or has vanished with its node, is lost, unless a host says otherwise."""

STALL_SECONDS = 60.0
"""The time after which a server that does not read its messages is dropped."""

LINK_HANDSHAKE_SECONDS = 10.0
"""The limit of a handshake, after which a connection is closed."""

PROOF_SECONDS = 0.25
"""The time for which a connection in its handshake is not closed in favour of others: enough under load."""

DIAL_SECONDS = 2.0
"""The time for the first attempt to reach a server; each further one takes twice as long, up to a handshake's."""

RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0
"""The approximate times until a server is dialed again: the first and the longest."""

UNREACHED_LOG_SECONDS = 10.0
UNREACHED_WARNING_SECONDS = 3.0
"""The times after which a server that was not reached is logged, and after which a user of the launcher is warned."""

LOOK_SECONDS = 1.0
READ_SECONDS = 30.0
"""The times after which the folder is checked for a change, and read in any case, as file systems' clocks are coarse.
"""

LINK_LINGER_SECONDS = 1.0
"""The time for which a closed carrier still sends its queued messages."""

GATHER_SECONDS = 0.01
"""The time in which new and ended servers are gathered for a report, and between two reports for each 50 of them."""

REFUSED_SECONDS = 1.0
"""The time without a listener at a server's address after which the server counts as exited."""

ENDING_SECONDS = 0.5
"""The time for a connection to close after other servers have reported the end of its server."""

PAUSE_SECONDS = 1.0
"""The time without accepting when the process has no descriptor left."""
