"""The store of `pmix://?store=pmix`: its contract, in Python and through C++, a process group, and a lost rank."""

import os
import signal
from datetime import timedelta

import torch
import torch.distributed as dist

import pypmix.torch

SHORT = timedelta(seconds=0.3)


def raised(kind, call, *args):
    try:
        call(*args)
    except kind as error:
        return str(error)
    raise AssertionError(f"{call} does not raise {kind}")


def contract(store, name):
    assert store.num_keys() == 0
    store.set("k", "v")
    store.set("k", "w")
    assert store.get("k") == b"w"
    assert [store.add("n", 2), store.add("n", -5)] == [2, -3] and store.get("n") == b"-3"
    assert store.compare_set("c", "x", "y") == b"x" and not store.check(["c"])
    assert store.compare_set("c", "", "z") == b"z" and store.compare_set("c", "no", "q") == b"z"
    assert store.compare_set("c", "z", "w") == b"w" and store.get("c") == b"w"
    store.append("a", "1")
    store.append("a", "2")
    store.multi_set(["m1", "m2"], ["1", "2"])
    assert store.multi_get(["m1", "a", "m2"]) == [b"1", b"12", b"2"]
    assert store.num_keys() == 6 and store.delete_key("k") and not store.delete_key("k") and store.num_keys() == 5
    assert store.check(["n", "c"]) and not store.check(["n", "k"])
    store.wait(["n", "c"])
    assert f"'{name}k'" in raised(dist.DistStoreError, store.wait, ["n", "k"], SHORT)
    before = store.timeout
    store.set_timeout(SHORT)
    assert "timeout" in raised(RuntimeError, store.get, "k")
    store.set_timeout(before)
    store.set("k", "again")
    assert store.get("k") == b"again" and store.has_extended_api() and store.clone().get("k") == b"again"


def queues(store):
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert store.check(["q"]) and not store.check(["q", "no"])
    store.wait(["q"])
    assert store.queue_len("q") == 2 and store.queue_pop("q") == b"1" and store.queue_pop("q", False) == b"2"
    raised(dist.QueueEmptyError, store.queue_pop, "q", False)
    assert not store.check(["q"])


def main():
    me = pypmix.torch.client()
    limit = timedelta(seconds=150)
    try:
        store, rank, size = next(dist.rendezvous("pmix://?store=pmix", timeout=limit))
    except pypmix.NotSupported as error:
        print(f"rank {me.rank}: NotSupported {error}", flush=True)
        return
    first, _, _ = next(dist.rendezvous("pmix://?store=pmix", timeout=limit))
    if rank == 0:
        contract(first, "")
        queues(first)
        contract(dist.PrefixStore("p", next(dist.rendezvous("pmix://?store=pmix", timeout=limit))[0]), "p/")
        dist._test_python_store(next(dist.rendezvous("pmix://?store=pmix", timeout=limit))[0])
    else:
        for _ in range(2):
            next(dist.rendezvous("pmix://?store=pmix", timeout=limit))
    sums = [store.add("sum", 1) for _ in range(20)]
    me.fence(timeout=150)
    assert sums == sorted({*sums}) and store.get("sum") == b"%d" % (20 * size)

    dist.init_process_group("gloo", init_method="pmix://?store=pmix", timeout=limit)
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(total, group=pair)
    print(f"rank {rank}: total {total.item():g}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"rank {rank}: {raised(dist.DistStoreError, store.get, 'never')}", flush=True)


main()
