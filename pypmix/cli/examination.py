"""The examination of a cluster's nodes by `pypmix doctor`: whether `pypmix run` works there, and fixes if not.

The same commands that start daemons, ssh or srun, start a small program on each node (`pypmix.cli.probe`), whose source
is sent there. It reports facts about its node, listens, and dials the launcher and its parent in the tree of a session,
as daemons do; or all others, if each pair of nodes is to be tried. It leaves nothing behind.
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import queue
import signal
import socket
import subprocess
import tempfile
import threading
import time
from typing import Protocol, cast

from pypmix._version import __version__
from pypmix.cli import probe
from pypmix.host.addresses import ANYWHERE, listen, listening_address, own_addresses
from pypmix.host.rosters.base import RosterError, Settings
from pypmix.host.rosters.choosing import choose
from pypmix.host.rosters.process import KEPT
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.logtext import printable
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pypmix.cli.options import NodeSelection

    Answer = dict[str, Any]

NETWORK = "name a network that all nodes share, such as 10.0.0.0/8 (`ip addr`)"
"""The fix if a node has no address on the network that is named."""

LOADER = "import sys, json; exec(json.loads(sys.stdin.readline()))"
"""Runs the probe on any Python, with a command line that no shell misreads."""

DIAL_SECONDS = 4.0
"""Seconds in which a node that is dialed has to answer."""

MARGIN = 5.0
"""Further seconds for answers to arrive."""

CHILDREN = 32
"""The most servers that are direct children of another one in the tree of a session."""

MOST_DIALED = 256
"""The number of nodes that each dials at a time."""

CLOCK_SECONDS = 2.0
"""The difference of two clocks from which on it is reported."""

MUNGE_SECONDS = 300.0
"""The difference of two clocks from which on munge refuses credentials."""


class Finding(Record):
    """A fault on a node, or between two.

    Args:
        node: The node.
        check: The check that failed: start, python, pypmix, tmpdir, folder, names, route, ports, clock or munge.
        text: The fault.
        fix: The remedy.
        severe: Whether jobs do not run because of it.
    """

    node: str
    check: str
    text: str
    fix: str
    severe: bool = True


class Examined(Record):
    """The results of an examination of nodes.

    Args:
        reason: The nodes, and why they were chosen.
        nodes: The facts that each node reports, by name; empty if it does not answer.
        findings: The faults.
    """

    reason: str
    nodes: dict[str, Answer]
    findings: tuple[Finding, ...]

    @property
    def usable(self) -> bool:
        """Whether a job would run on all of them."""
        return not any(finding.severe for finding in self.findings)


class Reaching(Protocol):
    """A roster that can run a command on its nodes."""

    def commands(self, words: Sequence[str]) -> list[tuple[tuple[str, ...], list[str]]]:
        """Return the command lines, each with the nodes on which it runs."""

    def explain(self, node: str, code: int | None, errors: str) -> str:
        """Return the reason why such a command has ended, or hangs."""


class Channel:
    """A command that runs the probe on some nodes: all read the lines that it is sent, and their answers come from it.

    Args:
        names: The nodes.
        words: The command.
        answers: The queue for their answers.
    """

    def __init__(
        self, names: Sequence[str], words: Sequence[str], answers: queue.Queue[tuple[Channel, Answer]]
    ) -> None:
        self.names = tuple(names)
        self.errors = bytearray()
        self._answers = answers
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(words, process_group=0, **pipes)  # type: ignore[call-overload]
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def send(self, what: object) -> None:
        """Send a line of JSON to all of its nodes."""
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            # It has ended; its output shows the reason.
            return

    def code(self) -> int | None:
        """Return the exit code, None if it still runs; all its errors have been read by then."""
        try:
            code = cast("int", self._process.wait(1.0))
        except subprocess.TimeoutExpired:
            return None
        # A child process that is left behind may keep the pipe open.
        self._threads[1].join(1.0)
        return code

    def close(self) -> None:
        """End the command; the probes end with their input."""
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(MARGIN)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for thread in self._threads:
            thread.join(MARGIN)

    def _read(self) -> None:
        for line in self._process.stdout:
            _, mark, text = line.decode(errors="replace").partition(probe.MARK)
            if mark:
                try:
                    self._answers.put((self, json.loads(text)))
                except ValueError:
                    continue
        self._answers.put((self, {}))

    def _read_errors(self) -> None:
        for line in self._process.stderr:
            self.errors += line
            del self.errors[:-KEPT]


class Examination:
    """Examines nodes.

    Args:
        roster: Reaches the nodes.
        nodes: Their names.
        settings: The settings of the command line.
        munge: Whether the nodes authenticate each other by munge.
        pairs: Whether each node dials all others, and not only its parent.
    """

    def __init__(
        self, roster: Reaching, nodes: Sequence[str], settings: Settings, munge: bool = False, pairs: bool = False
    ) -> None:
        self._roster = roster
        self._names = list(nodes)
        self._settings = settings
        self._munge = munge
        self._pairs = pairs
        self._answers: queue.Queue[tuple[Channel, Answer]] = queue.Queue()
        self._closed: set[Channel] = set()
        self.facts: dict[str, Answer] = {name: {} for name in nodes}
        self.findings: list[Finding] = []

    def run(self) -> None:
        """Examine all of them."""
        source = inspect.getsource(probe) + "\nmain()\n"
        channels = []
        own = self._own_interface()
        with listen((own or ANYWHERE, 0)) as listener, _marked() as mark:
            hosts = [own] if own else own_addresses(self._names[-1])
            # Not the last one, which is each node's own loopback address.
            hosts = hosts[:-1] or hosts
            places = [(host, listener.getsockname()[1]) for host in hosts]
            try:
                for names, words in self._roster.commands([self._settings.python, "-c", LOADER]):
                    channels.append(Channel(names, words, self._answers))
                asked = {
                    "ask": "facts", "wdir": os.getcwd(), "mark": mark, "names": [*self._names, socket.gethostname()],
                    "munge": self._munge, "launcher": places, "interface": self._settings.interface,
                }  # fmt: skip
                for channel in channels:
                    channel.send(source)
                    channel.send(asked)
                self._gather(channels, "facts", self._settings.patience)
                self._explain(channels)
                self._look()
                self._compare_clocks(channels)
                self._add_unreached(places, self._dial(channels, places))
            except OSError as error:
                self._add(self._names[0], "start", f"the command that reaches it cannot be run: {error}", "install it")
            finally:
                for channel in channels:
                    channel.close()

    def _own_interface(self) -> str:
        """Return this machine's address on the named network, empty if none is named or it has no address there."""
        if self._settings.interface:
            try:
                return listening_address(self._settings.interface, ())
            except OSError as error:
                self._add("", "route", f"--interface, here: {error.strerror}", NETWORK)
        return ""

    def _add(self, node: str, check: str, text: str, fix: str, *, severe: bool = True) -> None:
        self.findings.append(Finding(node, check, text, fix, severe))

    def _there(self) -> dict[str, Answer]:
        return {name: facts for name, facts in self.facts.items() if facts}

    def _gather(self, channels: Sequence[Channel], ask: str, seconds: float) -> None:
        """Collect the answers to a question from all nodes that can answer."""
        deadline = time.monotonic() + seconds
        wanted = {name for channel in channels if channel not in self._closed for name in channel.names}
        if ask != "facts":
            wanted &= set(self._there())
        while wanted and (left := deadline - time.monotonic()) > 0:
            try:
                channel, answer = self._answers.get(timeout=left)
            except queue.Empty:
                return
            if not answer:
                self._closed.add(channel)
                wanted.difference_update(channel.names)
            elif answer.get("asked") == ask:
                name = channel.names[0] if len(channel.names) == 1 else str(answer.get("node"))
                if name in wanted:
                    wanted.discard(name)
                    answer["received"] = time.time()
                    self.facts[name].update(answer)

    def _explain(self, channels: Sequence[Channel]) -> None:
        """Add a finding with the reason for each node that has not answered."""
        for channel in channels:
            silent = [name for name in channel.names if not self.facts[name]]
            code = channel.code() if silent else None
            for name in silent:
                text = self._roster.explain(name, code, bytes(channel.errors).decode(errors="replace"))
                # The text begins with the node, then the fault, then the remedy.
                text, _, fix = text.removeprefix(f"{name}: ").partition(": ")
                self._add(name, "start", text, fix or "see that the command that reaches it works")

    def _look(self) -> None:
        """Examine the facts that each node reports."""
        for name, facts in self._there().items():
            self._look_at_pypmix(name, facts)
            self._look_at_folders(name, facts)
            self._look_at_names(name, facts)
            if facts["no_interface"]:
                self._add(name, "route", f"--interface: {printable(facts['no_interface'])}", NETWORK)
            if facts["no_route"]:
                fix = "name a network that all nodes share with --interface, or correct the routes (`ip route`)"
                self._add(name, "route", f"has no route to the launcher: {facts['no_route']}", fix)
            if self._munge:
                self._look_at_munge(name, facts)

    def _look_at_pypmix(self, name: str, facts: Answer) -> None:
        python = facts["executable"] or self._settings.python
        if "no_pypmix" in facts:
            fix = f"`{python} -m pip install pypmix-hpc=={__version__}` there, or another Python by --remote-python"
            self._add(name, "pypmix", f"{python} has no pypmix: {printable(facts['no_pypmix'])}", fix)
        elif facts["pypmix"] != __version__:
            fix = f"`{python} -m pip install pypmix-hpc=={__version__}` there: all nodes need the same release"
            self._add(name, "pypmix", f"has pypmix {facts['pypmix']}, and this is {__version__}", fix)
        if facts["python"].split(".")[:2] != platform.python_version().split(".")[:2]:
            fix = "use the same one where ranks exchange pickled objects: --remote-python PATH"
            text = f"has Python {facts['python']}, and this is {platform.python_version()}"
            self._add(name, "python", text, fix, severe=False)

    def _look_at_folders(self, name: str, facts: Answer) -> None:
        if facts.get("tmpdir_trouble"):
            fix = f"make {facts['tmpdir']} a folder that this user can write to, or set TMPDIR there to another one"
            self._add(name, "tmpdir", f"{facts['tmpdir']} cannot be written to: {facts['tmpdir_trouble']}", fix)
        if not facts["wdir"]:
            fix = "start in a folder that all nodes have, or name one: --wdir DIR"
            self._add(name, "folder", f"has no folder {os.getcwd()}, where ranks would run", fix, severe=False)
        elif facts["shared"] is False:
            fix = "start in a shared folder, or see that programs and files are on all nodes"
            self._add(name, "folder", f"has a {os.getcwd()} of its own, not the launcher's", fix, severe=False)

    def _look_at_names(self, name: str, facts: Answer) -> None:
        if facts["unresolved"]:
            text = f"does not resolve {', '.join(facts['unresolved'][:8])}"
            fix = "add the names to DNS or to /etc/hosts there; programs of ranks may dial them"
            self._add(name, "names", text, fix, severe=False)
        if facts["loopback"] and len(self._names) > 1:
            fix = "have /etc/hosts there give it the address of the network"
            self._add(name, "names", "takes its own name for one of loopback", fix, severe=False)

    def _look_at_munge(self, name: str, facts: Answer) -> None:
        from pypmix.engine.munge import unseal

        trouble, fix = facts["munge_trouble"], "start munged there; `munge -n | unmunge` shows whether it works"
        if not trouble:
            try:
                held, uid, _ = unseal(facts["munge"].encode(), socket=self._settings.env.get("PYPMIX_MUNGE_SOCKET", ""))
                if (held, uid) == (probe.STATEMENT, os.geteuid()):
                    return
                trouble = "a credential of munge from there is of another user"
                fix = "the daemons have to run as the same user on all nodes"
            except NotSupported as error:
                trouble = f"munge cannot be asked here: {error}"
            except PMIxError:
                trouble = "a credential of munge from there is refused here"
                fix = "all nodes need the same /etc/munge/munge.key, and clocks that agree"
        fix += "; or have the tasks of a step share a secret: --secret-file FILE"
        self._add(name, "munge", printable(trouble), fix, severe=False)

    def _compare_clocks(self, channels: Sequence[Channel]) -> None:
        sent = time.time()
        for channel in channels:
            channel.send({"ask": "time"})
        self._gather(channels, "time", MARGIN)
        for name, facts in self._there().items():
            if "time" not in facts:
                continue
            # It was read at some time in this interval.
            early, late = facts["time"] - facts["received"], facts["time"] - sent
            ahead = facts["ahead"] = 0.0 if early <= 0 <= late else early if early > 0 else late
            if abs(ahead) > CLOCK_SECONDS:
                how = "ahead of" if ahead > 0 else "behind"
                more = " munge refuses such credentials" if self._munge and abs(ahead) > MUNGE_SECONDS else ""
                fix = f"run chrony or another client of NTP on all nodes.{more}"
                self._add(name, "clock", f"its clock is {abs(ahead):.1f} s {how} this one", fix, severe=False)

    def _targets(self, name: str) -> list[str]:
        """Return the nodes that a node dials: its parent in the tree of a session, or all others."""
        place = self._names.index(name)
        if self._pairs:
            return [other for other in self._names if other != name]
        return [self._names[(place - 1) // CHILDREN]] if place else []

    def _dial(self, channels: Sequence[Channel], places: Sequence[tuple[str, int]]) -> dict[str, dict[str, str]]:
        """Make all nodes dial the launcher and their targets; return by node why each of these is not reached.

        Nodes that no longer answer are not in the result.
        """
        listening = {name: [facts["listens"]] for name, facts in self._there().items() if "listens" in facts}
        targets = {name: [each for each in self._targets(name) if each in listening] for name in self._there()}
        troubles: dict[str, dict[str, str]] = {name: {} for name in targets}
        for start in range(0, max(map(len, targets.values()), default=0) or 1, MOST_DIALED):
            some = {name: each[start : start + MOST_DIALED] for name, each in targets.items()}
            for channel in channels:
                to = {
                    name: {**({} if start else {"": places}), **{each: listening[each] for each in some.get(name, ())}}
                    for name in channel.names
                }
                channel.send({"ask": "dial", "seconds": DIAL_SECONDS, "to": to})
            self._gather(channels, "dial", DIAL_SECONDS + MARGIN)
            for name in list(troubles):
                answer = self.facts[name].pop("troubles", None)
                if answer is None:
                    del troubles[name]
                else:
                    troubles[name].update(answer)
        return troubles

    def _add_unreached(self, places: Sequence[tuple[str, int]], troubles: Mapping[str, Mapping[str, str]]) -> None:
        """Add a finding for each node that does not reach another one, or the launcher."""
        fix = "let TCP through between all nodes, on all ports above 1023, or name another network with --interface"
        for name in self._there():
            if name not in troubles:
                self._add(name, "ports", "no longer answers", "see whether it is still up")
                continue
            for other, trouble in troubles[name].items():
                address = self.facts[other]["listens"][0] if other else places[0][0]
                kind = "route" if "route" in trouble or "unreachable" in trouble else "ports"
                if trouble:
                    self._add(name, kind, f"does not reach {other or 'the launcher'} at {address}: {trouble}", fix)


class _marked:
    """A file in the working directory by which nodes find out if they share it; empty if it cannot be made."""

    def __enter__(self) -> str:
        try:
            handle, self._path = tempfile.mkstemp(prefix=".pypmix-doctor-", dir=os.getcwd())
        except OSError:
            self._path = ""
        else:
            os.close(handle)
        return self._path

    def __exit__(self, *_: object) -> None:
        if self._path:
            os.unlink(self._path)


def examine(selection: NodeSelection, env: Mapping[str, str], pairs: bool = False) -> Examined | None:
    """Examine the nodes on which `pypmix run` would run with these options; None if it would run on this machine.

    Args:
        selection: The nodes of the command line.
        env: The environment.
        pairs: Whether each node dials all others, and not only its parent in the tree of a session.
    """
    settings = Settings(
        env, selection.hosts, selection.agent, interface=selection.interface, patience=selection.patience
    )
    if selection.python:
        settings = settings.replace(python=selection.python)
    try:
        choice = choose(settings, selection.roster)
        if choice is None:
            return None
        roster, reason = choice
        # Its tasks run here already, each with a separate doctor.
        commands = roster.commands([]) if hasattr(roster, "commands") else []
    except RosterError as error:
        return Examined("", {}, (Finding("", "roster", str(error), "see `pypmix run --help`"),))
    names = [name for some, _ in commands for name in some]
    if not names:
        text = f"the nodes of the roster {roster.name} cannot be looked at from here"
        fix = "run `pypmix doctor` on each of them, or name them: --host n1,n2"
        return Examined(reason, {}, (Finding("", "roster", text, fix, False),))
    examination = Examination(cast("Reaching", roster), names, settings, getattr(roster, "uses_munge", False), pairs)
    unresolved = [name for name in names if not probe.resolves(name)]
    try:
        examination.run()
    finally:
        roster.close()
    for name in unresolved:
        if not any(finding.node == name for finding in examination.findings):
            text = f"{name} does not resolve on this machine"
            fix = "add it to DNS or to /etc/hosts here; the programs of ranks may dial it"
            examination.findings.append(Finding(name, "names", text, fix, False))
    return Examined(reason, examination.facts, tuple(examination.findings))
