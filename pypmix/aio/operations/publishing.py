"""Publish, lookup and unpublish."""

from __future__ import annotations

from pypmix.aio.operations.base import Asks
from pypmix.answers import LookupResults, Published
from pypmix.arguments import APP, MISSING, SESSION, number_of, timed, wait_infos
from pypmix.lazy import renamed
from pypmix.standard import codes, keys
from pypmix.standard.errors import NotFound, OperationTimeout, PartialSuccess, PMIxError
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.types import Info, Value, a, at_place, check_integer
from pypmix.standard.values import infos, to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, overload

    from pypmix.arguments import Infos
    from pypmix.standard.enums import Persist, Range
    from pypmix.standard.types import Pdata


class Publishing(Asks):
    """Publish, lookup and unpublish."""

    @renamed("pypmix.Client")
    async def publish(
        self,
        values: Mapping[Any, object] | Iterable[Info],
        *,
        data_range: Range = SESSION,
        persist: Persist = APP,
        timeout: float | None = None,
        info: Infos = None,
    ) -> None:
        """`PMIx_Publish`: make values known under keys that others look up, in whatever job they are.

        Unlike `put`, it needs no commit or fence, and who looks a key up need not know who published it.

        Args:
            values: A mapping of keys to values, or infos. Keys have at most 511 bytes and do not start with `pmix`.
            data_range: Who may look them up: `Range.SESSION`, `NAMESPACE`, `LOCAL` (this node), `GLOBAL`, `PROC_LOCAL`
                (the caller alone) or `CUSTOM` (the procs in `attrs.EVENT_CUSTOM_RANGE` of `info`).
            persist: How long they stay: `Persist.APP`, `PROC`, `SESSION`, `FIRST_READ` or `INDEF`.
            timeout: Seconds to wait for the server's answer; no limit by default.
            info: Further infos or a mapping, such as `attrs.ACCESS_PERMISSIONS`.

        Raises:
            PMIxError: A key is there already in this range (`ERR_DUPLICATE_KEY`); then none was published.
            NotSupported: The server's host keeps no published data.
            Unreachable: The caller is a singleton.

        Example:
            >>> await me.publish({"acme.port": "tcp://n0:4242"}, data_range=Range.SESSION, persist=Persist.APP)

        PMIx Standard: "Publish/Lookup Operations".
        """
        try:
            published = infos(values)
        except (TypeError, ValueError, OverflowError) as error:
            raise at_place(error, "publish: values") from None
        reach, lifetime = number_of(data_range, "Range", "SESSION"), number_of(persist, "Persist", "APP")
        await self._run(Publish(published, reach, lifetime, timed(infos(info), timeout)))

    if TYPE_CHECKING:

        @overload
        async def lookup(
            self,
            key: str,
            *,
            default: Any = MISSING,
            timeout: float | None = None,
            data_range: Range | None = None,
            info: Infos = None,
        ) -> Any: ...

        @overload
        async def lookup(
            self,
            key: Iterable[str],
            *,
            timeout: float | None = None,
            count: int | None = None,
            data_range: Range | None = None,
            info: Infos = None,
        ) -> LookupResults: ...

    @renamed("pypmix.Client")
    async def lookup(
        self,
        key: str | Iterable[str],
        *,
        default: Any = MISSING,
        timeout: float | None = None,
        count: int | None = None,
        data_range: Range | None = None,
        info: Infos = None,
    ) -> Any:
        """`PMIx_Lookup`: the value that somebody has published under a key, or the values of several keys.

        Args:
            key: The key, or a collection of keys.
            default: Returned instead of raising `NotFound`, for a single key.
            timeout: Seconds to wait until all are published: `math.inf` without a limit. None and 0 do not wait. Whole
                seconds, a fraction is rounded up.
            count: With `timeout`, and several keys: how many of them suffice.
            data_range: Take only what was published by procs in this range of the caller, such as `Range.NAMESPACE`.
            info: Further infos or a mapping.

        Returns:
            For a single key the value as a plain Python object. For several a dict of keys and `Published` values,
            which have the publisher as well; its `missing` holds the keys that were not found.

        Raises:
            NotFound: The single key is not published where the caller may look it up, and no default was given.
            OperationTimeout: Nothing was published in time.

        Example:
            >>> port = await me.lookup("acme.port", timeout=10)
            >>> found = await me.lookup(["acme.port", "acme.name"])
            >>> print(found["acme.port"].by, found.missing)

        PMIx Standard: "Publish/Lookup Operations".
        """
        within, directives = _within(data_range), infos(info)
        if isinstance(key, str):
            if count is not None:
                raise TypeError("a count is for several keys: lookup([...], count=1)")
            return await self._lookup_one(Lookup((key,), directives + _wait(timeout, 0) + within), default)
        if default is not MISSING:
            raise TypeError("a default is for a single key: the result for several has `missing`")
        if isinstance(key, bytes) or not hasattr(key, "__iter__"):
            raise TypeError(f"lookup: a key must be a str, or several in a list, not {a(key)}")
        names = tuple(key)
        if count is not None:
            _check_count(count, len(names), timeout)
        op = Lookup(names, directives + _wait(timeout, count or 0) + within)
        return await self._lookup_each(op, Lookup(names, directives + within))

    async def _lookup_each(self, op: Lookup, without_wait: Lookup) -> LookupResults:
        names = op.keys
        try:
            return _published(names, await self._run(op))
        except NotFound:
            return _published(names, ())
        except PMIxError as error:
            if len(names) == 1 or not isinstance(error, PartialSuccess | OperationTimeout):
                raise
            found: list[Pdata] = []
            # Some servers and libraries do not return the data of a partial success. Others ignore a timeout, so that
            # the engine gives up.
            for single in [Lookup((name,), without_wait.directives) for name in names]:
                try:
                    found += await self._run(single)
                except NotFound:
                    continue
            if not found:
                raise
            return _published(names, found)

    async def _lookup_one(self, op: Lookup, default: Any) -> Any:
        try:
            for item in await self._run(op):
                if item.key == op.keys[0]:
                    return to_python(item.value)
            raise NotFound(f"the host's answer does not have {op.keys[0]!r}", operation=op.name)
        except NotFound:
            if default is MISSING:
                raise
            return default

    @renamed("pypmix.Client")
    async def unpublish(self, *keys: str, data_range: Range | None = None, info: Infos = None) -> None:
        """`PMIx_Unpublish`: take back what the caller has published.

        Args:
            keys: The keys; by default all keys that the caller has published.
            data_range: Only values that were published to this range.
            info: Further infos or a mapping.

        Raises:
            NotFound: The caller has published none of these keys.

        Example:
            >>> await me.unpublish("acme.port")

        PMIx Standard: "Publish/Lookup Operations".
        """
        await self._run(Unpublish(keys, infos(info) + _within(data_range)))


def _check_count(count: int, keys: int, timeout: float | None) -> None:
    count = check_integer(count, "a count")
    if not 0 < count <= keys:
        raise ValueError(f"of {keys} keys, {count} cannot be waited for")
    if not timeout:
        raise ValueError("a count is the number of keys to wait for, so it needs timeout=SECONDS")


def _within(data_range: Range | None) -> tuple[Info, ...]:
    if data_range is None:
        return ()
    return (Info(keys.RANGE, Value(codes.DATA_RANGE, number_of(data_range, "Range", "SESSION"))),)


def _wait(timeout: float | None, count: int) -> tuple[Info, ...]:
    """Return the directives of a lookup that waits for `count` keys, 0 for all."""
    return wait_infos(keys.WAIT, Value.unchecked(codes.INT, count), timeout)


def _published(names: tuple[str, ...], data: Iterable[Pdata]) -> LookupResults:
    values = {item.key: Published(to_python(item.value), item.proc) for item in data}
    return LookupResults({key: values[key] for key in names if key in values}, names)
