"""Bounds of servers that talk to each other: on the memory that one server can take of another.

Their times are in `pypmix.engine.times`.
"""

from __future__ import annotations

MAX_MESH = 32
"""The most servers that send messages for all to each other one themselves, and are all connected with a launcher.

Of more, messages for all go through the root (`statelog`), and a launcher introduces them to each other (`census`).
"""

# Collectives (`coordinator`, `participant`)

MAX_DECIDED = 4096
"""Of how many contributions a server remembers how they ended, for those whose answer was lost with a coordinator."""

MAX_DECIDED_BYTES = 64 << 20
"""Of how much committed data in these it remembers the latest."""

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

HELD_BYTES = 64 << 20
"""The most data of a server that waits for entries on which it is based."""

# News of procs (`crossing`)

MAX_NEWS = 1024
"""The most procs of which news are gathered as one message."""

# What a `Crossing` answers

MAX_JOBS = 65536
"""The most jobs that are known at a time."""

MAX_OVER = 4096
"""The most jobs that are remembered after their end, since other servers may not know of it yet."""

MAX_PARTIES = 256
MAX_PARTY = 4096
MAX_NAMED = MAX_PARTIES * MAX_PARTY
"""The most sets of procs that are remembered with where they are, the largest size of one that other servers name, by
16 bytes, and how many procs may be named in all of those that this server's clients do things with."""

MAX_GROUPS = 65536
"""The most groups that are remembered of a server that does not list its own."""

# Connections (`tcp`, `census`)

MAX_ENDED = 4096
"""Of how many servers a carrier remembers that they have ended, or that it has lost them."""

MAX_RESOLVING = 32
"""The most names of servers that a process looks up at a time."""
