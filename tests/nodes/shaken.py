"""The ranks of `test_faults`: `shaken.py SEED STEPS PATIENCE NODE ...` does anything, in step with the others.

`FAULTS_FOLDER` is where each leaves what it has lived through, around PMIx: `up.RANK` once it has come, `left.RANK` at
its end, `broken.RANK` where something has happened that no program can live with.

If a machine stood still for longer than an operation may take, its ranks call that operation when the others have timed
out and call the next ones. PMIx has no remedy for that: the late call belongs to the next operation. So the ranks meet
after an operation has timed out, around PMIx as well, and continue with the same step.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback

from faults import ranks
from pypmix import Client, EventCode, PMIxError, attrs

MEETING = 10.0
"""Seconds for which a rank that could continue waits for ranks that may be in an operation, or have died."""

ALSO = ("group", "direct", "spawn there", "spawn and wait", "publish", "own connect", "flood")


class Life(ranks.Life):
    """One rank, which also does what needs several machines."""

    def __init__(self, me, patience, nodes):
        super().__init__(me, EventCode.custom(-4242))
        self.patience = patience
        self.nodes = nodes
        self.meetings = 0
        self.is_late = False

    def tried(self, name, function, *args, **options):
        if options.get("timeout") == ranks.PATIENCE:
            options["timeout"] = self.patience
        result, end = super().tried(name, function, *args, **options)
        self.is_late |= end == "OperationTimeout" and options.get("timeout") == self.patience
        return result, end

    def meet(self, number):
        """Wait for the others if an operation of any rank has timed out; return the step with which all continue."""
        name = f"meeting.{self.meetings}"
        if self.is_late:
            (ranks.FOLDER / name).touch()
        elif not (ranks.FOLDER / name).exists():
            return number
        ranks.write(f"{name}.{ranks.RANK}", str(number))
        expected = [proc.rank for proc in self.me.job if self._has_met(self.meetings - 1, proc.rank)]
        deadline = time.monotonic() + MEETING
        while time.monotonic() < deadline and not all(self._has_met(self.meetings, rank) for rank in expected):
            time.sleep(0.01)
        self.meetings += 1
        self.is_late = False
        # A rank may have missed several meetings.
        return self.meet(max(int(path.read_text()) for path in ranks.FOLDER.glob(f"{name}.*")))

    def _has_met(self, meeting, rank):
        """Return True if a rank has come to a meeting, or to its end; to any one that was before the first."""
        return meeting < 0 or any((ranks.FOLDER / f"{name}.{rank}").exists() for name in (f"meeting.{meeting}", "left"))

    def step(self, number, chance):
        if chance.random() < 0.6:
            super().step(number, chance)
            return
        me = self.me
        kind = chance.choice(ALSO)
        if kind == "group":
            group, _ = self.tried("construct", me.group, f"group{number}", list(me.job), timeout=self.patience)
            if group is not None:
                self.tried("destruct", group.destruct, timeout=self.patience)
        elif kind == "own connect":
            near = chance.random() < 0.5
            # Those of one half of the ranks, which may be of one machine or of several.
            mine = [proc for proc in me.job if (proc.rank % 2 if near else proc.rank // 2) == self._half(near)]
            self.tried("connect", me.connect, mine, timeout=self.patience)
            self.tried("disconnect", me.disconnect, mine, timeout=self.patience)
        elif kind == "direct":
            me.put(f"d{number}", "x" * 20_000)
            self.tried("commit", me.commit)
            for peer in self.peers:
                if peer not in self.suspects:
                    value, end = self.tried("get", me.get, f"d{number}", peer, timeout=ranks.WAIT)
                    assert value is None or len(value) == 20_000
                    self.suspect(peer, end)
        elif kind == "spawn there":
            node = chance.choice(self.nodes)
            if me.rank == number % me.job.size:
                self.tried("spawn there", me.spawn, ["true"], n=2, info={attrs.HOST: node})
        elif kind == "spawn and wait":
            if me.rank == number % me.job.size:
                job, _ = self.tried("spawn", me.spawn, ["sleep", "0.1"], n=len(self.nodes))
                if job is not None:
                    self.tried("wait", job.wait, timeout=self.patience)
        elif kind == "flood":
            for line in range(200):
                print(f"{number} {line} {'x' * 1000}", flush=True)
        else:
            self.tried("publish", me.publish, {f"{me.nspace}.{number}.{me.rank}": number})
            self.tried("unpublish", me.unpublish, f"{me.nspace}.{number}.{me.rank}")

    def _half(self, near):
        return self.me.rank % 2 if near else self.me.rank // 2


def main(seed, steps, patience, *nodes):
    number = os.environ["PMIX_RANK"]
    if os.environ.get("FAULTS_MIXED"):
        os.environ["PYPMIX_ENGINE"] = ("python", "native")[int(number) % 2]
    ranks.write(f"up.{number}", "")
    life = None
    ended = ""
    try:
        with Client() as me:
            life = Life(me, float(patience), nodes)
            step = 0
            while step < int(steps):
                life.step(step, random.Random(f"{seed} {step}"))
                time.sleep(ranks.PAUSE)
                step = life.meet(step + 1)
    except (PMIxError, BrokenPipeError) as error:
        # The server or the launcher has gone.
        ended = f"{type(error).__name__}: {error}"
    except Exception:
        ranks.write(f"broken.{number}", traceback.format_exc())
        raise
    ranks.write(f"left.{number}", json.dumps({"done": [] if life is None else life.done, "ended": ended}))


if __name__ == "__main__":
    main(*sys.argv[1:])
