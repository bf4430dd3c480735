# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Publish, lookup and unpublish."""

from __future__ import annotations

from pypmix.arguments import MISSING, seconds, timed, waited
from pypmix.operations.base import Asks
from pypmix.published import Published, PublishedData
from pypmix.standard import codes, keys
from pypmix.standard.errors import NotFound, OperationTimeout, PartialSuccess, PMIxError
from pypmix.standard.ops import PERSIST_APP, RANGE_SESSION, Lookup, Publish, Unpublish
from pypmix.standard.types import Info, Value
from pypmix.standard.values import infos, to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pypmix.arguments import Infos
    from pypmix.standard.types import Pdata


class Publishing(Asks):
    """Publish, lookup and unpublish."""

    def publish(
        self,
        values: Mapping[Any, object] | Iterable[Info],
        *,
        range: int = RANGE_SESSION,
        persist: int = PERSIST_APP,
        timeout: float | None = None,
        info: Infos = None,
    ) -> None:
        """`PMIx_Publish`: make values known under keys that others look up, in whatever job they are.

        Unlike `put`, it needs no commit or fence, and who looks a key up need not know who published it.

        Args:
            values: A mapping of keys to values, or infos. Keys have at most 511 bytes and do not start with `pmix`.
            range: Who may look them up: `Range.SESSION`, `NAMESPACE`, `LOCAL` (this node), `GLOBAL`, `PROC_LOCAL`
                (the caller alone) or `CUSTOM` (the procs in `attrs.EVENT_CUSTOM_RANGE` of `info`).
            persist: How long they stay: `Persist.APP`, `PROC`, `SESSION`, `FIRST_READ` or `INDEF`.
            timeout: Seconds to wait for the server's answer; no limit by default.
            info: Further infos or a mapping, such as `attrs.ACCESS_PERMISSIONS`.

        Raises:
            PMIxError: A key is there already in this range (`ERR_DUPLICATE_KEY`); then none was published.
            NotSupported: The server's host keeps no published data.
            Unreachable: The caller is a singleton.

        PMIx Standard: "Publish/Lookup Operations".
        """
        self._run(Publish(infos(values), int(range), int(persist), timed(infos(info), timeout)))

    def lookup(
        self,
        key: str,
        *,
        default: Any = MISSING,
        timeout: float | None = None,
        wait: float | bool | None = None,
        range: int | None = None,
        info: Infos = None,
    ) -> Any:
        """`PMIx_Lookup` of one key: the value that somebody has published under it.

        Args:
            key: The key.
            default: Returned instead of raising `NotFound`.
            timeout: Seconds to wait until somebody publishes it; by default it is not waited for.
            wait: True to wait for as long as it takes; a number is the same as `timeout`.
            range: Take only what was published by procs in this range of the caller, such as `Range.NAMESPACE`.
            info: Further infos or a mapping.

        Returns:
            The value as a plain Python object; `lookup_all` also tells who published it.

        Raises:
            NotFound: It is not published where the caller may look it up, and no default was given.
            OperationTimeout: It did not come in time.

        PMIx Standard: "Publish/Lookup Operations".
        """
        op = Lookup((key,), infos(info) + _wait(waited(wait, timeout), 0) + _within(range))
        try:
            found = self._run(op)
            if not any(item.key == key for item in found):
                raise NotFound(f"the host's answer does not have {key!r}", operation=op.name)
            return next(to_python(item.value) for item in found if item.key == key)
        except NotFound:
            if default is MISSING:
                raise
            return default

    def lookup_all(
        self,
        keys: Iterable[str],
        *,
        timeout: float | None = None,
        wait: float | bool | None = None,
        count: int | None = None,
        range: int | None = None,
        info: Infos = None,
    ) -> PublishedData:
        """`PMIx_Lookup` of several keys: as many of them as there are.

        Args:
            keys: The keys.
            timeout: Seconds to wait until they are all there; by default they are not waited for.
            wait: True to wait for as long as it takes; a number is the same as `timeout`.
            count: With `timeout` or `wait`, how many of them suffice.
            range: Take only what was published by procs in this range of the caller.
            info: Further infos or a mapping.

        Returns:
            A dict of keys and `Published` values; its `missing` holds the keys that were not found.

        Raises:
            OperationTimeout: Not one of them came in time.

        PMIx Standard: "Publish/Lookup Operations".
        """
        if isinstance(keys, str):
            raise TypeError(f"keys are a collection of strings, not the string {keys!r}: lookup() takes a single key")
        names = tuple(keys)
        given = waited(wait, timeout)
        if count is not None:
            if isinstance(count, bool) or not isinstance(count, int):
                raise TypeError(f"a count is an int, not {type(count).__name__}")
            if not 0 < count <= len(names):
                raise ValueError(f"of {len(names)} keys, {count} cannot be waited for")
            if given is None or given is False:
                raise ValueError("a count says how many keys to wait for, so it needs timeout=SECONDS or wait=True")
        directives = infos(info)
        op = Lookup(names, directives + _wait(given, count or 0) + _within(range))
        try:
            return _published(names, self._run(op))
        except NotFound:
            return _published(names, ())
        except PMIxError as error:
            if len(names) == 1 or not isinstance(error, PartialSuccess | OperationTimeout):
                raise
            found: list[Pdata] = []
            # Some servers and libraries do not return the data of a partial success. Others ignore a timeout, so that
            # the engine gives up.
            for single in [Lookup((key,), directives + _within(range)) for key in names]:
                try:
                    found += self._run(single)
                except NotFound:
                    continue
            if not found:
                raise
            return _published(names, found)

    def unpublish(self, *keys: str, range: int | None = None, info: Infos = None) -> None:
        """`PMIx_Unpublish`: take back what the caller has published.

        Args:
            keys: The keys; all that the caller has published if none are named.
            range: Only what was published to this range.
            info: Further infos or a mapping.

        Raises:
            NotFound: The caller has published none of these keys.

        PMIx Standard: "Publish/Lookup Operations".
        """
        self._run(Unpublish(keys, infos(info) + _within(range)))


def _within(range: int | None) -> tuple[Info, ...]:
    return () if range is None else (Info(keys.RANGE, Value(codes.DATA_RANGE, int(range))),)


def _wait(wait: float | bool | None, count: int) -> tuple[Info, ...]:
    """Return the directives of a lookup that waits for `count` keys, 0 for all."""
    if wait is None or wait is False or wait == 0:
        return ()
    waits = Info(keys.WAIT, Value.unchecked(codes.INT, count))
    return (waits,) if wait is True else (waits, seconds(wait))


def _published(names: tuple[str, ...], found: Iterable[Pdata]) -> PublishedData:
    values = {item.key: Published(to_python(item.value), item.proc) for item in found}
    return PublishedData({key: values[key] for key in names if key in values}, names)
