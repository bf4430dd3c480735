"""Which data types a release of libpmix takes, as values and as elements of arrays.

A library that is handed a type that it does not know prints to the terminal, fails late or reads wild memory, so what
it cannot take is refused before. 4.2, 5.0 and 7.0 are listed as they were found to carry types from one process to
another, 6 as it lists types itself.
"""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.releases import Release

UNSPOKEN = frozenset({codes.TOPO, codes.BUFFER, codes.KVAL, codes.DATA_BUFFER})
"""Types that are not put: hwloc's topology objects, which are large and everybody's own, and private structures."""

_VALUES: dict[int, Release] = {
    codes.PROC_CPUSET: (7, 0, 0),  # before, the commit fails
    codes.DEVICE: (6, 1, 0),
    codes.RESBLOCK_DIRECTIVE: (6, 1, 0),
    codes.RESOURCE_UNIT: (6, 1, 0),
    codes.NODE_PID: (6, 1, 0),
    codes.REGEX2: (7, 0, 0),
    codes.ALLOC_INHERIT: (7, 0, 0),
}
"""The first release that takes a type as a value; types that are named nowhere are taken by all."""

_ELEMENTS: dict[int, Release] = {
    codes.COMMAND: (7, 0, 0),  # before, all that is committed after it cannot be read
    codes.PROC_CPUSET: (7, 0, 0),
    codes.DEVICE: (6, 1, 0),
    codes.RESOURCE_UNIT: (6, 1, 0),
    **dict.fromkeys(
        (
            codes.ALLOC_DIRECTIVE,
            codes.ALLOC_INHERIT,
            codes.COMPRESSED_BYTE_OBJECT,
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
        codes.REGEX,  # 4.2 delivers it empty, and later ones end the process when they pack it
    }
)
_NO_ELEMENT = frozenset({codes.DATA_ARRAY, codes.REGEX})


def _lacking(release: Release, floors: dict[int, Release]) -> frozenset[int]:
    gone = {kind for kind, end in _GONE.items() if release >= end}
    return UNSPOKEN | _MANGLED | gone | {kind for kind, floor in floors.items() if release < floor}


def unknown_value(release: Release) -> frozenset[int]:
    """Return the types that a library of this release does not take as a value."""
    return _lacking(release, _VALUES) | _NO_VALUE


def unknown_element(release: Release) -> frozenset[int]:
    """Return the types that a library of this release does not take as elements of an array."""
    return _lacking(release, _ELEMENTS) | _NO_ELEMENT
