"""A store of keys and values with atomic changes, which many procs share, over published data alone.

Theory of operation
-------------------
PMIx publishes a key once within a range: of several procs that publish the same key, one succeeds, and the others get
`ERR_DUPLICATE_KEY`. That is all the agreement that is needed. A key of the store is a chain of published keys, one for
each change, `NAME/key#0`, `NAME/key#1`, ..., and the last of them is its value, or says that it was deleted. To change
a key is to publish the next one; who finds it taken reads on from there, and tries again with what it has read. So a
change is made as a whole or not at all, whenever a proc ends, and all see the changes of a key in one order.

- Nothing is taken back, so the chain of a key has no gaps, and its end is found in steps that grow. What has been read
  does not change, and is kept.
- The first change of a key is published together with an entry in a chain of the caller's own, `NAME@proc#0`, ...: the
  list of keys that it was the first to set. All chains of the members are the list of all keys.
- A queue is two chains: what was pushed, and who took the first, the second, ...
- A wait is a lookup that waits for the next change, in slices, between which the caller may find out that those who
  would make it are gone.

The data are with the server that keeps what is published; under `pypmix run` that is the launcher. They survive the
loss of every member and of every node but the launcher's. Each change takes some hundred bytes there until the job
ends, and counts to the limits `published_values` and `directory_values`.

Calls may come from any thread. No lock is held during a call to the server: chains only grow, and threads that read the
same one read the same.
"""

from __future__ import annotations

import time
from hashlib import sha256

from pypmix.standard import statuses
from pypmix.standard.enums import Persist, Range
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Protocol

    from pypmix.published import PublishedData
    from pypmix.standard.types import Proc

    class Publisher(Protocol):
        """The part of a `Client` that the store needs."""

        @property
        def proc(self) -> Proc: ...

        def publish(self, values: Mapping[str, object], *, range: int, persist: int) -> None: ...

        def lookup(self, key: str, *, wait: float, range: int) -> object: ...

        def lookup_all(self, keys: Iterable[str], *, range: int) -> PublishedData: ...


SLICE = 1.0
"""Seconds of a wait between two calls of `check`. PMIx has whole seconds."""

PAUSE = 0.02
"""Seconds between two looks in the last part of a wait, which is shorter than a slice."""

WINDOW = 64
"""The most changes of a chain that are asked for at once."""

LONGEST = 400
"""The bytes of a key that is published as it is; PMIx has at most 511, with the number and the name of the store."""

_DELETED = b"-"
_PRESENT = b"="


class KeyValues:
    """A store of keys and values that many procs share. See the module for how it works.

    Args:
        client: The caller's client, open.
        name: The name of the store, the same at all members; two stores of one name are the same one.
        members: The procs that may set keys, which `keys` needs to know; all of them see all keys.
        range: Who sees it: the procs of the caller's job by default.
        check: Called now and then while the store waits; what it raises ends the wait.
    """

    def __init__(
        self,
        client: Publisher,
        name: str,
        members: Sequence[Proc],
        *,
        range: int = Range.NAMESPACE,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._name = name
        self._members = members
        self._range = range
        self._check = check
        self._chains: dict[str, list[bytes]] = {}
        """The changes of each chain that are known."""

    def probe(self) -> None:
        """Make sure that the server refuses what is published already.

        Raises:
            NotSupported: It does not, or publishes nothing.
        """
        chain = f"?{self._client.proc}"
        if not self._append(chain, 0, b"") or self._append(chain, 0, b""):
            raise NotSupported(
                "this server publishes a key twice, so procs cannot agree by it which of them was first",
                operation="publish",
                hint="`pypmix run` refuses it, as the Standard has it; prterun of PMIx 5.0 and Open MPI 4.1 do not",
            )

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, None where it has none."""
        return self.get_all([key])[0]

    def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of several keys, of which some may have none."""
        chains = [self._chain(key) for key in keys]
        self._read(chains)
        return [self._last(chain) for chain in chains]

    def set(self, key: str, value: bytes) -> None:
        """Set a key, whatever its value is."""
        self.update(key, lambda _old: value, fresh=False)

    def update(self, key: str, change: Callable[[bytes | None], bytes | None], *, fresh: bool = True) -> bytes | None:
        """Replace the value of a key by what a function makes of it, as one atomic change.

        Args:
            key: The key.
            change: Gets the value, None where there is none, and returns the new one; where it returns the same object,
                nothing is changed. It may be called several times.
            fresh: Read the value first. Otherwise what is known of it is tried, which is faster if it is still so.

        Returns:
            What the function has returned last.
        """
        chain = self._chain(key)
        if fresh:
            self._read([chain])
        while True:
            known = self._chains.get(chain, [])
            number, old = len(known), self._value(known[-1]) if known else None
            new = change(old)
            if new is old:
                # Without having read it, that is known of an older value only.
                if fresh:
                    return new
            elif self._append(chain, number, _DELETED if new is None else _PRESENT + new, "" if number else key):
                return new
            self._read([chain])
            fresh = True

    def delete(self, key: str) -> bool:
        """Delete a key; tell whether it had a value."""
        had = False

        def change(old: bytes | None) -> None:
            nonlocal had
            had = old is not None

        self.update(key, change)
        return had

    def keys(self) -> list[str]:
        """Return the keys that have a value."""
        lists = [f"@{proc}" for proc in self._members]
        self._read(lists)
        keys = list(dict.fromkeys([key.decode() for chain in lists for key in self._chains.get(chain, ())]))
        return [key for key, value in zip(keys, self.get_all(keys), strict=True) if value is not None]

    def wait(self, keys: Sequence[str], timeout: float) -> list[bytes]:
        """Wait until all of the keys have a value; return the values.

        Raises:
            OperationTimeout: Some have none in time; the text names them.
        """
        deadline = time.monotonic() + timeout
        while True:
            values = self.get_all(keys)
            missing = [key for key, value in zip(keys, values, strict=True) if value is None]
            if not missing:
                return [value for value in values if value is not None]
            self._await_one(missing, deadline)

    def await_all(self, keys: Sequence[str], timeout: float) -> None:
        """Wait until all of the keys have a value, or a queue of that name has one, which is seen within a second.

        Raises:
            OperationTimeout: Some have none in time; the text names them.
        """
        deadline = time.monotonic() + timeout
        while missing := self.missing(keys):
            self._await_one(missing, deadline)

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return which of the keys have no value, and no queue of that name that has one."""
        absent = [key for key, value in zip(keys, self.get_all(keys), strict=True) if value is None]
        return [key for key in absent if not self.length(key)]

    def push(self, queue: str, value: bytes) -> None:
        """Append a value to a queue."""
        chain = f"<{queue}"
        while not self._append(chain, len(self._chains.get(chain, ())), value):
            self._read([chain])

    def pop(self, queue: str, timeout: float) -> bytes:
        """Take the first value of a queue, which no other caller gets.

        Raises:
            OperationTimeout: None came in time.
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
        """Return how many values a queue has."""
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
        """Publish the next change of a chain; tell whether no other proc has been faster.

        Args:
            chain: The chain.
            number: How many changes it has, as far as is known.
            change: The change.
            listed: The key to be listed along with it, if any.
        """
        own = f"@{self._client.proc}"
        while True:
            values = {self._published(chain, number): change}
            count = len(self._chains.get(own, ()))
            if listed:
                values[self._published(own, count)] = listed.encode()
            try:
                self._client.publish(values, range=self._range, persist=Persist.APP)
            except PMIxError as error:
                if error.code != statuses.ERR_DUPLICATE_KEY:
                    raise
                if listed:
                    # Another thread, or an earlier store of this name, may have used that place of the list.
                    self._read([own])
                    if len(self._chains.get(own, ())) != count:
                        continue
                return False
            self._learn(chain, number, [change])
            if listed:
                self._learn(own, count, [listed.encode()])
            return True

    def _read(self, chains: Sequence[str]) -> None:
        """Read the chains to their ends."""
        windows = {chain: 1 if chain in self._chains else 2 for chain in chains}
        while windows:
            starts = {chain: len(self._chains.get(chain, ())) for chain in windows}
            asked = {
                self._published(chain, number): chain
                for chain, window in windows.items()
                for number in range_of(starts[chain], window)
            }
            found = self._client.lookup_all(asked, range=self._range)
            for chain, window in list(windows.items()):
                changes = []
                for number in range_of(starts[chain], window):
                    entry = found.get(self._published(chain, number))
                    if entry is None:
                        break
                    changes.append(bytes(entry.value))
                self._learn(chain, starts[chain], changes)
                if len(changes) < window:
                    del windows[chain]
                else:
                    windows[chain] = min(4 * window, WINDOW)

    def _learn(self, chain: str, number: int, changes: Sequence[bytes]) -> None:
        if changes:
            known = self._chains.setdefault(chain, [])
            # What another thread has read meanwhile is the same.
            known[number:] = [*changes, *known[number + len(changes) :]]

    def _await_one(self, missing: Sequence[str], deadline: float) -> None:
        """Wait for the next change of the first of some keys, or for the end of a slice."""
        self._await(self._chain(missing[0]), deadline, f"{len(missing)} keys have no value, such as {missing[0]!r}")

    def _await(self, chain: str, deadline: float, what: str) -> None:
        """Wait for the next change of a chain, or for the end of a slice.

        Raises:
            OperationTimeout: The time is over.
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
            self._client.lookup(following, wait=SLICE, range=self._range)
        except (OperationTimeout, NotFound):
            return

    def _published(self, chain: str, number: int) -> str:
        return f"{self._name}{chain}#{number}"


def range_of(start: int, count: int) -> range:
    """Return the numbers of so many changes."""
    return range(start, start + count)
