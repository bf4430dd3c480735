"""A `torch.distributed.Store` over PMIx alone: no port, and no process that the others depend on."""

from __future__ import annotations

from functools import wraps

from torch.distributed import DistStoreError, QueueEmptyError, Store

from pypmix.recipes.keyvalues import KeyValues
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

_kept: list[Store] = []
"""All stores of this process: torch keeps the C++ half of a store and lets go of this one, which it then misses."""


def _told(call: Callable[P, R]) -> Callable[P, R]:
    """Let a method raise what torch expects of a store."""

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except PMIxError as error:
            raise DistStoreError(f"{call.__name__} of the PMIx store: {error}") from error

    return told


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


class PMIxStore(Store):  # type: ignore[misc]
    """A store that any number of processes share, for `init_process_group(store=...)`, `PrefixStore` and so on.

    All changes are atomic. They are kept by the server that keeps published data, which under `pypmix run` is the
    launcher, and survive the loss of every process and of every other node. Each takes some hundred bytes there until
    the job ends. See `pypmix.recipes.keyvalues` for how it works.

    Args:
        values: Where the values are.
    """

    def __init__(self, values: KeyValues) -> None:
        super().__init__()
        self._values = values
        _kept.append(self)

    @_told
    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self._values.set(key, _bytes(value))

    @_told
    def get(self, key: str) -> bytes:
        """Return the value of a key; wait for it until the store's time limit."""
        return self._values.wait([key], self.timeout.total_seconds())[0]

    @_told
    def add(self, key: str, value: int) -> int:
        """Add to the number that is the value of a key, 0 at first; return the sum."""
        return int(self._values.update(key, lambda old: b"%d" % (int(old or 0) + value), fresh=False) or 0)

    @_told
    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set a key if it has the expected value, or none and an empty one is expected; return its value then.

        For a key without a value that is the expected one.
        """
        wanted, new = _bytes(expected), _bytes(desired)

        def change(old: bytes | None) -> bytes | None:
            return new if (old or b"") == wanted and (old is not None or not wanted) else old

        found = self._values.update(key, change)
        return wanted if found is None else found

    @_told
    def append(self, key: str, value: str | bytes) -> None:
        """Append to the value of a key."""
        self._values.update(key, lambda old: (old or b"") + _bytes(value), fresh=False)

    @_told
    def delete_key(self, key: str) -> bool:
        """Delete a key; tell whether it had a value."""
        return self._values.delete(key)

    @_told
    def check(self, keys: Sequence[str]) -> bool:
        """Tell whether all of the keys have a value, or a queue of that name that has one."""
        return not self._values.missing(keys)

    @_told
    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until `check` is true of all of the keys, by default until the store's time limit."""
        self._values.await_all(keys, (timeout or self.timeout).total_seconds())

    @_told
    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of keys; wait for them until the store's time limit."""
        return self._values.wait(keys, self.timeout.total_seconds())

    @_told
    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several keys, one after the other."""
        for key, value in zip(keys, values, strict=True):
            self._values.set(key, _bytes(value))

    @_told
    def num_keys(self) -> int:
        """Return how many keys have a value."""
        return len(self._values.keys())

    @_told
    def list_keys(self) -> list[str]:
        """Return the keys that have a value."""
        return self._values.keys()

    @_told
    def queue_push(self, key: str, value: str | bytes) -> None:
        """Append a value to a queue."""
        self._values.push(key, _bytes(value))

    @_told
    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of a queue; wait for one until the store's time limit, if at all."""
        if not block and not self._values.length(key):
            raise QueueEmptyError("queue is empty")
        return self._values.pop(key, self.timeout.total_seconds())

    @_told
    def queue_len(self, key: str) -> int:
        """Return how many values a queue has."""
        return self._values.length(key)

    def has_extended_api(self) -> bool:
        """Tell that there are `append`, `multi_get`, `multi_set` and queues."""
        return True

    def clone(self) -> PMIxStore:
        """Return the store itself, which any thread may use."""
        return self

    # The names by which torch's C++ code, such as `PrefixStore`, looks for some of the methods. It does not look for
    # `list_keys` and the queues.
    deleteKey = delete_key
    getNumKeys = num_keys
