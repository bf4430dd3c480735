"""The commands other than `pypmix run`: their options, and their functions, each imported when it is called.

Theory of operation. `app` carries out a command line. `_parsers` makes one parser for each command: an `_add_...`
function declares the options of the commands of a topic, and names the function that carries a command out. Such a
function is `_NAME` at the end of this module; it imports the command's own module, so that a command loads nothing of
the others. Commands that attach to a server get the options of `reach.py` in addition (`add_tool`).

A new command is thus an `_add_...` entry, a function `_NAME`, and a module; a new option is a line in the `_add_...`
function and an argument in `_NAME`. `pypmix run` and `pypmix session` have their options in `options.py`. Help,
completion and the page of options in `docs/` read these declarations.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from argparse import ArgumentError, ArgumentTypeError, Namespace

from pypmix._version import __version__
from pypmix.cli.parser import Parser, add_help
from pypmix.cli.reach import Reach, add_reach
from pypmix.cli.streams import prepare
from pypmix.cli.usage import USAGE, UsageError, did_you_mean, unknown_option
from pypmix.engine.select import ENGINES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import TextIO

    Carry = Callable[[Namespace], int | None]
    Option = Callable[..., object]
    Adder = Callable[[Carry, str], Option]

JSON = "Print JSON instead of text."
UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors that mean that standard output cannot be written."""

ROOT_OPTIONS = ("--version", "-h", "--help")
"""The options of `pypmix` without a command."""

LAUNCHING = ("conform",)
"""The commands that take the command line of a launcher after `--`."""

WRITING = ("conform", "bench")
"""The commands whose `--json` formerly named a file."""


def app(words: Sequence[str]) -> int:
    """Carry out a command line and return its exit code."""
    command = "pypmix"
    prepare()
    parser, commands = _parsers()
    try:
        if words and words[0] in commands:
            # Parsed by its own parser, so that an error names the command.
            command = f"pypmix {words[0]}"
            mine, behind = _behind(words)
            json_file = None
            if words[0] in WRITING:
                mine, json_file = _take_json_file(words[0], mine)
            arguments = _parsed(commands[words[0]], mine)
            arguments.json_file = json_file
            arguments.behind = behind
            carry: Carry = arguments.carry
            code = carry(arguments) or 0
            sys.stdout.flush()
            return code
        if words and words[0] not in ROOT_OPTIONS:
            raise _no_command(words, commands)
        if words:
            parser.parse_args(words)
        parser.print_help()
        return USAGE
    except (UsageError, ArgumentError) as error:
        print(f"{command}: {error}\nTry '{command} --help'.", file=sys.stderr)
        return USAGE
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        # Buffered output would be written again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno == errno.EPIPE:
            # The reader has stopped reading, as `head` does.
            return 128 + signal.SIGPIPE
        print(f"{command}: its output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def _parsed(parser: Parser, words: Sequence[str]) -> Namespace:
    arguments, unknown = parser.parse_known_intermixed_args(words)
    if not unknown:
        return arguments
    if unknown[0].startswith("-"):
        raise unknown_option(unknown[0], [name for action in parser.actions for name in action.option_strings])
    raise UsageError(f"unrecognized arguments: {' '.join(unknown):.200}")


def _no_command(words: Sequence[str], commands: Iterable[str]) -> UsageError:
    """Return the error of a command line that does not begin with a command."""
    from pypmix.cli.equivalents import has_equivalent
    from pypmix.cli.options import find_option

    word, known = words[0], ["run", "session", *commands]
    name = word.partition("=")[0]
    if name.startswith("-") and (find_option(name) or find_option(name[:2]) or has_equivalent(word)):
        return UsageError(f"{name} is an option of `pypmix run`: did you mean `pypmix run {' '.join(words):.200}`?")
    if word.startswith("-"):
        return unknown_option(word, ROOT_OPTIONS)
    if hint := did_you_mean(word, known):
        return UsageError(f"there is no command {word:.80}{hint}")
    if shutil.which(word):
        return UsageError(f"{word:.80} is not a command of pypmix: did you mean `pypmix run {' '.join(words):.200}`?")
    return UsageError(f"there is no command {word:.80}: the commands are {', '.join(known)}")


def _behind(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words of a command after its name, and the words after `--`."""
    if words[0] not in LAUNCHING or "--" not in words:
        return words[1:], ()
    at = list(words).index("--")
    return words[1:at], words[at + 1 :]


def _parsers() -> tuple[Parser, dict[str, Parser]]:
    """Return the root parser, for its help, and the parsers of the commands by name."""
    root = Parser(
        "pypmix",
        description="Pythonic PMIx: run jobs, and see what this machine offers them.",
        usage="pypmix [OPTION] COMMAND [ARGUMENT]...",
    )
    root.add_argument("--version", action="version", version=f"pypmix {__version__}", help="Print the version.")
    add_help(root)
    listed = root.add_subparsers(title="commands", metavar="COMMAND")
    commands: dict[str, Parser] = {}

    def add(carry: Carry, help: str, more: str = "", usage: str | None = None) -> Option:
        name = carry.__name__.strip("_")
        parser = listed.add_parser(name, prog=f"pypmix {name}", help=help, description=help + more, usage=usage)
        parser.set_defaults(carry=carry)
        commands[name] = parser
        add_help(parser)
        return parser.add_argument

    def add_tool(carry: Carry, help: str) -> Option:
        option = add(carry, help)
        add_reach(commands[carry.__name__.strip("_")])
        return option

    listed.add_parser("run", prog="pypmix run", help="Run a job on this machine or on several, with PMIx servers.")
    listed.add_parser("session", prog="pypmix session", help="Keep nodes for many jobs, which start at once.")
    option = add(
        _doctor,
        "Say which engines and libraries can be used here, which one a client takes and why, and what to change.",
        "\n\nWith the options by which `pypmix run` chooses nodes, and in a Slurm job, it looks at the nodes too: what "
        "would keep a job from running there, and what to change."
        "\n\nThe exit code is 0 where a client would find a usable engine and the nodes would run a job, 1 otherwise.",
    )
    option("--json", action="store_true", help=JSON)
    _add_nodes(option)
    option("--pairs", action="store_true", help="Try the connection of each pair of nodes, not only what a job needs.")
    option = add(
        _compat,
        "Run a program that was written for the official binding (`import pmix`) on pypmix.",
        "\n\n`pypmix run -n 4 python -m pypmix.compat script.py` does the same for the ranks of a job.",
        "pypmix compat (SCRIPT | -m MODULE) [ARGUMENT]...\n"
        "       pypmix compat (--check SCRIPT... | --install | --uninstall)",
    )
    option("scripts", metavar="SCRIPT", nargs="*", help="The program, or with -m its module.")
    option("--check", action="store_true", help="Only say which calls of the scripts behave differently.")
    option("--install", action="store_true", help="Make `import pmix` work for all of this environment.")
    option("--uninstall", action="store_true", help="Take --install back.")
    _add_local(add)
    for adds in (_add_looking, _add_debugging, _add_changing, _add_publishing):
        adds(add_tool)
    return root, commands


def _add_local(add: Callable[..., Option]) -> None:
    """Add the commands that attach to no server."""
    for adds in (_add_trace, _add_completion, _add_conform, _add_bench):
        adds(add)


def _add_trace(add: Callable[[Carry, str], Option]) -> None:
    option = add(_trace, "Print the summary of a trace that `pypmix run --trace` has written.")
    option("file", metavar="FILE", help="The trace.")
    option("--html", metavar="FILE", default="", help="Write a page that shows the trace, and needs no network.")
    option("--otlp", metavar="URL", default="", help="Send the trace to an OpenTelemetry collector, as spans.")
    option("--all", action="store_true", help="Print all rows of the tables.")
    option("--json", action="store_true", help=JSON)


def _add_completion(add: Callable[[Carry, str], Option]) -> None:
    option = add(_completion, 'Print what completes the commands in a shell: `eval "$(pypmix completion bash)"`.')
    option("shell", metavar="bash|zsh|fish", help="The shell.")


def _add_conform(add: Callable[..., Option]) -> None:
    option = add(
        _conform,
        "Try which promises of PMIx a server keeps, with ranks that its launcher starts.",
        "\n\nThe exit code is 0 where none is broken, 1 where one is.",
        "pypmix conform [OPTION]... -- LAUNCHER [ARGUMENT]...",
    )
    option("--engine", choices=ENGINES, default="", help="The engine of the ranks; their own choice if not given.")
    option("--only", metavar="PATTERN", action="append", default=[], help="Only these promises. Repeatable.")
    option("--list", action="store_true", help="Only print the promises.")
    option(
        "--timeout", metavar="SECONDS", type=_interval, default=60.0, help="How long each may take; 60 s by default."
    )
    option("--json", action="store_true", help=JSON)
    option("--markdown", metavar="FILE", type=_file, help="Write the table as Markdown, too.")


def _add_bench(add: Callable[..., Option]) -> None:
    option = add(
        _bench,
        "Time the engines and launchers of this machine beside each other.",
        "\n\nThe exit code is 0 where all could be timed, 1 otherwise.",
    )
    option(
        "-n", metavar="N,...", dest="ranks", type=_counts, default=[2, 4], help="Numbers of ranks; 2,4 if not given."
    )
    option(
        "--engine",
        metavar="|".join(ENGINES),
        action="append",
        type=_engines,
        default=[],
        help="Time this engine; all usable ones if not given. Repeatable.",
    )
    option(
        "--launcher",
        metavar="COMMAND",
        action="append",
        default=[],
        help="A further launcher, such as 'prterun -n {n}'. Repeatable.",
    )
    option("--rounds", metavar="N", type=_count, default=5, help="How often each is run; 5 if not given.")
    option("--repeats", metavar="N", type=_count, default=50, help="How often a run repeats each operation; 50.")
    option("--json", action="store_true", help=JSON)
    option("--svg", metavar="FILE", type=_file, help="Write a chart, too.")


NODES = (
    (("--host", "-H"), "NAME,...", "Look at these nodes, too."),
    (("--hostfile",), "FILE", "Look at the nodes of this file, which has the format of Open MPI's and PRRTE's."),
    (("--roster",), "NAME", "Look at the nodes of this roster."),
    (("--launch-agent",), "COMMAND", "The command that runs a command on a node; ssh if not given."),
    (("--remote-python",), "PATH", "The Python of the nodes; this one's path if not given."),
    (("--interface",), "NAME|CIDR", "The network by which nodes reach each other."),
    (("--node-timeout",), "SECONDS", "The time in which nodes have to answer; 30 s if not given."),
)
"""The options of `pypmix doctor` that `pypmix run` has too."""


def _add_nodes(option: Option) -> None:
    for names, metavar, help in NODES:
        option(*names, metavar=metavar, help=help, dest=names[0], default="")


def _add_looking(add_tool: Adder) -> None:
    option = add_tool(_ps, "Show the jobs of this user's servers on this node: their procs, pids and states.")
    option("--json", action="store_true", help=JSON)
    option = add_tool(
        _top,
        "Watch jobs: their procs, and for each pending operation the procs that it waits for, with pid and age.",
    )
    option("--once", action="store_true", help="Print it once, as for anything but a terminal.")
    option("--json", action="store_true", help="Print it once, as JSON.")
    option(
        "--interval",
        metavar="SECONDS",
        type=_interval,
        default=1.0,
        help="How often to look again, at least every 0.1 s; 1 if not given.",
    )
    option = add_tool(
        _query, "Ask a server for values by their attributes; the exit code is 1 where one of them has no answer."
    )
    option("keys", metavar="KEY", nargs="+", help="Attributes, such as QUERY_NAMESPACES.")
    option("--job", metavar="NSPACE", help="The job that is asked about.")
    option("--rank", metavar="RANK", type=int, help="The rank of that job.")
    option("--node", metavar="NAME", help="The node that is asked about.")
    option(
        "--qualifier", "-q", metavar="NAME=VALUE", action="append", default=[], help="A further qualifier. Repeatable."
    )
    option("--json", action="store_true", help=JSON)
    option = add_tool(_events, "Print the events that a server raises, until Ctrl-C or the end of the server.")
    option(
        "--code",
        metavar="PATTERN",
        action="append",
        default=[],
        help="Only these events: a name, a pattern such as 'GROUP_*', or a number. Repeatable.",
    )
    option("--count", metavar="N", type=_count, help="Stop after so many events, at least 1.")
    option("--timeout", metavar="SECONDS", type=float, help="Stop after this time.")
    option("--json", action="store_true", help="Print one JSON object per event and line.")


def _add_debugging(add_tool: Adder) -> None:
    option = add_tool(
        _stacks,
        "Print the Python stacks of all ranks of a running job, on all of its nodes; equal stacks are printed once. "
        "The exit code is 1 where no rank has any.",
    )
    option("job", metavar="JOB", nargs="?", help="The job, by its nspace or its number; the first if not given.")
    option("--timeout", metavar="SECONDS", type=float, default=60.0, help="How long to wait; 60 s if not given.")
    option = add_tool(
        _attach,
        "Attach a debugger to a rank of a running job: in this terminal, or on its node by the node's daemon.",
    )
    option("rank", metavar="RANK", type=int, help="The rank.")
    option("job", metavar="JOB", nargs="?", help="The job, by its nspace or its number; the first if not given.")
    option(
        "--debugger",
        metavar="COMMAND",
        default="",
        help="The debugger's command, before the pid; pdb if the rank's Python can attach it, and 'gdb -p' otherwise.",
    )


def _add_changing(add_tool: Adder) -> None:
    option = add_tool(_grow, "Add nodes to a job that runs on several: ranks can be spawned there from then on.")
    option("hosts", metavar="NODES", nargs="*", help="Their names with slots, such as n3:4,n4 or n3:4 n4.")
    option("--nodes", metavar="N", type=_count, default=0, help="So many nodes, of any name.")
    option("--cpus", metavar="N", type=_count, default=0, help="So many CPUs, on any nodes.")
    option("--timeout", metavar="SECONDS", type=float, help="How long to wait for them.")
    option = add_tool(_shrink, "Take nodes out of a job that runs on several; refused where ranks run on them.")
    option("hosts", metavar="NODES", nargs="*", help="Their names, such as n3,n4 or n3 n4.")
    option("--nodes", metavar="N", type=_count, default=0, help="So many nodes on which no rank runs.")
    option("--force", action="store_true", help="End the ranks that run on them.")
    option("--timeout", metavar="SECONDS", type=float, help="How long to wait until they have left.")


def _add_publishing(add_tool: Adder) -> None:
    option = add_tool(_lookup, "Look up published values; the exit code is 1 where one of them is missing.")
    option("keys", metavar="KEY", nargs="+", help="The keys to look up.")
    option(
        "--timeout",
        "--wait",
        dest="timeout",
        metavar="SECONDS",
        type=float,
        help="How long to wait until all are there; they are not waited for if not given.",
    )
    option("--json", action="store_true", help=JSON)
    option = add_tool(_publish, "Publish values, for any process of this user to look up.")
    option("items", metavar="KEY=TEXT", nargs="+", help="A key and its value; KEY:=JSON for numbers and the like.")
    option("--range", metavar="local|session|global", default="session", help="Who may look it up; session by default.")
    option(
        "--persist",
        metavar="session|first-read|indef",
        default="session",
        help="How long it stays; session by default.",
    )
    option("--timeout", metavar="SECONDS", type=float, help="How long to wait for the server.")
    option = add_tool(_unpublish, "Take back what `pypmix publish` of this user has published.")
    option("keys", metavar="KEY", nargs="*", help="The keys to take back; all if not given.")


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r:.80} is not a number of seconds") from None
    if not seconds >= 0.1:
        raise ArgumentTypeError(f"{text} is less than 0.1")
    if seconds >= 2**31:
        raise ArgumentTypeError(f"{text:.80} is not less than 2**31")
    return seconds


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r:.80} is not a number") from None
    if number < 1:
        raise ArgumentTypeError(f"{text} is less than 1")
    return number


def _counts(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise ArgumentTypeError(f"{text!r:.80} is not a list of numbers such as 2,4")
    return [_count(word) for word in words]


def _engines(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in ENGINES:
            raise ArgumentTypeError(f"an engine is {', '.join(ENGINES[:-1])} or {ENGINES[-1]}, not {name!r}")
    if len(names) > 1:
        _warn(f"bench: --engine {text}", f"repeat the option: {' '.join([f'--engine {name}' for name in names])}")
    return names


def _file(text: str) -> Path:
    """Return a path that can be written to, so that the result of long work is not lost."""
    from pathlib import Path

    path = Path(text)
    # Unlike the methods of a path these treat a folder that cannot be searched as a folder without the file.
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
        raise ArgumentTypeError(f"{text} cannot be written")
    return path


def _warn(old: str, new: str) -> None:
    print(f"pypmix {old} is deprecated: {new}", file=sys.stderr)


def _take_json_file(command: str, words: Sequence[str]) -> tuple[list[str], Path | None]:
    """Return the words of a command, and the file of `--json FILE`: an old form, which prints the text, too.

    Raises:
        UsageError: The file cannot be written.
    """
    found = list(words)
    for place, word in enumerate(found):
        name, equals, text = word.partition("=")
        if name != "--json":
            continue
        if not equals:
            text = found[place + 1] if place + 1 < len(found) else "-"
        if not text or text.startswith("-"):
            break
        try:
            path = _file(text)
        except ArgumentTypeError as error:
            raise UsageError(f"argument --json: {error}") from None
        del found[place : place + 2 - len(equals)]
        _warn(f"{command}: --json {text}", f"write --json > {text}")
        return found, path
    return found, None


def _to_stdout(arguments: Namespace) -> tuple[Path | TextIO | None, AbstractContextManager[object]]:
    """Return where a command writes JSON, and a context in which it prints its text, to stderr beside JSON."""
    from contextlib import nullcontext, redirect_stdout

    if arguments.json:
        return sys.stdout, redirect_stdout(sys.stderr)
    return arguments.json_file, nullcontext()


def _reach(arguments: Namespace) -> Reach:
    command = arguments.carry.__name__.strip("_")
    return Reach(
        command, arguments.pid, arguments.nspace, arguments.uri, arguments.file, arguments.system, arguments.patience
    )


def _doctor(arguments: Namespace) -> int:
    from pypmix.cli import doctor
    from pypmix.cli.diagnosis import diagnose

    diagnosis = diagnose(os.environ)
    words = [
        word for (name, *_), _, _ in NODES if getattr(arguments, name) for word in (name, getattr(arguments, name))
    ]
    try:
        nodes = doctor.look(words, os.environ, arguments.pairs)
    except UsageError as error:
        if not words and not arguments.json:
            # The environment is at fault, and other parts of it may be, too.
            sys.stdout.write(doctor.as_text(diagnosis, None, sys.stdout, str(error)))
        raise
    sys.stdout.write(
        doctor.as_json(diagnosis, nodes) if arguments.json else doctor.as_text(diagnosis, nodes, sys.stdout)
    )
    return 0 if diagnosis.usable and (nodes is None or nodes.usable) else 1


def _compat(arguments: Namespace) -> int:
    from pypmix.extras.commands.compat import compat

    return compat(arguments.scripts, arguments.install, arguments.uninstall, arguments.check)


def _conform(arguments: Namespace) -> int:
    from pypmix.extras.commands.conform import conform, listing

    if arguments.list:
        sys.stdout.write(listing())
        return 0
    as_json, printing = _to_stdout(arguments)
    with printing:
        return conform(
            arguments.behind,
            engine=arguments.engine,
            only=arguments.only,
            timeout=arguments.timeout,
            as_json=as_json,
            as_markdown=arguments.markdown,
        )


def _bench(arguments: Namespace) -> int:
    from pypmix.extras.commands.bench import bench

    as_json, printing = _to_stdout(arguments)
    with printing:
        return bench(
            arguments.ranks,
            list(dict.fromkeys([name for names in arguments.engine for name in names])),
            arguments.launcher,
            rounds=arguments.rounds,
            repeats=arguments.repeats,
            as_json=as_json,
            as_svg=arguments.svg,
        )


def _completion(arguments: Namespace) -> int:
    from pypmix.cli.completion import completion

    _, commands = _parsers()
    sys.stdout.write(completion(arguments.shell, commands))
    return 0


def _ps(arguments: Namespace) -> int:
    from pypmix.cli.ps import ps

    return ps(_reach(arguments), arguments.json)


def _top(arguments: Namespace) -> None:
    from pypmix.cli.top import top

    top(_reach(arguments), arguments.once, arguments.json, arguments.interval)


def _query(arguments: Namespace) -> None:
    from pypmix.cli.query import query

    query(
        _reach(arguments),
        arguments.keys,
        arguments.job,
        arguments.rank,
        arguments.node,
        arguments.qualifier,
        arguments.json,
    )


def _events(arguments: Namespace) -> None:
    from pypmix.cli.events import events

    events(_reach(arguments), arguments.code, arguments.count, arguments.timeout, arguments.json)


def _stacks(arguments: Namespace) -> int:
    from pypmix.cli.stacks import stacks

    return stacks(_reach(arguments), arguments.job, arguments.timeout)


def _attach(arguments: Namespace) -> int:
    from pypmix.cli.stacks import attach

    return attach(_reach(arguments), arguments.rank, arguments.job, arguments.debugger)


def _grow(arguments: Namespace) -> None:
    from pypmix.cli.growing import grow

    grow(_reach(arguments), ",".join(arguments.hosts), arguments.nodes, arguments.cpus, arguments.timeout)


def _shrink(arguments: Namespace) -> None:
    from pypmix.cli.growing import shrink

    shrink(_reach(arguments), ",".join(arguments.hosts), arguments.nodes, arguments.force, arguments.timeout)


def _lookup(arguments: Namespace) -> None:
    from pypmix.cli.publishing import lookup

    lookup(_reach(arguments), arguments.keys, arguments.timeout, arguments.json)


def _publish(arguments: Namespace) -> None:
    from pypmix.cli.publishing import publish

    publish(_reach(arguments), arguments.items, arguments.range, arguments.persist, arguments.timeout)


def _unpublish(arguments: Namespace) -> None:
    from pypmix.cli.publishing import unpublish

    unpublish(_reach(arguments), arguments.keys)


def _trace(arguments: Namespace) -> int:
    from pypmix.extras.commands.trace import trace

    return trace(arguments.file, arguments.html, arguments.otlp, arguments.json, arguments.all)
