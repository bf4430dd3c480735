"""The command line of `pypmix run`: a table of its options, from which its parser, its help and the docs are made.

Options end at the first word that is not an option, all later words belong to the program, and `:` starts the next
application, with separate options.
"""

from __future__ import annotations

import os

from pypmix.cli.usage import UsageError, unknown_option
from pypmix.engine.select import ENGINES, SERVER_ENGINES
from pypmix.engine.times import KEEP_ALIVE_SECONDS
from pypmix.host.binding import NONE, Binding
from pypmix.host.job import Application
from pypmix.host.mapping import FORMS, RANKFILE, RANKINGS, WORDS, Mapping
from pypmix.host.rosters.choosing import list_rosters
from pypmix.host.terms import GRACE, PATIENCE, Terms
from pypmix.standard.limits import DEFAULTS, Limits
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_WILDCARD, decimal
from pypmix.topology.bitmaps import parse_list
from pypmix.topology.machine import LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Mapping as Variables
    from typing import Any

    from pypmix.host.rankfile import Line
    from pypmix.host.rosters.names import Host
    from pypmix.host.trying import Fault

PUSH = "push"
READERS: dict[str, int | str | None] = {"all": RANK_WILDCARD, "none": None, PUSH: PUSH}
"""The values of `--stdin` other than a rank."""

DISPLAYS = ("map", "bind")

REPEATED = ("env", "preload")

ONCE = ("mapping", "rank_by", "binding")
"""The options of which a command line may not give two values."""

HELPS = ("-h", "--help")


def _text(name: str, text: str) -> str:
    if not text:
        raise UsageError(f"{name} takes a value that is not empty")
    return text


def _number(name: str, text: str) -> int:
    number = decimal(text, 1 << 62)
    if not number:
        raise UsageError(f"{name} takes a whole number of at least 1, not {text!r:.80}")
    return number


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise UsageError(f"{name} takes a number of seconds above 0, not {text!r}")
    return seconds


def _reader(name: str, text: str) -> int | str | None:
    if text in READERS:
        return READERS[text]
    rank = decimal(text)
    if rank is None:
        raise UsageError(f"{name} takes a rank, all, none or push, not {text!r}")
    return rank


def _rank(name: str, text: str) -> int:
    rank = decimal(text, 1 << 31)
    if rank is None:
        raise UsageError(f"{name} takes a rank, not {text!r:.80}")
    return rank


def _one_of(choices: Sequence[str]) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in choices:
            raise UsageError(f"{name} takes {', '.join(choices[:-1])} or {choices[-1]}, not {text!r}")
        return text

    return read


def _modules(name: str, text: str) -> tuple[str, ...]:
    found = tuple(text.split(",")) if text else ()
    for module in found:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"{name} takes names of modules such as numpy,scipy.linalg, not {module!r:.80}")
    return found


def _faults(name: str, text: str) -> tuple[Fault, ...]:
    from pypmix.host.trying import Fault

    try:
        return tuple([Fault.read(name.lstrip("-"), each) for each in text.split(",")])
    except ValueError:
        example = {"--kill": "3@2s", "--stop": "1@1s:0.5s", "--lose": "node1@3s"}[name]
        raise UsageError(f"{name} takes faults such as {example}, not {text!r:.80}") from None


def _hosts(name: str, text: str) -> tuple[Host, ...]:
    from pypmix.host.rosters.names import read_hosts

    try:
        return tuple(read_hosts(text))
    except ValueError as error:
        raise UsageError(f"{name} takes nodes such as n1,n2:4: {error}") from None


def _hostfile(_name: str, path: str) -> tuple[Host, ...]:
    from pypmix.host.rosters.names import read_hostfile

    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            found = tuple(read_hostfile(file, path))
    except OSError as error:
        raise UsageError(f"the hostfile {path!r:.200} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not found:
        raise UsageError(f"the hostfile {path!r:.200} names no node")
    return found


def _place(name: str, text: str) -> tuple[int, int]:
    number, slash, size = text.partition("/")
    place, count = decimal(number, 1 << 20), decimal(size, 1 << 20)
    if place is None or not slash or not count or place >= count:
        raise UsageError(f"{name} takes a place and a number of processes such as 0/2, not {text!r:.80}")
    return place, count


def _mapping(name: str, text: str) -> Mapping:
    try:
        return Mapping.read(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _binding(name: str, text: str) -> Binding:
    try:
        return Binding().read(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _cpus(name: str, text: str) -> str:
    try:
        if parse_list(text) > 0:
            return text
    except ValueError:
        pass
    raise UsageError(f"{name} takes numbers of CPUs such as 0-3,8, not {text!r:.80}")


def _rankfile(_name: str, path: str) -> tuple[Line, ...]:
    from pypmix.host.rankfile import read_rankfile

    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return read_rankfile(file, path)
    except OSError as error:
        raise UsageError(f"the rankfile {path!r:.200} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def _display(name: str, text: str) -> tuple[str, ...]:
    found = tuple(text.lower().split(","))
    if any(each not in DISPLAYS for each in found):
        raise UsageError(f"{name} takes {' and '.join(DISPLAYS)}, not {text!r:.80}")
    return found


def _reader_of_one_value(read: Callable[[str, str], object]) -> Callable[[str, str], object]:
    """Return a reader that refuses a value which differs from its first one."""
    first: list[tuple[str, object]] = []

    def read_again(name: str, text: str) -> object:
        first.append((text, read(name, text)))
        if first[-1][1] != first[0][1]:
            raise UsageError(
                f"{name} has two values, {first[0][0]!r:.80} and {text!r:.80}, perhaps by another option: keep one"
            )
        return first[0][1]

    return read_again


class Option(Record):
    """An option of `pypmix run`.

    Attributes:
        field: Its name in the result.
        names: Its names on the command line.
        metavar: The placeholder for its value; empty for a flag.
        help: Its help.
        read: Makes a value from the option's name and the given text.
        per_app: Whether each application has a separate value.
    """

    field: str
    names: tuple[str, ...]
    metavar: str
    help: str
    read: Callable[[str, str], object] = _text
    per_app: bool = False


OPTIONS = (
    Option(
        "np",
        ("-n", "--n", "--np", "-np"),
        "N",
        "Number of ranks of the application. If not given, an application that is alone has one for each slot of a "
        "cluster's nodes, or as many on each as --map-by ppr says; otherwise 1.",
        _number,
        True,
    ),
    Option(
        "env",
        ("-x",),
        "NAME[=VALUE]",
        "Set an environment variable for the ranks of the application, or pass on one of an outer job. Repeatable.",
        per_app=True,
    ),
    Option("wdir", ("--wdir",), "DIR", "Working directory of the application's ranks.", per_app=True),
    Option(
        "pset",
        ("--pset",),
        "NAME",
        "The process set that the ranks belong to; applications that name the same one share it.",
        per_app=True,
    ),
    Option(
        "preload",
        ("--preload",),
        "FILE",
        "Carry a file to each node of the job, into a folder that PYPMIX_PRELOAD names and that goes with the job. "
        "Words of the application that are FILE become the path of the copy. Repeatable.",
        per_app=True,
    ),
    Option("tagged", ("--tag-output",), "", "Start each line of output with its rank, node and stream."),
    Option("stamped", ("--timestamp-output",), "", "Start each line of output with the time."),
    Option("merged", ("--merge-stderr",), "", "Send stderr to where stdout goes."),
    Option(
        "directory",
        ("--output-directory",),
        "DIR",
        "Write output to files DIR/JOB/rank.RANK/stdout and stderr as well; the first job is 1.",
    ),
    Option(
        "stdin",
        ("--stdin",),
        "RANK|all|none|push",
        "The rank that reads standard input, 0 if not given; with 'push' all ranks read what tools send them.",
        _reader,
    ),
    Option(
        "forwarded",
        ("--forward",),
        "",
        "Let tools pull the output of a lone rank, and push to the ranks that read stdin.",
    ),
    Option(
        "keep_going",
        ("--keep-going",),
        "",
        "Let the other ranks go on when one fails; the exit code is still that of the first failure.",
    ),
    Option(
        "restarts",
        ("--restart",),
        "N",
        "Start a rank that fails again, up to N times for each rank, while the others go on.",
        _number,
    ),
    Option(
        "spares",
        ("--spares",),
        "N",
        "Place no rank on the last N nodes: with --restart, ranks of a lost node are started again there.",
        _number,
    ),
    Option(
        "timeout",
        ("--timeout",),
        "SECONDS",
        "End the job after this time and say what it waited for.",
        _seconds,
    ),
    Option(
        "grace",
        ("--grace",),
        "SECONDS",
        "The time that ranks have between SIGTERM and SIGKILL, on all nodes; 5 s if not given. A resource manager that "
        "sends SIGTERM to all processes itself, as Slurm does, kills them in its own time.",
        _seconds,
    ),
    Option(
        "engine",
        ("--engine",),
        "|".join(ENGINES),
        "Engine of the clients of all jobs (PYPMIX_ENGINE).",
        _one_of(ENGINES),
    ),
    Option(
        "kill",
        ("--kill",),
        "RANK@SECONDS,...",
        "Try faults: kill a rank so long after the start, such as 3@2s.",
        _faults,
    ),
    Option(
        "stop",
        ("--stop",),
        "RANK@SECONDS[:SECONDS],...",
        "Stop a rank, and let it go on after the second time if there is one, such as 1@1s:0.5s.",
        _faults,
    ),
    Option(
        "lose",
        ("--lose",),
        "NODE@SECONDS,...",
        "Lose a node such as node1@3s: all ranks of one that is simulated are killed, and a real one's daemon too.",
        _faults,
    ),
    Option(
        "debugged",
        ("--debug",),
        "RANK",
        "Open a debugger on this rank in this terminal: pdb for a Python program, gdb for others. Ranks that are PMIx "
        "programs wait in PMIx_Init until this one arrives there.",
        _rank,
    ),
    Option(
        "debugger",
        ("--debugger",),
        "COMMAND",
        "The command of the debugger of --debug, before the program's words, such as 'gdb --args'.",
    ),
    Option(
        "warm",
        ("--warm",),
        "[=MODULE,...]",
        "Fork ranks that run Python from a process that has imported pypmix, and the modules that are named, once.",
        _modules,
    ),
    Option(
        "nodes",
        ("--nodes",),
        "N",
        "Simulate N nodes, node0 and so on, on this machine: for development and tests. Each has a server of its own "
        "for its block of the ranks. Real nodes are named by --host, --hostfile or --roster.",
        _number,
    ),
    Option(
        "hosts",
        ("--host", "-H"),
        "NAME[:SLOTS],...",
        "Run the job on these nodes, each with so many slots, 1 if not given: daemons are started there by ssh, on "
        "this machine without it. 'n[1-3]:2' means three nodes.",
        _hosts,
    ),
    Option(
        "hostfile",
        ("--hostfile",),
        "FILE",
        "Run the job on the nodes of this file, which has the format of Open MPI's and PRRTE's hostfiles.",
        _hostfile,
    ),
    Option(
        "roster",
        ("--roster",),
        "NAME",
        f"The nodes to run on: {', '.join(list_rosters())} (this machine), or module:Class. Found out from the command "
        "line and the environment if not given.",
    ),
    Option(
        "agent",
        ("--launch-agent",),
        "COMMAND",
        "The command that runs a command on a node, with {host} in the node's place, such as 'kubectl exec -i {host} "
        "--'; ssh if not given.",
    ),
    Option("python", ("--remote-python",), "PATH", "The Python of the nodes; this one's path if not given."),
    Option(
        "interface",
        ("--interface",),
        "NAME|CIDR",
        "The network interface by which nodes reach each other, or the network such as 10.0.0.0/8.",
    ),
    Option(
        "mapping",
        ("--map-by",),
        "OBJECT[:WORD]...",
        f"Place ranks by {FORMS}: 'slot' fills one node after the other, 'node' takes each in turn, a kind of hardware "
        f"takes the objects of each node in turn, 'ppr:N:' places N on each, and 'device=gpu' gives each rank a GPU. "
        f"Words are {WORDS}. If not given, each rank has a core, or if there are more ranks than cores, a slot.",
        _mapping,
    ),
    Option(
        "rank_by",
        ("--rank-by",),
        "|".join(RANKINGS),
        "Give consecutive ranks to the same node, to different nodes, to the same object, or to different objects; as "
        "they are mapped if not given.",
        _one_of(RANKINGS),
    ),
    Option(
        "binding",
        ("--bind-to",),
        "OBJECT[:overload-allowed]",
        f"Bind each rank to the CPUs of one {', '.join(LEVELS)}, or to {NONE}. If not given, to the object that it is "
        "mapped to, unless ranks outnumber the cores. With 'overload-allowed' several ranks may have the same core.",
        _binding,
    ),
    Option(
        "threads",
        ("--use-hwthread-cpus",),
        "",
        "Count hardware threads instead of cores: each rank has one, and pe=N and --cpus-per-rank mean so many.",
    ),
    Option("width", ("--cpus-per-rank",), "N", "Bind each rank to N cores, as --map-by slot:pe=N.", _number),
    Option(
        "cpus",
        ("--cpu-set",),
        "CPUS",
        "The CPUs of each node that ranks may use, such as 0-3,8, with the numbers that 'taskset' shows.",
        _cpus,
    ),
    Option(
        "rankfile",
        ("--rankfile", "--rf"),
        "FILE",
        "Place ranks as the lines of this file say, which has the format of Open MPI's: 'rank 0=n1 slot=0:0-3'.",
        _rankfile,
    ),
    Option(
        "report",
        ("--report-bindings",),
        "",
        "Print the CPUs that each rank is bound to, as --display bind.",
    ),
    Option(
        "display",
        ("--display",),
        "map|bind",
        "Print the nodes of the job with their ranks, or the CPUs that each rank is bound to.",
        _display,
    ),
    Option("crowded", ("--oversubscribe",), "", "Let nodes run more ranks than they have slots."),
    Option(
        "symmetric",
        ("--symmetric",),
        "PLACE/NUMBER",
        "This command was started on so many nodes, and here is the node with this place; 0 is the launcher.",
        _place,
    ),
    Option("meet", ("--meet",), "HOST:PORT", "Where the launcher listens for the others, with --symmetric."),
    Option(
        "secret_file",
        ("--secret-file",),
        "FILE",
        "The secret by which such processes know each other (PYPMIX_SECRET_FILE); only its owner may read it.",
    ),
    Option(
        "patience",
        ("--node-timeout",),
        "SECONDS",
        f"The time in which all nodes have to be there; {PATIENCE:g} s if not given.",
        _seconds,
    ),
    Option(
        "keep_alive",
        ("--keep-alive",),
        "SECONDS",
        f"The time after which a node that no longer answers is lost; {KEEP_ALIVE_SECONDS:g} s if not given.",
        _seconds,
    ),
    Option(
        "session",
        ("--session",),
        "NAME",
        "Run the job in this session, which 'pypmix session start' has started: at once, on its nodes.",
    ),
    Option("plain", ("--no-encryption",), "", "Do not encrypt what launcher and daemons say to each other."),
    Option(
        "cluster",
        ("--cluster",),
        "NAME",
        "The name of the cluster that this run is: its processes find it in their job info (PMIX_CLUSTER_ID).",
    ),
    Option(
        "join",
        ("--join",),
        "DIR",
        "Join the other runs that name this folder, each a cluster with a name of its own, so that their jobs can "
        "connect. It is made where it is not there, and holds the secret that lets them in.",
    ),
    Option(
        "join_address",
        ("--join-address",),
        "ADDRESS",
        "The address of this machine by which the runs on others reach it; 127.0.0.1 if not given.",
    ),
    Option(
        "nspace",
        ("--nspace",),
        "NAME",
        "The start of the namespaces of the jobs, before @ and their number; made up if not given.",
    ),
    Option(
        "server_engine",
        ("--server-engine",),
        "|".join(SERVER_ENGINES),
        "Engine of the server; python if not given.",
        _one_of(SERVER_ENGINES),
    ),
    Option(
        "library",
        ("--server-libpmix",),
        "PATH",
        "The libpmix of a native server (PYPMIX_LIBPMIX, or what is found, if not given).",
    ),
    Option(
        "limits",
        ("--limits",),
        "NAME=NUMBER,...",
        "How much of the server one peer may take, such as committed=64M,connections=100 (PYPMIX_LIMITS).",
    ),
    Option(
        "record",
        ("--record",),
        "FILE",
        "Write each question of the servers to their host, and its answer, to FILE as a line of JSON.",
    ),
    Option(
        "trace",
        ("--trace",),
        "FILE",
        "Write each request of each rank and each upcall of each server, with its times, to FILE: a timeline that "
        "Perfetto shows, and of which 'pypmix trace' prints a summary.",
    ),
)

NAMES = {name: option for option in OPTIONS for name in option.names}
"""The options by each of their names."""


class NodeSelection(Record):
    """The nodes that a command line requests, and how to reach them.

    Attributes:
        roster: The roster's name; empty for automatic choice.
        hosts: The nodes of `--host` and `--hostfile`.
        others: The nodes of the hostfile that `--host` has not chosen.
        agent: The command that runs a command on a node; empty for the roster's own.
        python: The Python there; empty for the path of this one.
        interface: The network that nodes reach each other by.
        mapping: The rules by which ranks are placed.
        symmetric: The place of this process among the processes that were started alike, and their number.
        meet: The meeting place of these processes.
        secret_file: The file with their secret.
        patience: Seconds in which all nodes have to join.
        keep_alive: Seconds after which a node that no longer answers is lost.
        plain: Whether messages between nodes are not encrypted.
    """

    roster: str = ""
    hosts: tuple[Host, ...] = ()
    agent: str = ""
    python: str = ""
    interface: str = ""
    mapping: Mapping = Mapping()
    symmetric: tuple[int, int] | None = None
    meet: str = ""
    secret_file: str = ""
    patience: float = PATIENCE
    keep_alive: float = KEEP_ALIVE_SECONDS
    plain: bool = False
    others: tuple[Host, ...] = ()


class Request(Record):
    """A parsed command line of `pypmix run`.

    Attributes:
        engine: The engine of the clients of all jobs of the run, spawned ones too; empty for the clients' own choice.
        fill: Whether no number of ranks was given for the only application.
        session: The session to run in; empty for a launcher of its own.
        remarks: Lines for a person about options without an effect.
    """

    apps: tuple[Application, ...] = ()
    terms: Terms = Terms()
    timeout: float | None = None
    grace: float = GRACE
    nodes: int = 1
    engine: str = ""
    server_engine: str = "python"
    library: str | None = None
    record: str | None = None
    trace: str | None = None
    cluster: str = ""
    join: str = ""
    address: str = "127.0.0.1"
    nspace: str = ""
    limits: Limits = DEFAULTS
    selection: NodeSelection = NodeSelection()
    warm: tuple[str, ...] | None = None
    faults: tuple[Fault, ...] = ()
    fill: bool = False
    session: str = ""
    remarks: tuple[str, ...] = ()


OF_SESSIONS = frozenset(
    (
        "grace", "warm", "nodes", "roster", "agent", "python", "interface", "symmetric", "meet", "secret_file",
        "keep_alive", "plain", "cluster", "join", "join_address", "nspace", "server_engine", "library", "limits",
        "record", "trace",
    )
)  # fmt: skip
"""The options of `pypmix session start` that the jobs in a session do not have."""

OF_BOTH = frozenset(
    (
        "hosts", "hostfile", "patience", "engine", "mapping", "rank_by", "binding", "threads", "width", "cpus",
        "crowded",
    )
)  # fmt: skip
"""The options of sessions that each job may set as well."""


HELP = """Run a job on this machine or on several: ranks, their PMIx servers, and the clean-up after them.

pypmix run -n 4 python hello.py

pypmix run -n 1 ./leader : -n 8 -x DEPTH=3 ./worker --fast

pypmix run --host n1,n2:4 -n 5 ./app

Options end at the program's name; what follows belongs to the program, up to a ':' that starts the next
application. Standard input goes to rank 0. Output is passed on by whole lines, except that a lone rank writes
to this command's own output.

The exit code is that of the first rank that fails, 128 + n where signal n ended it or the job, 124 where the
time ran out, 126 or 127 where a program cannot be executed or found."""


def _print_help() -> None:
    from argparse import REMAINDER, SUPPRESS

    from pypmix.cli.parser import Parser, add_help

    usage = "pypmix run [OPTION]... PROGRAM [ARGUMENT]... [: ...]"
    parser = Parser("pypmix run", description=HELP, usage=usage)
    groups = [parser.add_argument_group(f"options of {whose}") for whose in ("the job", "an application")]
    groups[0].add_argument("program", nargs=REMAINDER, help=SUPPRESS)
    for option in OPTIONS:
        terms: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {"action": "store_true"}
        groups[option.per_app].add_argument(*option.names, help=option.help, **terms)
    add_help(groups[0])
    parser.print_help()


def parse(words: Sequence[str], env: Variables[str, str]) -> Request:
    """Parse the words that follow `pypmix run`.

    Args:
        words: The command line.
        env: The environment that `-x NAME` takes its values from.

    Raises:
        UsageError: It cannot be carried out.
    """
    apps: list[Application] = []
    job: dict[str, Any] = {}
    counted = True
    remarks: list[str] = []
    segments = _translated_segments(words)
    once: dict[str, Callable[[str, str], object]] = {}
    for segment in segments:
        given, program = _options(segment, once)
        counted = counted and "np" in given
        if not program:
            raise UsageError("no program to run was given" + (" after ':'" if apps else ""))
        wdir = given.pop("wdir", "")
        apps.append(
            Application(
                tuple(program),
                given.pop("np", 1),
                tuple([pair for setting in given.pop("env", ()) for pair in _setting(setting, env, remarks)]),
                os.path.abspath(wdir) if wdir else "",
                pset=given.pop("pset", ""),
                preload=tuple([(word, os.path.abspath(word)) for word in given.pop("preload", ())]),
            )
        )
        job.update(given)
    if any(app.preload for app in apps):
        _check_preload(apps)
    session = _take_session(job)
    engine = job.pop("engine", "")
    server_engine, library = job.pop("server_engine", "python"), job.pop("library", None)
    limits = job.pop("limits", "")
    where = _take_selection(job)
    fill = len(apps) == 1 and not counted
    if (where.mapping.each or where.mapping.lines) and not counted and not fill:
        raise UsageError("--map-by ppr and --rankfile say where ranks go, not how many each application has: add -n")
    cluster, join, address = [job.pop(field, "") for field in ("cluster", "join", "join_address")]
    if join and not cluster:
        raise UsageError("runs that are joined are clusters, and each has a name of its own: add --cluster NAME")
    if address and not join:
        raise UsageError("--join-address is for runs that are joined: add --join DIR")
    if library is not None and server_engine != "native":
        raise UsageError("--server-libpmix is for a server of the native engine: add --server-engine native")
    if job.get("directory"):
        job["directory"] = os.path.abspath(job["directory"])
    shown = job.pop("display", ())
    job["maps"], job["bindings"] = "map" in shown, job.pop("report", False) or "bind" in shown
    reader = job.pop("stdin", 0)
    size = sum([app.np for app in apps])
    if isinstance(reader, int) and reader >= size and not fill and reader != RANK_WILDCARD:
        raise UsageError(f"--stdin takes one of the ranks 0 to {size - 1}, not {reader}")
    if debugger := _take_debugger(job, apps, fill):
        job |= debugger
        reader = int(debugger["debugger"][0])
    if reader == PUSH:
        job["pushed"], reader = True, RANK_WILDCARD
    try:
        allowed = Limits.read(limits) if limits else Limits.of(env)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Request(
        tuple(apps),
        timeout=job.pop("timeout", None),
        grace=job.pop("grace", GRACE),
        nodes=job.pop("nodes", 1),
        engine=engine,
        server_engine=server_engine,
        library=None if library is None else os.path.abspath(library),
        record=job.pop("record", None),
        trace=job.pop("trace", None),
        cluster=cluster,
        join=os.path.abspath(join) if join else "",
        address=address or "127.0.0.1",
        nspace=job.pop("nspace", ""),
        limits=allowed,
        selection=where,
        fill=fill,
        session=session,
        remarks=tuple(remarks),
        warm=job.pop("warm", None),
        faults=tuple([fault for name in ("kill", "stop", "lose") for fault in job.pop(name, ())]),
        # The rest are terms of the same names.
        terms=Terms(stdin=reader, **job),
    )


def _take_session(job: dict[str, Any]) -> str:
    """Remove the session from the options of the job, which lose the defaults of a launcher, and return its name."""
    session: str = job.pop("session", "")
    if not session:
        return ""
    if theirs := OF_SESSIONS.intersection(job):
        raise UsageError(f"{_name(min(theirs))} is an option of `pypmix session start`, and not of a job in a session")
    if "debugged" in job:
        raise UsageError("--debug opens a debugger in the launcher's terminal, and a session has none: `pypmix attach`")
    # Slots are waited for without a limit if none is given.
    job.setdefault("patience", 0.0)
    return session


def _take_debugger(job: dict[str, Any], apps: Sequence[Application], fill: bool) -> dict[str, Any]:
    """Remove the options about a debugger from the options of the job, and return the terms that they become."""
    rank, command = job.pop("debugged", None), job.pop("debugger", "")
    if rank is None:
        if command:
            raise UsageError("--debugger is the command of a debugger: add --debug RANK")
        return {}
    from pypmix.cli.debugging import debug_terms

    return debug_terms(rank, command, apps, fill)


def parse_session(words: Sequence[str], env: Variables[str, str]) -> Request:
    """Parse the options of `pypmix session start`.

    Raises:
        UsageError: They cannot be carried out.
    """
    translated = _translated(list(words), [])
    given, program = _options(translated, {})
    if program:
        raise UsageError(f"a session has one name, and its jobs have the programs: {program[0]:.80}")
    if theirs := given.keys() - OF_SESSIONS - OF_BOTH:
        raise UsageError(f"{_name(min(theirs))} is an option of jobs: give it to `pypmix run --session NAME`")
    return parse([*words, "true"], env)


def _name(field: str) -> str:
    """Return the name of an option, by its field."""
    return next(option.names[0] for option in OPTIONS if option.field == field)


def _check_preload(apps: Sequence[Application]) -> None:
    from pypmix.host.preload import resolved

    try:
        resolved(apps, {}, "")
    except OSError as error:
        raise UsageError(f"--preload takes a file that can be read: {error.strerror}: {error.filename}") from None
    except ValueError as error:
        raise UsageError(f"--preload: {error}") from None


def _take_selection(job: dict[str, Any]) -> NodeSelection:
    """Remove the options about nodes from the options of the job, and return them."""
    mapping = _placement(job)
    hosts = job.pop("hosts", ())
    hostfile = job.pop("hostfile", ())
    others: tuple[Host, ...] = ()
    if hosts and hostfile:
        # Like mpirun: --host chooses from the hostfile.
        by_name = {host.name: host for host in hostfile}
        others = tuple([host for host in hostfile if host.name not in [each.name for each in hosts]])
        missing = [host.name for host in hosts if host.name not in by_name]
        if missing:
            raise UsageError(f"--host names {', '.join(missing):.200}, which the hostfile does not have")
        hosts = tuple([host.replace(most=by_name[host.name].most) for host in hosts])
    fields = (
        "roster",
        "agent",
        "python",
        "interface",
        "symmetric",
        "meet",
        "secret_file",
        "patience",
        "keep_alive",
        "plain",
    )
    given = {field: job.pop(field) for field in fields if field in job}
    if "symmetric" in given and "meet" not in given:
        raise UsageError("--symmetric needs a place to meet: --symmetric 0/2 --meet n1:7777")
    if job.get("nodes", 1) > 1 and (hosts or hostfile or given):
        raise UsageError("--nodes simulates nodes on this machine: leave it out to run on others")
    return NodeSelection(hosts=hosts or hostfile, others=others, mapping=mapping, **given)


def _placement(job: dict[str, Any]) -> Mapping:
    """Remove the options about the places of ranks from the options of the job, and return them as one mapping."""
    mapping: Mapping = job.pop("mapping", Mapping())
    lines = job.pop("rankfile", ())
    given: Binding = job.pop("binding", Binding())
    width = job.pop("width", mapping.binding.width)
    if lines and (mapping.by or mapping.each or given.level or width > 1):
        raise UsageError("--rankfile gives each rank its cores: leave out --map-by, --bind-to and --cpus-per-rank")
    binding = mapping.binding.replace(level=given.level, overload=given.overload, width=width, cpus=job.pop("cpus", ""))
    if job.pop("threads", False):
        binding = binding.replace(threads=True)
    if binding.width > 1 and binding.level == NONE:
        raise UsageError("a rank that has several cores is bound to them: leave out --bind-to none")
    mapping = mapping.replace(
        rank_by=job.pop("rank_by", ""), crowded=job.pop("crowded", False) or mapping.crowded, binding=binding
    )
    return mapping.replace(by=RANKFILE, lines=lines) if lines else mapping


def _segments(words: Sequence[str]) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            segments.append([])
        else:
            segments[-1].append(word)
    return segments


def _options(words: list[str], once: dict[str, Callable[[str, str], object]]) -> tuple[dict[str, Any], list[str]]:
    """Return the options at the start of an application's words, and the words of its program.

    Not by argparse: it takes longer to import than such a job takes to start.

    Args:
        words: The words.
        once: The readers of options that may have one value only, of all applications.
    """
    given: dict[str, Any] = {}
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--":
            break
        if word == "-" or not word.startswith("-"):
            place -= 1
            break
        if word in HELPS:
            _print_help()
            raise SystemExit(0)
        name, text = word, None
        if word not in NAMES:
            name, _, text = word.partition("=")
            if name not in NAMES and word[:2] in NAMES:
                # A short option with its value in the same word.
                name, text = word[:2], word[2:]
            elif name not in NAMES:
                raise unknown_option(word, NAMES)
        option = NAMES[name]
        if not option.metavar:
            if text is not None:
                raise UsageError(f"{option.names[0]} takes no value")
            given[option.field] = True
            continue
        if text is None and option.field == "warm":
            text = ""
        elif text is None:
            if place == len(words) or not _is_value(words[place]):
                raise UsageError(f"{option.names[0]} needs a value: {option.names[0]} {option.metavar}")
            text = words[place]
            place += 1
        if option.field in REPEATED:
            given.setdefault(option.field, []).append(text)
            continue
        read = option.read
        if option.field in ONCE:
            read = once.setdefault(option.field, _reader_of_one_value(read))
        given[option.field] = read(name, text)
    return given, words[place:]


def _is_value(word: str) -> bool:
    """Return True if the word after an option may be its value, and is not an option."""
    if not word.startswith("-") or word in ("-", "--"):
        return True
    if word.partition("=")[0] in NAMES or word in HELPS:
        return False
    return " " in word or word[1:].replace(".", "", 1).isdecimal()


def _translated_segments(words: Sequence[str]) -> list[list[str]]:
    """Return the words of each application, with options of other launchers replaced by options of `pypmix run`."""
    common: list[str] = []
    segments = [_translated(segment, common) for segment in _segments(words)]
    return [[*common, *segment] for segment in segments]


def _translated(words: list[str], common: list[str]) -> list[str]:
    """Return the words of an application, with options of other launchers replaced by options of `pypmix run`.

    Args:
        words: The words.
        common: Gets the words of options that apply to all applications.
    """
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-", "--"):
        option = find_option(words[place])
        if option is not None:
            word, equals, value = words[place].partition("=")
            if word not in option.names:
                words[place] = f"-{word}{equals}{value}"
            place += 2 if option.metavar and not equals and option.field != "warm" else 1
        elif words[place] in HELPS:
            place += 1
        else:
            from pypmix.cli.equivalents import translate

            found = translate(words[place:])
            if not found.used:
                place += 1
                continue
            ours = () if found.common else found.words
            common += found.words if found.common else ()
            words = [*words[:place], *ours, *words[place + found.used :]]
            place += len(ours)
    return words


def find_option(word: str) -> Option | None:
    """Return the option that a word names, by one dash too, as other launchers accept; None if it names none."""
    name = word.partition("=")[0]
    return NAMES.get(name) or (NAMES.get(f"-{name}") if len(name) > 2 else None)


def _setting(text: str, env: Variables[str, str], remarks: list[str]) -> list[tuple[str, str]]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"-x takes NAME=VALUE or NAME, not {text!r}")
    if equals:
        return [(name, value)]
    if name not in env:
        several = "; -x takes one variable, and is repeated for others" if "," in name else ""
        remarks.append(f"-x {text} has no effect: {name} is not set here{several}")
        return []
    return [(name, env[name])]
