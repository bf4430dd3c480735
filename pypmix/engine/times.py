"""All time constants of servers, in seconds, and what they are for: of both engines, and between servers."""

from __future__ import annotations

# Connections (`handshakes`, `admission`, `server`, `reactor`)

HANDSHAKE_SECONDS = 5.0
"""When a connection is closed that has not got further than its handshake."""

MAX_DELAY = 2.0
"""The longest that a new connection of an often refused user is left unread; less than a handshake may take."""

REFUSALS_PER_SECOND = 32
"""Refusals of one user that are forgiven in a second: a count."""

LINGER_SECONDS = 2.0
"""Time for the connection of a process that has ended to deliver what it sent: its own finalize, for one."""

TURN_SECONDS = 0.02
"""Time that a proc takes on all of its connections before the others have their turn."""

CHARGED_SECONDS = 0.001
"""Less is not counted against that."""

ACCEPT_PAUSE = 0.1
"""Time without accepting when the process has no descriptor left."""

ATTACHED_SECONDS = 0.02
"""Time that an event loop which makes the turns of a server may leave unanswered what there is for it."""

KEEP_ALIVE_SECONDS = 30.0
"""When another server that no longer answers, or has vanished with its node, is lost, unless a host says otherwise."""

# Modex (`modex`, `sharing`)

GET_SECONDS = 2.0
"""Time limit of a get that gives none, as libpmix's servers have it."""

UNKNOWN_SECONDS = 30.0
"""Time that a request of another server waits for an nspace that is still to be registered here."""

# Collectives (`collective.machine`, `constructs`, `groups`)

HOST_GRACE = 0.5
"""Time that an operation beyond its limit waits for the host, which knows the procs that are missing elsewhere."""

HOST_PATIENCE = 10.0
"""Time for the host to say whether a construct had ended before it was given up: other servers decide it."""

OWED_SECONDS = 30.0
"""Time in which procs that call a construct late are told that it has failed without them."""

# Topics (`asking`, `events`, `forwarding`)

HEARTBEAT_SECONDS = 0.5
"""Time for a host to take a heartbeat; it is told of the next one in any case after that."""

EVENT_SECONDS = 120.0
"""Time that events are kept for late registrations."""

OUTPUT_SECONDS = 120.0
"""Time that the output of a job is kept after its end, for late pulls."""

# The native engine's server (`serversession`, and `again`, `lingering` and `tools` of its topics)

LIBRARY_SECONDS = 30.0
"""Time limit of a call of libpmix which does not wait for any proc."""

STUCK_SECONDS = 0.2
"""The same once a call has not come back, until another one does: libpmix's progress thread seems to hang."""

FINALIZE_SECONDS = 10.0
"""Time for libpmix to finalize; if it does not come back, it is left behind."""

CLOSED_SECONDS = 1.0
"""Time for libpmix to read the end of a connection, before it is told to forget the client."""

MODEX_PAUSE = 0.02
MAX_MODEX_PAUSE = 1.0
"""Time between two direct modex requests for one key, doubled each time: libpmix does not report further commits."""

OWNER_PAUSE = 0.02
"""Time between two looks for the owner of a tool's connection that has none yet."""

# Between servers: collectives (`coordinator`, `participant`)

DECISION_SECONDS = 5.0
"""The time that a coordinator may take to decide an operation that is overdue, or of which a server is lost."""

OPTIONAL_SECONDS = 0.25
"""The time that latecomers have once the time limit of one caller is over, where those who have come are the group."""

COMBINE_SECONDS = 0.1
"""The time that servers below one in a tree have to contribute before it passes on what is there."""

LATE_SECONDS = 10.0
"""The time for which servers that came too late to a construct are told its end, before a new one can begin."""

DECIDED_SECONDS = 2.0
"""The time for which a server waits for the last words of a lost coordinator before it says what it knows."""

INQUIRY_SECONDS = 0.02
"""The time that servers have to ask one above them about a lost coordinator, for each level between."""

AGAIN_SECONDS = 0.05
"""The time for which a contribution waits to be given again to a server that does not know yet that it coordinates."""

# Between servers: what servers tell each other of jobs and procs (`announcing`)

CLAIM_SECONDS = 0.05
"""The time that a server has to register a job itself before it asks another one where the procs are."""

NEWS_SECONDS = 0.002
"""The time for which news of procs are gathered as one message."""

# Between servers: what a `Crossing` answers

GONE_SECONDS = 2.0
"""The time that a server may take for a direct modex of a proc that has ended: what it has committed is there still."""

QUERY_SECONDS = 2.0
"""The time that another server may take to list its groups: a query answers without those that do not."""

# Between servers: connections (`tcp`, `link`, `keepalive`)

STALL_SECONDS = 60.0
"""When a server is dropped that reads nothing of what waits for it."""

LINK_HANDSHAKE_SECONDS = 10.0
"""When a connection is closed that has not got further than its handshake."""

PROOF_SECONDS = 0.25
"""The time for which a connection in its handshake need not make room for others: enough for a server under load."""

DIAL_SECONDS = 2.0
"""The time that the first try to reach a server may take; each further one twice as long, up to the handshake's."""

RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0
"""The time, about, until a server is dialed again: the first time, and in the end."""

UNREACHED_SECONDS = 10.0
"""When it is worth a warning that a server has not been reached."""

LOOK_SECONDS = 1.0
READ_SECONDS = 30.0
"""The times after which the folder is checked for a change, and read in any case: file systems' clocks are coarse.
"""

LINK_LINGER_SECONDS = 1.0
"""The time for which a closed carrier still sends what was given to it."""

ROLL_SECONDS = 0.01
"""The time for which news of servers that have come are gathered."""

REVIEW_SECONDS = 0.2
MAX_REVIEW_SECONDS = 3.0
"""The time in which no server comes or goes until connections are made with new neighbours, and the most."""

FAR_SECONDS = 2.0
"""The time after which a server without any connection yet is dialed by others than its neighbours."""

REFUSED_SECONDS = 1.0
"""The time for which a server's address has no listener until it counts as ended."""

ENDING_SECONDS = 0.5
"""The time in which a connection ends by itself whose server has ended, as others have seen."""

PAUSE_SECONDS = 1.0
"""The time in which no connection is taken when the process has no descriptor left."""
