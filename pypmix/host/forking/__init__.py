"""Warm ranks: forked from a process that has imported what they need, instead of started each by itself.

Theory of operation. A host that is asked for warm ranks has a fork server for each interpreter, import path and
environment that its programs need: `server.py`, a process with one thread that has imported pypmix and the modules that
were named, and does nothing but fork. The host (`servers.py`) finds out whether a program is a Python one
(`programs.py`); what is not is started as without a fork server.

1. The host starts the server with one end of a socket pair as its standard input, and writes `[ranks, module, ...]`.
   The server imports, looks whether it can be forked safely (`safety.py`), and answers that it is ready or why it is
   not. For a job of many ranks it first learns which pages of memory they will write to (`pages.py`).
2. `start` has it fork: the request has the rank's three descriptors with it. The answer, which comes when the rank has
   its process group, is the pid. All requests are answered in order, each before the next is read.
3. The host looks after the rank as after any other, by its pidfd and its process group. But it is not the parent: how
   the rank ended is read from `/proc/PID/stat` of the zombie, which the server keeps until it is told to collect it
   (`collect`). So the pid is not given to another process before the host is done with it.
4. Where the socket ends, the server exits: nothing outlives the host. Where the server ends, the host is told by the
   server's pidfd, and ends the jobs whose ranks it has forked, since their exit codes cannot be learnt any more.
"""
