"""Carries out the script of one rank, as player.c does: `player.py FOLDER LABEL`. See plans.py for its lines."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pypmix.aio
from pypmix import Client, EventCode, PMIxError, Proc, Range, Rank, Scope, attrs
from pypmix.standard.types import App
from pypmix.types import uint32

LIMIT = 15
SETTLED = 0.3
"""Seconds in which a call that has begun, or a death, comes to its server; an outcome must not depend on that."""

EVENT = EventCode.custom(-4711)
SCOPES = {"l": Scope.LOCAL, "r": Scope.REMOTE, "g": Scope.GLOBAL}


def value_of(word):
    kind, _, text = word.partition("=")
    return {"s": str, "u": lambda number: uint32(int(number)), "x": bytes.fromhex}[kind](text)


def word_of(value):
    if isinstance(value, str):
        return f"s={value}"
    if isinstance(value, bytes):
        return f"x={value.hex()}"
    return f"u={int(value)}"


class Blocking:
    """An object with methods to be awaited, whose callers block."""

    def __init__(self, wait, awaited):
        self._wait = wait
        self._awaited = awaited

    def __getattr__(self, name):
        value = getattr(self._awaited, name)
        if not inspect.isroutine(value):
            return value

        def call(*args, **named):
            result = value(*args, **named)
            return self._wait(result) if inspect.iscoroutine(result) else result

        return call


class Awaited(Blocking):
    """A client to be awaited, with its calls as those of one that blocks: they run in an event loop of their own."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._calls = {}

    def __enter__(self):
        super().__init__(self._wait_in_loop, self._wait_in_loop(self._opened()))
        return self

    def __exit__(self, *_error):
        self.close()

    async def _opened(self):
        return await pypmix.aio.Client().__aenter__()

    def _wait_in_loop(self, coroutine):
        call = self._calls[threading.current_thread()] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return call.result()

    @property
    def raw(self):
        return Blocking(self._wait, self._awaited.raw)

    def group(self, *args, **named):
        return Blocking(self._wait, self._awaited.group(*args, **named))

    def wait_for_call(self, thread):
        """Wait until a thread has begun a call: the module of an operation is imported first."""
        for _ in range(LIMIT * 100):
            if thread in self._calls:
                return
            time.sleep(0.01)
        sys.exit("a call that is to be cancelled does not begin")

    def cancel(self, thread):
        self._calls[thread].cancel()

    def on(self, code):
        async def register(function):
            await self._awaited.on(code)(function).ready()

        return lambda function: self._wait(register(function))


class Player:
    def __init__(self, me, results, begun, folder, label):
        self.me = me
        self.results = results
        self.begun = begun
        self.others = f"{folder}/{label}"
        self.local = threading.local()
        self.lock = threading.Lock()
        self.spawned = {}
        self.heard = []

    @property
    def limit(self):
        return self.local.limit

    def tell(self, index, text):
        with self.lock:
            self.results.write(f"{index} {text}\n")
            self.results.flush()

    def proc(self, word):
        job, _, rank = word.partition(":")
        if job == "^":
            return self.me.parent
        if job[0] == "=":
            return Proc(job[1:], Rank.WILDCARD if rank == "*" else int(rank))
        nspace = self.me.nspace if job == "@" else self.spawned[int(job)]
        return Proc(nspace, Rank.WILDCARD if rank == "*" else int(rank))

    def procs(self, words):
        return [self.proc(word) for word in words]

    def play(self, index, words):
        name, _, limit = words[0].partition("/")
        self.local.limit = int(limit or LIMIT)
        with self.lock:
            self.begun.write(f"{index} begun\n")
            self.begun.flush()
        try:
            text = getattr(self, f"do_{name}")(index, *words[1:])
        except PMIxError as error:
            text = f"status {int(error.code)}"
        self.tell(index, text or "status 0")

    def text_of(self, rank, kind, number):
        """Wait until a rank's file has a line of this number, and return the line."""
        path = Path(f"{self.others}.{rank}.{kind}")
        for _ in range(LIMIT * 100):
            if path.exists():
                for line in path.read_text().splitlines(keepends=True):
                    if line.split()[0] == number and line.endswith("\n"):
                        return line
            time.sleep(0.01)
        sys.exit(f"rank {rank} has no line {number}")

    def do_after(self, _index, rank, number):
        self.text_of(rank, "out", number)

    def do_begun(self, _index, rank, number):
        self.text_of(rank, "begun", number)
        time.sleep(SETTLED)

    def do_gone(self, _index, rank):
        stat = Path(f"/proc/{self.text_of(rank, 'begun', '-1').split()[1]}/stat")
        for _ in range(LIMIT * 100):
            # A launcher may keep a process that has ended for a while.
            if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
                time.sleep(SETTLED)
                return
            time.sleep(0.01)
        sys.exit(f"rank {rank} does not end")

    def do_die(self, _index):
        os.kill(os.getpid(), signal.SIGKILL)

    def do_leave(self, _index, name):
        self.me.raw.group_leave(name)

    def do_put(self, _index, key, scope, value):
        self.me.put(key, value_of(value), SCOPES[scope])

    def do_commit(self, _index):
        self.me.commit()

    def do_fence(self, _index, collect, *procs):
        self.me.fence(self.procs(procs), collect=collect == "y", timeout=self.limit)

    def do_get(self, _index, proc, key):
        return word_of(self.me.get(key, self.proc(proc), info={attrs.TIMEOUT: LIMIT}))

    def do_peek(self, _index, proc, key):
        return word_of(self.me.get(key, self.proc(proc), optional=True))

    def do_publish(self, _index, key, value):
        self.me.publish({key: value_of(value)})

    def do_lookup(self, _index, key):
        return word_of(self.me.lookup(key))

    def do_unpublish(self, _index, key):
        self.me.unpublish(key)

    def do_construct(self, _index, name, *procs, **flags):
        results = self.me.group(name, self.procs(procs), context_id=True, timeout=self.limit, **flags).construct()
        return f"group {results.context_id} {','.join(str(rank) for rank in sorted(p.rank for p in results.members))}"

    def do_optional(self, index, name, *procs):
        return self.do_construct(index, name, *procs, optional=True)

    def do_tolerant(self, index, name, *procs):
        return self.do_construct(index, name, *procs, ft=True)

    def do_notified(self, index, name, *procs):
        return self.do_construct(index, name, *procs, notify_termination=True)

    def do_local(self, index, name, *procs):
        return self.do_construct(index, name, *procs, local_only=True)

    def do_cancelled(self, index, rank, number, name, *words):
        """Begin an operation, and cancel it once another rank has begun a line."""
        ended = []

        def work():
            self.local.limit = LIMIT
            try:
                ended.append(getattr(self, f"do_{name}")(index, *words) or "status 0")
            except PMIxError as error:
                ended.append(f"status {int(error.code)}")
            except CancelledError:
                ended.append("cancelled")

        thread = threading.Thread(target=work)
        thread.start()
        self.me.wait_for_call(thread)
        self.do_begun(index, rank, number)
        self.me.cancel(thread)
        thread.join()
        return ended[0]

    def do_destruct(self, _index, name):
        self.me.raw.group_destruct(name, timeout=self.limit)

    def do_connect(self, _index, *procs):
        self.me.connect(self.procs(procs), timeout=self.limit)

    def do_disconnect(self, _index, *procs):
        self.me.raw.disconnect(self.procs(procs), timeout=self.limit)

    def do_notify(self, _index, serial, range, *targets):
        whom = {"targets": self.procs(targets)} if range == "c" else {}
        if not whom:
            whom = {"data_range": Range.LOCAL if range == "l" else Range.NAMESPACE}
        self.me.notify(EVENT, info={"diff.serial": uint32(int(serial))}, **whom)

    def do_hear(self, _index, count):
        end = time.monotonic() + LIMIT
        while len(self.heard) < int(count) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.02)
        return " ".join(["heard", *map(str, sorted(self.heard))])

    def do_spawn(self, index, *words):
        apps = [list(part) for more, part in itertools.groupby(words, lambda word: word == "+") if not more]
        self.spawned[index] = self.me.spawn([App(argv[0], argv, maxprocs=1) for argv in apps]).nspace

    def on_event(self, event):
        if event.source != self.me.proc:
            self.heard.append(int(event.info["diff.serial"]))


def main(folder, label):
    with Awaited() if os.environ.get("PLAYER_FORM") == "aio" else Client() as me:
        path = f"{folder}/{label}.{me.rank}"
        script = Path(path).read_text().splitlines()
        with open(f"{path}.out", "w") as results, open(f"{path}.begun", "w") as begun:
            begun.write(f"-1 {os.getpid()}\n")
            begun.flush()
            player = Player(me, results, begun, folder, label)
            player.tell(-1, f"pypmix {me.engine}")
            me.on(EVENT)(player.on_event)
            for _, lines in itertools.groupby(map(str.split, script), lambda words: words[0]):
                threads = [threading.Thread(target=player.play, args=(int(words[1]), words[2:])) for words in lines]
                if len(threads) == 1:
                    threads[0].run()
                    continue
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            me.close()
            player.tell(-2, "status 0")


main(*sys.argv[1:])
