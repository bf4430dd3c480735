"""Jobs that ranks of `pypmix run` spawn: what they are given, how they end, what others hear, and what is left."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

import pytest

from lib.command import Command, Ended
from pypmix import Status

SH = ("sh", "-c")

START = """
import os, signal, sys, time
import pypmix
from pypmix import EventCode, IOFChannel, Rank, attrs
from pypmix.types import App
me = pypmix.Client().open()
def sh(text, n=1, **options):
    return me.spawn(["sh", "-c", text], n=n, **options)
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
"""


def spawner(command: Command, text: str, *options: object, ranks: int = 1, close: bool = True) -> Ended:
    """Run a program that has a client `me` and the function `sh`, which spawns a shell."""
    program = START + text + ("\nme.close()" if close else "")
    return command("run", "-n", ranks, "--engine", "python", *options, sys.executable, "-c", program)


def test_a_child_job_runs_and_its_parent_knows_how_it_ended(command: Command) -> None:
    ended = spawner(
        command, "job = sh('echo $PMIX_NAMESPACE $PMIX_RANK', 3)\nassert job.wait(20) == 0\nprint(job.nspace)"
    )
    assert (ended.code, ended.err) == (0, b"")
    nspace = ended.lines[-1]
    assert nspace.endswith("@2")
    assert sorted(ended.lines[:-1]) == [f"{nspace} {rank}" for rank in range(3)]


@pytest.mark.parametrize(
    "where", [("--nodes", 1), ("--nodes", 2), ("--host", "n1:2,n2", "--launch-agent", "sh -c {command}")]
)
def test_the_engine_that_was_chosen_for_the_run_is_the_childs_too(command: Command, where: tuple[object, ...]) -> None:
    ended = spawner(command, "assert sh('echo $PYPMIX_ENGINE', 2).wait(20) == 0", *where)
    assert (ended.code, ended.lines) == (0, ["python", "python"])


@pytest.mark.parametrize("where", [(), ("--nodes", 2), ("--host", "n1:2,n2", "--launch-agent", "sh -c {command}")])
def test_a_parent_gets_the_exit_code_of_a_child_that_fails(command: Command, where: tuple[object, ...]) -> None:
    ended = spawner(command, "print(*[sh(f'exit {code}').wait(20) for code in (3, 0, 4)])", *where)
    assert ended.lines == ["3 0 4"], ended


CHILD = """
import pypmix
with pypmix.Client() as me:
    get = lambda key: me.get(key, proc=me.proc)
    print(me.rank, me.parent, me.spawned, get("pmix.nrank"), get("pmix.lrank"), get("pmix.grank"), get("pmix.apprank"),
          me.get("pmix.univ.size"), get("pmix.appnum"), len(me.job.procs))
"""


def test_a_child_knows_its_parent_and_ranks_of_the_node_do_not_collide(command: Command) -> None:
    (command.folder / "child.py").write_text(CHILD)
    text = "words = os.path.basename(sys.executable), 'child.py'\n"
    text += "if me.rank == 1:\n  job = me.spawn([App(sys.executable, words, (), None, 2), "
    text += "App(sys.executable, words)])\n  job.wait(20)\n  print('parent', me.proc)\nme.fence()"
    ended = spawner(command, text, ranks=2)
    assert ended.code == 0, ended.err
    lines = sorted(ended.lines)
    parent = lines[3].split()[1]
    assert lines[:3] == [
        f"0 {parent} True 2 0 2 0 5 0 3",
        f"1 {parent} True 3 1 3 1 5 0 3",
        f"2 {parent} True 4 2 4 0 5 1 3",
    ]


def test_the_parent_has_the_childs_job_info(command: Command) -> None:
    text = "job = sh('sleep 5', 2)\nprint(job.size, me.get('pmix.nrank', proc=job[1]), "
    text += "me.get('pmix.parent', proc=job[0]) == me.proc, flush=True)"
    ended = spawner(command, text + "\nos.kill(os.getpid(), 9)")
    assert ended.lines == ["2 2 True"]
    assert ended.code == 137


@pytest.mark.parametrize(
    ("app", "status"),
    [
        ("App('no-such-program', ('no-such-program',))", "ERR_JOB_EXE_NOT_FOUND"),
        ("App('./nowhere/x', ('x',))", "ERR_JOB_EXE_NOT_FOUND"),
        ("App('sh', ('sh',), (), '/no/such/folder')", "ERR_JOB_WDIR_NOT_FOUND"),
        ("App('/etc/passwd', ('passwd',))", "ERR_JOB_APP_NOT_EXECUTABLE"),
        ("App('./odd', ('odd',))", "ERR_JOB_APP_NOT_EXECUTABLE"),
        ("App('./orphan', ('orphan',))", "ERR_JOB_EXE_NOT_FOUND"),
        ("App('true', ('true',), ('NOEQUALS',))", "ERR_BAD_PARAM"),
        ("App('true', ('true',), (), None, 70000)", "ERR_JOB_INSUFFICIENT_RESOURCES"),
        ("App('true', ('true',), (), None, 1, (attrs.HOST('elsewhere'),))", "ERR_JOB_FAILED_TO_MAP"),
        ("App('true', ('true',), (), None, 1, (attrs.HOSTFILE('nofile'),))", "ERR_JOB_FAILED_TO_MAP"),
        ("App('true', ('true',), (), None, 1, (attrs.HOSTFILE('hosts'),))", "ERR_JOB_FAILED_TO_MAP"),
        ("App('true', ('true',), (), None, 5000, (attrs.NO_OVERSUBSCRIBE(True),))", "ERR_JOB_INSUFFICIENT_RESOURCES"),
        ("App('true', ('true',), (), None, 1, (attrs.DISPLAY_ALLOCATION(True, flags=1),))", "ERR_NOT_SUPPORTED"),
        (
            "App('true', ('true',), (), None, 1, (pypmix.Info('acme.odd', pypmix.types.uint32(1), 1),))",
            "ERR_NOT_SUPPORTED",
        ),
        ("App('true', ('true',), (), None, 1, (attrs.DO_NOT_LAUNCH(True),))", "ERR_NOT_SUPPORTED"),
        ("App('true', ('true',), (), None, 1, (pypmix.Info('pmix.wdir', pypmix.types.uint32(1)),))", "ERR_BAD_PARAM"),
    ],
)
def test_what_cannot_be_started_is_refused_by_name_and_harms_nothing(command: Command, app: str, status: str) -> None:
    (command.folder / "odd").write_text("\0\0")
    (command.folder / "odd").chmod(0o755)
    (command.folder / "orphan").write_text("#!/no/such/interpreter\n")
    (command.folder / "orphan").chmod(0o755)
    (command.folder / "hosts").write_text("# ours\nelsewhere slots=4\n")
    text = f"try: me.spawn({app})\nexcept pypmix.PMIxError as e: print(e.status.name)\n"
    ended = spawner(command, text + "print(sh('exit 0').wait(20))")
    assert ended.lines == [status, "0"]
    assert (ended.code, ended.err) == (0, b"")


def test_a_job_of_which_a_rank_cannot_be_started_leaves_nothing(command: Command) -> None:
    (command.folder / "odd").write_text("\0\0")
    (command.folder / "odd").chmod(0o755)
    text = "try: me.spawn([App('sh', ('sh', '-c', 'trap \"\" TERM; sleep 60')), App('./odd', ('odd',))])\n"
    text += "except pypmix.PMIxError as e: print(e.status.name)"
    ended = spawner(command, text)
    assert (ended.code, ended.lines, ended.err) == (0, ["ERR_JOB_APP_NOT_EXECUTABLE"], b"")


@pytest.mark.parametrize("host", ["localhost", socket.gethostname(), f"{socket.gethostname()}:4,localhost"])
def test_this_node_may_be_named(command: Command, host: str) -> None:
    assert spawner(command, f"print(sh('exit 0', info=[attrs.HOST({host!r})]).wait(20))").lines == ["0"]


def test_files_are_found_in_a_folder_of_the_job(command: Command) -> None:
    """On this machine as on nodes that they are carried to."""
    (command.folder / "data").write_text("text")
    shows = "readlink -f $PYPMIX_PRELOAD/data; cat $PYPMIX_PRELOAD/data"
    text = f"job = sh({shows!r}, info={{attrs.PRELOAD_FILES: 'data'}})\nprint(job.wait(20))"
    assert spawner(command, text).lines == [str(command.folder / "data"), "text0"]
    ended = command("run", "--preload", "data", "-n", 1, "sh", "-c", f"{shows}; echo; echo $1", "sh", "data")
    assert ended.lines == [str(command.folder / "data"), "text", "data"], ended.err
    refused = command("run", "--preload", "nosuch", "true")
    assert refused.code == 2 and b"--preload takes a file that can be read: No such file" in refused.err


def test_procs_are_mapped_to_simulated_nodes(command: Command) -> None:
    text = """
for info in ({}, {attrs.MAPBY: "slot"}, {attrs.MAPBY: "node"}, {attrs.PPR: "2:node"}, {attrs.PPR: "1:node"},
             {attrs.HOST: "node0:1,node1:3"}):
    try:
        job = sh("exit 0", 4, info=info)
        print(*[me.get(attrs.HOSTNAME, proc)[-1] for proc in job], job.wait(20))
    except pypmix.PMIxError as error:
        print(error.status.name, error.detail)
"""
    ended = spawner(command, text, "--nodes", 2)
    assert ended.code == 0, ended.err
    *placed, refused, limited = ended.lines
    assert placed == ["0 0 1 1 0", "0 0 1 1 0", "0 1 0 1 0", "0 0 1 1 0"]
    assert refused.startswith("ERR_JOB_INSUFFICIENT_RESOURCES 4 ranks do not fit on 2 nodes with 1 on each: 2 do")
    assert limited == "0 1 1 1 0"


def test_the_environment_is_what_the_directives_say(command: Command) -> None:
    text = """
from pypmix.types import Envar
changes = [
    attrs.SET_ENVAR(Envar("SET", "new")), attrs.ADD_ENVAR(Envar("SET", "late")), attrs.ADD_ENVAR(Envar("ADDED", "1")),
    attrs.PREPEND_ENVAR(Envar("LIST", "a", ":")), attrs.APPEND_ENVAR(Envar("LIST", "z", ":")),
    attrs.FIRST_ENVAR(Envar("ORDER", "c", ";")), attrs.UNSET_ENVAR("GONE"),
]
own = {"OWN": "x", "LIST": "m", "SET": "old"}
job = sh("echo $SET $ADDED $LIST $ORDER ${GONE-none} $OWN $HERE", env=own, info=changes)
job.wait(20)
"""
    ended = command(
        *("run", "-x", "ORDER=a;b;c", "-x", "HERE=1", "--engine", "python"),
        *(sys.executable, "-c", START + text + "me.close()"),
        env={"GONE": "1", "ORDER": "a;b;c", "HERE": "2"},
    )
    # What `-x` sets for the first job is passed on.
    assert ended.lines == ["new 1 a:m:z c;a;b none x 1"], ended.err


def test_the_working_directory(command: Command) -> None:
    (command.folder / "sub" / "deep").mkdir(parents=True)
    text = "jobs = [sh('pwd'), sh('pwd', cwd='/'), sh('pwd', cwd='sub', info=[attrs.WDIR('deep')]), "
    text += "sh('pwd', info=[attrs.SET_SESSION_CWD(True)])]\n[job.wait(20) for job in jobs]"
    lines = spawner(command, text).lines
    assert {str(command.folder), "/", f"{command.folder}/sub/deep"} <= set(lines)
    assert any(line.startswith(str(command.temporary)) and line.endswith("/job-5") for line in lines)


def test_a_childs_failure_is_told_and_is_the_exit_code_but_ends_only_its_job(command: Command) -> None:
    text = "job = sh('[ $PMIX_RANK = 1 ] || sleep 60; exit 5', 3)\nprint(job.wait(20))\nprint('on')"
    ended = spawner(command, text)
    assert ended.code == 5
    assert ended.lines == ["5", "on"]
    assert ended.message.startswith("pypmix run: rank 1 of job 2 (pid ")
    assert ended.message.endswith("exited with code 5; 2 other ranks were ended")


def test_a_childs_failure_may_be_kept_out_of_the_exit_code(command: Command) -> None:
    ended = spawner(command, "print(sh('kill -9 $$', info=[attrs.REPORT_CHILD_SEP(True)]).wait(20))")
    assert (ended.code, ended.lines, ended.err) == (0, ["137"], b"")


@pytest.mark.parametrize("separate", [False, True])
def test_a_parent_that_fails_takes_its_child_with_it_unless_that_is_separate(command: Command, separate: bool) -> None:
    text = (
        f"sh('echo > up; sleep 1; echo lived', info=[attrs.SPAWN_CHILD_SEP({separate})])\nwait_for('up')\nos._exit(7)"
    )
    ended = spawner(command, text, close=False)
    assert ended.code == 7
    assert ended.lines == (["lived"] if separate else [])


def test_a_child_may_outlive_a_parent_that_ends_well(command: Command) -> None:
    ended = spawner(command, "sh('sleep 0.7; echo lived', 2)")
    assert (ended.code, ended.lines) == (0, ["lived", "lived"])


def test_abort_of_a_child_by_its_parent(command: Command) -> None:
    ended = spawner(command, "job = sh('sleep 60', 2)\nme.abort(6, 'enough', job.procs)\nprint(job.wait(20))")
    assert (ended.code, ended.lines) == (6, ["6"])
    assert "called abort with status 6: enough; 2 other ranks were ended" in ended.message


def test_a_child_that_runs_too_long(command: Command) -> None:
    ended = spawner(command, "print(sh('sleep 60', info=[attrs.JOB_TIMEOUT(1)]).wait(20))")
    assert (ended.code, ended.lines) == (124, ["124"])
    assert ended.message == "pypmix run: job 2 did not end within 1 s and was ended"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_jobs(command: Command, signum: signal.Signals) -> None:
    program = START + "sh('echo $$ > pid.$PMIX_RANK; sleep 60 & wait', 2)\ntime.sleep(60)"
    process = command.start("run", "--engine", "python", sys.executable, "-c", program)
    command.wait_for("pid", 2)
    process.send_signal(signum)
    assert command.end(process).code == 128 + signum
    assert command.left() == []


def test_a_killed_launcher_leaves_nothing_of_its_children(command: Command) -> None:
    program = START + "sh('echo $$ > pid.$PMIX_RANK; setsid sleep 60 & sleep 60 & wait', 2)\ntime.sleep(60)"
    process = command.start("run", "--engine", "python", sys.executable, "-c", program)
    command.wait_for("pid", 2)
    os.kill(process.pid, signal.SIGKILL)
    command.end(process)
    assert command.left() == []


def test_what_a_child_leaves_behind_ends_with_it_while_its_parent_goes_on(command: Command) -> None:
    text = "job = sh('echo $$ > pid.0; sleep 60 & exit 0')\njob.wait(20)\npid = int(open('pid.0').read())\n"
    text += "try: os.killpg(pid, 0)\nexcept ProcessLookupError: print('gone')\n"
    ended = spawner(command, text)
    assert (ended.code, ended.lines) == (0, ["gone"])


def test_many_children_leave_no_descriptor_process_or_file_in_the_launcher(command: Command) -> None:
    text = """
def held():
    pids = [pid for pid in os.listdir("/proc") if pid.isdigit()]
    states = [open(f"/proc/{pid}/stat").read().rpartition(")")[2].split() for pid in pids]
    zombies = sum(words[0] == "Z" and words[1] == str(os.getppid()) for words in states)
    folder = os.path.dirname(me.get("pmix.pdir", proc=me.proc))
    return len(os.listdir(f"/proc/{os.getppid()}/fd")), zombies, len(os.listdir(folder))
def held_safely():
    while True:
        try: return held()
        except (FileNotFoundError, ProcessLookupError): pass
sh("exit 0", 2).wait(20)
before = held_safely()
for _ in range(15):
    assert sh("echo; sleep 0.01 & exit 0", 2, stdin=True).wait(20) == 0
print(before == held_safely() or (before, held_safely()))
"""
    ended = spawner(command, text)
    assert ended.code == 0, ended.err
    assert ended.lines[-1] == "True"


def test_children_of_children(command: Command) -> None:
    (command.folder / "child.py").write_text(
        START + "print(me.proc.nspace[-1], me.parent.nspace[-1] if me.parent else '-')\n"
        "depth = int(sys.argv[1])\n"
        "if depth: me.spawn([sys.executable, 'child.py', str(depth - 1)], env={'PYPMIX_ENGINE': 'python'}).wait(20)\n"
        "me.close()"
    )
    ended = command("run", "--engine", "python", sys.executable, "child.py", 2)
    assert ended.code == 0, ended.err
    assert sorted(ended.lines) == ["1 -", "2 1", "3 2"]


def test_output_that_the_parent_asks_for_is_seen_here_too(command: Command) -> None:
    ended = spawner(command, "sh('echo word', info=[attrs.FWD_STDOUT(True)]).wait(20)")
    assert "word" in ended.lines


def test_output_of_a_child_can_be_pulled_even_late(command: Command) -> None:
    text = """
job = sh("echo out; echo err >&2; exit 0")
time.sleep(0.3)
with me.output(job, IOFChannel.STDOUT | IOFChannel.STDERR) as stream:
    seen = {channel: b"" for channel in (2, 4)}
    for piece in stream:
        seen[piece.channel] += piece.data
print(seen)
"""
    ended = spawner(command, text)
    assert ended.code == 0, ended.err
    assert ended.lines == ["out", "{2: b'out\\n', 4: b'err\\n'}"]


def test_tagged_stamped_and_merged_output(command: Command) -> None:
    text = "flags = [attrs.TAG_OUTPUT(True), attrs.TIMESTAMP_OUTPUT(True), attrs.MERGE_STDERR_STDOUT(True)]\n"
    ended = spawner(command, text + "sh('echo a; echo b >&2', info=flags).wait(20)")
    assert ended.err == b""
    assert [line.partition(" ")[2] for line in ended.lines] == ["[2:0]<stdout>: a", "[2:0]<stdout>: b"]
    assert all(time.strptime(line[:19], "%Y-%m-%dT%H:%M:%S") for line in ended.lines)


def test_output_to_files(command: Command) -> None:
    text = "flags = [attrs.OUTPUT_TO_FILE('log'), attrs.OUTPUT_NOCOPY(True)]\n"
    text += "sh('echo a$PMIX_RANK; echo b >&2', 2, info=flags).wait(20)\n"
    text += "sh('echo c; echo d >&2', info=[attrs.OUTPUT_TO_DIRECTORY('logs')]).wait(20)"
    ended = spawner(command, text)
    assert ended.lines == ["c"]
    assert sorted((command.folder / "log.1").read_text().split()) == ["a1", "b"]
    assert (command.folder / "logs/3/rank.0/stdout").read_text() == "c\n"
    assert (command.folder / "logs/3/rank.0/stderr").read_text() == "d\n"


def test_input_is_pushed_to_whom_it_is_for(command: Command) -> None:
    text = """
job = sh("echo $PMIX_RANK $(wc -c)", 3, stdin=1)
with me.input(job[1]) as stream:
    for _ in range(40):
        stream.write(b"x" * 50_000)
job.wait(20)
job = sh("echo $PMIX_RANK $(cat)", 2, stdin=Rank.WILDCARD)
with me.input(job) as stream:
    stream.write(b"all")
job.wait(20)
"""
    ended = spawner(command, text)
    assert ended.code == 0, ended.err
    assert sorted(ended.lines[:3]) == ["0 0", "1 2000000", "2 0"]
    assert sorted(ended.lines[3:]) == ["0 all", "1 all"]


def test_a_child_whose_parent_is_gone_reads_the_end_of_its_input(command: Command) -> None:
    ended = spawner(command, "job = sh('cat; echo end', stdin=True)\nme.input(job[0]).write('word ')")
    assert (ended.code, ended.lines) == (0, ["word end"])


def test_a_push_to_procs_that_read_nothing_is_refused_with_a_hint(command: Command) -> None:
    text = "job = sh('sleep 0.5')\ntry: me.input(job[0]).write('x')\nexcept pypmix.NotSupported: print('no')\n"
    text += "try: me.input(pypmix.Proc(me.proc.nspace, 5)).write('x')\nexcept pypmix.NotFound: print('none')"
    assert spawner(command, text).lines == ["no", "none"]


def test_ranks_that_read_what_is_pushed(command: Command) -> None:
    text = """
if me.rank == 0:
    with me.input(me.job[1]) as stream:
        stream.write("pushed")
else:
    print(sys.stdin.read())
me.fence()
"""
    assert spawner(command, text, "--stdin", "push", ranks=2).lines == ["pushed"]


@pytest.mark.parametrize("forward", [False, True])
def test_a_lone_rank_can_be_pulled_where_that_was_asked_for(command: Command, forward: bool) -> None:
    (command.folder / "puller.py").write_text(
        START
        + """
try:
    with me.output(me.parent, IOFChannel.STDOUT) as stream:
        open("pulling", "w").close()
        print("pulled", next(iter(stream)).data)
except pypmix.NotSupported as error:
    open("pulling", "w").close()
    print("refused")
me.close()
"""
    )
    text = "job = me.spawn([sys.executable, 'puller.py'], env={'PYPMIX_ENGINE': 'python'})\nwait_for('pulling')\n"
    text += "os.write(1, b'word\\n')\njob.wait(20)"
    ended = spawner(command, text, *(["--forward"] if forward else []))
    assert ended.code == 0, ended.err
    assert sorted(ended.lines) == (["pulled b'word\\n'", "word"] if forward else ["refused", "word"])


def test_a_puller_that_does_not_read_stops_nobody(command: Command) -> None:
    text = """
if me.rank == 0:
    stream = me.output(me.job[1], IOFChannel.STDOUT).__enter__()
    open("pid.0", "w").write(str(os.getpid()))
    open("pulling", "w").close()
    time.sleep(60)
wait_for("pulling")
other = int(open("pid.0").read())
os.kill(other, signal.SIGSTOP)
for _ in range(400):
    os.write(1, b"x" * 99_999 + b"\\n")
os.kill(other, signal.SIGKILL)
"""
    ended = spawner(command, text, ranks=2)
    assert ended.out.count(b"x") == 400 * 99_999
    assert ended.code == 137


EVENTS = """
with me.events(EventCode.ERR_PROC_ABORTED, EventCode.PROC_TERMINATED) as events:
    me.fence()
    if me.rank == 1:
        CAUSE
    for event in events:
        print(event.code.name, *event.affected, event.info["pmix.exit.code"], event.info["pmix.proc.term.status"])
        if event.code == EventCode.PROC_TERMINATED:
            break
me.fence([me.job[0], me.job[2]])
"""


@pytest.mark.parametrize(
    ("cause", "code", "status"),
    [
        ("os.kill(os.getpid(), 9)", 137, "ERR_PROC_ABORTED_BY_SIG"),
        ("os._exit(3)", 3, "ERR_EXIT_NONZERO_TERM"),
        ("os._exit(0)", 0, "ERR_PROC_TERM_WO_SYNC"),
    ],
)
def test_survivors_hear_how_a_rank_ended_and_go_on(command: Command, cause: str, code: int, status: str) -> None:
    ended = spawner(command, EVENTS.replace("CAUSE", cause), "--keep-going", ranks=3)
    assert ended.code == (code or 1)
    assert ended.message.startswith("pypmix run: rank 1 (pid ")
    assert ended.message.endswith("; the others went on")
    kinds = [line.split()[0] for line in sorted(ended.lines)]
    assert kinds == ["ERR_PROC_ABORTED"] * 2 + ["PROC_TERMINATED"] * 2
    assert all(line.endswith(f" {code} {Status[status]}") and "@1:1" in line for line in ended.lines)


def test_a_rank_that_ends_well_is_told_of_where_somebody_asks(command: Command) -> None:
    text = "if me.rank == 1: me.close(); os._exit(0)\n"
    text += "with me.events(EventCode.EVENT_PROC_TERMINATED, affected=me.job[1]) as events:\n"
    text += "  open('up', 'w').close()\n  print(next(iter(events)).info['pmix.exit.code'])\n"
    text = text.replace("me.close(); os._exit(0)", "wait_for('up'); me.close(); os._exit(0)")
    ended = spawner(command, text, ranks=2)
    assert (ended.code, ended.lines) == (0, ["0"])


def test_the_start_and_the_end_of_a_job_are_told(command: Command) -> None:
    text = """
with me.events(EventCode.EVENT_JOB_START, EventCode.EVENT_JOB_END) as events:
    job = sh("exit 0", info=[attrs.NOTIFY_JOB_EVENTS(True)], notify=False)
    for event in events:
        print(event.code.name, list(event.affected) == [pypmix.Proc(job.nspace, Rank.WILDCARD)])
        if event.code == EventCode.EVENT_JOB_END:
            break
"""
    assert spawner(command, text).lines == ["EVENT_JOB_START True", "EVENT_JOB_END True"]
