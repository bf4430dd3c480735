"""All time constants and bounds of servers that talk to each other, but for those of one connection's handshake.

Seconds are those of an operation between servers; counts bound the memory that one server can take of another.
"""

from __future__ import annotations

# Collectives (`coordinator`, `participant`)

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

MAX_AGAIN = 100
"""The number of times that a contribution is given again to other coordinators."""

MAX_DECIDED = 4096
"""Of how many contributions a server remembers how they ended, for those whose answer was lost with a coordinator."""

MAX_LATE = 256
"""The most constructs that are remembered since servers have not come to them in time."""

MAX_LEFT = 4096
"""The most groups whose departed members a coordinator remembers."""

DEFLATE_BYTES = 2 << 10
"""From how many bytes on a decision, or the description of a job, is compressed."""

MAX_ROUNDS = 1024
"""The most constructs under way whose reported losses are remembered."""

MAX_MISSING = 4096
"""The most procs that an error names as missing."""

# The data of a fence (`spreading`)

KEPT_BYTES = 1 << 10
SPREAD_BYTES = 256 << 10
"""A server keeps its data for a fence, and hands it on itself, from so many bytes on, if that of all would be so much.
"""

EARLY_BYTES = 256 << 20
EARLY_ENTRY = 256
"""The most data of a fence that a server keeps before it has heard the decision, as much as a decision that has the
data itself; and for how many bytes each message counts besides its data."""

PIECE_BYTES = 1 << 20
"""The most data in one message to the next server."""

# Requests (`exchange`)

MAX_ASKED = 65536
"""The most requests of this server that may be unanswered at a time."""

MAX_ANSWERING = 4096
"""The most requests, contributions included, that one other server may have unanswered here at a time."""

MAX_DETAIL = 4096
"""The length of an error's text that is sent."""

MAX_HEARERS = 32
"""Of how many servers each tells all others what it has lost, or has learned of a lost coordinator's decision."""

# What servers tell each other of jobs and procs (`announcing`)

CLAIM_SECONDS = 0.05
"""The time that a server has to register a job itself before it asks another one where the procs are."""

NEWS_SECONDS = 0.002
MAX_NEWS = 1024
"""The time, and the number of procs, for which news of procs are gathered as one message."""

# What a `Crossing` answers

GET_SECONDS = 2.0
"""The time for which a value of another server is waited for where its reader gives no limit, as a server does."""

GONE_SECONDS = 2.0
"""The time that a server may take for a direct modex of a proc that has ended: what it has committed is there still."""

QUERY_SECONDS = 2.0
"""The time that another server may take to list its groups: a query answers without those that do not."""

MAX_JOBS = 65536
"""The most jobs that are known at a time."""

MAX_OVER = 4096
"""The most jobs that are remembered after their end, since other servers may not know of it yet."""

MAX_PARTIES = 256
MAX_PARTY = 4096
"""The most sets of procs that are remembered with where they are, and the largest size of one."""

MAX_GROUPS = 65536
"""The most groups that are remembered of a server that does not list its own."""

# Connections (`tcp`, `link`, `keepalive`)

STALL_SECONDS = 60.0
"""When a server is dropped that reads nothing of what waits for it."""

HANDSHAKE_SECONDS = 10.0
"""When a connection is closed that has not got further than its handshake."""

PROOF_SECONDS = 0.25
"""The time for which a connection in its handshake need not make room for others: enough for a server under load."""

DIAL_SECONDS = 2.0
"""The time that the first try to reach a server may take; each further one twice as long, to `HANDSHAKE_SECONDS`."""

RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0
"""The time, about, until a server is dialed again: the first time, and in the end."""

UNREACHED_SECONDS = 10.0
"""When it is worth a warning that a server has not been reached."""

LOOK_SECONDS = 1.0
READ_SECONDS = 30.0
"""The times after which the folder is checked for a change, and read in any case: file systems' clocks are coarse.
"""

LINGER_SECONDS = 1.0
"""The time for which a closed carrier still sends what was given to it."""

PAUSE_SECONDS = 1.0
"""The time in which no connection is taken when the process has no descriptor left."""
