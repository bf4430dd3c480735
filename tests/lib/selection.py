"""Which pairings and forms a test of the shared suite runs on, where it does not run on all: `--all-modes` does that.

The whole matrix proves much several times. The blocking facade is generated from the one to be awaited, so both forms
are for two pairings, and each other pairing has one. Every client meets our own server, and a Python client every
launcher; of pairings that only repeat that with another release, a test gets one. Which one, and in which form, follows
from the test's name alone, so that all of them appear over the whole suite.

Nothing of that hides a difference that is known: clients of which one lacks what a test needs are no repetition (of
those that lack the same with a server, one shows that this is still so), and a promise that is kept is tried in every
column of the documentation's truth table.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import pytest

from lib import promises
from lib.pairings import HOSTED, NODES, SLURM, Pairing

OPTION = "--all-modes"

BOTH_FORMS = frozenset({("python-server", "python-client"), ("python-server", "native-5.0.11")})
"""Where a test runs in both forms: the engines' sessions differ, and with them what a facade has to do."""

AWAITED = 10
"""One test in so many is awaited on each other pairing: `import asyncio` costs as much as all else that a rank does."""


class Enough(NamedTuple):
    """Pairings of which one is enough for a test, where none lacks anything that it needs.

    Args:
        pairings: Patterns of their names.
        reason: Why.
    """

    pairings: tuple[str, ...]
    reason: str


ENOUGH = (
    Enough((f"{NODES}/*",), "what crosses between servers is the servers' work, and every client meets one alone"),
    Enough(
        (f"{HOSTED}*/*",),
        "the same host answers them all; what each release asks it is proven by the host suite and by foreign/compare",
    ),
    Enough((f"{SLURM}*/python-client",), "what crosses between nodes is the same for those of one"),
    Enough((f"{SLURM}*/native-*",), "libraries agree among themselves, and each is tried on our own server"),
    Enough(("prterun-5.*/native-*",), "libraries agree among themselves, and each is tried on our own server"),
    Enough(
        ("prterun-[67].*/native-*", "mpirun-*/native-*"),
        "libraries agree among themselves, and each is tried on our own server",
    ),
)

Case = TypeVar("Case")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION,
        action="store_true",
        help="run the shared suite on every pairing in both forms, and the host suite with every client, "
        "instead of a selection that leaves out what is proven elsewhere",
    )


def header(config: pytest.Config) -> str:
    """Return the line of the test header that tells which it is."""
    if config.getoption(OPTION):
        return "suite: every pairing, in both forms"
    return f"suite: for each test a selection of pairings and forms (tests/lib/selection.py; {OPTION} runs all)"


def everything(config: pytest.Config, test: str) -> bool:
    """Tell whether a test runs on all there is: when that is asked for, or when one of its cases is named."""
    named = [argument.partition("[") for argument in config.args]
    return config.getoption(OPTION) or any(bracket and name.endswith(f"::{test}") for name, bracket, _ in named)


def name_of(metafunc: pytest.Metafunc) -> str:
    """Return a test's name, from which the selection follows."""
    return f"{metafunc.module.__name__.rpartition('.')[2]}.{metafunc.function.__name__}"


def _number(text: str) -> int:
    """Return a number that follows from a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def one_of_each(test: str, cases: Mapping[Case, Hashable]) -> list[Case]:
    """Return one of the cases of each kind, which one by the test's name."""
    kinds: dict[Hashable, list[Case]] = {}
    for case, kind in cases.items():
        kinds.setdefault(kind, []).append(case)
    return [alike[_number(f"one of {alike} for {test}") % len(alike)] for alike in kinds.values()]


def select(test: str, pairings: Sequence[Pairing], features: Collection[str]) -> list[Pairing]:
    """Return the pairings that a test runs on.

    Args:
        test: The test's name.
        pairings: Those that the test is about.
        features: What the test needs of a pairing, and the promises that it proves.
    """
    chosen: set[Pairing] = set()
    lacking: dict[Pairing, Hashable] = {}
    repeated: dict[Pairing, Hashable] = {}
    for pairing in pairings:
        lacks = tuple(pairing.lack(feature) for feature in features)
        rows = [number for number, row in enumerate(ENOUGH) if _is_of(pairing, row)]
        if any(lacks):
            lacking[pairing] = (pairing.server, lacks)
        elif rows:
            repeated[pairing] = rows[0]
        else:
            chosen.add(pairing)
    if not promises.NAMES.isdisjoint(features):
        repeated = _in_columns(repeated)
    chosen.update(one_of_each(test, lacking), one_of_each(test, repeated))
    return [pairing for pairing in pairings if pairing in chosen]


def forms(test: str, pairing: Pairing, found: Sequence[str]) -> Sequence[str]:
    """Return the forms that a test runs in on a pairing, of those that its scenario exists in."""
    if len(found) == 1 or tuple(pairing) in BOTH_FORMS:
        return found
    return ["asyncio" if _number(f"form of {test} on {pairing}") % AWAITED == 0 else "sync"]


def _is_of(pairing: Pairing, row: Enough) -> bool:
    return any(fnmatch.fnmatchcase(str(pairing), pattern) for pattern in row.pairings)


def _column(pairing: Pairing) -> int | None:
    found: Iterable[int] = (
        number
        for number, column in enumerate(promises.COLUMNS)
        if pairing.server == column.server and pairing.client in column.clients
    )
    return next(iter(found), None)


def _in_columns(cases: Mapping[Pairing, Hashable]) -> dict[Pairing, Hashable]:
    """Tell cases of different columns of the truth table apart, and drop those beyond it that repeat one within."""
    shown = {kind for pairing, kind in cases.items() if _column(pairing) is not None}
    return {
        pairing: (kind, column)
        for pairing, kind in cases.items()
        if (column := _column(pairing)) is not None or kind not in shown
    }
