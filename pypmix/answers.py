"""The results of queries, lookups and requests."""

from __future__ import annotations

from pypmix.standard import keys, ops
from pypmix.standard.errors import NotFound, NotSupported
from pypmix.standard.record import Record
from pypmix.standard.types import Info
from pypmix.standard.values import to_answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pypmix.standard.attr import Attr
    from pypmix.standard.types import Proc

    Base = dict[str, Any]
    Results = dict[str, "Published"]
else:
    Base = Results = dict


UNANSWERED = (NotFound, NotSupported)
"""The errors of a query whose keys all have no answer."""


class Answers(Base):
    """The answer of a server: a dict of keys and plain values. Attributes stand for their keys.

    Attributes:
        infos: The same as it came, with the PMIx type of each value, in the order of the questions.
        missing: The keys that were asked for and that have no answer.

    Example:
        >>> found = me.query([attrs.JOB_SIZE, attrs.UNIV_SIZE])
        >>> print(found[attrs.JOB_SIZE], found.get("pmix.univ.size"), "unknown:", found.missing)
    """

    def __init__(self, infos: Iterable[Info] = (), keys: Iterable[str] = ()) -> None:
        self.infos = tuple(infos)
        super().__init__({info.key: to_answer(info.value) for info in self.infos})
        self.missing: frozenset[str] = frozenset(keys) - self.keys()

    if TYPE_CHECKING:

        def __getitem__(self, key: str | Attr[Any], /) -> Any: ...

        def get(self, key: str | Attr[Any], default: Any = None, /) -> Any: ...


class Credential(ops.Credential):
    """A credential, opaque bytes that another process can have validated, and what came with it.

    Example:
        >>> credential = me.credentials.get()
        >>> me.put("credential", bytes(credential))
        >>> print(credential.info.get(attrs.CRED_TYPE))
    """

    @property
    def info(self) -> Answers:
        """Further results, such as its kind under `attrs.CRED_TYPE`."""
        return Answers(self.infos)

    def __bytes__(self) -> bytes:
        return self.data


class Fabric(Record):
    """`pmix_fabric_t`: a registered fabric, as it was at that time; `fabric_update` returns it as it is now.

    Attributes:
        index: Its number, by which it is updated.
        infos: Its information, with the PMIx type of each value.

    Example:
        >>> fabric = me.fabric.register(info={attrs.FABRIC_PLANE: "blue"})
        >>> print(fabric.index, fabric.info.get(attrs.FABRIC_VENDOR))
    """

    index: int
    infos: tuple[Info, ...] = ()

    @property
    def info(self) -> Answers:
        """Its information, such as `attrs.FABRIC_VENDOR` and `attrs.FABRIC_DEVICES`."""
        return Answers(self.infos)


def read_fabric(infos: Iterable[Info], index: int = 0) -> Fabric:
    """Return a fabric from its information, which has its index in the answer to a registration."""
    found = tuple(infos)
    given = next((info.value.data for info in found if info.key == keys.FABRIC_INDEX), None)
    return Fabric(given if isinstance(given, int) else index, found)


class Published(Record):
    """A published value and its publisher, as a lookup of several keys returns it.

    Attributes:
        value: The value as a plain Python object.
        by: The proc that published it.

    Example:
        >>> found = me.lookup(["acme.port", "acme.name"])
        >>> print(found["acme.port"].value, "by", found["acme.port"].by)
    """

    value: Any
    by: Proc


class LookupResults(Results):
    """The results of a lookup of several keys: a dict of keys and `Published` values, in the order asked for.

    Attributes:
        missing: The keys that are not published where the caller may look them up.

    Example:
        >>> found = me.lookup(["acme.port", "acme.name"])
        >>> print({key: each.value for key, each in found.items()}, "unpublished:", found.missing)
    """

    def __init__(self, values: Mapping[str, Published], keys: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.missing: frozenset[str] = frozenset(keys) - values.keys()
