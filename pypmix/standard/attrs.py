"""The Standard's attributes as typed keys: `TIMEOUT(5)` makes an info of the right wire type.

Names are the Standard's without `PMIX_`. The table of `dictionary` contains them, and an attribute is made on demand.
Type checkers and editors find them, with their meanings, in the generated `attrs.pyi`.
"""

from __future__ import annotations

from pypmix.standard import dictionary
from pypmix.standard.attr import Attr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def by_key(key: str) -> Attr[Any] | None:
    """Return the attribute of a key string; None if the Standard does not define it.

    Some keys changed between releases: the attribute that has the key in the newest release wins.
    """
    row = dictionary.by_key(key)
    return None if row is None else _attribute(row[0])


def _attribute(name: str) -> Attr[Any] | None:
    known = globals()
    if name in known:
        return known[name]
    found = dictionary.by_name(name)
    if found is None:
        return None
    made = Attr(*found) if found[0] == name else _attribute(found[0])  # an old name is the same object
    # Concurrent threads must get the same object.
    return known.setdefault(name, made)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*sorted(dictionary.names()), "by_key"]
    found = None if name.startswith("_") else _attribute(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *dictionary.names()})
