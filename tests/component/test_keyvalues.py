"""The store over published data: its contract with one caller, and with many at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping

import pytest

from pypmix import NotSupported, OperationTimeout, PMIxError, Proc
from pypmix.answers import LookupResults, Published
from pypmix.recipes.keyvalues import LONGEST, KeyValues
from pypmix.standard import statuses

LIMIT = 60.0


class Directory:
    """A server that publishes each key once."""

    def __init__(self, duplicates: bool = False) -> None:
        self.values: dict[str, Published] = {}
        self.changed = threading.Condition()
        self.duplicates = duplicates
        self.requests = 0


class Publisher:
    """A client of it."""

    def __init__(self, directory: Directory, rank: int) -> None:
        self.directory = directory
        self.proc = Proc("job", rank)
        self.between = lambda: None

    def publish(self, values: Mapping[str, object], *, data_range: int, persist: int) -> None:
        self.between()
        with self.directory.changed:
            self.directory.requests += 1
            taken = [key for key in values if key in self.directory.values]
            if taken and not self.directory.duplicates:
                raise PMIxError(f"{taken} is published", status=statuses.ERR_DUPLICATE_KEY)
            self.directory.values |= {key: Published(value, self.proc) for key, value in values.items()}
            self.directory.changed.notify_all()

    def lookup(self, key: str | Iterable[str], *, timeout: float = 0, data_range: int) -> object:
        if not isinstance(key, str):
            return self._lookup_all(key)
        with self.directory.changed:
            if not self.directory.changed.wait_for(lambda: key in self.directory.values, timeout):
                raise OperationTimeout(key)
            return self.directory.values[key].value

    def _lookup_all(self, keys: Iterable[str]) -> LookupResults:
        asked = list(keys)
        self.between()
        with self.directory.changed:
            self.directory.requests += 1
            return LookupResults(
                {key: self.directory.values[key] for key in asked if key in self.directory.values}, asked
            )


def stores(count: int, directory: Directory | None = None) -> list[KeyValues]:
    directory = directory or Directory()
    members = [Proc("job", rank) for rank in range(count)]
    return [KeyValues(Publisher(directory, rank), "test", members) for rank in range(count)]


def together(count: int, work) -> None:
    """Call a function with each number in a thread of its own, and raise what one raises."""
    failed: list[BaseException] = []

    def call(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads)
    if failed:
        raise failed[0]


def test_values_of_keys() -> None:
    one, other = stores(2)
    assert one.get("a") is None
    one.set("a", b"1")
    assert other.get("a") == b"1"
    other.set("a", b"")
    one.set("a", b"3")  # without having read what the other has set
    assert [each.get("a") for each in (one, other)] == [b"3", b"3"]
    assert one.get_all(["b", "a"]) == [None, b"3"]


def test_deleted_keys() -> None:
    one, other = stores(2)
    one.set("a", b"1")
    other.set("b", b"2")
    assert other.delete("a") and not one.delete("a") and not one.delete("never")
    assert one.get("a") is None and one.keys() == other.keys() == ["b"]
    one.set("a", b"4")
    assert sorted(other.keys()) == ["a", "b"] and other.get("a") == b"4"


def test_a_change_depends_on_what_is_there() -> None:
    one, other = stores(2)
    one.set("a", b"1")
    assert other.update("a", lambda old: b"2" if old == b"1" else old) == b"2"
    assert one.update("a", lambda old: b"3" if old == b"1" else old) == b"2"
    assert one.get("a") == b"2"


def test_long_keys_do_not_meet() -> None:
    one, other = stores(2)
    first, second = "k" * (LONGEST + 1) + "1", "k" * (LONGEST + 1) + "2"
    one.set(first, b"1")
    other.set(second, b"2")
    assert (other.get(first), one.get(second)) == (b"1", b"2")
    assert sorted(one.keys()) == [first, second]


def test_stores_of_other_names_are_others() -> None:
    directory = Directory()
    one = KeyValues(Publisher(directory, 0), "one", [Proc("job", 0)])
    other = KeyValues(Publisher(directory, 0), "other", [Proc("job", 0)])
    one.set("a", b"1")
    assert other.get("a") is None and other.keys() == []


def test_a_store_that_is_opened_again_goes_on() -> None:
    directory = Directory()
    (before,) = stores(1, directory)
    before.set("a", b"1")
    (after,) = stores(1, directory)
    after.set("b", b"2")
    after.set("c", b"3")
    assert sorted(after.keys()) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(3))
def test_no_addition_is_lost(seed: int) -> None:
    """Threads of several callers, two of each, which are switched at every call to the server."""
    chance = random.Random(seed)
    directory = Directory()
    callers = stores(4, directory)
    for caller in callers:
        caller._client.between = lambda: threading.Event().wait(chance.random() / 2000)
    seen: list[bytes] = []

    def add(number: int) -> None:
        store = callers[number // 2]
        for _ in range(10):
            seen.append(store.update("sum", lambda old: str(int(old or 0) + 1).encode(), fresh=False) or b"")
            store.set(f"{number}.{len(seen)}", b"x")

    together(8, add)
    assert sorted(map(int, seen)) == list(range(1, 81))
    assert callers[0].get("sum") == b"80"
    assert len(callers[1].keys()) == len({*callers[1].keys()}) > 1


def test_one_of_many_is_first() -> None:
    callers = stores(6)
    won: list[int] = []

    def claim(number: int) -> None:
        mine = str(number).encode()
        if callers[number].update("first", lambda old: mine if old is None else old) == mine:
            won.append(number)

    together(6, claim)
    assert len(won) == 1 and callers[0].get("first") == str(won[0]).encode()


def test_waits() -> None:
    one, other = stores(2)

    def act(number: int) -> None:
        if number:
            for key in "ab":
                other.wait([f"{key}.asked"], LIMIT)
                other.set(key, key.encode())
        else:
            for key in "ab":
                one.set(f"{key}.asked", b"")
            assert one.wait(["a", "b"], LIMIT) == [b"a", b"b"]

    together(2, act)
    with pytest.raises(OperationTimeout, match="2 keys have no value, such as 'c'"):
        one.wait(["a", "c", "d"], 0.05)
    other.delete("a")
    with pytest.raises(OperationTimeout, match="'a'"):
        one.wait(["a"], 0.05)


def test_a_check_may_end_a_wait() -> None:
    def lost() -> None:
        raise RuntimeError("rank 1 was lost")

    store = KeyValues(Publisher(Directory(), 0), "test", [Proc("job", 0)], check=lost)
    with pytest.raises(RuntimeError, match="rank 1 was lost"):
        store.wait(["a"], LIMIT)


def test_queues() -> None:
    callers = stores(4)
    taken: list[bytes] = []

    def work(number: int) -> None:
        if number < 2:
            for each in range(10):
                callers[number].push("q", f"{number}.{each}".encode())
        else:
            for _ in range(10):
                taken.append(callers[number].pop("q", LIMIT))

    together(4, work)
    assert sorted(taken) == sorted(f"{number}.{each}".encode() for number in range(2) for each in range(10))
    assert callers[0].length("q") == 0
    with pytest.raises(OperationTimeout, match="queue 'q' is empty"):
        callers[0].pop("q", 0)
    callers[0].set("k", b"")
    assert callers[1].missing(["k", "q", "no"]) == ["q", "no"]
    with pytest.raises(OperationTimeout, match="1 keys have no value, such as 'q'"):
        callers[1].await_all(["k", "q"], 0.05)
    callers[3].push("q", b"last")
    assert callers[0].length("q") == 1
    callers[1].await_all(["k", "q"], LIMIT)


def test_long_chains_are_read_in_few_requests() -> None:
    directory = Directory()
    one, other = stores(2, directory)
    for number in range(1000):
        one.set("a", str(number).encode())
    before = directory.requests
    assert other.get("a") == b"999"
    assert directory.requests - before < 25
    before = directory.requests
    assert other.get("a") == b"999"
    assert directory.requests - before == 1


def test_servers_that_publish_twice_are_refused() -> None:
    (store,) = stores(1)
    store.probe()
    (store,) = stores(1, Directory(duplicates=True))
    with pytest.raises(NotSupported, match="publishes a key twice"):
        store.probe()
