"""The native engine's session over every libpmix and launcher of this machine: what it returns, raises and survives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pypmix
from lib import machine
from lib.native_programs import PRELUDE, environment, finished, orphans

pytestmark = pytest.mark.timeout(90)


def test_a_singleton_is_a_job_of_one(lone) -> None:
    lone("""
assert me.singleton and me.server == "" and me.proc.rank == 0 and me.info.name == "native"
assert me.run(Get(job, "pmix.job.size")).data == 1
me.run(Put("k", Value(INT16, -5)))
assert me.run(Get(me.proc, "k")) == Value(INT16, -5) == me.fetch_local(me.proc, "k")
me.run(Commit())
me.run(Fence())
me.run(Fence((me.proc,), collect=True))
me.run(Fence((job,)))
error = caught(Unreachable, me.run, Fence((Proc(me.proc.nspace, 1),)))
assert "singleton" in str(error)
assert isinstance(submitted(me, Fence((Proc("x", 0),)))[1], Unreachable)
caught(Unreachable, me.run, Abort(1, "x"))
assert not me.supports("abort") and me.supports("fence") and not me.supports("nonsense")
assert me.fetch_local(me.proc, "nobody") is None
for directives in ((), (OPTIONAL,), (IMMEDIATE,), (LIMIT,)):
    error = caught(NotFound, me.run, Get(me.proc, "nobody", directives))
    assert error.operation == "get" and error.procs == (me.proc,) and error.engine == str(me.info)
me.run(Finalize())
caught(NotInitialized, me.run, Finalize())
caught(NotInitialized, me.run, Commit())
caught(NotInitialized, me.submit, Commit(), None)
caught(NotInitialized, me.fetch_local, me.proc, "k")
me.close()
me.close()
""")


def test_submitted_operations_end_once_each(lone) -> None:
    lone("""
me.run(Put("k", uint32(9)))
assert submitted(me, Get(me.proc, "k")) == (Value(UINT32, 9), None)
assert submitted(me, Put("l", uint32(10))) == (None, None)
assert submitted(me, Get(me.proc, "l")) == (Value(UINT32, 10), None)
for op in (Commit(), Fence()):
    assert submitted(me, op) == (None, None)
assert isinstance(submitted(me, Get(me.proc, "nobody"))[1], NotFound)
assert isinstance(submitted(me, ClientConnected(me.proc))[1], NotSupported)
assert submitted(me, Finalize()) == (None, None)
caught(NotInitialized, me.run, Commit())
me.close()
assert threading.enumerate() == [threading.main_thread()]
""")


def test_a_watched_session_completes_in_poll_and_starts_no_thread(lone) -> None:
    lone("""
import select
me.run(Put("k", uint32(9)))
me.attach()
for round in range(50):
    outcomes = []
    for _ in range(100):
        me.submit(Get(me.proc, "k"), lambda *outcome: outcomes.append((threading.current_thread(), *outcome)))
    while len(outcomes) < 100:
        assert select.select([me.fileno()], [], [], 10)[0], "the descriptor does not become readable"
        me.poll()
    assert outcomes == [(threading.main_thread(), Value(UINT32, 9), None)] * 100
    assert threading.enumerate() == [threading.main_thread()]
    assert not select.select([me.fileno()], [], [], 0)[0], f"round {round}: it stays readable with nothing to do"
me.submit(Get(me.proc, "k"), lambda *outcome: outcomes.append(outcome))
me.detach()
end = time.monotonic() + 10
while len(outcomes) == 100 and time.monotonic() < end:
    time.sleep(0.01)
assert outcomes[100:] == [(Value(UINT32, 9), None)]
me.run(Finalize())
me.close()
""")


def test_reserved_keys_are_kept_and_sent_to_nobody(lone) -> None:
    lone("""
me.run(Put("pmix.mine", uint32(1)))
assert me.run(Get(me.proc, "pmix.mine")) == me.fetch_local(me.proc, "pmix.mine") == Value(UINT32, 1)
assert submitted(me, Get(me.proc, "pmix.mine")) == (Value(UINT32, 1), None)
caught(NotFound, me.run, Get(Proc(me.proc.nspace, 1), "pmix.mine"))
me.run(Finalize())
""")


def test_questions_that_crash_some_releases_are_answered(lone) -> None:
    lone("""
nobody = Proc(me.proc.nspace, RANK_INVALID)
major, minor, patch = map(int, me.info.release.split("."))
number = Value(UINT32, major << 16 | minor << 8 | patch)
for proc, key, value in ((nobody, "pmix.rank", Value(PROC_RANK, 0)), (me.proc, "pmix.vers.num", number)):
    assert me.run(Get(proc, key)) == me.fetch_local(proc, key) == value
    assert submitted(me, Get(proc, key)) == (value, None)
me.run(Finalize())
""")


def test_sessions_of_one_process_share_the_library(lone) -> None:
    lone("""
second = opened()
assert second.proc == me.proc
second.run(Put("k", uint32(3)))
second.run(Finalize())
second.close()
assert me.run(Get(me.proc, "k")) == Value(UINT32, 3)
me.run(Finalize())
me.close()
if me.supports("finalize") and tuple(map(int, me.info.release.split("."))) < (5, 0, 9):
    third = opened()
    third.run(Put("k", uint32(4)))
    assert third.run(Get(third.proc, "k")) == Value(UINT32, 4)
    third.run(Finalize())
else:
    error = caught(EngineUnavailable, opened)
    assert "again" in str(error)
""")


def test_a_fork_is_refused_and_the_parent_goes_on(lone) -> None:
    lone("""
pid = os.fork()
if pid == 0:
    error = caught(PMIxError, me.run, Commit())
    os._exit(0 if "fork" in str(error) else 1)
assert os.waitpid(pid, 0)[1] == 0
me.run(Fence())
me.run(Finalize())
""")


def test_a_process_that_forgets_to_finalize_ends(lone) -> None:
    output = lone("""
me.submit(Get(Proc("elsewhere", 0), "nobody", (LIMIT,)), lambda *outcome: None)
me.submit(Commit(), lambda *outcome: None)
print("end of program")
""")
    assert "end of program" in output


def test_values_that_libpmix_would_mangle_are_refused_by_name(lone) -> None:
    lone("""
warnings.simplefilter("error")
for value in (Value(POINTER, 4096), Value(PROC_CPUSET, Cpuset("0-1")), Value(IOF_CHANNEL, 1)):
    error = caught(NotSupported, me.run, Put("k", value))
    assert error.operation == "put" and type_name(value.type) in str(error) and error.engine
caught(NotFound, me.run, Get(me.proc, "k", (OPTIONAL,)))
try:
    me.run(Put("k", double(0.1234567)))
except UserWarning as warning:
    assert type(warning).__name__ == "PrecisionWarning"
else:
    raise AssertionError("no warning")
me.run(Put("k", double(0.25)))
caught(ValueError, me.run, Get(me.proc, "k", (Info.unchecked("k" * 600, Value(BOOL, True), 0),)))
me.run(Finalize())
""")


def test_another_environment_than_the_process_has_is_refused(lone) -> None:
    lone("""
error = caught(ValueError, open_client, {**os.environ, "PMIX_NAMESPACE": "x"}, find_library(os.environ).library)
assert "PMIX_NAMESPACE" in str(error)
me.run(Finalize())
""")


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        (
            {"PMIX_SERVER_URI41": "x@0.0;tcp4://127.0.0.1:9", "PMIX_SERVER_URI4": "x@0.0;tcp4://127.0.0.1:9"},
            "Unreachable",
        ),
        ({"PMIX_SERVER_URI41": "gibberish", "PMIX_SERVER_URI4": "gibberish"}, "Unreachable"),
        ({}, "Unreachable"),
        ({"PMIX_RANK": "zero"}, "Unreachable"),
    ],
    ids=["dead", "gibberish", "none", "rank"],
)
def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path, variables: dict[str, str], kind: str) -> None:
    if not machine.libraries() or not machine.extension():
        machine.lacking("a libpmix or the native engine's extension")
    code = PRELUDE.replace("me = opened()", "").partition("job =")[0]
    path = tmp_path / "program.py"
    path.write_text(code + "\nerror = caught(PMIxError, opened)\nprint(type(error).__name__, error)\n")
    for lib in machine.libraries():
        env = environment(**{"PYPMIX_LIBPMIX": lib.path, "PMIX_NAMESPACE": "ns", "PMIX_RANK": "0", **variables})
        status, output = finished([sys.executable, str(path)], env)
        assert status == 0, f"{lib.release}: {output}"
        assert f"{kind} open: " in output, f"{lib.release}: {output}"


def test_two_ranks_exchange_what_they_put(pair) -> None:
    output = pair("""
assert not me.singleton and me.run(Get(job, "pmix.job.size")).data == 2
rank = me.proc.rank
me.run(Put("number", uint32(rank + 10)))
me.run(Put("text", from_python("grüße" * 1000)))
me.run(Put("bytes", from_python(bytes(range(256)) * 300)))
me.run(Put("nested", from_python({"a": 1, "b": {"c": ["x", "y"], "d": b"\\0"}})))
me.run(Put("empty", array(STRING, [])))
me.run(Put("k" * 511, Value(INT8, -128)))
me.run(Commit())
me.run(Fence(collect=True))
assert me.run(Get(other, "number")) == Value(UINT32, 11 - rank)
assert me.fetch_local(other, "number") in (Value(UINT32, 11 - rank), None)
assert to_python(me.run(Get(other, "text"))) == "grüße" * 1000
assert me.run(Get(other, "text")).type == STRING == me.run(Get(me.proc, "text")).type
assert me.run(Get(other, "bytes")).data == bytes(range(256)) * 300
assert me.run(Get(other, "nested")) == from_python({"a": 1, "b": {"c": ["x", "y"], "d": b"\\0"}})
assert me.run(Get(other, "empty")) == array(STRING, [])
assert me.run(Get(other, "k" * 511)) == Value(INT8, -128)
for directives, kind in (((OPTIONAL,), NotFound), ((IMMEDIATE,), NotFound), ((LIMIT,), OperationTimeout)):
    error = caught(kind, me.run, Get(other, "nobody", directives))
    assert "nobody" in str(error) and error.procs == (other,)
    assert type(submitted(me, Get(other, "nobody", directives))[1]) is kind
assert submitted(me, Fence()) == (None, None)
me.run(Finalize((Info("pmix.embed.barrier", Value(BOOL, True)),)))
print(f"done {rank}")  # in one piece: the output of ranks is mixed
""")
    assert set(re.findall(r"done \d", output)) == {"done 0", "done 1"}


def test_a_blocked_call_lets_other_threads_run_and_heeds_signals(pair) -> None:
    output = pair("""
def await_key(key):
    while True:
        try:
            return me.run(Get(other, key))
        except (NotFound, OperationTimeout):
            pass
noticed = __file__ + ".noticed"
if me.proc.rank == 0:
    def after(seconds, number):
        threading.Timer(seconds, os.kill, (os.getpid(), number)).start()
    after(0.3, signal.SIGINT)
    caught(KeyboardInterrupt, me.run, Get(other, "never"))
    signals = []
    def handler(*_):
        signals.append(me.run(Get(job, "pmix.job.size")).data)
        open(noticed, "w").close()
    signal.signal(signal.SIGUSR1, handler)
    after(0.2, signal.SIGUSR1)
    assert await_key("late") == Value(UINT32, 5) and signals == [2]
    # The other rank joins the fence only after a thread here, which runs during the fence, has told it to.
    def tell():
        time.sleep(0.5)
        me.run(Put("ticked", uint32(1)))
        me.run(Commit())
    thread = threading.Thread(target=tell)
    thread.start()
    me.run(Fence())
    thread.join()
else:
    # The call of the other rank does not end before the signal.
    while not os.path.exists(noticed):
        time.sleep(0.01)
    me.run(Put("late", uint32(5)))
    me.run(Commit())
    await_key("ticked")
    me.run(Fence())
me.run(Finalize())
print("done", me.proc.rank)
""")
    assert output.count("done") == 2, output


def test_a_fence_that_not_all_come_to_times_out_blocking_and_submitted(pair) -> None:
    pair("""
if me.proc.rank == 0:
    error = caught(OperationTimeout, me.run, Fence(directives=(LIMIT,)))
    assert error.operation == "fence" and error.procs == (job,) and error.missing is None
    result, error = submitted(me, Fence((me.proc, other), directives=(LIMIT,)))
    assert isinstance(error, OperationTimeout), (result, error)
    me.run(Put("over", uint32(1)))
    me.run(Commit())
else:
    wait_for_key(me, other, "over")
me.run(Finalize())
""")


def test_many_threads_share_a_session(pair) -> None:
    pair("""
me.run(Put("k", uint32(me.proc.rank)))
me.run(Commit())
me.run(Fence(collect=True))
wrong = []
def work(n):
    for i in range(100):
        me.run(Put(f"t{n}.{i}", uint32(i)))
        if me.run(Get(me.proc, f"t{n}.{i}")).data != i or me.run(Get(other, "k")).data != other.rank:
            wrong.append((n, i))
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
me.run(Fence())
me.run(Finalize())
""")


def test_commits_that_follow_each_other_share_a_thread(pair) -> None:
    pair("""
def threads():
    return len(os.listdir("/proc/self/task"))
me.run(Commit())
before = threads()
for n in range(50):
    me.run(Put(f"k{n}", uint32(n)))
    me.run(Commit())
    assert threads() == before, (n, before, threads())
me.run(Fence(collect=True))
assert me.run(Get(other, "k49")) == Value(UINT32, 49)
me.run(Finalize())
""")


def test_finalize_ends_what_is_under_way(pair) -> None:
    pair("""
if me.proc.rank == 0:
    outcomes = []
    me.submit(Get(other, "never"), lambda *outcome: outcomes.append(outcome))
    blocked = []
    thread = threading.Thread(target=lambda: blocked.append(caught(PMIxError, me.run, Get(other, "never either"))))
    thread.start()
    time.sleep(0.3)
    me.run(Finalize())
    me.close()
    thread.join(10)
    assert [type(error) for _result, error in outcomes] == [LostConnection], outcomes
    assert [type(error) for error in blocked] == [LostConnection], blocked
else:
    time.sleep(1)
    me.run(Finalize())
""")


def test_abort_ends_the_job(pair) -> None:
    output = pair(
        """
if me.proc.rank == 0:
    me.run(Abort(7, "enough"))
time.sleep(20)
print("still here")
""",
        None,
    )
    assert "still here" not in output


def test_the_loss_of_the_server_is_reported_by_every_call(pair, tmp_path: Path) -> None:
    code = """
me.run(Put("k", uint32(1)))
me.run(Commit())
me.run(Fence())
both_here()
outcomes = []
me.submit(Get(other, "never"), lambda *outcome: outcomes.append(outcome))
if me.proc.rank == 0:
    threading.Timer(0.5, os.kill, (os.getppid(), signal.SIGKILL)).start()
    caught(LostConnection, me.run, Fence())
else:
    caught(LostConnection, me.run, Get(other, "never"))
for op in (Fence(), Commit(), Get(other, "k2"), Put("z", uint32(1)), Abort(1)):
    error = caught(LostConnection, me.run, op)
    assert error.operation == op.name and "server" in str(error)
end = time.monotonic() + 5
while not outcomes and time.monotonic() < end:
    time.sleep(0.01)
assert [type(error) for _result, error in outcomes] == [LostConnection], outcomes
me.run(Finalize())
me.close()
"""
    reports = orphans(pair.launcher, code, tmp_path)
    assert reports == ["fine\n", "fine\n"], "\n".join(reports)


LINGERING = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int shutdown(int fd, int how)
{
    const char *mark = getenv("LINGER");
    int result = (int) syscall(SYS_shutdown, fd, how);

    if (NULL != mark && getpid() != syscall(SYS_gettid) && 0 != access(mark, F_OK)) {
        close(open(mark, O_CREAT | O_WRONLY, 0600));
        sleep(2);
    }
    return result;
}
"""
"""libpmix between its discovery that the server is gone and its note of that, which otherwise takes microseconds."""


def test_calls_that_begin_while_libpmix_loses_its_server_end(pair, tmp_path: Path) -> None:
    """libpmix takes these calls and forgets them: without help none of them would end."""
    if not machine.compiler():
        machine.lacking("a C compiler")
    source, library = tmp_path / "lingering.c", tmp_path / "lingering.so"
    source.write_text(LINGERING)
    subprocess.run([str(machine.compiler()), "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    code = f"""
mark = os.environ["LINGER"] = {str(tmp_path)!r} + f"/mark{{me.proc.rank}}"
me.run(Fence())
both_here()
if me.proc.rank == 0:
    os.kill(os.getppid(), signal.SIGKILL)
end = time.monotonic() + 10
while not os.path.exists(mark):
    assert time.monotonic() < end, "libpmix does not notice"
    time.sleep(0.001)
outcomes = {{}}
def blocked(op):
    try:
        outcomes["run", op.name] = me.run(op)
    except PMIxError as error:
        outcomes["run", op.name] = error
fresh = Get(other, "nobody", (Info("pmix.get.refresh", Value(BOOL, True)),))
gets = (fresh,) if me.info.release >= "5" else ()  # before, libpmix ends them itself, and with them the session
for op in (Fence(), Commit(), *gets, Abort(1)):
    threading.Thread(target=blocked, args=(op,), daemon=True).start()
for op in (Fence(), *gets, Commit()):
    me.submit(op, lambda result, error, op=op: outcomes.update({{("submit", op.name): error}}))
assert not outcomes, "too late"
end = time.monotonic() + 8
expected = 5 + 2 * len(gets)
while len(outcomes) < expected and time.monotonic() < end:
    time.sleep(0.01)
assert len(outcomes) == expected, outcomes
del outcomes["run", "abort"]  # a server that ends the job need not answer
assert all(isinstance(error, LostConnection) for error in outcomes.values()), outcomes
me.run(Finalize())
me.close()
"""
    reports = orphans(pair.launcher, code, tmp_path, "env", f"LD_PRELOAD={library}")
    assert reports == ["fine\n", "fine\n"], "\n".join(reports)


CLOCK = """
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* The wall clock as a program has seen it that is set back by an hour while it waits. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int) syscall(SYS_clock_gettime, clock, now);
    if (CLOCK_REALTIME == clock) {
        now->tv_sec += 3600;
    }
    return result;
}
"""


@pytest.mark.parametrize("release", [lib.release for lib in machine.libraries()] or ["none"])
def test_a_time_limit_goes_by_a_clock_that_nobody_sets(release: str, tmp_path: Path) -> None:
    """The server is stopped, so that only the client's own clock can end the fence."""
    lib, compiler = machine.library(release), machine.compiler()
    if lib is None or compiler is None or not machine.extension():
        machine.lacking("a C compiler, a libpmix or the native engine's extension")
    source, made, program = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "program.py"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True, timeout=30)
    program.write_text("""
import os, signal, subprocess, time, pypmix
with pypmix.Client() as me:
    me.fence()
    if me.rank == 0:
        server = os.getppid()
        again = subprocess.Popen(["sh", "-c", f"sleep 15; kill -CONT {server}"], env={"PATH": os.environ["PATH"]})
        os.kill(server, signal.SIGSTOP)
        begun = time.monotonic()
        try:
            me.fence(timeout=1)
        except pypmix.OperationTimeout:
            print("fence", time.monotonic() - begun, flush=True)
        os.kill(server, signal.SIGCONT)
        again.kill()
        again.wait()
        me.put("over", 1)
        me.commit()
    else:
        me.get("over", me.job[0], timeout=30)
""")
    command = [sys.executable, "-m", "pypmix", "run", "-n", "2", "env", f"LD_PRELOAD={made}", sys.executable, program]
    code, output = finished(list(map(str, command)), environment(PYPMIX_ENGINE="native", PYPMIX_LIBPMIX=lib.path))
    assert code == 0 and float(output.split()[1]) < 10, output


def test_no_duration_is_measured_by_the_wall_clock() -> None:
    stamps = {
        "cli/events.py",
        "cli/examination.py",
        "cli/probe.py",
        "host/callbacks/ends.py",
        "host/credentials.py",
        "host/logs.py",
        "host/output.py",
        "recording/record.py",
        "extras/frameworks/calling.py",
        "host/running.py",
    }
    package = Path(pypmix.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in ("time.time(", "datetime.now(", "datetime.utcnow("))
    }
    assert found <= stamps
    for path in (package.parent / "native" / "shim").glob("*.c"):
        text = path.read_text()
        assert "CLOCK_REALTIME" not in text or path.name == "calls.c"
        assert "cond_timedwait" not in text or "pypmix_condition(" in text


@pytest.mark.parametrize("port", ["9" * 5000, "65536", "", "\u00b2", "-1"])
def test_an_address_that_is_none_is_left_to_the_library(port: str) -> None:
    if not machine.extension():
        machine.lacking("the native engine's extension")
    env = {"PMIX_NAMESPACE": "job", "PMIX_RANK": "0", "PMIX_SERVER_URI41": f"server.0;tcp4://127.0.0.1:{port}"}
    from pypmix.engine.native.session import _check_server

    _check_server(env)
