"""Release numbers of PMIx libraries."""

from __future__ import annotations

Release = tuple[int, int, int]

NEWEST: Release = (7, 0, 0)
"""The newest release whose protocol is known; a later peer is spoken to as one of this release."""

OLDEST_PEER: Release = (4, 1, 0)
"""The oldest release that the Python engine supports: the first with the encoding `v41`, which all later ones take."""

OLDEST_LIBRARY: Release = (4, 2, 0)
"""The oldest libpmix that the native engine loads."""

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
