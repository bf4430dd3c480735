"""The data-parallel training of the docs' example: what its ranks print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from lib import machine

EXAMPLE = str(machine.ROOT / "docs" / "examples" / "frameworks" / "torch_ddp.py")
SCRIPTS = Path(__file__).parent / "torch_scripts"

LINE = re.compile(r"rank (\d) of (\d), local rank (\d) on node (\d): total (\S+), weights (.*)")


def lines(out: str) -> list[tuple[str, ...]]:
    return sorted(LINE.findall(out))


def weights_of_one(out: str) -> list[float]:
    """Return the weights that one process has come to without a launcher."""
    ((*place, weights),) = lines(out)
    assert place == ["0", "1", "0", "0", "1"]
    return [float(weight) for weight in weights.split()]


def trained(out: str, places: Sequence[tuple[int, int]], weights_of_one: list[float]) -> None:
    """All ranks, with these local ranks on these nodes, came to the same weights as one process."""
    found = lines(out)
    size = len(places)
    total = size * (size + 1) // 2
    expected = [(str(rank), str(size), str(local), str(node), str(total)) for rank, (local, node) in enumerate(places)]
    assert [line[:5] for line in found] == expected, out
    for line in found:
        assert [float(weight) for weight in line[5].split()] == pytest.approx(weights_of_one, abs=1e-4), out
