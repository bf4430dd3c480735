"""The former names of methods and arguments, and what to write in their place.

The table serves three readers: clients, which accept a former name for one more release with a `DeprecationWarning`,
the page "Changes of names", and the script that rewrites programs, `python -m pypmix.renames PROGRAM ...`.

A new form is a path of calls. In `control(procs@0).kill(*)` the first call takes the argument `procs`, by name or else
by its position, and the second one takes all other arguments.
"""

from __future__ import annotations

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

UNTIL = "2027.6"
"""The release without the former names."""


class Rename(Record):
    """A former name of a member.

    Args:
        owner: The class: `Client`, which is `Tool` and those of `pypmix.aio` as well, or `Group`.
        old: The former name.
        new: The new form, a path of calls; a path without parentheses is an attribute. If no path does the same, it is
            a text for readers.
        alias: The hidden member that still does the same, if the path does less, or is not one.
    """

    owner: str
    old: str
    new: str
    alias: str = ""


class RenamedArgument(Record):
    """A former name of an argument.

    Args:
        methods: The methods that have it, each behind its class, separated by spaces.
        old: The former name.
        new: The new name.
    """

    methods: str
    old: str
    new: str


CLIENT = (
    Rename("Client", "allocation_request", "allocate(*)"),
    Rename("Client", "barrier", "fence(*)"),
    Rename("Client", "cancel_monitor", "monitors.cancel(*)"),
    Rename("Client", "compute_distances", "fabric.compute_distances(*)"),
    Rename("Client", "disconnect", "`disconnect` of the connection, or `me.raw.disconnect`", "_disconnect"),
    Rename("Client", "fabric_register", "fabric.register(*)"),
    Rename("Client", "fabric_update", "fabric.update(*)"),
    Rename("Client", "finalize", "close(*)"),
    Rename("Client", "get_credential", "credentials.get(*)"),
    Rename("Client", "get_value", "`me.raw.get`, which takes the proc first", "_get_value"),
    Rename("Client", "group_construct", "group(*).form()"),
    Rename("Client", "group_destruct", "raw.group_destruct(*)", "_group_destruct"),
    Rename("Client", "group_enter", "group(name@0).enter(*)"),
    Rename("Client", "group_invite", "invite(*).form()"),
    Rename("Client", "group_join", "`accept` of the invitation, or `me.raw.group_join`", "_group_join"),
    Rename("Client", "group_leave", "raw.group_leave(*)", "_group_leave"),
    Rename("Client", "heartbeat", "monitors.send_heartbeat()"),
    Rename("Client", "iof_deregister", "`close` of the stream", "_iof_deregister"),
    Rename("Client", "iof_pull", "output(*).open()"),
    Rename("Client", "iof_push", "`write` and `close` of `me.input(procs)`, or `me.raw.iof_push`", "_push_input"),
    Rename("Client", "job_control", "control(procs@0).request(*)"),
    Rename("Client", "kill", "control(procs@0).kill(*)"),
    Rename("Client", "lookup_all", "lookup(*)"),
    Rename("Client", "monitor_file", "monitors.watch_file(*)"),
    Rename("Client", "monitor_heartbeat", "monitors.watch_heartbeat(*)"),
    Rename("Client", "pause", "control(procs@0).pause(*)"),
    Rename("Client", "process_monitor", "monitors.watch(*)"),
    Rename("Client", "push_input", "`write` and `close` of `me.input(procs)`", "_push_input"),
    Rename("Client", "query_all", "query(*)"),
    Rename("Client", "query_info", "raw.query_info(*)"),
    Rename("Client", "register_cleanup", "control(procs@-).register_cleanup(*)"),
    Rename("Client", "resolve_nodes", "raw.resolve_nodes(nspace@0)"),
    Rename("Client", "resolve_peers", "`me.raw.resolve_peers`, which has them in the server's order", "_resolve_peers"),
    Rename("Client", "resume", "control(procs@0).resume(*)"),
    Rename("Client", "signal", "control(procs@0).signal(*)"),
    Rename("Client", "spawned", "`me.parent is not None`", "_spawned"),
    Rename("Client", "terminate", "control(procs@0).terminate(*)"),
    Rename("Client", "validate_credential", "credentials.validate(*)"),
)

ARGUMENTS = (
    RenamedArgument("Control.allocate", "id", "allocation_id"),
    RenamedArgument("Monitors.watch_heartbeat Monitors.watch_file Monitors.cancel", "id", "name"),
    RenamedArgument("Credentials.get", "type", "kinds"),
    RenamedArgument(
        "Client.get Group.get Connection.get Publishing.lookup Tool.__init__ Servers.attach_to_server "
        "Servers.set_server",
        "wait",
        "timeout",
    ),
    RenamedArgument("Events.notify Publishing.publish Publishing.lookup Publishing.unpublish", "range", "data_range"),
)

TABLE = {(row.owner, row.old): row for row in CLIENT}


def steps(path: str) -> list[tuple[str, list[str] | None]]:
    """Return the names of a path, each with what its call takes; None if it is not called."""
    return [(name, None if taken is None else taken.split(", ") if taken else []) for name, taken in _split(path)]


def _split(path: str) -> list[tuple[str, str | None]]:
    import re

    return [(found[1], found[2]) for found in re.finditer(r"(\w+)(?:\(([^)]*)\))?\.?", path)]


def follow(start: Any, path: str, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Make the calls of a path with the arguments of a former method."""
    rest, others = dict(enumerate(given)), dict(options)
    found = start
    for name, taken in steps(path):
        found = getattr(found, name)
        if taken is None:
            continue
        chosen: list[Any] = []
        for each in taken:
            key, _, place = each.partition("@")
            if key == "*":
                chosen += rest.values()
                continue
            if key in others:
                chosen.append(others.pop(key))
            elif place.isdecimal() and int(place) in rest:
                chosen.append(rest.pop(int(place)))
        found = found(*chosen, **(others if "*" in taken else {}))
        if "*" in taken:
            rest, others = {}, {}
    return found


def warn(old: str, new: str, level: int) -> None:
    """Warn of a former name."""
    import warnings

    text = f"`{old}` is {new} now; the former name goes with release {UNTIL}"
    warnings.warn(text, DeprecationWarning, stacklevel=level + 1)


def show(row: Rename) -> str:
    """Return the new form of a row for readers."""
    if "`" in row.new:
        return row.new
    calls = []
    for name, taken in steps(row.new):
        words = [each.partition("@")[0].replace("*", "...") for each in taken or ()]
        calls.append(name if taken is None else f"{name}({', '.join(words)})")
    return f"`me.{'.'.join(calls)}`"


def find_alias(owner: str, name: str, instance: Any) -> Any:
    """Return what a former name of a member stands for.

    Raises:
        AttributeError: It is not a former name.
    """
    row = TABLE.get((owner, name))
    if row is None:
        raise AttributeError(f"{type(instance).__name__!r} object has no attribute {name!r}", name=name, obj=instance)
    shown = show(row)
    if isinstance(getattr(type(instance), row.alias or "_", None), property):
        warn(name, shown, 3)
        return getattr(instance, row.alias)

    def call(*given: Any, **options: Any) -> Any:
        warn(name, shown, 2)
        if row.alias:
            return getattr(instance, row.alias)(*given, **options)
        return follow(instance, row.new, given, options)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"A former name of {shown}."
    return call


def renamed(function: F) -> F:
    """Let a method of `ARGUMENTS` still take arguments by their former names; a decorator."""
    from functools import wraps

    names = {row.old: row.new for row in ARGUMENTS if function.__qualname__ in row.methods.split()}

    @wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        for old in names.keys() & options.keys():
            new, value = names[old], options.pop(old)
            if new in options:
                raise TypeError(f"{function.__name__}() got both {new!r} and its former name {old!r}")
            warn(f"{old}=", f"`{new}=`", 2)
            options[new] = time_limit(function.__name__, value) if old == "wait" else value
        return function(*given, **options)

    return call  # type: ignore[return-value]


def time_limit(method: str, wait: float | bool | None) -> float | None:
    """Return the `timeout` that means the same as a former `wait`.

    Args:
        method: The name of the method. A get waits unless it is told not to, and other methods do not.
        wait: True, False, or a number of seconds.
    """
    if wait is True:
        return None if method == "get" else float("inf")
    if wait is False:
        return 0 if method == "get" else None
    return wait


def take_wait(method: str, wait: float | bool | None, timeout: float | None) -> float | None:
    """Return the time limit of a call that was given a former `wait`, and warn."""
    if timeout is not None:
        raise TypeError(f"{method}() got both 'timeout' and its former name 'wait'")
    warn("wait=", "`timeout=`", 3)
    return time_limit(method, wait)


def name_argument(method: str, old: str) -> str:
    """Return the name of an argument of a method, which is given without its class."""
    for row in ARGUMENTS:
        if row.old == old and any(each.endswith(f".{method}") for each in row.methods.split()):
            return row.new
    return old


def rewrite(text: str, names: frozenset[str] = frozenset()) -> tuple[str, list[str]]:
    """Return a program with the new names, and a line for each former name that has to be replaced by hand.

    Only calls of clients are changed: of variables that the program makes or annotates as clients or tools.

    Args:
        text: The program.
        names: Further variables that are clients.
    """
    import ast

    tree = ast.parse(text)
    clients = names | _clients(tree)
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    source = text.encode()
    edits: list[tuple[int, int, str]] = []
    left: list[str] = []

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        function = node.func
        if ast.unparse(function.value) not in clients:
            continue
        row = TABLE.get(("Client", function.attr))
        if row is not None and ("`" in row.new or any(isinstance(each, ast.Starred) for each in node.args)):
            left.append(f"line {node.lineno}: {function.attr} is {show(row)}")
        elif row is not None and row.alias and {each.arg for each in node.keywords} - {"timeout", "info"}:
            left.append(f"line {node.lineno}: {function.attr} is {show(row)}, which has fewer arguments")
        elif row is not None:
            begin = place(function.value.end_lineno or 0, function.value.end_col_offset or 0)
            end = place(node.end_lineno or 0, node.end_col_offset or 0)
            edits.append((begin, end, _write_path(row.new, node, text)))
        else:
            for each in node.keywords:
                new = name_argument(function.attr, each.arg or "")
                if new != (each.arg or ""):
                    begin, end = (
                        place(each.lineno, each.col_offset),
                        place(each.end_lineno or 0, each.end_col_offset or 0),
                    )
                    edits.append((begin, end, f"{new}={_write_value(function.attr, each, text)}"))
    for begin, end, new in sorted(edits, reverse=True):
        source = source[:begin] + new.encode() + source[end:]
    return source.decode(), left


def _write_value(method: str, argument: ast.keyword, text: str) -> str:
    import ast

    given = argument.value
    if argument.arg == "wait" and isinstance(given, ast.Constant) and isinstance(given.value, bool):
        limit = time_limit(method, given.value)
        return 'float("inf")' if limit == float("inf") else str(limit)
    return ast.get_source_segment(text, given) or ""


def _write_path(path: str, call: Any, text: str) -> str:
    import ast

    given = [ast.get_source_segment(text, each) or "" for each in call.args]
    rest: dict[object, str] = dict(enumerate(given))
    row_method = steps(path)[-1][0]
    for each in call.keywords:
        value = _write_value(row_method, each, text)
        name = name_argument(row_method, each.arg or "")
        rest[each.arg or "**"] = f"**{value}" if each.arg is None else f"{name}={value}"
    written = ""
    for name, taken in steps(path):
        written += f".{name}"
        if taken is None:
            continue
        chosen: list[str] = []
        for key, _, at in [each.partition("@") for each in taken]:
            if key == "*":
                chosen += rest.values()
                rest = {}
            elif key in rest:
                chosen.append(rest.pop(key).partition("=")[2])
            elif at.isdecimal() and int(at) in rest:
                chosen.append(rest.pop(int(at)))
        written += f"({', '.join(chosen)})"
    return written


def _clients(tree: Any) -> frozenset[str]:
    """Return the variables of a program that hold clients or tools."""
    import ast

    def makes(value: object) -> bool:
        while isinstance(value, ast.Await):
            value = value.value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "open":
            value = value.func.value
        return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("Client", "Tool")

    def names_client(annotation: ast.expr | None) -> bool:
        return annotation is not None and ast.unparse(annotation).strip("'\"").rpartition(".")[2] in ("Client", "Tool")

    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and node.optional_vars is not None and makes(node.context_expr):
            found.add(ast.unparse(node.optional_vars))
        elif isinstance(node, ast.Assign) and makes(node.value):
            found.update(ast.unparse(each) for each in node.targets)
        elif isinstance(node, ast.arg) and names_client(node.annotation):
            found.add(node.arg)
    return frozenset(found)


def main(words: list[str]) -> int:
    """Rewrite programs in place, and print what is left to do; return 1 if anything is."""
    from pathlib import Path

    status = 0
    for word in words:
        path = Path(word)
        text, left = rewrite(path.read_text())
        path.write_text(text)
        for each in left:
            status = 1
            print(f"{path}: {each}")
    return status


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
