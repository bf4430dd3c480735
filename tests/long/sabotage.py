"""Break pypmix on purpose, one breakage at a time, and check that the tests notice: `tox -e long -- --only sabotage`.

A test proves something only if it fails when what it tests is broken. `BREAKAGES` is a table of breakages; each changes
the body of a function, and lists tests that must fail then. They run on a copy of the checkout, and first without any
breakage: all of them must pass. Then each breakage is applied alone and its tests run. A listed test that passes, is
skipped, fails as expected (`xfail`) or does not exist fails the check, and so does a breakage of a function that no
longer exists. Results are read from JUnit XML, so that an interrupted session does not count as failing tests.

The probes of what a pairing lacks (`tests/lib/lack.py`) must not pass for a wrong reason. "no client opens" therefore
lists some: if no client opens, a probe that still succeeds has not observed what it declares.

The tests run with an interpreter of a virtual environment beside the copy, whose first place for packages is the copy.
Programs that tests start with other values of PYTHONPATH import the broken package too.

Add a breakage with a feature: choose a small one that a user would notice, and list the cheapest tests that must see
it. `--list` shows the table, `--only NAME` runs some of it, with their control run.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".tox", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "_build"
)
"""What of a checkout no test needs."""

SECONDS = 900
"""How long a session may take; without a breakage it takes a few minutes."""

PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "--all-modes", "--tb=line")
"""One process: with several, tests that are marked `timing` run in a session of their own, which has no JUnit XML."""

PASSED, FAILED, SKIPPED, EXPECTED, MISSING = "passed", "failed", "was skipped", "failed as expected", "did not run"


class Edit(NamedTuple):
    """A change to one function.

    Args:
        path: The file, below the checkout.
        function: The qualified name in it, such as `Client.open`.
        code: Statements that take the place of the body.
        first: The statements precede the body instead.
    """

    path: str
    function: str
    code: str
    first: bool = False


class Breakage(NamedTuple):
    """A way to break pypmix.

    Args:
        name: What `--only` calls it.
        title: What is wrong then, for a person.
        edits: The changes that do it.
        tests: The tests that must fail.
    """

    name: str
    title: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


class Vanished(Exception):
    """The function of a breakage does not exist."""


def in_both(function: str, code: str, module: str = "client", *, first: bool = False) -> tuple[Edit, Edit]:
    """Return the edits of a function of the API in its blocking and its async form."""
    return Edit(f"pypmix/{module}.py", function, code, first), Edit(f"pypmix/aio/{module}.py", function, code, first)


def suite(test: str, *pairings: str) -> tuple[str, ...]:
    """Return the node ids of a test of the shared suite, such as `fences.test_alone`, on pairings with their form."""
    module, _, function = test.partition(".")
    return tuple(f"tests/suite/test_{module}.py::{function}[{pairing}]" for pairing in pairings)


PYTHON = "python-server/python-client-asyncio"
PYTHON_SYNC = "python-server/python-client-sync"
NODES = "python-server-2-nodes/python-client-asyncio"
NODES_SYNC = "python-server-2-nodes/python-client-sync"
LIBRARY = "python-server/native-5.0.11-asyncio"
LIBRARY_SYNC = "python-server/native-5.0.11-sync"
HOSTED = "native-server-5.0.11/python-client-asyncio"
HOSTED_SYNC = "native-server-5.0.11/python-client-sync"
HOSTED_LIBRARY = "native-server-5.0.11/native-5.0.11-asyncio"

CLI = "tests/cli/test_"
USERS = "tests/cli/test_other_users.py::"

ENGINE = "pypmix/engine/python/"
NATIVE = "pypmix/engine/native/"
CROSSING = "pypmix/host/exchange/crossing.py"
LOCAL_SERVER = "pypmix/host/exchange/localserver.py"

BREAKAGES = (
    Breakage(
        "no client opens",
        "opening a client raises an error of no PMIx operation",
        in_both("Client.open", "raise RuntimeError('no client opens')"),
        (
            *suite("fences.test_alone", PYTHON, PYTHON_SYNC, LIBRARY, LIBRARY_SYNC),
            *suite("identity.test_a_server_that_is_not_there_is_unreachable", "alone/python-client-asyncio"),
            # Probes of what pairings lack.
            *suite("fences.test_the_missing_are_named", "python-server/native-7.0.0-sync"),
            *suite("publish.test_only_the_publisher_takes_back", "prterun-5.0.11/python-client-sync"),
            *suite("publish.test_a_key_that_is_there_already", "prterun-5.0.11/native-5.0.11-sync"),
            *suite("control.test_credentials", "prterun-5.0.11/python-client-sync"),
            *suite("spawning.test_a_child_knows_its_parent", "mpirun-4.1.4/python-client-sync"),
            *suite("modex.test_floats_keep_every_digit", "slurm-22.05.8/native-5.0.11-sync"),
            *suite("group_failures.test_members_hear_of_those_who_end", "native-server-5.0.11/native-5.0.11-sync"),
            *suite("groups.test_members_that_name_each_other_in_different_orders", "prterun-7.0.0/native-7.0.0-sync"),
        ),
    ),
    Breakage(
        "a get returns None",
        "`get` returns None whatever was put",
        in_both("Client.get", "return None"),
        (
            *suite("modex.test_own_data_and_commit", PYTHON, PYTHON_SYNC, LIBRARY, NODES, HOSTED),
            *suite("modex.test_plain_python_values", PYTHON, LIBRARY_SYNC),
        ),
    ),
    Breakage(
        "a python fence returns at once",
        "a fence of the python engine does not wait",
        (Edit(ENGINE + "client.py", "Client._fence", "self.end(call)"),),
        (
            *suite("fences.test_nobody_leaves_early", PYTHON, PYTHON_SYNC, NODES, HOSTED),
            *suite("fences.test_someone_never_comes", PYTHON),
        ),
    ),
    Breakage(
        "a native fence returns at once",
        "a fence of the native engine does not wait",
        (
            Edit(NATIVE + "session.py", "NativeSession._fence", "return"),
            Edit(
                NATIVE + "session.py",
                "NativeSession.start",
                "if type(op) is ops.Fence:\n    done(None, None)\n    return",
                first=True,
            ),
        ),
        (*suite("fences.test_nobody_leaves_early", LIBRARY, LIBRARY_SYNC, HOSTED_LIBRARY),),
    ),
    Breakage(
        "a python commit is not sent",
        "what a client of the python engine puts stays with it",
        (Edit(ENGINE + "client.py", "Client._commit", "self.end(call)"),),
        (*suite("modex.test_plain_python_values", PYTHON, PYTHON_SYNC, NODES, HOSTED),),
    ),
    Breakage(
        "a native put is dropped",
        "what a client of the native engine puts is forgotten",
        (Edit(NATIVE + "session.py", "NativeSession._put", "return"),),
        (*suite("modex.test_plain_python_values", LIBRARY, LIBRARY_SYNC, HOSTED_LIBRARY),),
    ),
    Breakage(
        "the python server sends no event",
        "events reach a server of the python engine and go no further",
        (Edit(ENGINE + "serverside/events.py", "Events._send", "return"),),
        (
            *suite("events.test_iteration_in_order", PYTHON, LIBRARY),
            *suite("events.test_ranges", PYTHON),
            *suite("events.test_an_event_tells_of_a_rank_that_is_killed", PYTHON_SYNC),
        ),
    ),
    Breakage(
        "a python client drops events",
        "a client of the python engine calls no handler",
        (Edit(ENGINE + "clientside/events.py", "ClientEvents._arrived", "return"),),
        (*suite("events.test_iteration_in_order", PYTHON, HOSTED), *suite("events.test_targets", NODES)),
    ),
    Breakage(
        "a native client drops events",
        "a client of the native engine calls no handler",
        (Edit(NATIVE + "events.py", "EventsTopic._arrived", "self._inbox.answer(message)"),),
        (*suite("events.test_the_chain_of_handlers", LIBRARY, HOSTED_LIBRARY),),
    ),
    Breakage(
        "the native server asks no host",
        "each upcall of a native server is answered with an empty success",
        (Edit(NATIVE + "serversession.py", "NativeServer._ask", "upcall.reply()"),),
        (
            *suite("publish.test_every_rank_finds_what_all_have_published", HOSTED, HOSTED_LIBRARY),
            *suite("spawning.test_what_cannot_be_started", HOSTED),
            "tests/foreign/hosts/test_harm.py::test_a_refused_client[native-5.0.11/python]",
        ),
    ),
    Breakage(
        "the native server passes no event on",
        "events of the host stop at a native server",
        (Edit(NATIVE + "serversession.py", "NativeServer.notify", "return"),),
        (*suite("events.test_an_event_tells_of_a_rank_that_is_killed", HOSTED_SYNC),),
    ),
    Breakage(
        "a host's refusal is ignored",
        "a python server admits a client that its host refuses",
        (
            Edit(
                ENGINE + "serverside/handshakes.py",
                "Handshakes._introduced.answer",
                "self.admit(handshake, process, release, hello)",
            ),
        ),
        ("tests/foreign/hosts/test_harm.py::test_a_refused_client[python/python]",),
    ),
    Breakage(
        "a server believes credentials",
        "a python server does not compare the user in a credential with the one it expects",
        (
            Edit(
                ENGINE + "serverside/handshakes.py",
                "Handshakes._identify",
                "return self._server.store.process(Proc.unchecked(hello.nspace or '', hello.rank or 0))",
            ),
        ),
        tuple(f"tests/unit/test_python_server.py::test_who_is_refused[hello{number}]" for number in ("4--12", "5--12")),
    ),
    Breakage(
        "a server admits everybody",
        "a python server does not look whose process a connection is of",
        (
            Edit("pypmix/engine/admission.py", "Admission.welcome", "return True"),
            Edit("pypmix/engine/admission.py", "Admission.check", "return"),
        ),
        (
            USERS + "test_nobody_else_gets_in[root]",
            USERS + "test_nobody_else_gets_in[a user]",
            "tests/unit/test_admission.py::test_a_stranger_of_another_user_is_turned_away_unread",
        ),
    ),
    Breakage(
        "a client trusts any server",
        "a client does not look whose process its server is",
        (Edit("pypmix/engine/peeruid.py", "check_server", "return"),),
        (
            USERS + "test_a_client_tells_nothing_to_a_server_of_somebody_else[-tcp-root]",
            USERS + "test_a_client_tells_nothing_to_a_server_of_somebody_else[-unix-a user]",
            USERS + "test_a_native_client_asks_too",
            "tests/unit/test_peer_owner_check.py::test_another_user_is_refused_by_name[]",
        ),
    ),
    Breakage(
        "a group has one member",
        "a collective construct of the python engine does not ask its server, and has the first proc alone",
        (
            Edit(
                ENGINE + "clientside/groups.py",
                "GroupPort._construct",
                "client.end(call, results_of((), False, op.procs[:1], None))",
            ),
        ),
        (
            *suite("group_construct.test_names", PYTHON_SYNC, HOSTED_SYNC),
            *suite("group_construct.test_what_members_tell_the_others", PYTHON_SYNC, NODES_SYNC),
        ),
    ),
    Breakage(
        "groups lose nobody",
        "a member that failed stays in its group",
        (Edit("pypmix/engine/groups/standing.py", "Standing.fail", "return"),),
        (
            *suite("group_objects.test_a_member_ends", PYTHON),
            *suite("group_objects.test_a_leader_follows_another", PYTHON),
        ),
    ),
    Breakage(
        "nothing is published",
        "the directory of a host forgets what is published",
        (Edit("pypmix/host/publisheddata.py", "Directory._add", "return"),),
        (
            *suite("publish.test_every_rank_finds_what_all_have_published", PYTHON, LIBRARY, HOSTED, NODES),
            f"{CLI}tools.py::test_lookup[pypmix]",
        ),
    ),
    Breakage(
        "what is published is for all",
        "a lookup finds values outside of their range, and of other users",
        (Edit("pypmix/host/publisheddata.py", "Entry.open_to", "return True"),),
        (
            *suite("publish.test_ranges", PYTHON, LIBRARY),
            "tests/unit/test_directory.py::test_other_users_see_only_what_they_are_granted",
        ),
    ),
    Breakage(
        "a spawn starts nothing",
        "a spawn succeeds, and no process starts",
        (Edit("pypmix/host/spawning.py", "_spawn", "upcall.reply('nothing')"),),
        (
            *suite("spawning.test_what_cannot_be_started", PYTHON, LIBRARY, NODES),
            *suite("spawning.test_a_job_that_fails_has_an_exit_code_and_so_has_the_launcher", PYTHON_SYNC),
        ),
    ),
    Breakage(
        "every job succeeds",
        "the exit code of a job is 0 however its ranks end",
        (Edit("pypmix/host/running.py", "RunningJob.end", "code = 0", first=True),),
        (
            *suite("ending.test_exit_code", PYTHON, PYTHON_SYNC, HOSTED, NODES),
            *suite("ending.test_abort", PYTHON_SYNC),
        ),
    ),
    Breakage(
        "a job that takes too long succeeds",
        "a job whose time is over is ended with the exit code 0",
        (Edit("pypmix/host/local.py", "LocalHost._end_in_time", "self.end(0, '')"),),
        (f"{CLI}run_ending.py::test_the_time_limit_names_ranks_that_never_initialized",),
    ),
    Breakage(
        "a time limit is a success",
        "a collective whose time is over ends as if all had arrived",
        (Edit("pypmix/engine/collective/machine.py", "Collective._overdue", "self.finish(0)"),),
        (
            *suite("fences.test_someone_never_comes", PYTHON),
            *suite("fences.test_the_missing_are_named", PYTHON),
            *suite("group_construct.test_a_member_that_does_not_come_in_time", PYTHON_SYNC, LIBRARY_SYNC),
        ),
    ),
    Breakage(
        "output is dropped",
        "what ranks write is read and not shown",
        (Edit("pypmix/host/output.py", "Stream._pass_on", "return"),),
        (
            f"{CLI}run_output.py::test_both_streams_are_kept_apart",
            f"{CLI}run_output.py::test_each_rank_runs_once_with_its_own_rank",
            *suite("forwarding.test_output_that_a_spawn_asked_for_is_printed", PYTHON_SYNC),
        ),
    ),
    Breakage(
        "output has no tags",
        "lines of ranks are not tagged",
        (Edit("pypmix/host/output.py", "Stream._tagged", "return data"),),
        (
            f"{CLI}run_output.py::test_empty_lines_are_tagged_too",
            f"{CLI}run_output.py::test_an_unfinished_tagged_line_is_ended",
        ),
    ),
    Breakage(
        "events stay on their node",
        "a node does not pass on events of the others",
        (Edit(CROSSING, "Crossing._told_event", "return"),),
        (
            *suite("nodes.test_the_example_of_events_reaches_the_other_node", NODES_SYNC),
            *suite("events.test_targets", NODES),
        ),
    ),
    Breakage(
        "data stays on its node",
        "a get of what a proc of another node has put finds nothing",
        (Edit(LOCAL_SERVER, "DirectModexes.request", "upcall.fail(PMIxError('nothing here', status=-46))"),),
        (*suite("nodes.test_a_get_waits_for_the_other_node", NODES_SYNC),),
    ),
    Breakage(
        "publications stay on their node",
        "a node does not ask the one that has the directory",
        (Edit(CROSSING, "Crossing._forward", "upcall.reply(())"),),
        ("tests/unit/test_exchange_crossing.py::test_the_first_server_publishes_for_all",),
    ),
)


def body_of(tree: ast.Module, function: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """Return the last definition of a function by its qualified name.

    Raises:
        LookupError: There is none.
    """
    scope: ast.AST = tree
    for name in function.split("."):
        found = [
            node
            for node in inside(scope)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        ]
        if not found:
            raise LookupError(name)
        scope = found[-1]
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        raise LookupError(function)
    return scope


def inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a scope, with those inside of its conditions and loops, in their order."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from inside(node)


def edited(text: str, function: str, code: str, first: bool = False) -> str:
    """Return a module with other statements in a function.

    Args:
        text: The module.
        function: The qualified name.
        code: The statements.
        first: They precede the body instead of taking its place.

    Raises:
        LookupError: The module has no such function.
    """
    tree = ast.parse(text)
    found = body_of(tree, function)
    statements = ast.parse(code).body
    found.body = [*statements, *found.body] if first else statements
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


@contextmanager
def applied(checkout: Path, breakage: Breakage) -> Iterator[None]:
    """Break a checkout, and mend it again.

    Raises:
        Vanished: A function of it does not exist; nothing is changed then.
    """
    originals: dict[Path, bytes] = {}
    texts: dict[Path, str] = {}
    for edit in breakage.edits:
        path = checkout / edit.path
        try:
            originals[path] = path.read_bytes()
            texts[path] = edited(texts.get(path, originals[path].decode()), edit.function, edit.code, edit.first)
        except (OSError, LookupError):
            raise Vanished(f"{edit.path} has no function {edit.function}") from None
    try:
        for path, text in texts.items():
            write(path, text.encode())
        yield
    finally:
        for path, content in originals.items():
            write(path, content)


def write(path: Path, content: bytes) -> None:
    """Write a module, and forget its bytecode: two versions may have one size and one second."""
    path.write_bytes(content)
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        stale.unlink()


def copied(checkout: Path, folder: Path) -> Path:
    """Copy a checkout with the compiled extension, and return the interpreter whose packages begin with the copy."""
    copy = folder / "checkout"
    shutil.copytree(checkout, copy, ignore=LEFT_OUT, symlinks=True)
    extension = importlib.util.find_spec("pypmix.engine.native._ffi")
    native = copy / "pypmix" / "engine" / "native"
    if extension is not None and extension.origin is not None and not list(native.glob("_ffi.*.so")):
        shutil.copy2(extension.origin, native)
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    packages = sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)})
    own = sysconfig.get_path("purelib")
    Path(packages, "sabotage.pth").write_text(f"{copy}\nimport site; site.addsitedir({own!r})\n")
    return python


def case_of(test: str) -> tuple[str, str]:
    """Return the class name and the name that JUnit XML has for a node id."""
    path, _, parameters = test.partition("[")
    names = path.split("::")
    classname = ".".join([re.sub(r"\.py$", "", names[0].replace("/", ".")), *names[1:-1]])
    return classname, names[-1] + (f"[{parameters}" if parameters else "")


def outcomes(xml: Path, tests: Collection[str]) -> dict[str, str]:
    """Return how each of the tests ended, as JUnit XML tells."""
    found: dict[tuple[str, str], str] = {}
    if xml.exists():
        for case in ElementTree.parse(xml).iter("testcase"):
            name = case.get("classname", ""), case.get("name", "")
            found[name] = FAILED if found.get(name) == FAILED else outcome_of(case)
    return {test: found.get(case_of(test), MISSING) for test in tests}


def outcome_of(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return FAILED
    skipped = case.find("skipped")
    if skipped is not None:
        return EXPECTED if skipped.get("type") == "pytest.xfail" else SKIPPED
    return PASSED


class Sessions:
    """Runs tests on a copy of the checkout.

    Args:
        python: The interpreter.
        checkout: The copy.
        pytest: The command line, without the tests.
    """

    def __init__(self, python: Path, checkout: Path, pytest: Sequence[str] = PYTEST) -> None:
        self._python = python
        self._checkout = checkout
        self._pytest = pytest

    def run(self, tests: Collection[str]) -> tuple[dict[str, str], str]:
        """Run tests, and return how each ended, and what the session printed."""
        with tempfile.TemporaryDirectory() as folder:
            xml = Path(folder, "results.xml")
            command = [str(self._python), "-m", *self._pytest, f"--junitxml={xml}", *tests]
            path = os.pathsep.join([str(self._python.parent), os.environ.get("PATH", "")])
            variables = {**os.environ, "PYTHONPATH": str(self._checkout), "PATH": path}
            variables.pop("VIRTUAL_ENV", None)
            try:
                done = subprocess.run(
                    command,
                    cwd=self._checkout,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=SECONDS,
                )
                output = done.stdout
            except subprocess.TimeoutExpired:
                output = f"the session did not end within {SECONDS} s"
            return outcomes(xml, tests), output


def differing(found: Mapping[str, str], wanted: str) -> list[str]:
    """Return a line for each test that did not end as wanted."""
    return [f"    {test} {outcome}" for test, outcome in found.items() if outcome != wanted]


def check(sessions: Sessions, checkout: Path, breakages: Sequence[Breakage]) -> int:
    """Run the control, then each breakage; print a line for each and return the exit code."""
    tests = list(dict.fromkeys(test for breakage in breakages for test in breakage.tests))
    found, output = sessions.run(tests)
    wrong = differing(found, PASSED)
    if wrong:
        print(output[-8000:])
        print(f"{len(wrong)} of {len(tests)} tests do not pass without any breakage:", *wrong, sep="\n")
        return 1
    print(f"control: {len(tests)} tests pass without any breakage", flush=True)
    failed = 0
    for breakage in breakages:
        try:
            with applied(checkout, breakage):
                found, output = sessions.run(breakage.tests)
        except Vanished as error:
            print(f"{breakage.name}: FAILED, {error}: correct the table", flush=True)
            failed += 1
            continue
        wrong = differing(found, FAILED)
        missed = f"FAILED, {len(wrong)} of {len(found)} tests do not notice"
        verdict = missed if wrong else f"noticed by {len(found)} tests"
        print(f"{breakage.name}: {verdict}", *wrong, sep="\n", flush=True)
        failed += bool(wrong)
    print(f"{len(breakages) - failed} of {len(breakages)} breakages are noticed")
    return 1 if failed else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="show the breakages and the tests that must fail")
    parser.add_argument("--only", action="append", metavar="NAME", choices=[breakage.name for breakage in BREAKAGES])
    given = parser.parse_args(arguments)
    breakages = [breakage for breakage in BREAKAGES if not given.only or breakage.name in given.only]
    if given.list:
        for breakage in breakages:
            print(f"{breakage.name}: {breakage.title}", *(f"    {test}" for test in breakage.tests), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="pypmix-sabotage-") as folder:
        python = copied(ROOT, Path(folder))
        checkout = Path(folder, "checkout")
        return check(Sessions(python, checkout), checkout, breakages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
