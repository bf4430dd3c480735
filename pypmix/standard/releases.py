"""Release numbers of PMIx libraries, and the oldest and newest ones that pypmix knows.

A new release of libpmix may change these things. Each has one place, and "newest" is decided here only:

1. Its protocol: `NEWEST` here; the fields of each message by release in `wire/messages.py`, the handshake in
   `wire/handshake.py`, and the types that it can decode in `wire/readers.py` (`_VALUES`, `_ELEMENTS`, `_FLOORS`).
2. Its names: `native/vocabulary/*.tsv` with the release in the column `since`, and `BRANCHES` in
   `native/vocabulary/generate.py`, which writes the modules of `standard/`.
3. Its structures and functions, for the native engine: `LAST_MAJOR` here admits its major release. The layout of
   structures is `native/cdef/pmix.h`, their sizes and their end `native/shim/values.c`, their conversion
   `engine/native/marshal.py`, and the server's table of upcalls `engine/native/serverside/slots.py`.
4. Its behaviour: `engine/native/quirks.py` for the library in a process of ours, `engine/groups/foreign/` for its
   servers, and the constants `PARTIAL_...` here, which both engines ask.

`docs/how-it-works/libpmix.md` lists what the native engine relies on, with the tests to run on the new library.
"""

from __future__ import annotations

Release = tuple[int, int, int]

NEWEST: Release = (7, 0, 0)
"""The newest release whose protocol is known; a later peer is spoken to as one of this release."""

OLDEST_PEER: Release = (4, 1, 0)
"""The oldest release that the Python engine supports: the first with the encoding `v41`, which all later ones take."""

OLDEST_LIBRARY: Release = (4, 2, 0)
"""The oldest libpmix that the native engine loads."""

LAST_MAJOR = 7
"""The last major release whose structures are known: a later library may change them, and they would be misread."""

PARTIAL_LOOKUP: Release = (7, 0, 0)
"""The first release whose clients read the data of a lookup that is a partial success."""

PARTIAL_QUERY: Release = (5, 0, 7)
"""The same for a query.

Earlier clients drop the data. If they get a success instead, they return it, and the caller sees the missing keys.
"""

MAX_TEXT = 64


def parse_release(text: str) -> Release:
    """Return the leading numbers of a release as a tuple of three.

    Libraries have names such as `4.2.2rc2`, `5.0.11rc1`, `v6.1.0` or `7.0.0a1`; the suffix is ignored.

    Raises:
        ValueError: The text does not start with a number.
    """
    numbers: list[int] = []
    for part in text[:MAX_TEXT].strip().lstrip("vV").split(".")[:3]:
        digits = 0
        while digits < len(part) and part[digits] in "0123456789":
            digits += 1
        if digits:
            numbers.append(int(part[:digits]))
        if digits < len(part) or not digits:
            break
    if not numbers:
        raise ValueError(f"{text[:MAX_TEXT]!r} is not a release number")
    major, minor, patch = (*numbers, 0, 0)[:3]
    return major, minor, patch


def release_text(release: Release) -> str:
    """Return a release as text, `5.0.11`."""
    return ".".join(map(str, release))


def generation(release: Release) -> str:
    """Return the generation that a release belongs to: `4.2`, `5.0` or `6+`, and the bare release before 4.2."""
    if release[:2] >= (6, 0):
        return "6+"
    if release[:2] >= (5, 0):
        return "5.0"
    return "4.2" if release[:2] >= (4, 2) else release_text(release)
