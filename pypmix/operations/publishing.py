# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Publish, lookup and unpublish."""

from __future__ import annotations

from pypmix.operations.base import Asks
from pypmix.requests import MISSING, waited
from pypmix.requests.publishing import looked_up, looked_up_one, lookup_op, publish_op, retries, unpublish_op
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.ops import PERSIST_APP, RANGE_SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pypmix.published import PublishedData
    from pypmix.requests import Infos
    from pypmix.standard.types import Info, Pdata


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
        self._run(publish_op(values, range, persist, timeout, info))

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
        op = lookup_op((key,), waited(wait, timeout), None, range, info)
        try:
            return looked_up_one(op, self._run(op))
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
        op = lookup_op(keys, waited(wait, timeout), count, range, info)
        try:
            return looked_up(op, self._run(op))
        except NotFound:
            return looked_up(op, ())
        except PMIxError as error:
            found: list[Pdata] = []
            for single in retries(op, error):
                try:
                    found += self._run(single)
                except NotFound:
                    continue
            if not found:
                raise
            return looked_up(op, found)

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
        self._run(unpublish_op(keys, range, info))
