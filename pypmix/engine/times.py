"""All time constants of the servers of both engines, in seconds, and what they are for.

Those of operations between servers are in `pypmix.host.exchange.limits`.
"""

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

ACCEPT_PAUSE = 0.1
"""Time without accepting when the process has no descriptor left."""

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
