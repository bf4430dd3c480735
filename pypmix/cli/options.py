"""The command line of `pypmix run`: a table of its options, and what reads a command line by it.

The help that typer shows is made from the same table. The grammar is not one that typer or argparse knows:
options end at the first word that is none, all that follows belongs to the program, and `:` starts the next
application.
"""

from __future__ import annotations

import os

from pypmix.engine.select import ENGINES, SERVER_ENGINES
from pypmix.host.job import Application
from pypmix.host.terms import Terms
from pypmix.standard.limits import DEFAULTS, VARIABLE, Limits
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_WILDCARD, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLAG, NUMBER, SECONDS, TEXT, SETTING, ENGINE, SERVER_ENGINE, READER = (
    "flag",
    "number",
    "seconds",
    "text",
    "setting",
    "engine",
    "server engine",
    "reader",
)


class Option(Record):
    """An option of `pypmix run`: its field, its names, what it takes, and its help."""

    field: str
    names: tuple[str, ...]
    kind: str
    metavar: str
    help: str
    per_app: bool = False


OPTIONS = (
    Option("np", ("-n", "--np", "-np"), NUMBER, "N", "Number of ranks of the application; 1 if not given.", True),
    Option(
        "env",
        ("-x",),
        SETTING,
        "NAME[=VALUE]",
        "Set an environment variable for the ranks of the application, or pass on one of an outer job. Repeatable.",
        True,
    ),
    Option("wdir", ("--wdir", "-wdir"), TEXT, "DIR", "Working directory of the application's ranks.", True),
    Option(
        "pset",
        ("--pset",),
        TEXT,
        "NAME",
        "The process set that the application's ranks are, with those of others that name the same.",
        True,
    ),
    Option("tagged", ("--tag-output",), FLAG, "", "Start each line of output with its rank and stream."),
    Option("stamped", ("--timestamp-output",), FLAG, "", "Start each line of output with the time."),
    Option("merged", ("--merge-stderr",), FLAG, "", "Send stderr to where stdout goes."),
    Option(
        "directory",
        ("--output-directory",),
        TEXT,
        "DIR",
        "Write output to files DIR/JOB/rank.RANK/stdout and stderr as well; the first job is 1.",
    ),
    Option(
        "stdin",
        ("--stdin",),
        READER,
        "RANK|all|none|push",
        "Who reads standard input, 0 if not given; with 'push' all ranks read what tools send them.",
    ),
    Option(
        "forwarded", ("--forward",), FLAG, "", "Let tools pull the output of a lone rank, and push to who reads stdin."
    ),
    Option(
        "keep_going",
        ("--keep-going",),
        FLAG,
        "",
        "Let the other ranks go on when one fails; the exit code is still that of the first failure.",
    ),
    Option(
        "timeout",
        ("--timeout",),
        SECONDS,
        "SECONDS",
        "End the job after this time and say what it waited for.",
    ),
    Option("engine", ("--engine",), ENGINE, "|".join(ENGINES), "Engine of the ranks' clients (PYPMIX_ENGINE)."),
    Option(
        "nodes",
        ("--nodes",),
        NUMBER,
        "N",
        "Simulate N nodes, node0 and so on, on this machine: for development and tests. Each has a server of its own "
        "for its block of the ranks. On a cluster, run pypmix under PRRTE, Open MPI or Slurm.",
    ),
    Option(
        "cluster",
        ("--cluster",),
        TEXT,
        "NAME",
        "The name of the cluster that this run is: its processes find it in their job info (PMIX_CLUSTER_ID).",
    ),
    Option(
        "join",
        ("--join",),
        TEXT,
        "DIR",
        "Join the other runs that name this folder, each a cluster with a name of its own, so that their jobs can "
        "connect. It is made where it is not there, and holds the secret that lets them in.",
    ),
    Option(
        "join_address",
        ("--join-address",),
        TEXT,
        "ADDRESS",
        "The address of this machine by which the runs on others reach it; 127.0.0.1 if not given.",
    ),
    Option(
        "nspace",
        ("--nspace",),
        TEXT,
        "NAME",
        "What the namespaces of the jobs begin with, before @ and their number; made up if not given.",
    ),
    Option(
        "server_engine",
        ("--server-engine",),
        SERVER_ENGINE,
        "|".join(SERVER_ENGINES),
        "Engine of the server; python if not given.",
    ),
    Option(
        "library",
        ("--server-libpmix",),
        TEXT,
        "PATH",
        "The libpmix of a native server (PYPMIX_LIBPMIX, or what is found, if not given).",
    ),
    Option(
        "limits",
        ("--limits",),
        TEXT,
        "NAME=NUMBER,...",
        "How much of the server one peer may take, such as committed=64M,connections=100 (PYPMIX_LIMITS).",
    ),
    Option(
        "record",
        ("--record",),
        TEXT,
        "FILE",
        "Write each question of the servers to their host, and its answer, to FILE as a line of JSON.",
    ),
)

HELP = ("--help", "-h")

PUSH = "push"
READERS: dict[str, int | str | None] = {"all": RANK_WILDCARD, "none": None, PUSH: PUSH}
"""What `--stdin` takes besides a rank."""

_BY_NAME = {name: option for option in OPTIONS for name in option.names}


class UsageError(Exception):
    """A command line that cannot be carried out; the text says why."""


class Request(Record):
    """What a command line of `pypmix run` asks for."""

    apps: tuple[Application, ...] = ()
    terms: Terms = Terms()
    timeout: float | None = None
    nodes: int = 1
    server_engine: str = "python"
    library: str | None = None
    record: str | None = None
    help: bool = False
    cluster: str = ""
    join: str = ""
    address: str = "127.0.0.1"
    nspace: str = ""
    limits: Limits = DEFAULTS


def parse(words: Sequence[str], env: Mapping[str, str]) -> Request:
    """Read the words that follow `pypmix run`.

    Args:
        words: The command line.
        env: The environment that `-x NAME` takes its values from.

    Raises:
        UsageError: It cannot be carried out.
    """
    apps: list[Application] = []
    job: dict[str, object] = {}
    for segment in _segments(words):
        given, program = _options(segment)
        if "help" in given:
            return Request(help=True)
        if not program:
            raise UsageError("no program to run was given" + (" after ':'" if apps else ""))
        settings = given.pop("env", [])
        assert isinstance(settings, list)
        wdir = str(given.pop("wdir", ""))
        np = given.pop("np", 1)
        assert isinstance(np, int)
        apps.append(
            Application(
                tuple(program),
                np,
                tuple([pair for setting in settings for pair in _setting(setting, env)]),
                os.path.abspath(wdir) if wdir else "",
                pset=str(given.pop("pset", "")),
            )
        )
        job.update(given)
    engine = job.pop("engine", None)
    if engine is not None:
        apps = [app.replace(env=(*app.env, ("PYPMIX_ENGINE", str(engine)))) for app in apps]
    timeout = job.pop("timeout", None)
    assert timeout is None or isinstance(timeout, float)
    nodes = job.pop("nodes", 1)
    server_engine = str(job.pop("server_engine", "python"))
    library = job.pop("library", None)
    record = job.pop("record", None)
    limits = str(job.pop("limits", "") or env.get(VARIABLE, ""))
    cluster, join, nspace = [str(job.pop(field, "")) for field in ("cluster", "join", "nspace")]
    address = str(job.pop("join_address", ""))
    assert isinstance(nodes, int)
    if join and not cluster:
        raise UsageError("runs that are joined are clusters, and each has a name of its own: add --cluster NAME")
    if address and not join:
        raise UsageError("--join-address is for runs that are joined: add --join DIR")
    if library is not None and server_engine != "native":
        raise UsageError("--server-libpmix is for a server of the native engine: add --server-engine native")
    if job.get("directory"):
        job["directory"] = os.path.abspath(str(job["directory"]))
    reader = job.pop("stdin", 0)
    size = sum([app.np for app in apps])
    if isinstance(reader, int) and reader >= size and reader != RANK_WILDCARD:
        raise UsageError(f"--stdin takes one of the ranks 0 to {size - 1}, not {reader}")
    if reader == PUSH:
        job["pushed"], reader = True, RANK_WILDCARD
    try:
        allowed = Limits.read(limits)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Request(
        tuple(apps),
        # Every field but these is a term of the same name.
        Terms(stdin=reader, **job),  # type: ignore[arg-type]
        timeout,
        nodes,
        server_engine,
        None if library is None else os.path.abspath(str(library)),
        None if record is None else str(record),
        cluster=cluster,
        join=os.path.abspath(join) if join else "",
        address=address or "127.0.0.1",
        nspace=nspace,
        limits=allowed,
    )


def _segments(words: Sequence[str]) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            segments.append([])
        else:
            segments[-1].append(word)
    return segments


def _options(words: list[str]) -> tuple[dict[str, object], list[str]]:
    """Return the options at the start of an application's words, and the words of its program."""
    given: dict[str, object] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word in HELP:
            return {"help": True}, []
        name, joined, value = word, "", ""
        if word.startswith("--"):
            name, joined, value = word.partition("=")
        elif word not in _BY_NAME and word[:2] in _BY_NAME:
            name, joined, value = word[:2], "=", word[2:]
        option = _BY_NAME.get(name)
        if option is None:
            raise UsageError(f"there is no option {name}")
        if option.kind == FLAG:
            if joined:
                raise UsageError(f"{name} takes no value")
            given[option.field] = True
            continue
        if not joined:
            if not rest:
                raise UsageError(f"{name} needs a value: {name} {option.metavar}")
            value = rest.pop(0)
        if option.kind == SETTING:
            settings = given.setdefault(option.field, [])
            assert isinstance(settings, list)
            settings.append(value)
        else:
            given[option.field] = _value(name, option.kind, value)
    return given, rest


def _value(name: str, kind: str, text: str) -> object:
    if kind == NUMBER:
        number = decimal(text, 1 << 62)
        if not number:
            raise UsageError(f"{name} takes a whole number of at least 1, not {text!r:.80}")
        return number
    if kind == SECONDS:
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e9:
            raise UsageError(f"{name} takes a number of seconds above 0, not {text!r}")
        return seconds
    if kind == READER:
        if text in READERS:
            return READERS[text]
        rank = decimal(text)
        if rank is not None:
            return rank
        raise UsageError(f"{name} takes a rank, all, none or push, not {text!r}")
    engines = {ENGINE: ENGINES, SERVER_ENGINE: SERVER_ENGINES}.get(kind, (text,))
    if text not in engines:
        raise UsageError(f"{name} takes {', '.join(engines[:-1])} or {engines[-1]}, not {text!r}")
    if not text:
        raise UsageError(f"{name} takes a value that is not empty")
    return text


def _setting(text: str, env: Mapping[str, str]) -> list[tuple[str, str]]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"-x takes NAME=VALUE or NAME, not {text!r}")
    if equals:
        return [(name, value)]
    return [(name, env[name])] if name in env else []
