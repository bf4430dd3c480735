"""A key-value store with atomic changes, which many procs share, built on published data.

Theory of operation
-------------------
PMIx publishes a key once within a range: if several procs publish the same key, one succeeds, and the others fail with
`ERR_DUPLICATE_KEY`. The store needs no other agreement. A key of the store is a chain of published keys, one for each
change, `NAME/key#0`, `NAME/key#1`, ..., and the last one holds its value, or marks it as deleted. To change a key, a
proc publishes the next key of the chain; if that exists already, it reads the chain to its end and tries again. So each
change happens as a whole or not at all, whenever a proc ends, and all procs see the changes of a key in the same order.

- Published keys are never removed, so a chain has no gaps, and a reader finds its end in growing steps. Changes that
  were read once are cached, as they never change.
- The first change of a key is published together with an entry in a chain of the caller, `NAME@proc#0`, ...: the list
  of keys that this proc was the first to set. The chains of all members are the list of all keys.
- A queue consists of two chains: the pushed values, and the claims of the first value, the second, ...
- A wait is a lookup of the next change, in slices, between which the caller can check whether the other procs live.

The server that stores published data holds the chains; under `pypmix run` it is the launcher. They survive the loss of
every member and of every node except the launcher's. Each change takes some hundred bytes there until the job ends, and
counts towards the limits `published_values` and `directory_values`.

Calls may come from any thread. No lock is held during a call to the server: chains only grow, and all threads read the
same changes.
"""

from __future__ import annotations

import time
from hashlib import sha256

from pypmix.standard import statuses
from pypmix.standard.enums import Persist, Range
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.client import Client
    from pypmix.standard.types import Proc

SLICE = 1.0
"""Seconds of a wait between two calls of `check`. PMIx waits for whole seconds only."""

PAUSE = 0.02
"""Seconds between two lookups in the last part of a wait, which is shorter than a slice."""

WINDOW = 64
"""The most changes of a chain that one lookup requests."""

LONGEST = 400
"""The bytes of the longest key that is published unhashed.

PMIx limits a key to 511 bytes, including the number and the name of the store.
"""

_DELETED = b"-"
_PRESENT = b"="


class KeyValues:
    """A key-value store that many procs share.

    Args:
        client: The caller's open client.
        name: The name of the store, the same at all members.
        members: The procs that may set keys; `keys` reads their lists.
        range: The range of the published data; by default the procs of the caller's job.
        check: Called about once a second during a wait; its exception ends the wait.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        members: Sequence[Proc],
        *,
        range: Range = Range.NAMESPACE,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._name = name
        self._members = members
        self._range = range
        self._check = check
        self._chains: dict[str, list[bytes]] = {}
        """The changes that were read, by chain."""

    def probe(self) -> None:
        """Check that the server refuses to publish a key twice.

        Raises:
            NotSupported: The server publishes it twice, or not at all.
        """
        chain = f"?{self._client.proc}"
        if not self._append(chain, 0, b"") or self._append(chain, 0, b""):
            raise NotSupported(
                "this server publishes a key twice, so procs cannot agree by it which of them was first",
                operation="publish",
                hint="start the job with `pypmix run`; prterun of PMIx 5.0 and Open MPI 4.1 do not refuse it",
            )

    def get(self, key: str) -> bytes | None:
        """Return the value of a key; None if it has no value."""
        return self.get_all([key])[0]

    def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of several keys; None for each key without a value."""
        chains = [self._chain(key) for key in keys]
        self._read(chains)
        return [self._last(chain) for chain in chains]

    def set(self, key: str, value: bytes) -> None:
        """Set a key, whether it has a value or not."""
        self.update(key, lambda _old: value, fresh=False)

    def update(self, key: str, change: Callable[[bytes | None], bytes | None], *, fresh: bool = True) -> bytes | None:
        """Replace the value of a key by the result of a function, as one atomic change.

        Args:
            key: The key.
            change: Receives the value, or None, and returns the new one, None to delete it. If it returns the same
                object, the key stays as it is. It may be called several times.
            fresh: Read the value first. Otherwise the cached value is tried first, which is faster if it is current.

        Returns:
            The last result of the function.
        """
        chain = self._chain(key)
        if fresh:
            self._read([chain])
        while True:
            known = self._chains.get(chain, [])
            number, old = len(known), self._value(known[-1]) if known else None
            new = change(old)
            if new is old:
                # A cached value may be out of date, so the answer is only right after a read.
                if fresh:
                    return new
            elif self._append(chain, number, _DELETED if new is None else _PRESENT + new, "" if number else key):
                return new
            self._read([chain])
            fresh = True

    def delete(self, key: str) -> bool:
        """Delete a key; return True if it had a value."""
        had = False

        def change(old: bytes | None) -> None:
            nonlocal had
            had = old is not None

        self.update(key, change)
        return had

    def keys(self) -> list[str]:
        """Return the keys with a value."""
        lists = [f"@{proc}" for proc in self._members]
        self._read(lists)
        keys = list(dict.fromkeys([key.decode() for chain in lists for key in self._chains.get(chain, ())]))
        return [key for key, value in zip(keys, self.get_all(keys), strict=True) if value is not None]

    def wait(self, keys: Sequence[str], timeout: float) -> list[bytes]:
        """Wait until all of the keys have a value; return the values.

        Raises:
            OperationTimeout: Some keys have no value in time; the text names the first of them.
        """
        deadline = time.monotonic() + timeout
        while True:
            values = self.get_all(keys)
            missing = [key for key, value in zip(keys, values, strict=True) if value is None]
            if not missing:
                return [value for value in values if value is not None]
            self._await_one(missing, deadline)

    def await_all(self, keys: Sequence[str], timeout: float) -> None:
        """Wait until each name has a value, or is a queue with a value, which is noticed within a second.

        Raises:
            OperationTimeout: Some names have no value in time; the text names the first of them.
        """
        deadline = time.monotonic() + timeout
        while missing := self.missing(keys):
            self._await_one(missing, deadline)

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return the names that have no value and are not a queue with a value."""
        absent = [key for key, value in zip(keys, self.get_all(keys), strict=True) if value is None]
        return [key for key in absent if not self.length(key)]

    def push(self, queue: str, value: bytes) -> None:
        """Append a value to a queue."""
        chain = f"<{queue}"
        while not self._append(chain, len(self._chains.get(chain, ())), value):
            self._read([chain])

    def pop(self, queue: str, timeout: float) -> bytes:
        """Remove and return the first value of a queue.

        Raises:
            OperationTimeout: The queue stayed empty.
        """
        pushed, taken = f"<{queue}", f">{queue}"
        deadline = time.monotonic() + timeout
        while True:
            self._read([pushed, taken])
            first = len(self._chains.get(taken, ()))
            values = self._chains.get(pushed, [])
            if first == len(values):
                self._await(pushed, deadline, f"queue {queue!r} is empty")
            elif self._append(taken, first, b""):
                return values[first]

    def length(self, queue: str) -> int:
        """Return the number of values in a queue."""
        pushed, taken = f"<{queue}", f">{queue}"
        self._read([pushed, taken])
        return len(self._chains.get(pushed, ())) - len(self._chains.get(taken, ()))

    def _chain(self, key: str) -> str:
        if len(key.encode()) > LONGEST:
            key = f"{key[:40]}~{sha256(key.encode()).hexdigest()}"
        return f"/{key}"

    def _last(self, chain: str) -> bytes | None:
        known = self._chains.get(chain)
        return self._value(known[-1]) if known else None

    @staticmethod
    def _value(change: bytes) -> bytes | None:
        return None if change.startswith(_DELETED) else change[len(_PRESENT) :]

    def _append(self, chain: str, number: int, change: bytes, listed: str = "") -> bool:
        """Publish the next change of a chain; return False if another proc has published it first.

        Args:
            chain: The chain.
            number: The number of its known changes.
            change: The change.
            listed: A key to add to the caller's list with the change; empty for none.
        """
        own = f"@{self._client.proc}"
        while True:
            values = {self._published(chain, number): change}
            count = len(self._chains.get(own, ()))
            if listed:
                values[self._published(own, count)] = listed.encode()
            try:
                self._client.publish(values, data_range=self._range, persist=Persist.APP)
            except PMIxError as error:
                if error.code != statuses.ERR_DUPLICATE_KEY:
                    raise
                if listed:
                    # Another thread, or an earlier store of this name, may have used this place of the list.
                    self._read([own])
                    if len(self._chains.get(own, ())) != count:
                        continue
                return False
            self._cache(chain, number, [change])
            if listed:
                self._cache(own, count, [listed.encode()])
            return True

    def _read(self, chains: Sequence[str]) -> None:
        """Read the chains to their ends."""
        windows = {chain: 1 if chain in self._chains else 2 for chain in chains}
        while windows:
            starts = {chain: len(self._chains.get(chain, ())) for chain in windows}
            names = {
                self._published(chain, number): chain
                for chain, window in windows.items()
                for number in range_of(starts[chain], window)
            }
            found = self._client.lookup(names, data_range=self._range)
            for chain, window in list(windows.items()):
                changes = []
                for number in range_of(starts[chain], window):
                    entry = found.get(self._published(chain, number))
                    if entry is None:
                        break
                    changes.append(bytes(entry.value))
                self._cache(chain, starts[chain], changes)
                if len(changes) < window:
                    del windows[chain]
                else:
                    windows[chain] = min(4 * window, WINDOW)

    def _cache(self, chain: str, number: int, changes: Sequence[bytes]) -> None:
        if changes:
            known = self._chains.setdefault(chain, [])
            # Another thread may have added the same changes meanwhile.
            known[number:] = [*changes, *known[number + len(changes) :]]

    def _await_one(self, missing: Sequence[str], deadline: float) -> None:
        """Wait for the next change of the first of some keys, or for the end of a slice."""
        self._await(self._chain(missing[0]), deadline, f"{len(missing)} keys have no value, such as {missing[0]!r}")

    def _await(self, chain: str, deadline: float, what: str) -> None:
        """Wait for the next change of a chain, or for the end of a slice.

        Raises:
            OperationTimeout: The deadline has passed.
        """
        self._check()
        left = deadline - time.monotonic()
        if left <= 0:
            raise OperationTimeout(f"timeout: {what}", operation="wait")
        if left < SLICE:
            time.sleep(min(PAUSE, left))
            return
        try:
            following = self._published(chain, len(self._chains.get(chain, ())))
            self._client.lookup(following, timeout=SLICE, data_range=self._range)
        except (OperationTimeout, NotFound):
            return

    def _published(self, chain: str, number: int) -> str:
        return f"{self._name}{chain}#{number}"


def range_of(start: int, count: int) -> range:
    """Return the numbers of `count` changes."""
    return range(start, start + count)
