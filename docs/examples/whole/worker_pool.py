"""A master hands out tasks. If a worker dies, its task goes to another one."""

import os
import signal

from pypmix import Client, EventCode, Proc

TASK, RESULT = EventCode.custom(-4301), EventCode.custom(-4302)
DEATHS = EventCode.ERR_PROC_ABORTED, EventCode.ERR_PROC_TERM_WO_SYNC
STOP = -1


def master(me, events):
    workers = {proc for proc in me.job if proc != me.proc}
    todo, idle = list(range(9)), sorted(workers)
    running: dict[Proc, int] = {}
    results: dict[int, int] = {}
    while todo or running:
        while todo and idle:
            worker, task = idle.pop(0), todo.pop(0)
            running[worker] = task
            me.notify(TASK, targets=[worker], info={"acme.task": task})
        event = events.get(timeout=60)
        if event.code == RESULT:
            task = running.pop(event.source)
            results[task] = event.info["acme.result"]
            idle.append(event.source)
            continue
        for proc in workers.intersection(event.affected):
            workers.remove(proc)
            if proc in idle:
                idle.remove(proc)
            if proc in running:
                print(f"rank {proc.rank} died; task {running[proc]} goes to another worker", flush=True)
                todo.insert(0, running.pop(proc))
    for worker in workers:
        me.notify(TASK, targets=[worker], info={"acme.task": STOP})
    print("squares:", [results[task] for task in sorted(results)])


def work(me, events):
    while (task := events.get(timeout=60).info["acme.task"]) != STOP:
        if me.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)  # as a node that fails would do
        me.notify(RESULT, targets=[me.job[0]], info={"acme.result": task * task})


with Client() as me:
    codes = (RESULT, *DEATHS) if me.rank == 0 else (TASK,)
    with me.events(*codes) as events:
        me.fence(timeout=30)  # everybody listens
        (master if me.rank == 0 else work)(me, events)
