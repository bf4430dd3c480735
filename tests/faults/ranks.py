"""The processes of `test_killed_ranks`.

    ranks.py live SEED      a rank that asks for anything, in step with the others, and leaves what it has seen
    ranks.py drive SEED ROUNDS RANKS    a rank that spawns such jobs one after the other, and kills a rank of each
    ranks.py any SEED       a rank that asks for anything and ends, whatever becomes of the others (`test_signals`)

`FAULTS_FOLDER` is where they tell each other what they know, around PMIx.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from random import Random

FOLDER = Path(os.environ["FAULTS_FOLDER"])
RANK = int(os.environ["PMIX_RANK"])

STEPS = 50
PAUSE = 0.004
KILL_WITHIN = 1.2
PATIENCE = 4
"""Seconds that an operation of all is given."""

WAIT = 1
"""Seconds for which something of a single peer is waited for."""

LIFE_ENDS = 40.0

SETTLE = 3.0
"""Seconds until the server has forgotten jobs that are over."""


def write(name, text):
    draft = FOLDER / f".{name}.{os.getpid()}"
    draft.write_text(text)
    draft.rename(FOLDER / name)


class Life:
    """One rank: what it did, how that ended, and which events it heard."""

    def __init__(self, me, custom):
        self.me = me
        self.custom = custom
        self.peers = [proc for proc in me.job if proc != me.proc]
        self.suspects = set()
        self.done = []

    def tried(self, name, function, *args, **options):
        """Carry out an operation and note how it ended; an error that is none of PMIx ends this rank."""
        from pypmix import PMIxError

        begin = time.monotonic()
        end = "success"
        result = None
        try:
            result = function(*args, **options)
        except PMIxError as error:
            end = type(error).__name__
            if not error.code or not str(error):
                end = "an error without a status"
        self.done.append((name, end, round(time.monotonic() - begin, 3)))
        return result, end

    def step(self, number, random):
        me = self.me
        kind = random.choice(("fence", "collect", "connect", "get", "publish", "notify", "query", "spawn", "write"))
        if kind == "fence":
            self.tried("fence", me.fence, timeout=PATIENCE)
        elif kind == "collect":
            me.put(f"c{number}", number)
            self.tried("fence collect", me.fence, collect=True, timeout=PATIENCE)
            for peer in self.peers:
                if peer not in self.suspects:
                    value, end = self.tried("get", me.get, f"c{number}", peer, timeout=WAIT)
                    assert value in (number, None)
                    self.suspect(peer, end)
        elif kind == "connect":
            self.tried("connect", me.connect, list(me.job), timeout=PATIENCE)
            self.tried("disconnect", me.disconnect, list(me.job), timeout=PATIENCE)
        elif kind == "get":
            me.put(f"g{number}", me.rank)
            self.tried("commit", me.commit)
            peer = me.job[(me.rank + 1) % me.job.size]
            if peer not in self.suspects:
                self.suspect(peer, self.tried("get", me.get, f"g{number}", peer, timeout=WAIT)[1])
        elif kind == "publish":
            self.tried("publish", me.publish, {f"{me.nspace}.{number}.{me.rank}": number})
            peer = me.job[(me.rank + 1) % me.job.size]
            if peer not in self.suspects:
                key = f"{me.nspace}.{number}.{peer.rank}"
                self.suspect(peer, self.tried("lookup", me.lookup, key, timeout=WAIT)[1])
        elif kind == "notify":
            from pypmix import Range
            from pypmix.types import uint32

            info = {"acme.number": uint32(number)}
            self.tried("notify", me.notify, self.custom, range=Range.NAMESPACE, info=info)
        elif kind == "query":
            self.tried("query", me.query, "pmix.qry.ns")
        elif kind == "spawn":
            if me.rank == number % me.job.size and number % 3 == 0:
                self.tried("spawn", me.spawn, ["true"], notify=False)
        else:
            print(f"rank {me.rank} writes in step {number}", flush=True)

    def suspect(self, peer, end):
        if end != "success":
            self.suspects.add(peer)


def live(seed):
    write(f"pid.{RANK}", str(os.getpid()))
    from pypmix import Client, EventCode, OperationTimeout

    custom = EventCode.custom(-4242)
    heard = []
    with Client() as me, me.events(EventCode.ERR_PROC_ABORTED, custom, buffer=4096) as events:
        engine, nspace = me.engine.name, me.nspace
        life = Life(me, custom)
        random = Random(seed)

        def note(event):
            if event.code == custom:
                heard.append(["custom", event.source.rank, int(event.info["acme.number"])])
            else:
                (affected,) = event.affected
                heard.append(["aborted", affected.nspace, affected.rank])

        for number in range(STEPS):
            life.step(number, random)
            time.sleep(PAUSE)
        deadline = time.monotonic() + LIFE_ENDS
        while not (FOLDER / "killed").exists():
            assert time.monotonic() < deadline, "nobody was killed"
            time.sleep(0.005)
        victim = int((FOLDER / "killed").read_text())
        deadline = time.monotonic() + 10
        while ["aborted", me.nspace, victim] not in heard and time.monotonic() < deadline:
            try:
                note(events.get(timeout=0.5))
            except OperationTimeout:
                continue
        life.tried("fence", me.fence, timeout=PATIENCE)
        # What comes twice comes soon after.
        try:
            while True:
                note(events.get(timeout=0.15))
        except OperationTimeout:
            pass
        dropped = events.dropped
    left = {"engine": engine, "nspace": nspace, "done": life.done, "heard": heard, "dropped": dropped}
    write(f"left.{RANK}", json.dumps(left))


def any_(seed):
    """Ask for anything while anybody may be killed; what a rank cannot live with it leaves as `broken.RANK`."""
    if os.environ.get("FAULTS_MIXED"):
        os.environ["PYPMIX_ENGINE"] = ("python", "native")[RANK % 2]
    import subprocess
    import traceback

    # What has a session of its own is to go with the job as well.
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    write(f"pid.{RANK}", str(os.getpid()))
    from pypmix import Client, EventCode, PMIxError

    life = None
    try:
        with Client() as me:
            life = Life(me, EventCode.custom(-4242))
            random = Random(seed)
            for number in range(STEPS // 2):
                life.step(number, random)
                time.sleep(PAUSE)
    except (PMIxError, BrokenPipeError):
        pass  # the server or the launcher is gone
    except Exception:
        write(f"broken.{RANK}", traceback.format_exc())
        raise
    write(f"left.{RANK}", json.dumps([] if life is None else life.done))


def server_state(pid):
    """What the server's process holds."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    zombies = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            zombies += int(fields[1]) == pid and fields[0] == "Z"
    return {
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "rss": int(status["VmRSS"].split()[0]),
        "zombies": zombies,
        "files": sorted(
            f"{parent}/{name}"
            for parent, folders, files in os.walk(os.environ["TMPDIR"])
            for name in (*folders, *files)
        ),
    }


def round_(me, number, ranks, seed):
    """One job, and a rank of it that is killed at some moment; return how it went."""
    from pypmix import attrs

    global FOLDER
    random = Random(seed)
    folder = FOLDER / f"round-{number}"
    folder.mkdir()
    env = {"FAULTS_FOLDER": str(folder)}
    for name in ("PYPMIX_ENGINE", "PYPMIX_LIBPMIX"):
        if f"FAULTS_{name}" in os.environ:
            env[name] = os.environ[f"FAULTS_{name}"]
    victim = random.randrange(ranks)
    command = [sys.executable, __file__, "live", str(seed)]
    job = me.spawn(command, n=ranks, env=env, info={attrs.JOB_RECOVERABLE: True})
    moment = random.uniform(0, KILL_WITHIN)
    time.sleep(moment)
    path = folder / f"pid.{victim}"
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, "the victim does not come"
        time.sleep(0.001)
    os.kill(int(path.read_text()), 9)
    draft = folder / ".killed"
    draft.write_text(str(victim))
    draft.rename(folder / "killed")
    code = job.wait(timeout=60)
    left = {name.name[5:]: json.loads(name.read_text()) for name in folder.glob("left.*")}
    for found in folder.iterdir():
        found.unlink()
    folder.rmdir()
    return {"victim": victim, "moment": moment, "code": code, "ranks": ranks, "left": left, "seed": seed}


def drive(seed, rounds, ranks):
    from pypmix import Client

    server = os.getppid()
    states = {}
    with Client() as me:
        for number in range(rounds):
            if number == rounds // 2 and rounds > 4:
                time.sleep(SETTLE)
                before = server_state(server)
            went = {**round_(me, number, ranks, seed + number), "rss": server_state(server)["rss"]}
            with (FOLDER / "rounds").open("a") as out:
                out.write(json.dumps(went) + "\n")
        if rounds > 4:
            time.sleep(SETTLE)
            states = {"before": before, "after": server_state(server)}
    write("server", json.dumps(states))


if __name__ == "__main__":
    {"live": live, "drive": drive, "any": any_}[sys.argv[1]](*map(int, sys.argv[2:]))
