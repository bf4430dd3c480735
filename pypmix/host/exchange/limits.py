"""All time constants and bounds of servers that talk to each other, but for those of one connection's handshake.

Seconds are those of an operation between servers; counts bound the memory that one server can take of another.
"""

from __future__ import annotations

# Collectives (`coordinator`, `participant`)

DECISION_SECONDS = 5.0
"""How long a coordinator may take to decide an operation whose time limit is over, or of which a server is lost."""

OPTIONAL_SECONDS = 0.25
"""How long latecomers have once the time limit of one caller is over, where those who have come are the group."""

COMBINE_SECONDS = 0.1
"""The time that servers below one in a tree have to contribute before it passes on what is there."""

LATE_SECONDS = 10.0
"""How long servers that did not come to a construct in time are told how it ended, before a new one can begin."""

DECIDED_SECONDS = 2.0
"""How long a server waits for the last words of a coordinator that others have lost before it says what it knows."""

AGAIN_SECONDS = 0.05
"""How long a contribution waits to be given again to a server that does not know yet that it coordinates."""

MAX_AGAIN = 100
"""How often a contribution is given again to other coordinators."""

MAX_DECIDED = 4096
"""Of how many contributions a server remembers how they ended, for those whose answer was lost with a coordinator."""

MAX_LATE = 256
"""How many constructs are remembered that servers have not come to in time."""

MAX_LEFT = 4096
"""Of how many groups a coordinator remembers who has left."""

MAX_ROUNDS = 1024
"""Of how many constructs that go on it is remembered who was told to be lost."""

MAX_MISSING = 4096
"""How many procs an error names as missing."""

# Requests (`exchange`)

MAX_ASKED = 65536
"""How many requests of this server may be unanswered at a time."""

MAX_ANSWERING = 4096
"""How many requests, contributions included, one other server may have unanswered here at a time."""

MAX_DETAIL = 4096
"""How much of an error's text travels."""

# What servers tell each other of jobs and procs (`announcing`)

CLAIM_SECONDS = 0.05
"""The time that a server has to register a job itself before it asks another one where the procs are."""

NEWS_SECONDS = 0.002
MAX_NEWS = 1024
"""The time, and the number of procs, for which news of procs are gathered as one message."""

# What a `Crossing` answers

GET_SECONDS = 2.0
"""How long a value of another server is waited for where its reader gives no time limit, as servers do with their own.
"""

GONE_SECONDS = 2.0
"""How long a server may take for a direct modex of a proc that has ended: what it has committed is there still."""

QUERY_SECONDS = 2.0
"""How long another server may take to list its groups: a query answers without those that do not."""

MAX_JOBS = 65536
"""How many jobs are known at a time."""

MAX_OVER = 4096
"""How many jobs are remembered after their end, since other servers may not have heard of it."""

MAX_PARTIES = 256
MAX_PARTY = 4096
"""How many sets of procs are remembered with where they are, and how large ones."""

MAX_GROUPS = 65536
"""How many groups are remembered of a server that does not list its own."""

# Connections (`tcp`, `link`)

DEAD_SECONDS = 30
"""When a peer that acknowledges nothing, or has vanished with its node, is lost."""

STALL_SECONDS = 60.0
"""When a server is dropped that reads nothing of what waits for it."""

HANDSHAKE_SECONDS = 10.0
"""When a connection is closed that has not got further than its handshake."""

PROOF_SECONDS = 0.25
"""How long a connection in its handshake is safe from making room for others: enough for a server under load."""

DIAL_SECONDS = 2.0
"""How long the first try to reach a server may take; each further one twice as long, to `HANDSHAKE_SECONDS`."""

RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0
"""How long it is, about, until a server is dialed again: the first time, and in the end."""

UNREACHED_SECONDS = 10.0
"""When it is worth a warning that a server has not been reached."""

LOOK_SECONDS = 1.0
READ_SECONDS = 30.0
"""How often the folder is checked for a change, and how often it is read in any case: file systems' clocks are coarse.
"""

LINGER_SECONDS = 1.0
"""How long a carrier that is closed still sends what was given to it."""

PAUSE_SECONDS = 1.0
"""How long no connection is taken when the process has no descriptor left."""
