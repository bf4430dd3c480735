"""`pypmix session`: standing sessions are started, listed and stopped."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from functools import partial

from pypmix.cli.streams import prepare
from pypmix.cli.usage import USAGE, UsageError, did_you_mean
from pypmix.host.sessions import DEFAULT, ask, check_name, enter, is_alive, names
from pypmix.standard.errors import OperationTimeout, PMIxError
from pypmix.standard.logtext import printable_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pypmix.cli.options import Request

USE = """usage: pypmix session start [NAME] [--foreground] [OPTION]...
       pypmix session list [--json]
       pypmix session stop [NAME]

A session keeps the daemons of its nodes, so that jobs start without ssh:

pypmix session start work --host n1:4,n2:4

pypmix run --session work -n 8 python hello.py

pypmix session stop work

The options of `start` are those of `pypmix run` about nodes, servers and places. It returns when all nodes have joined;
with --foreground it stays, and Ctrl-C stops the session. Without a NAME the session is named default."""

ACTIONS = ("start", "list", "stop")

READY = "PYPMIX_SESSION_READY"
"""The variable with the descriptor to which a session in the background writes that it is ready."""

LOOK = 0.1
"""Seconds between looks at the messages of a session that is being started."""


def session(words: Sequence[str]) -> int:
    """Carry out `pypmix session` and return its exit code.

    Args:
        words: The command line after `session`.
    """
    prepare()
    try:
        if not words or any(word in ("-h", "--help") for word in words):
            print(USE)
            return 0 if words else USAGE
        action, *rest = words
        if action == "start":
            return _start(rest)
        if action == "list":
            return _list(rest)
        if action == "stop":
            return _stop(rest)
        raise UsageError(f"there is no {action:.80}{did_you_mean(action, ACTIONS)}: start, list or stop")
    except (UsageError, ValueError) as error:
        say(f"{error}\nTry 'pypmix session --help'.")
        return USAGE
    except PMIxError as error:
        say("\n".join(filter(None, (error.detail, error.hint))))
        return 1
    except OSError as error:
        say(f"{error.strerror}: {error.filename}" if error.filename else str(error))
        return 1


def say(text: str) -> None:
    """Write a message to standard error."""
    try:
        print(f"pypmix session: {printable_lines(text)}", file=sys.stderr, flush=True)
    except OSError:
        # Its reader has exited.
        return


def _start(words: list[str]) -> int:
    from pypmix.cli.options import parse_session

    named = bool(words) and not words[0].startswith("-")
    name = check_name(words.pop(0)) if named else DEFAULT
    stays = "--foreground" in words
    words = [word for word in words if word != "--foreground"]
    request = parse_session(words, os.environ)
    if stays:
        return _serve(name, request.replace(fill=False))
    return _start_behind(name, words)


def _start_behind(name: str, words: list[str]) -> int:
    """Start a session as a process of its own, and wait until it is ready."""
    import subprocess

    if is_alive(name, os.environ):
        raise PMIxError(f"there is a session {name} already", hint=f"`pypmix session stop {name}` stops it")
    folder = enter(os.environ, make=True)
    log = os.open(f"{name}.log", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600, dir_fd=folder)
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "pypmix", "session", "start", name, "--foreground", *words]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(writer,),
        env={**os.environ, READY: str(writer)},
    )  # fmt: skip
    os.close(writer)
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    shown = 0
    while True:
        ready = poll.poll(LOOK * 1000)
        text = os.pread(log, 1 << 20, shown)
        shown += len(text)
        sys.stderr.write(text.decode(errors="replace"))
        sys.stderr.flush()
        if ready:
            break
    told = os.read(reader, 1 << 16).decode()
    code = 0 if told else process.wait() or 1
    sys.stderr.write(os.pread(log, 1 << 20, shown).decode(errors="replace"))
    if code:
        return code
    # It is not waited for: it outlives this process.
    process.returncode = 0
    print(told)
    return 0


def _serve(name: str, request: Request) -> int:
    """Be the process of a session until it is stopped."""
    import gc

    from pypmix.cli.cluster import Cluster
    from pypmix.cli.run import added_variables, is_local_run, run_host
    from pypmix.cli.run import say as tell
    from pypmix.host.rosters.base import RosterError
    from pypmix.host.signals import outlive
    from pypmix.host.standing import Entrance, SessionHost

    gc.disable()
    outlive()
    ready = os.environ.pop(READY, "")
    if ready:
        os.set_inheritable(int(ready), False)
    entrance = Entrance(name, dict(os.environ))
    opened = partial(_tell_ready, name, int(ready) if ready else -1)
    local = is_local_run(request.selection, os.environ) and not request.selection.secret_file
    cluster = None if local else Cluster.find(request.selection, os.environ)
    added = added_variables(request)
    if cluster is None:
        return run_host(request, partial(SessionHost, entrance=entrance, ready=opened, env={**os.environ, **added}))
    try:
        code = cluster.join()
        if code is not None:
            return code
        tell(cluster.reason)
        return run_host(request, partial(cluster.launcher(added, SessionHost), entrance=entrance, ready=opened))
    except RosterError as error:
        tell(str(error))
        return 1
    finally:
        cluster.close()


def _tell_ready(name: str, file: int, nodes: Sequence[tuple[str, int | None]]) -> None:
    """Tell the command that has started the session, or a person, that it is ready."""
    there = ", ".join([host if slots is None else f"{host} ({slots})" for host, slots in nodes])
    text = f"session {name} is ready: pid {os.getpid()}, {there}"
    if file < 0:
        say(text)
        return
    try:
        os.write(file, text.encode())
    except BrokenPipeError:
        # The command was ended meanwhile.
        os.kill(os.getpid(), signal.SIGTERM)
    os.close(file)


def _list(words: Sequence[str]) -> int:
    if any(word != "--json" for word in words):
        raise UsageError("`pypmix session list` takes --json alone")
    found = []
    for name in names(os.environ):
        try:
            found.append(ask(name, "describe", os.environ))
        except OperationTimeout as error:
            say(f"{error.detail}; {error.hint}")
        except PMIxError:
            # It was killed, or has ended meanwhile.
            continue
    if words:
        print(json.dumps(found, indent=2))
        return 0
    from pypmix.cli.reach import age_text
    from pypmix.cli.show import table

    rows: list[tuple[str, ...]] = [
        (
            each["name"],
            str(each["pid"]),
            ",".join([node["name"] for node in each["nodes"]]) or "-",
            str(len(each["jobs"])),
            str(each["waiting"]),
            age_text(each["seconds"]),
        )
        for each in found
    ]
    sys.stdout.write(table(("SESSION", "PID", "NODES", "JOBS", "WAITING", "AGE"), rows))
    return 0


def _stop(words: Sequence[str]) -> int:
    if len(words) > 1 or any(word.startswith("-") for word in words):
        raise UsageError("`pypmix session stop` takes the name of one session")
    ask(words[0] if words else DEFAULT, "stop", os.environ)
    return 0
