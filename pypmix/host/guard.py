"""The guard: a process that ends the jobs' processes when the host itself is killed."""

from __future__ import annotations

import os

from pypmix.host.signals import BLOCKED, signal
from pypmix.host.terms import GRACE

# A shell that sleeps in `read` costs a third of a millisecond to start and a megabyte to keep. Its input ends
# when the host has exited, however it did. It finds the remaining processes by the process groups that it was given,
# and by the host's folder in the environment, which also finds processes that moved to another session: nspaces are
# chosen by users, and another host may have the same ones. None of its data is on a command line, which all users can
# read.
# A resource manager sends signals to all processes of a job, of which the guard has to be the last: it blocks them from
# the start, and ignores them once it acts, since shells unblock signals when they wait for a child.
# It looks at the clock, since a search of /proc may take long on a busy machine.
# Each group is a variable: a list would be copied for each rank that starts or ends, at a quadratic cost.
_SCRIPT = r"""
while read -r line; do
  case $line in
    over*) unset "group_${line#over}" ;;
    *) eval "group_$line=" ;;
  esac
done
for number in $SIGNALS; do command trap '' "$number"; done
groups=$(set | while IFS='_=' read -r name number _; do
  # Lines of other variables' values may look like one.
  [ "$name" = group ] && [ "$number" -gt 1 ] && printf ' -%s' "$number"
done)
left() {
  printf '%s\n' "PMIX_SERVER_TMPDIR=(.*/)?$GUARDED(/node[0-9]+)?" |
    grep -lszEx -f - /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do echo "$pid"; done
}
lives() {
  for each in $groups; do kill -s 0 -- "$each" && return 0; done
  for each in $(left); do kill -s 0 -- "$each" && return 0; done
  return 1
}
look() {
  read -r uptime _ < /proc/uptime
  hundredths=${uptime%.*}${uptime#*.}
}
kill -s TERM -- $groups $(left)
look
deadline=$((hundredths + GRACE))
while [ "$hundredths" -lt "$deadline" ] && lives; do sleep 0.1; look; done
kill -s KILL -- $groups $(left)
[ -n "$FOLDER" ] && rm -rf -- "$FOLDER"
"""

_SHELL = "/bin/sh"


class Guard:
    """A small process that outlives the host, ends the remaining processes of its jobs and removes their directory.

    Args:
        tmpdir: The host's directory, which is removed. Its name is unique among hosts, and of a-z, A-Z, 0-9, `-` and
            `_` only; the directories of its servers are itself, or `node0` and so on in it.
        grace: Seconds that processes have between SIGTERM and SIGKILL.
    """

    def __init__(self, tmpdir: str, grace: float = GRACE) -> None:
        self.pid = 0
        reader, self._writer = os.pipe2(os.O_CLOEXEC)
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            self.pid = os.posix_spawn(
                _SHELL,
                ["sh", "-c", _SCRIPT, "pypmix-guard"],
                {
                    "PATH": os.environ.get("PATH", os.defpath),
                    "LC_ALL": "C",
                    "GUARDED": os.path.basename(tmpdir),
                    "FOLDER": tmpdir,
                    "GRACE": str(round(grace * 100)),
                    "SIGNALS": " ".join([str(int(number)) for number in sorted(BLOCKED)]),
                },
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((reader, null, null))],
                setsid=True,
                setsigmask=BLOCKED,
                setsigdef=BLOCKED,
            )
        except FileNotFoundError:
            # Without a shell the guard cannot run: a SIGKILL of the host then ends PMIx processes only, by the
            # loss of their server.
            pass
        finally:
            os.close(reader)
            os.close(null)

    def add(self, group: int) -> None:
        """Make the guard watch a process group of a job."""
        self._tell(b"%d\n" % group)

    def remove(self, group: int) -> None:
        """Make the guard forget a process group that has ended: its number may be used again."""
        self._tell(b"over%d\n" % group)

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self._writer, line)
        except BrokenPipeError:
            # The guard does not run.
            return

    def was_sent(self, signum: int) -> bool:
        """Return True if the guard was sent a signal: then all processes of the same step or service were, ranks too.

        The guard has a separate session, and its pid is not published: a signal reaches it only with all others. It
        stays pending there, so all further signals of the same number count as sent to all.
        """
        try:
            with open(f"/proc/{self.pid}/status", encoding="utf-8", errors="surrogateescape") as file:
                masks = [line.split()[1] for line in file if line.startswith("ShdPnd:")]
        except OSError:
            return False
        return any(int(mask, 16) >> (signum - 1) & 1 for mask in masks)

    def dismiss(self) -> None:
        """End the guard after the host has cleaned up."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            try:
                os.waitpid(self.pid, 0)
            except ChildProcessError:
                # This process ignores SIGCHLD: the kernel has collected it.
                pass
            self.pid = 0
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1
