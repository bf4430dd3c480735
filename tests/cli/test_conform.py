"""`pypmix conform` says of a server which promises it keeps: of ours all, of others what the suite knows of them."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from lib import machine, slurm
from lib.command import Command, Ended
from lib.pairings import Pairing, surviving
from pypmix import reports
from pypmix.cli.launching import JobEnd
from pypmix.conformance.check import Promise
from pypmix.conformance.checks import CHECKS, TOPICS
from pypmix.extras.commands import conform

OWN = [sys.executable, "-m", "pypmix", "run", "-n", "4"]
BROKEN_HOST = [sys.executable, str(Path(__file__).with_name("broken_host.py")), "3"]
LOSSES = "Losses"
PAIRING = Pairing("prterun-5.0.11", "python-client")

VARIES = {name for name in CHECKS if (lack := PAIRING.lack(name)) and lack.harm}
"""The promises that prterun keeps now and then."""


def results(command: Command, launcher: list[str], *only: str, words: tuple[object, ...] = ()) -> dict[str, dict]:
    """Try some promises, and return what has become of each by its name."""
    patterns = [word for pattern in only for word in ("--only", pattern)]
    ended = command("conform", "--engine", "python", *patterns, "--json", *words, "--", *launcher)
    assert ended.code in (0, 1), ended.err.decode()
    found = json.loads(ended.out)["promises"]
    assert ended.code == any(each["result"] == "broken" for each in found)
    return {each["name"]: each for each in found}


def said(found: dict[str, dict]) -> dict[str, tuple[str, str]]:
    return {name: (each["result"], each["why"]) for name, each in found.items()}


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.timeout(150)
def test_our_server_keeps_all(command: Command, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    monkeypatch.setattr("lib.command.LIMIT", 140.0)
    # Those whose ranks are killed take their time; the suite runs each of them on our server.
    wanted = [name for name, (title, _) in CHECKS.items() if title == topic][:: 3 if topic == LOSSES else 1]
    found = said(results(command, [*OWN[:-2], "--keep-going", *OWN[-2:]], *wanted))
    assert set(found) >= set(wanted)
    no_set = found.pop("pset: query", None)
    assert no_set is None or no_set[0] == "cannot be tested" and "--pset" in no_set[1]
    assert found == dict.fromkeys(found, ("kept", ""))


def test_process_sets(command: Command) -> None:
    assert said(results(command, [*OWN, "--pset", "ocean"], "pset*"))["pset: query"] == ("kept", "")


@pytest.mark.timeout(150)
def test_prterun_keeps_what_the_suite_knows(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = machine.launcher(PAIRING.server)
    if launcher is None:
        machine.lacking(f"the server {PAIRING.server}")
    assert launcher is not None
    monkeypatch.setattr("lib.command.LIMIT", 140.0)
    lacking = {name for name, (topic, _) in CHECKS.items() if PAIRING.lack(name) and topic != LOSSES} - VARIES
    lacking.add("construct: a member dies")
    assert {"duplicate keys are refused", "connect: nspace", "credentials", "targets of job control"} <= lacking
    # The suite runs each check on each pairing: here are those that it expects to fail, and some others.
    some = ["fence: some procs", "publish", "construct", "invite", "spawn", "events: order", "a member fails"]
    options = (*machine.PRTERUN_OPTIONS, *surviving(PAIRING.server), "-n", "4")
    found = said(results(command, [launcher.path, *options], *some, *sorted(lacking)))
    assert {name for name, (result, _) in found.items() if result == "kept"} == set(found) - lacking, found
    assert found["construct: a member dies"][1].startswith("rank 0 has seen ['GROUP_CONSTRUCT_ABORT', 'a group', []]")
    assert found["credentials"][0] == found["connect: nspace"][0] == "cannot be tested"
    assert found["duplicate keys are refused"][1].startswith("rank 0 has seen [[None, 0], 'first'], not ")


@pytest.mark.timeout(100)
def test_slurm_says_what_it_does_not_offer(command: Command, request: pytest.FixtureRequest) -> None:
    if slurm.lacking():
        machine.lacking(slurm.lacking())
    launcher = [*request.getfixturevalue("slurm_cluster").command(2), "-n", "4"]
    found = said(results(command, launcher, "exchange", "exact floats", "publish", "unpublish"))
    assert found["exchange"] == ("kept", "")
    assert found["exact floats"][0] == "broken"
    result, why = found["publish"]
    assert result == "cannot be tested" and "Slurm's PMIx plugin keeps no published data" in why
    assert found["unpublish"] == ("cannot be tested", "it needs 'publish', which cannot be tested")


def test_a_server_that_answers_wrongly(command: Command) -> None:
    found = said(results(command, BROKEN_HOST, "publish", "lookup: waits", "namespaces by query", "construct"))
    assert found["start"] == found["construct"] == ("kept", "")
    result, why = found["publish"]
    assert result == "broken" and why.startswith("rank 0 (and ranks 1 to 2 like it) failed with NotFound: lookup")
    assert found["lookup: waits"] == ("cannot be tested", "it needs 'publish', which is broken")
    result, why = found["namespaces by query"]
    assert result == "broken" and why.startswith("rank 0 has seen [False, ") and "not [True, [3, 3], 3" in why


def test_too_few_ranks(command: Command) -> None:
    found = said(results(command, [*OWN[:-1], "2"], "construct", "leave"))
    assert found["leave"] == ("cannot be tested", "it needs 3 ranks, and the command starts 2")


def test_a_launcher_that_ends_its_job_with_a_rank(command: Command) -> None:
    found = said(results(command, OWN, "a job goes on", "a member fails"))
    result, why = found["a job goes on"]
    assert result == "cannot be tested" and "ends its job when a rank is killed, with exit code 137; launchers" in why
    assert found["a member fails"] == ("cannot be tested", "it needs 'a job goes on', which cannot be tested")


def ended_with(command: Command, *launcher: str, timeout: float = 20) -> Ended:
    return command("conform", "--timeout", timeout, "--only", "exchange", "--", *launcher)


def test_a_command_that_hangs(command: Command) -> None:
    hangs = "import time; time.sleep(1000)"
    ended = ended_with(command, "sh", "-c", f"{sys.executable} -c '{hangs}' & wait", timeout=2)
    assert ended.code == 1
    assert "the command hangs: no rank has reported within 2 s" in ended.out.decode()
    assert "0 kept, 1 broken, 1 cannot be tested" in ended.lines[-1]


@pytest.mark.timeout(100)
def test_a_server_that_never_answers(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise that hangs is named with the line that the rank waits in, and the next one is tried."""
    monkeypatch.setattr("lib.command.LIMIT", 80.0)
    silent = [*BROKEN_HOST[:-1], "--silent", "2"]
    found = said(results(command, silent, "exchange", "publish", "construct", words=("--timeout", 24)))
    result, why = found["publish"]
    assert result == "broken"
    assert (
        why
        == 'rank 0 (and rank 1 like it) did not come back from `await me.publish({f"acme.port.{me.rank}": f"tcp://{me.rank}"})`'
    )
    assert found["exchange"] == found["construct"] == ("kept", "")


def test_ranks_without_a_server(command: Command) -> None:
    ended = ended_with(command, "env")
    assert ended.code == 1
    text = " ".join(ended.out.decode().split())
    assert "rank 0 failed with Unreachable: open: no server launched this process" in text
    assert "Without that nothing can be tested." in text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--", "acme-no-such-launcher", "-n", "4"], "program not found: acme-no-such-launcher"),
        ([], "name the command that starts the ranks behind --"),
        (["--only", "acme*", "--", "env"], "no promise has the name 'acme*'"),
        (["env"], "unrecognized arguments: env"),
        (["--json", "/acme/none/x.json", "--", "env"], "argument --json: /acme/none/x.json cannot be written"),
        (["--timeout", "0", "--", "env"], "argument --timeout: 0 is less than 0.1"),
    ],
)
def test_mistakes(command: Command, words: list[str], text: str) -> None:
    ended = command("conform", *words)
    assert ended.code == 2
    assert ended.err.decode().startswith(f"pypmix conform: {text}")


def test_the_old_form_of_json_warns(command: Command) -> None:
    path = command.folder / "conform.json"
    ended = command("conform", "--engine", "auto", "--only", "start", f"--json={path}", "--", *OWN)
    assert ended.code == 0, ended.err.decode()
    assert ended.err.decode() == f"pypmix conform: --json {path} is deprecated: write --json > {path}\n"
    assert "1 kept" in ended.out.decode() and json.loads(path.read_text())["promises"]


def test_the_list(command: Command) -> None:
    ended = command("conform", "--list")
    assert ended.code == 0
    assert [line.partition("  ")[0] for line in ended.lines] == list(CHECKS)


def test_the_table_in_markdown(command: Command) -> None:
    path = command.folder / "conform.md"
    ended = command("conform", "--only", "pset*", "--markdown", path, "--", *OWN)
    assert ended.code == 0
    head, _, titles, _, first, second = path.read_text().splitlines()
    assert head.startswith(f"`{' '.join(OWN)}`: 4 ranks on 1 node, client ")
    assert titles == "| Promise | What it says | Where | Result | Why |"
    assert first == f"| start | {CHECKS['start'][1].promise.text} | Standard, PMIx_Init | kept |  |"
    assert second.split(" | ")[3:] == ["cannot be tested", second.split(" | ")[4]]


def test_an_interrupt_ends_the_job(command: Command) -> None:
    mark = command.folder / "ready.0"
    started = command.start("conform", "--only", "start", "--", "sh", "-c", f"echo here > {mark}; sleep 1000")
    command.wait_for("ready")
    started.send_signal(signal.SIGINT)
    assert command.end(started).code == 130


def test_each_promise_is_one_promise() -> None:
    assert sum(
        [len([each for each in vars(module).values() if hasattr(each, "promise")]) for module in TOPICS.values()]
    ) == len(CHECKS)
    for _, check in CHECKS.values():
        assert isinstance(check.promise, Promise) and set(check.needs) <= set(CHECKS)
        assert all(list(CHECKS).index(name) < list(CHECKS).index(check.name) for name in check.needs)


REPORT = {"size": 2, "node": "n", "client": "c", "server": "s"}
SEEN = "the ranks have seen it kept, but the command ended with exit code"
GOOD = [{"rank": rank, **REPORT, "result": [rank, 2, "job"]} for rank in range(2)]


@pytest.mark.parametrize(
    ("told", "code", "errors", "why"),
    [
        (GOOD, 0, "", ""),
        (GOOD, 3, "a\n---", "the ranks have seen it kept, but the command ended with exit code 3: a"),
        (GOOD, -11, "", f"the command crashed (SIGSEGV): {SEEN} -11"),
        (
            GOOD[:1],
            134,
            "",
            "the command crashed (SIGABRT): rank 1 ended without a word, the command with exit code 134",
        ),
        (GOOD[:1], 0, "", "rank 1 ended without a word, the command with exit code 0"),
        (GOOD[:1], None, "", "the command hangs: rank 1 has not reported within 9 s"),
        (GOOD, None, "", "the command hangs: all ranks had ended, and it did not end within 9 s"),
        (
            [GOOD[0], {"rank": 1, **REPORT, "result": [1, 3, "job"]}],
            0,
            "",
            "rank 1 has seen [1, 3, 'job'], not [1, 2, 'job']",
        ),
        ([GOOD[0], {"rank": 1, **REPORT, "result": None}], 0, "", "rank 1 has seen None, not [1, 2, 'job']"),
    ],
)
def test_how_a_job_is_judged(told: list[dict], code: int | None, errors: str, why: str) -> None:
    found = conform.judge(CHECKS["start"][1], JobEnd(told, code, 1.0, errors), 2, 9)
    assert found == ("broken" if why else "kept", why)


LOST = [{"rank": rank, **REPORT, "result": [None, []]} for rank in range(3)]


@pytest.mark.parametrize(
    ("name", "told", "code", "result", "why"),
    [
        ("a job goes on", [{**each, "result": None} for each in (LOST[0], LOST[2])], 137, "kept", ""),
        (
            "a job goes on",
            [],
            137,
            "cannot be tested",
            "the command ends its job when a rank is killed, with exit code",
        ),
        ("a job goes on", [], 139, "broken", "the command crashed (SIGSEGV): "),
        ("a job goes on", LOST[:1], None, "broken", "the command hangs: rank 2 has not reported within 9 s"),
        ("destruct: a member dies", LOST[:1], 137, "broken", "rank 1 ended without a word, the command with exit code"),
        (
            "destruct: a member dies",
            LOST[:2],
            137,
            "broken",
            "rank 0 has seen [None, []], not ['ERR_PARTIAL_SUCCESS', ",
        ),
        ("destruct: a member dies", LOST[:2], 134, "broken", "the command crashed (SIGABRT): rank 0 has seen [None, "),
    ],
)
def test_how_a_job_that_loses_ranks_is_judged(told: list[dict], code: int, name: str, result: str, why: str) -> None:
    found = conform.judge(CHECKS[name][1], JobEnd(told, code, 1.0, ""), 3, 9)
    assert found[0] == result and found[1].startswith(why) and bool(found[1]) == bool(why), found


def test_reports_are_found_in_what_launchers_make_of_the_output() -> None:
    lines = [
        'some text PYPMIX-REPORT other {"rank": 9}',
        '[1,0]<stdout>:PYPMIX-REPORT mine {"rank": 0}',
        '1: PYPMIX-REPORT mine {"rank": 1, "result": "a } b"} and more',
        'PYPMIX-REPORT mine {"rank": 2, "res',
    ]
    assert reports.read("mine", "\n".join(lines)) == [{"rank": 0}, {"rank": 1, "result": "a } b"}]
