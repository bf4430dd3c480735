"""Proves what a spawn's directives become: applications, terms, and refusals by name."""

from __future__ import annotations

from typing import Any

import pytest

from pypmix import Info, Proc, Rank, Status, Value, attrs
from pypmix.host.directives import MET, READERS, name_of, read, terms_of
from pypmix.host.job import Application
from pypmix.host.pmi.registration import PREPUT
from pypmix.host.terms import Terms
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.ops import Spawn
from pypmix.types import App, Attr, DataType, Envar

ENV = {"PATH": "/bin", "LIST": "m", "GONE": "1"}


def asked(*infos: Info, app: App | None = None, more: tuple[App, ...] = ()) -> tuple[Terms, tuple[Application, ...]]:
    wish, apps = read(Spawn((app or App("prog"), *more), infos), ENV, "/base", "/job")
    return terms_of(wish, tool=False), apps


def test_an_application_as_it_comes() -> None:
    terms, apps = asked(app=App("/bin/prog", ("prog", "-v"), ("A=1", "LIST=x=y"), "/there/", 3))
    assert terms == Terms(kept=True, pushed=True, stdin=None)
    assert apps == (Application(("prog", "-v"), 3, (("LIST", "x=y"), ("A", "1")), "/there", "/bin/prog"),)


@pytest.mark.parametrize("attribute", [attrs.DEBUG_STOP_ON_EXEC, attrs.DEBUG_STOP_IN_INIT, attrs.DEBUG_STOP_IN_APP])
def test_procs_stop_for_a_debugger_where_it_asks_for_it(attribute: Attr[object]) -> None:
    key = attribute.key
    three = App("prog", maxprocs=3)
    for value, ranks in (
        (True, ""),
        (Value(DataType.PROC_RANK, Rank.WILDCARD), ""),
        (Value(DataType.PROC_RANK, 1), "1"),
        ([Proc("job", 2), Proc("job", 0)], "0,2"),
        ([Proc("job", Rank.WILDCARD)], ""),
    ):
        assert asked(attribute(value), app=three)[0].stops == ((key, ranks),)
    for value in (False, Value(DataType.PROC_RANK, Rank.UNDEF)):
        assert asked(attribute(value), app=three)[0].stops == ()
    # Of several applications, one stops.
    stopping = App("prog", maxprocs=2, info=(attribute(True),))
    assert asked(app=three, more=(stopping,))[0].stops == ((key, "3,4"),)
    assert asked(attribute(True), app=three, more=(stopping,))[0].stops == ((key, ""),)


def test_debugger_daemons_are_one_application_for_procs_that_run() -> None:
    target = attrs.DEBUG_TARGET(Proc("job", Rank.WILDCARD))
    wish, _ = read(Spawn((App("d"),), (attrs.DEBUGGER_DAEMONS(True), target)), ENV, "/base", "/job")
    assert (wish.daemons, wish.debugged) == (True, Proc("job", Rank.WILDCARD))
    with pytest.raises(PMIxError, match="is 1 at least"):
        asked(attrs.DEBUG_DAEMONS_PER_NODE(0))


@pytest.mark.parametrize(
    ("cmd", "argv", "expected"),
    [
        ("/bin/prog", (), ("prog",)),
        ("prog", ("-v",), ("prog", "-v")),
        ("prog", ("./prog", "-v"), ("./prog", "-v")),
        (None, ("./prog", "-v"), ("./prog", "-v")),
    ],
)
def test_the_name_of_the_program_stands_first(
    cmd: str | None, argv: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    (app,) = asked(app=App(cmd, argv))[1]
    assert app.argv == expected
    assert app.program == (cmd or argv[0])


@pytest.mark.parametrize(
    ("cwd", "infos", "expected"),
    [
        (None, (), ""),
        ("/base", (), ""),
        ("/base/", (), ""),
        ("/there", (), "/there"),
        ("there", (), "/base/there"),
        ("/there", (attrs.WDIR("/else"),), "/else"),
        ("/there", (attrs.WDIR("sub"),), "/there/sub"),
        ("/there", (attrs.SET_SESSION_CWD(True),), "/job"),
    ],
)
def test_the_working_directory(cwd: str | None, infos: tuple[Info, ...], expected: str) -> None:
    assert asked(*infos, app=App("prog", (), (), cwd))[1][0].wdir == expected
    assert asked(app=App("prog", (), (), cwd, 1, infos))[1][0].wdir == expected


@pytest.mark.parametrize(
    ("info", "name", "value"),
    [
        (attrs.SET_ENVAR(Envar("NEW", "1")), "NEW", "1"),
        (attrs.SET_ENVAR(Envar("LIST", "1")), "LIST", "1"),
        (attrs.ADD_ENVAR(Envar("NEW", "1")), "NEW", "1"),
        (attrs.ADD_ENVAR(Envar("LIST", "1")), "LIST", "m"),
        (attrs.PREPEND_ENVAR(Envar("LIST", "a", ";")), "LIST", "a;m"),
        (attrs.PREPEND_ENVAR(Envar("NEW", "a", ";")), "NEW", "a"),
        (attrs.APPEND_ENVAR(Envar("LIST", "z", ";")), "LIST", "m;z"),
        (attrs.APPEND_ENVAR(Envar("NEW", "z", ";")), "NEW", "z"),
        (attrs.FIRST_ENVAR(Envar("NEW", "z", ";")), "NEW", "z"),
        (attrs.UNSET_ENVAR("GONE"), "GONE", None),
        (attrs.UNSET_ENVAR("NEVER"), "NEVER", None),
    ],
)
def test_changes_of_the_environment(info: Info, name: str, value: str | None) -> None:
    for apps in (asked(info)[1], asked(app=App("prog", info=(info,)))[1]):
        assert apps[0].environment(ENV).get(name) == value


def test_changes_are_made_in_their_order_those_of_the_job_first_and_for_one_application_only() -> None:
    job = attrs.APPEND_ENVAR(Envar("LIST", "job", ":"))
    own = (attrs.APPEND_ENVAR(Envar("LIST", "a", ":")), attrs.APPEND_ENVAR(Envar("LIST", "b", ":")))
    apps = asked(job, app=App("prog", info=own), more=(App("prog"),))[1]
    assert [app.environment(ENV)["LIST"] for app in apps] == ["m:job:a:b", "m:job"]


@pytest.mark.parametrize(
    ("infos", "field", "value"),
    [
        ([attrs.TAG_OUTPUT(True)], "tagged", True),
        ([attrs.TAG_OUTPUT(False)], "tagged", False),
        ([Info("pmix.tagout", Value(DataType.UNDEF, None))], "tagged", True),
        ([attrs.IOF_TIMESTAMP_OUTPUT(True)], "stamped", True),
        ([attrs.MERGE_STDERR_STDOUT(True)], "merged", True),
        ([attrs.FWD_STDOUT(True), attrs.FWD_STDERR(True)], "shown", (True, True)),
        ([attrs.OUTPUT_NOCOPY(True)], "shown", (False, False)),
        ([attrs.OUTPUT_TO_FILE("log")], "file", "/base/log"),
        ([attrs.OUTPUT_TO_DIRECTORY("/logs")], "directory", "/logs"),
        ([attrs.FWD_STDIN(True)], "stdin", 0),
        ([attrs.FWD_STDIN(False)], "stdin", None),
        ([attrs.STDIN_TGT(Proc("", Rank.WILDCARD)), attrs.FWD_STDIN(True)], "stdin", Rank.WILDCARD),
        ([attrs.FWD_STDIN(True), attrs.STDIN_TGT(Proc("", Rank.INVALID))], "stdin", None),
        ([attrs.JOB_TIMEOUT(7)], "limit", 7.0),
        ([attrs.JOB_RECOVERABLE(True)], "keep_going", True),
        ([attrs.SPAWN_CHILD_SEP(True)], "separate", True),
        ([attrs.REPORT_CHILD_SEP(True)], "counted", False),
        ([attrs.INDEX_ARGV(True)], "indexed", True),
        ([attrs.NOTIFY_COMPLETION(True)], "tell_end", True),
        ([attrs.EVENT_SILENT_TERMINATION(True)], "silent", True),
    ],
)
def test_terms(infos: list[Info], field: str, value: object) -> None:
    assert getattr(asked(*infos)[0], field) == value


@pytest.mark.parametrize(
    ("infos", "shown"),
    [
        ((), (True, True)),
        ((attrs.FWD_STDOUT(True), attrs.FWD_STDERR(False)), (False, True)),
        ((attrs.FWD_STDOUT(True), attrs.FWD_STDERR(True)), (False, False)),
        ((attrs.OUTPUT_NOCOPY(True),), (False, False)),
    ],
)
def test_what_a_tool_shows_is_not_shown_twice(infos: tuple[Info, ...], shown: tuple[bool, bool]) -> None:
    wish, _ = read(Spawn((App("prog"),), infos), ENV, "/base", "/job")
    assert terms_of(wish, tool=True).shown == shown


def test_what_is_required_and_not_offered_is_refused_by_its_name() -> None:
    for key in ("pmix.dispalloc", "pmix.cospawn", "acme.own"):
        info = Info(key, Value(DataType.BOOL, True))
        asked(info)
        with pytest.raises(NotSupported, match=name_of(key)):
            asked(Info(key, info.value, 1))
        with pytest.raises(NotSupported, match=name_of(key)):
            asked(app=App("prog", info=(Info(key, info.value, 1),)))


def test_every_directive_that_is_offered_may_be_required() -> None:
    values: dict[Any, Any] = {1: True, 3: "1", 6: 1, 13: 1, 14: 1, 22: Proc("n", 0), 46: Envar("A", "1")}
    for key in {*READERS, *MET} - {attrs.DO_NOT_LAUNCH.key}:
        attribute = attrs.by_key(key)
        assert attribute is not None, key
        asked(Info(key, Value(attribute.types[0], values[attribute.types[0]]), 1))


@pytest.mark.parametrize(
    "info",
    [
        Info("pmix.wdir", Value(DataType.UINT32, 1)),
        Info("pmix.envar.set", Value(DataType.STRING, "A=1")),
        attrs.SET_ENVAR(Envar("A=B", "1")),
        attrs.SET_ENVAR(Envar("", "1")),
        attrs.JOB_TIMEOUT(-1),
        attrs.STDIN_TGT(Proc("", 1)),
    ],
)
def test_a_directive_that_makes_no_sense(info: Info) -> None:
    with pytest.raises(PMIxError) as caught:
        asked(info)
    assert caught.value.status == Status.ERR_BAD_PARAM


def test_what_must_not_start_is_refused_even_if_it_is_not_required() -> None:
    asked(attrs.DO_NOT_LAUNCH(False))
    with pytest.raises(NotSupported):
        asked(attrs.DO_NOT_LAUNCH(True))


def test_on_whose_behalf() -> None:
    wish, _ = read(Spawn((App("prog"),), (attrs.PARENT_ID(Proc("other", 3)),)), ENV, "/base", "/job")
    assert wish.parent == Proc("other", 3)


PARENT = Application(
    ("parent",), 1, (("UHU", "5"), ("LIST", "p"), ("PYPMIX_PRELOAD", "/job/1"), (PREPUT, "{}")), unset=("GONE",)
)


def inherited(*infos: Info, app: App | None = None) -> Application:
    """Return what an application becomes whose parent has variables of its own."""
    return read(Spawn((app or App("prog"),), infos), ENV, "/base", "/job", PARENT)[1][0]


@pytest.mark.parametrize("infos", [(), (attrs.MAPBY(":inherit"),), (attrs.MAPBY("slot:inherit"),)])
def test_the_variables_of_the_parents_application_are_inherited(infos: tuple[Info, ...]) -> None:
    found = inherited(*infos)
    assert dict(found.env) == {"UHU": "5", "LIST": "p"}
    assert found.unset == ("GONE",)
    assert dict(inherited(*infos, app=App("prog", (), ("UHU=6",))).env) == {"UHU": "6", "LIST": "p"}
    assert dict(inherited(*infos, attrs.PREPEND_ENVAR(Envar("LIST", "x", ":"))).env)["LIST"] == "x:p"


@pytest.mark.parametrize("text", [":noinherit", "node:NOINHERIT"])
def test_variables_are_not_inherited_where_the_mapping_says_so(text: str) -> None:
    assert inherited(attrs.MAPBY(text)).env == ()
    wish, _ = read(Spawn((App("prog"),), (attrs.MAPBY(text),)), ENV, "/base", "/job", PARENT)
    assert wish.map_by == text.partition(":")[0]


def test_both_at_once_are_refused() -> None:
    with pytest.raises(PMIxError, match="or do not"):
        inherited(attrs.MAPBY("slot:inherit:noinherit"))


def test_the_whole_environment_is_forwarded() -> None:
    assert dict(inherited(attrs.FWD_ENVIRONMENT(True)).env) == {"PATH": "/bin", "LIST": "p", "UHU": "5"}
    assert dict(inherited(attrs.FWD_ENVIRONMENT(False)).env) == {"UHU": "5", "LIST": "p"}
