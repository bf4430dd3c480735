"""The command line of `pypmix run`: options, applications, and what is refused with which words."""

from __future__ import annotations

import sys

import pytest

from lib.command import Command
from pypmix import Rank
from pypmix.cli.options import OPTIONS, Request, parse
from pypmix.cli.usage import UsageError
from pypmix.host import Application
from pypmix.host.terms import Terms

SH = ("sh", "-c")


def test_everything_after_the_program_belongs_to_it() -> None:
    words = ["-n", "2", "prog", "-n", "5", "--help", "-x", "A=1", "--", "--tag-output"]
    assert parse(words, {}) == Request((Application(("prog", *words[3:]), 2),), Terms())


def test_two_dashes_end_the_options() -> None:
    assert parse(["-n2", "--", "-odd", "x"], {}).apps == (Application(("-odd", "x"), 2),)


@pytest.mark.parametrize("words", [["-n", "3"], ["-n3"], ["-np", "3"], ["--np", "3"], ["--np=3"]])
def test_the_number_of_ranks_in_all_spellings(words: list[str]) -> None:
    assert parse([*words, "a"], {}).apps == (Application(("a",), 3),)


def test_applications_have_their_own_options() -> None:
    words = "--tag-output -n 2 -x A=1 ./a -v : --timeout 1.5 --wdir /b -x B=x=y -x C= ./b : c"
    assert parse(words.split(), {}) == Request(
        (
            Application(("./a", "-v"), 2, (("A", "1"),)),
            Application(("./b",), 1, (("B", "x=y"), ("C", "")), "/b"),
            Application(("c",)),
        ),
        Terms(tagged=True),
        1.5,
    )


def test_a_variable_without_value_is_taken_from_here() -> None:
    assert parse(["-x", "HERE", "-x", "GONE", "a"], {"HERE": "1"}).apps == (Application(("a",), 1, (("HERE", "1"),)),)


def test_runs_that_are_joined_are_clusters() -> None:
    request = parse(["--cluster", "A", "--join", "/x/y", "--join-address", "10.0.0.7", "--nspace", "job", "a"], {})
    assert (request.cluster, request.join, request.address, request.nspace) == ("A", "/x/y", "10.0.0.7", "job")
    assert parse(["--cluster", "A", "a"], {}).cluster == "A"


def test_the_engine_holds_for_all_applications() -> None:
    assert parse(["a", ":", "--engine", "native", "b"], {}).engine == "native"
    assert parse(["a"], {}).engine == ""


@pytest.mark.parametrize(
    ("words", "terms"),
    [
        ("a", Terms()),
        (
            "--timestamp-output --merge-stderr --forward --keep-going a",
            Terms(False, True, True, (True, True), "", "", True, keep_going=True),
        ),
        ("-n 4 --stdin 3 a", Terms(stdin=3)),
        ("--stdin all a", Terms(stdin=Rank.WILDCARD)),
        ("--stdin=none a", Terms(stdin=None)),
        ("--stdin push a", Terms(stdin=Rank.WILDCARD, pushed=True)),
        ("--output-directory /logs a", Terms(directory="/logs")),
    ],
)
def test_the_terms_of_the_job(words: str, terms: Terms) -> None:
    assert parse(words.split(), {}).terms == terms


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("", "no program"),
        ("-n 2", "no program"),
        ("a :", "no program to run was given after ':'"),
        ("-n 0 a", "-n takes a whole number of at least 1, not '0'"),
        ("-n -3 a", "not '-3'"),
        ("-n two a", "not 'two'"),
        ("-n 1.5 a", "not '1.5'"),
        ("-n \u0663 a", "not '\u0663'"),
        ("-n", "-n needs a value: -n N"),
        ("--timeout 0 a", "--timeout takes a number of seconds above 0, not '0'"),
        ("--timeout nan a", "not 'nan'"),
        ("--timeout inf a", "not 'inf'"),
        ("--engine fast a", "--engine takes auto, native or python, not 'fast'"),
        ("-x =1 a", "-x takes NAME=VALUE or NAME, not '=1'"),
        ("-n 2 --stdin 2 a", "--stdin takes one of the ranks 0 to 1, not 2"),
        ("--stdin some a", "--stdin takes a rank, all, none or push, not 'some'"),
        ("--tag-output=yes a", "--tag-output takes no value"),
        ("--wdir= a", "--wdir takes a value that is not empty"),
        ("--nodes 0 a", "--nodes takes a whole number of at least 1, not '0'"),
        ("--nodes 2000 a", "a host has 1 to 256 nodes, not 2000"),
        ("--nodes 2 --server-engine native a", "several nodes are simulated with the python engine's servers only"),
        ("--join /x a", "add --cluster NAME"),
        ("--join-address h a", "add --join DIR"),
        ("--cluster A:B a", "a cluster's name is not empty and holds no colon and no slash: 'A:B'"),
        ("--nspace a:b a", "the nspaces of jobs cannot begin with 'a:b'"),
        ("--cluster A --join x --server-engine native a", "on the python engine only"),
        ("--server-engine auto a", "--server-engine takes native or python, not 'auto'"),
        ("--server-libpmix ./lib a", "--server-libpmix is for a server of the native engine"),
        ("--colour a", "there is no option --colour"),
        ("--timeuot 3 a", "there is no option --timeuot; did you mean --timeout?"),
        ("--tag-outptu=1 a", "there is no option --tag-outptu; did you mean --tag-output?"),
        ("-Y a", "there is no option -Y"),
        ("-n 5000000000 a", "a node holds 65535"),
        ("-n 70000 a", "a node holds 65535"),
    ],
)
def test_what_cannot_be_is_refused(command: Command, words: str, part: str) -> None:
    ended = command("run", *words.split())
    assert ended.code == 2
    assert part in ended.message
    assert ended.message.startswith("pypmix run: ")
    assert b"Try 'pypmix run --help'." in ended.err


def test_the_servers_of_the_job() -> None:
    plain = parse(["a"], {})
    assert (plain.nodes, plain.server_engine, plain.library) == (1, "python", None)
    assert parse(["--nodes", "3", "-n", "8", "a"], {}).nodes == 3
    native = parse(["--server-engine", "native", "--server-libpmix", "/lib/libpmix.so.2", "a"], {})
    assert (native.server_engine, native.library) == ("native", "/lib/libpmix.so.2")


def test_a_libpmix_that_is_none_is_named(command: Command) -> None:
    ended = command("run", "--server-engine", "native", "--server-libpmix", "/no/such/libpmix.so", *SH, "true")
    assert ended.code == 1
    assert "/no/such/libpmix.so" in ended.message
    # What is to be tried is an option of this command, not a variable of clients.
    assert "PYPMIX_" not in ended.err.decode()
    assert "--server-libpmix PATH" in ended.err.decode()


def test_errors_come_from_the_parser_and_not_from_the_job() -> None:
    with pytest.raises(UsageError):
        parse(["--nonsense"], {})


def test_help_shows_every_option(command: Command) -> None:
    for words in (["--help"], ["-n", "2", "-h"]):
        ended = command("run", *words)
        assert ended.code == 0
        for option in OPTIONS:
            for name in option.names:
                assert name in ended.out.decode()


def test_several_programs_in_one_job(command: Command) -> None:
    ended = command(
        "run", "-n", 2, "-x", "WHO=first", *SH, "echo $WHO $PMIX_RANK", ":", *SH, "echo ${WHO:-none} $PMIX_RANK"
    )
    assert ended.code == 0
    assert sorted(ended.lines) == ["first 0", "first 1", "none 2"]


JOB_INFO = """
from pypmix import Client
with Client() as me:
    get = lambda key, **where: me.get(key, proc=me.proc, **where)
    print(me.rank, me.job.size, me.job.number_of_apps, get("pmix.appnum"), get("pmix.apprank"), get("pmix.lrank"))
"""


def test_the_ranks_of_several_programs_know_their_places(command: Command) -> None:
    ended = command("run", "-n", 2, sys.executable, "-c", JOB_INFO, ":", "-n", 1, sys.executable, "-c", JOB_INFO)
    assert ended.code == 0, ended.err
    assert sorted(ended.lines) == ["0 3 2 0 0 0", "1 3 2 0 1 1", "2 3 2 1 0 2"]


def test_the_working_directory(command: Command) -> None:
    (command.folder / "sub").mkdir()
    (command.folder / "sub" / "tool").write_text("#!/bin/sh\npwd; echo $PWD\n")
    (command.folder / "sub" / "tool").chmod(0o755)
    ended = command("run", "-n", 2, "--wdir", "sub", "./tool", ":", "pwd")
    assert sorted(ended.lines) == sorted([str(command.folder / "sub")] * 4 + [str(command.folder)])


def test_a_changed_path_finds_the_program(command: Command) -> None:
    (command.folder / "bin").mkdir()
    (command.folder / "bin" / "mine").write_text("#!/bin/sh\necho mine\n")
    (command.folder / "bin" / "mine").chmod(0o755)
    path = f"{command.folder}/bin:{command.environment['PATH']}"
    assert command("run", "-x", f"PATH={path}", "mine").lines == ["mine"]


def test_the_engine_reaches_the_ranks(command: Command) -> None:
    other = {"PYPMIX_ENGINE": "native"}
    assert command("run", "--engine", "python", *SH, "echo $PYPMIX_ENGINE", env=other).lines == ["python"]
    own = ("-x", "PYPMIX_ENGINE=native")
    assert command("run", "--engine", "python", *own, *SH, "echo $PYPMIX_ENGINE").lines == ["native"]


def test_an_outer_job_is_not_passed_on_but_the_users_parameters_are(command: Command) -> None:
    show = (*SH, "env | grep -E '^(PMIX|OMPI|PRTE)_' | cut -d= -f1")
    user = {"OMPI_MCA_btl": "self", "PMIX_MCA_gds": "hash", "PMIX_SERVER_URI3": "old", "PRTE_X": "1"}
    seen = command("run", *show, env=user).lines
    assert {"OMPI_MCA_btl", "PMIX_MCA_gds"} <= set(seen)
    assert not {"PMIX_SERVER_URI3", "PRTE_X"} & set(seen)
    outer = {**user, "PMIX_NAMESPACE": "outer@1", "PMIX_RANK": "7", "OMPI_COMM_WORLD_RANK": "7"}
    seen = command("run", *show, env=outer).lines
    assert not {"OMPI_MCA_btl", "PMIX_MCA_gds", "OMPI_COMM_WORLD_RANK", "PMIX_SERVER_URI3"} & set(seen)
    assert command("run", "-x", "OMPI_MCA_btl", *show, env=outer).lines.count("OMPI_MCA_btl") == 1
