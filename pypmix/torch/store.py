"""A `torch.distributed.Store` on PMIx: without a port, and without a process that all others depend on."""

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
"""All stores of this process: torch keeps only the C++ half of a store alive, but later calls the Python half."""


def _translate_errors(call: Callable[P, R]) -> Callable[P, R]:
    """Make a method raise the error class that torch expects of a store."""

    @wraps(call)
    def translate(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except PMIxError as error:
            raise DistStoreError(f"{call.__name__} of the PMIx store: {error}") from error

    return translate


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


class PMIxStore(Store):  # type: ignore[misc]
    """A store that any number of processes share, for `init_process_group(store=...)`, `PrefixStore` and so on.

    All changes are atomic. The server for published data keeps them, which under `pypmix run` is the launcher, and they
    survive the loss of every process and of every other node. Each change takes some hundred bytes there until the job
    ends. `pypmix.recipes.keyvalues` explains how it works.

    Args:
        values: The key-value store.
    """

    def __init__(self, values: KeyValues) -> None:
        super().__init__()
        self._values = values
        _kept.append(self)

    @_translate_errors
    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self._values.set(key, _bytes(value))

    @_translate_errors
    def get(self, key: str) -> bytes:
        """Return the value of a key; wait for it until the store's time limit."""
        return self._values.wait([key], self.timeout.total_seconds())[0]

    @_translate_errors
    def add(self, key: str, value: int) -> int:
        """Add to the number under a key, 0 at first; return the sum."""
        return int(self._values.update(key, lambda old: b"%d" % (int(old or 0) + value), fresh=False) or 0)

    @_translate_errors
    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set a key if it has the expected value, or if it has none and an empty value is expected.

        Returns:
            The resulting value of the key; `expected` if the key has no value.
        """
        wanted, new = _bytes(expected), _bytes(desired)

        def change(old: bytes | None) -> bytes | None:
            return new if (old or b"") == wanted and (old is not None or not wanted) else old

        found = self._values.update(key, change)
        return wanted if found is None else found

    @_translate_errors
    def append(self, key: str, value: str | bytes) -> None:
        """Append to the value of a key."""
        self._values.update(key, lambda old: (old or b"") + _bytes(value), fresh=False)

    @_translate_errors
    def delete_key(self, key: str) -> bool:
        """Delete a key; return True if it had a value."""
        return self._values.delete(key)

    @_translate_errors
    def check(self, keys: Sequence[str]) -> bool:
        """Return True if each of the keys has a value, or is a queue with a value."""
        return not self._values.missing(keys)

    @_translate_errors
    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until `check` is true of all of the keys, by default until the store's time limit."""
        self._values.await_all(keys, (timeout or self.timeout).total_seconds())

    @_translate_errors
    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of keys; wait for them until the store's time limit."""
        return self._values.wait(keys, self.timeout.total_seconds())

    @_translate_errors
    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several keys, one after the other."""
        for key, value in zip(keys, values, strict=True):
            self._values.set(key, _bytes(value))

    @_translate_errors
    def num_keys(self) -> int:
        """Return the number of keys with a value."""
        return len(self._values.keys())

    @_translate_errors
    def list_keys(self) -> list[str]:
        """Return the keys with a value."""
        return self._values.keys()

    @_translate_errors
    def queue_push(self, key: str, value: str | bytes) -> None:
        """Append a value to a queue."""
        self._values.push(key, _bytes(value))

    @_translate_errors
    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Remove and return the first value of a queue; with `block`, wait for it until the store's time limit."""
        if not block and not self._values.length(key):
            raise QueueEmptyError("queue is empty")
        return self._values.pop(key, self.timeout.total_seconds())

    @_translate_errors
    def queue_len(self, key: str) -> int:
        """Return the number of values in a queue."""
        return self._values.length(key)

    def has_extended_api(self) -> bool:
        """Return True: `append`, `multi_get`, `multi_set` and queues are available."""
        return True

    def clone(self) -> PMIxStore:
        """Return the store itself, which any thread may use."""
        return self

    # torch's C++ code, such as `PrefixStore`, calls these methods by other names; it calls neither `list_keys` nor the
    # queues.
    deleteKey = delete_key
    getNumKeys = num_keys
