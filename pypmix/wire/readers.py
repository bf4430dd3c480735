"""The data types that a release can decode, and its rule for arrays without a type.

A libpmix that receives a type which it does not know, or mishandles, ends its process, drops the rest of the message,
or returns an empty value with a success. So a reader receives only types that its release can decode: the encoders
refuse others by the reader's *rule*, which is made here for libpmix (`rule_of`) and for a reader of this package
(`rule_for`), which decodes everything. The types of 4.2, 5.0 and 7.0 are listed as tests between two processes found
them, those of 6 as the library lists them.
"""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.errors import NotSupported
from pypmix.standard.types import DataArray, Info, Value, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pypmix.standard.releases import Release

    Reader = Release | int

TYPELESS_SIZED = 0
"""A size follows the type of an array without a type: releases before 6."""
TYPELESS_MIXED = 1
"""Readers expect no size; writers send none for a missing array, and a zero for an empty one: 6.x."""
TYPELESS_BARE = 2
"""No size follows, and no flags follow a topology's XML: 7 and later."""
TYPELESS = 3
"""The bits of a rule for the form of arrays without a type."""

_TYPELESS_OF = dict.fromkeys(range(6), TYPELESS_SIZED) | {6: TYPELESS_MIXED}

PRIVATE = frozenset({codes.TOPO, codes.BUFFER, codes.KVAL, codes.DATA_BUFFER})
"""Types that cannot be put: hwloc's topology objects, which are large and local, and private structures."""

_VALUES: dict[int, Release] = {
    codes.PROC_CPUSET: (7, 0, 0),  # before, the commit fails
    codes.DEVICE: (6, 1, 0),
    codes.RESBLOCK_DIRECTIVE: (6, 1, 0),
    codes.RESOURCE_UNIT: (6, 1, 0),
    codes.REGEX2: (7, 0, 0),
    codes.ALLOC_INHERIT: (7, 0, 0),
}
"""The first release that accepts a type as a value; all releases accept types that are not listed."""

_ELEMENTS: dict[int, Release] = {
    codes.COMMAND: (7, 0, 0),  # before, later values of the commit cannot be read
    codes.PROC_CPUSET: (7, 0, 0),
    codes.DEVICE: (6, 1, 0),
    codes.RESOURCE_UNIT: (6, 1, 0),
    **dict.fromkeys(
        (
            codes.ALLOC_DIRECTIVE,
            codes.ALLOC_INHERIT,
            codes.COMPRESSED_BYTE_OBJECT,
            codes.DATA_ARRAY,  # before, the library's process ends
            codes.DEVTYPE,
            codes.IOF_CHANNEL,
            codes.JOB_STATE,
            codes.LINK_STATE,
            codes.LOCTYPE,
            codes.NODE_PID,
            codes.PROC_STATE,
            codes.REGEX2,
            codes.RESBLOCK_DIRECTIVE,
            codes.STOR_ACCESS,
            codes.STOR_ACCESS_TYPE,
            codes.STOR_MEDIUM,
            codes.STOR_PERSIST,
        ),
        (7, 0, 0),
    ),
}
"""The same for elements of an array."""

_GONE: dict[int, Release] = {
    codes.DISK_STATS: (6, 0, 0),
    codes.NET_STATS: (6, 0, 0),
}
"""The first release that no longer has a type."""

_MANGLED = frozenset(
    {
        codes.POINTER,  # means nothing to another process
        codes.REGATTR,  # arrives with a random type
        codes.DATA_TYPE,  # arrives as a random number
        codes.PROC_STATS,  # loses percent_cpu
        codes.NODE_STATS,  # ends the process
    }
)
_TOLD = frozenset({codes.REGATTR})
"""Types that are harmless for clients: hosts describe attributes by their names."""
_NO_VALUE = frozenset(
    {
        codes.VALUE,
        codes.APP,
        codes.INFO,
        codes.PDATA,
        codes.COMMAND,
        codes.INFO_DIRECTIVES,
        codes.QUERY,
        codes.IOF_CHANNEL,
        codes.NODE_PID,  # 7.0 has no copy of it
        codes.REGEX,  # 4.2 delivers it empty, and later ones end the process when they pack it
    }
)
_NO_ELEMENT = frozenset({codes.REGEX})

_BEYOND_ENCODING = frozenset(
    {
        codes.ALLOC_INHERIT,
        codes.DEVICE,
        codes.NODE_PID,
        codes.REGEX2,
        codes.RESBLOCK_DIRECTIVE,
        codes.RESOURCE_UNIT,
    }
)
"""Types that are missing in the encoding between this package and libpmix: no release decodes them."""

_FLOORS: tuple[Release, ...] = ((0, 0, 0), (6, 0, 0), (6, 1, 0), (7, 0, 0))
"""The first releases of the generations that differ in the types that they decode."""

_GENERATION = 2
"""The position in a rule of the reader's generation, from 1; 0 is a reader that decodes everything."""
_LIBRARY = len(_FLOORS)
"""The offset of the generation of a library that packs values itself, in its encoding."""
_CLIENT = 0x40
"""The bit of a rule for a client of a server of this package."""

HAS_TYPELESS = 0x04
"""A mark of a packed value that contains an array without a type, which releases pack in different ways."""
IS_UNKNOWN = 0x08
"""A mark of a packed value of an unknown type, so that no data after it can be read."""
_UNFIT_FOR = 4
"""The position in the marks of a packed value of the generations that cannot decode it."""
MARKS = 0xFC
"""All marks of a packed value, which leave the bits of its scope free."""


_BEFORE: dict[Release, int] = {floor: (1 << place) - 1 for place, floor in enumerate(_FLOORS)}
"""A bit for each generation before a release."""
_OWN = (1 << _LIBRARY) - 1
"""The bits of all generations in the encoding of this package; those of a library follow."""
_ALL = _OWN | _OWN << _LIBRARY


def _lacking(floors: dict[int, Release], never: frozenset[int]) -> dict[int, int]:
    """Return a bit for each generation that lacks a type: in the encoding of this package, then in its own."""
    found = {kind: _BEFORE[floor] | _BEFORE[floor] << _LIBRARY for kind, floor in floors.items()}
    for kind, end in _GONE.items():
        found[kind] = found.get(kind, 0) | _ALL & ~(_BEFORE[end] | _BEFORE[end] << _LIBRARY)
    for kind in _BEYOND_ENCODING:
        found[kind] = found.get(kind, 0) | _OWN
    found.update(dict.fromkeys(PRIVATE | _MANGLED | never, _ALL))
    return found


_VALUE_BITS = _lacking(_VALUES, _NO_VALUE)
_ELEMENT_BITS = _lacking(_ELEMENTS, _NO_ELEMENT)
WATCHED = frozenset(_VALUE_BITS) | {codes.DATA_ARRAY}
"""The types of values for which `unfit_for` or `has_typeless` may return a result."""

_NONE: frozenset[int] = frozenset()

REFUSED_VALUES: dict[int, frozenset[int]] = dict.fromkeys(range(TYPELESS + 1), _NONE)
"""The types that a reader does not accept as a value, by its rule: `rule_of` adds the rules that are in use."""
REFUSED_ELEMENTS = dict(REFUSED_VALUES)
"""The types that a reader does not accept as elements of an array, by its rule."""


def _add_rule(rule: int) -> int:
    """Return a rule, after its types have been added to `REFUSED_VALUES` and `REFUSED_ELEMENTS`."""
    if rule not in REFUSED_VALUES:
        bit = bit_of(rule)
        told = _TOLD if rule & _CLIENT else _NONE
        REFUSED_ELEMENTS[rule] = frozenset([kind for kind, bits in _ELEMENT_BITS.items() if bits & bit]) - told
        REFUSED_VALUES[rule] = frozenset([kind for kind, bits in _VALUE_BITS.items() if bits & bit]) - told
    return rule


_NESTING = frozenset({codes.VALUE, codes.INFO, codes.DATA_ARRAY, codes.PDATA, codes.APP, codes.QUERY})


def rule_for(reader: Reader) -> int:
    """Return the rule of a reader or writer of a release that decodes everything; a rule is returned unchanged."""
    return reader if isinstance(reader, int) else _TYPELESS_OF.get(reader[0], TYPELESS_BARE)


def rule_of(release: Release, client: bool = False) -> int:
    """Return the rule of a libpmix, which refuses data that it cannot decode.

    Args:
        release: Its release.
        client: Whether it is a client, which accepts the attribute descriptions of hosts.
    """
    generation = sum([release >= floor for floor in _FLOORS])
    return _add_rule(rule_for(release) | generation << _GENERATION | (_CLIENT if client else 0))


def rule_of_library(release: Release) -> int:
    """Return the rule of a libpmix that packs values itself, and has more types than the encoding of this package."""
    return _add_rule(rule_of(release) + (_LIBRARY << _GENERATION))


def bit_of(rule: int) -> int:
    """Return the bit of a reader's generation in `unfit_for`; 0 for a reader that decodes everything."""
    return 1 << ((rule & ~_CLIENT) >> _GENERATION) >> 1


def mark_of(rule: int) -> int:
    """Return the mark of packed values that a reader cannot decode; 0 for a reader that decodes everything."""
    return bit_of(rule) << _UNFIT_FOR & MARKS


def marks_of(type: int, data: Any) -> int:
    """Return the marks for a packed value."""
    if type not in WATCHED:
        return 0
    value = Value.unchecked(type, data)
    return unfit_for(value) << _UNFIT_FOR & MARKS | (HAS_TYPELESS if has_typeless(value) else 0)


def refused_value(type: int, rule: int) -> NotSupported:
    """Return the error for a type that a reader does not accept as a value."""
    return _refused(type, rule, _VALUE_BITS, f"a {type_name(type)} as a value")


def refused_element(type: int, rule: int) -> NotSupported:
    """Return the error for a type that a reader does not accept as an element of an array."""
    return _refused(type, rule, _ELEMENT_BITS, f"an array of {type_name(type)}")


def _refused(type: int, rule: int, lacked: dict[int, int], what: str) -> NotSupported:
    bits = lacked.get(type, 0) >> _LIBRARY
    missing = [bool(bits >> place & 1) for place in range(_LIBRARY)]
    hint = "send it in another form, such as bytes"
    if not missing[((rule & ~_CLIENT) >> _GENERATION) % _LIBRARY - 1]:
        return NotSupported(f"libpmix does not take {what} in the encoding that Python peers speak", hint=hint)
    if all(missing):
        return NotSupported(f"libpmix does not take {what}", hint=hint)
    first = _FLOORS[missing.index(not missing[0])]
    shown = f"{first[0]}.{first[1]}"
    when = f"before {shown}" if missing[0] else f"from {shown} on"
    return NotSupported(f"libpmix {when} does not take {what}", hint=hint)


def unfit_for(value: Value) -> int:
    """Return a bit for each generation of libpmix that cannot decode a value; see `bit_of`."""
    type, data = value
    found = _VALUE_BITS.get(type, 0)
    return found | _unfit_data(type, data) if type in _NESTING else found


def has_typeless(value: Value) -> bool:
    """Return True if an array without a type is in a value: releases pack those in different ways."""
    type, data = value
    return type in _NESTING and _typeless_data(type, data)


def _typeless_data(type: int, data: Any) -> bool:
    if type == codes.DATA_ARRAY:
        element = data.type
        return element == codes.UNDEF or (
            element in _NESTING and any(_typeless_data(element, item) for item in data.items)
        )
    return any(has_typeless(value) for value in _values_in(type, data))


def _values_in(type: int, data: Any) -> Iterable[Value]:
    if type == codes.VALUE:
        return (data,)
    if type in (codes.INFO, codes.PDATA):
        return (data.value,)
    if type == codes.APP:
        return [info.value for info in data.info]
    if type == codes.QUERY:
        return [info.value for info in data.qualifiers]
    return ()


def _unfit_data(type: int, data: Any) -> int:
    if type == codes.DATA_ARRAY:
        element = data.type
        found = _ELEMENT_BITS.get(element, 0)
        if element in _NESTING:
            for item in data.items:
                found |= _unfit_data(element, item)
        return found
    found = 0
    for value in _values_in(type, data):
        found |= unfit_for(value)
    return found


def fit_infos(infos: Iterable[Info], rule: int) -> tuple[Info, ...]:
    """Drop infos that a reader cannot decode, also inside of arrays of infos."""
    bit = bit_of(rule)
    infos = tuple(infos)
    if not bit or WATCHED.isdisjoint([info[1][0] for info in infos]):
        return infos
    return tuple([fit for info in infos if (fit := _fit_info(info, bit)) is not None])


def _fit_info(info: Info, bit: int) -> Info | None:
    value = info[1]
    array = value[1]
    if not unfit_for(value) & bit or (value[0] == codes.DATA_ARRAY and array.type in _TOLD):
        return info
    if value[0] != codes.DATA_ARRAY or array.type != codes.INFO:
        return None
    items = tuple([fit for item in array.items if (fit := _fit_info(item, bit)) is not None])
    return Info.unchecked(info[0], Value.unchecked(codes.DATA_ARRAY, DataArray(codes.INFO, items)), info[2])
