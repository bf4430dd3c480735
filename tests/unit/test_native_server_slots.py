"""The table of the server module says of each release what OpenPMIx's headers say, and what stays empty."""

from __future__ import annotations

import pytest

pytest.importorskip("pypmix.engine.native._ffi")

from pypmix.engine.native._ffi import lib
from pypmix.engine.native.serverside.slots import places
from pypmix.engine.native.serverside.upcalls import ROWS

FLAGS = lib.PYPMIX_UP_TOLD | lib.PYPMIX_UP_UNREFUSED
RELEASES = [(4, 2, 0), (4, 2, 2), (5, 0, 0), (5, 0, 11), (6, 0, 0), (6, 1, 0), (7, 0, 0)]


def offset(release: tuple[int, int, int], name: str) -> int:
    """Return the offset of a member in bytes, -1 where it stays empty."""
    place = places(release)[getattr(lib, f"PYPMIX_UP_{name}")]
    return place if place < 0 else 8 * (place & ~FLAGS)


@pytest.mark.parametrize(
    ("release", "name", "expected"),
    [
        *[(release, "CLIENT_FINALIZED", 8) for release in RELEASES],
        *[(release, "FENCE", 24) for release in RELEASES],
        *[(release, "NOTIFY_EVENT", 112) for release in RELEASES],
        *[(release, "FABRIC", 208) for release in RELEASES],
        *[(release, "CLIENT_CONNECTED2", 216) for release in RELEASES],
        *[(release, "CLIENT_CONNECTED", -1) for release in RELEASES],
        *[(release, "LISTENER", -1) for release in RELEASES],
        ((4, 2, 2), "SESSION_CONTROL", -1),
        ((5, 0, 11), "SESSION_CONTROL", 224),
        ((6, 1, 0), "SESSION_CONTROL", 240),
        ((5, 0, 11), "TOOL_CONNECTED", 128),
        ((5, 0, 11), "TOOL_CONNECTED2", -1),
        ((7, 0, 0), "TOOL_CONNECTED", -1),
        ((7, 0, 0), "TOOL_CONNECTED2", 224),
        ((4, 2, 2), "LOG", 136),
        ((7, 0, 0), "LOG", -1),
        ((7, 0, 0), "LOG2", 232),
        ((5, 0, 11), "RESOURCE_BLOCK", -1),
        ((7, 0, 0), "RESOURCE_BLOCK", 248),
    ],
)
def test_where_members_stand(release: tuple[int, int, int], name: str, expected: int) -> None:
    assert offset(release, name) == expected


@pytest.mark.parametrize("release", RELEASES)
def test_every_member_that_is_filled_can_be_read_and_no_two_share_a_place(release: tuple[int, int, int]) -> None:
    filled = {upcall: place & ~FLAGS for upcall, place in enumerate(places(release)) if place >= 0}
    assert set(filled) <= set(ROWS)
    assert len(set(filled.values())) == len(filled)


def test_what_releases_cannot_be_answered() -> None:
    def told(release: tuple[int, int, int], name: str) -> bool:
        return bool(places(release)[getattr(lib, f"PYPMIX_UP_{name}")] & lib.PYPMIX_UP_TOLD)

    assert [told(release, "NOTIFY_EVENT") for release in ((4, 2, 2), (5, 0, 4), (5, 0, 5), (7, 0, 0))] == [1, 1, 0, 0]
    assert [told(release, "GROUP") for release in ((4, 2, 2), (4, 2, 9), (5, 0, 11), (6, 1, 0))] == [0, 1, 1, 0]
    assert not told((4, 2, 2), "FENCE")
