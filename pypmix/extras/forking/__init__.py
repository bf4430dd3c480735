"""Warm ranks: forked from a process that has already imported their modules.

Theory of operation. A host that is asked for warm ranks has a fork server for each interpreter, import path and
environment that its programs need: `server.py`, a process with one thread that has imported pypmix and the requested
modules, and does nothing but fork. The host (`servers.py`) finds out whether a program is a Python program
(`programs.py`); other programs are started as without a fork server.

1. The host starts the server with one end of a socket pair as its standard input, and sends `import` with the names of
   the modules. The server imports them, checks that it can be forked safely (`safety.py`), and answers that it is
   ready, or why it is not.
2. `start` makes it fork: the request carries the rank's three descriptors. The answer is the pid, and is sent when the
   rank has its process group. All requests are answered in order, each before the next is read.
3. The host monitors the rank as any other, by its pidfd and its process group. But it is not the parent: it reads how
   the rank ended from `/proc/PID/stat` of the zombie, which the server keeps until the host sends `collect`. So the
   system does not give the pid to another process before the host has finished with it.
4. When the socket closes, the server exits: nothing outlives the host. When the server exits, its pidfd wakes the host,
   which ends the jobs whose ranks the server forked, since their exit codes can no longer be read.
"""
