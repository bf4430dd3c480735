"""Ranks are placed on nodes as `--map-by` and `--rank-by` say, and what does not fit is refused with what to try."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypmix.host import mapping as rules
from pypmix.host.mapping import Mapping, Room


def place(rooms: Sequence[Room], sizes: Sequence[int], mapping: Mapping) -> list[tuple[int, ...]]:
    return [tuple([each.rank for each in places]) for places in rules.place(rooms, sizes, mapping)]


THREE = (Room("n1", 2), Room("n2", 4), Room("n3", 2))


@pytest.mark.parametrize(
    ("by", "rank_by", "size", "placed"),
    [
        ("slot", "", 5, [(0, 1), (2, 3, 4), ()]),
        ("slot", "", 8, [(0, 1), (2, 3, 4, 5), (6, 7)]),
        ("slot", "node", 5, [(0, 2), (1, 3, 4), ()]),
        ("node", "", 5, [(0, 3), (1, 4), (2,)]),
        ("node", "", 8, [(0, 3), (1, 4, 6, 7), (2, 5)]),
        ("node", "slot", 5, [(0, 1), (2, 3), (4,)]),
        ("ppr:1:node", "", 3, [(0,), (1,), (2,)]),
        ("ppr:2:node", "", 5, [(0, 1), (2, 3), (4,)]),
        ("ppr:2:node", "node", 6, [(0, 3), (1, 4), (2, 5)]),
        ("slot:oversubscribe", "", 12, [(0, 1, 2, 3), (4, 5, 6, 7, 8), (9, 10, 11)]),
        ("PPR:3:node:OVERSUBSCRIBE", "", 9, [(0, 1, 2), (3, 4, 5), (6, 7, 8)]),
        (":oversubscribe", "", 1, [(0,), (), ()]),
    ],
)
def test_placing(by: str, rank_by: str, size: int, placed: list[tuple[int, ...]]) -> None:
    assert place(THREE, [size], Mapping.read(by, rank_by)) == placed


def test_applications_take_what_is_left() -> None:
    assert place(THREE, [3, 2], Mapping()) == [(0, 1), (2, 3, 4), ()]
    assert place(THREE, [3, 2], Mapping.read("node")) == [(0, 3), (1, 4), (2,)]


def test_what_runs_already_takes_slots() -> None:
    assert place((Room("n1", 2, used=2), Room("n2", 2, used=1)), [1], Mapping()) == [(), (0,)]


def test_a_limit_holds_where_nodes_are_oversubscribed() -> None:
    crowded = Mapping(crowded=True)
    assert place((Room("n1", 1, 2), Room("n2", 1)), [5], crowded) == [(0, 1), (2, 3, 4)]
    with pytest.raises(ValueError, match=r"4 more at most \(max_slots\); run fewer"):
        place((Room("n1", 1, 2), Room("n2", 1, 2)), [5], crowded)
    with pytest.raises(ValueError, match="n1 has 2 of its 2 slots free, and 3 ranks"):
        place((Room("n1", 1, 2),), [3], Mapping.read("ppr:3:node:oversubscribe"))


@pytest.mark.parametrize(
    ("by", "size", "words"),
    [
        ("slot", 9, "9 ranks do not fit on 3 nodes with 8 slots (n1:2, n2:4, n3:2); run fewer, give more slots, or"),
        ("node", 9, "with --oversubscribe"),
        ("ppr:2:node", 7, "7 ranks do not fit on 3 nodes with 2 on each: 6 do; run fewer, name more nodes, or map by"),
        ("ppr:3:node", 4, "n1 has 2 of its 2 slots free, and 3 ranks are mapped to it; map fewer per node, or allow"),
    ],
)
def test_what_does_not_fit_is_refused(by: str, size: int, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        place(THREE, [size], Mapping.read(by))
    assert words in str(caught.value)


def test_one_slot_is_not_called_slots() -> None:
    with pytest.raises(ValueError, match=r"^2 ranks do not fit on 1 node with 1 slot \(n1:1\); run fewer"):
        place((Room("n1", 1),), [2], Mapping.read("slot"))


@pytest.mark.parametrize("text", ["", "board", "ppr:0:node", "ppr:2:slot", "ppr:x:node", "ppr:2", "ppr:70000:node"])
def test_other_mappings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="mapped by slot, node, hwthread, core"):
        Mapping.read(text)


@pytest.mark.parametrize("word", ["fill", "span", "shared", "ndev=2", "pe=0"])
def test_words_that_a_mapping_lacks_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"followed by pe=N, .*, not by '{word}' as in 'slot:pe=2:{word}'"):
        Mapping.read(f"slot:pe=2:{word}")


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=6),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.sampled_from(["slot", "node", "ppr:2:node"]),
    st.sampled_from(["", "slot", "node"]),
    st.booleans(),
)
def test_each_rank_stands_once_and_limits_hold(
    given_rooms: list[tuple[int, int]], sizes: list[int], by: str, rank_by: str, crowded: bool
) -> None:
    rooms = [Room(f"n{n}", slots, max(slots, most) if most else 0) for n, (slots, most) in enumerate(given_rooms)]
    mapping = Mapping.read(by, rank_by).replace(crowded=crowded)
    try:
        placed = place(rooms, sizes, mapping)
    except ValueError:
        return
    assert sorted(rank for ranks in placed for rank in ranks) == list(range(sum(sizes)))
    for room, ranks in zip(rooms, placed, strict=True):
        assert list(ranks) == sorted(ranks)
        assert crowded or len(ranks) <= room.slots
        assert not room.most or len(ranks) <= room.most
