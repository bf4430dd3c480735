"""The mutation score counts what tests notice, what they do not, and what none reaches."""

from __future__ import annotations

import builtins
import shutil
import sys
from pathlib import Path

import pytest
from long import mutants
from long.mutants import Equivalent, Module, Mutant, Verdict

MODULE = '''
"""A module."""
from typing import TYPE_CHECKING

LIMIT = 3 + 4

def larger(one: int, other: int = 1) -> bool:
    """Return True if one is larger."""
    return one > other

class Counter:
    kind = 1 == 1

    def count(self, names):
        self.seen = []
        for name in names:
            if not name or name in self.seen:
                continue
            self.seen.append(name)
        return len(self.seen)

    async def unused(self):
        raise ValueError("never")
'''

TESTS = """
from pack.module import Counter, larger

def test_larger(): assert larger(2) and not larger(0)
def test_count(): assert Counter().count(["a", "", "a", "b"]) == 2
def test_reaches(): Counter().count(["a"])
"""

PATH = "pack/module.py"


@pytest.fixture
def found() -> dict[str, Mutant]:
    return {f"{each.function}: {each.old} -> {each.new}": each for each in mutants.mutants_of(PATH, MODULE)}


def test_what_mutants_there_are(found: dict[str, Mutant]) -> None:
    assert "larger: one > other -> one >= other" in found
    assert "larger: return one > other -> return None" in found
    assert "Counter.count: self.seen = [] -> pass" in found
    assert "Counter.count: not name or name in self.seen -> not name and name in self.seen" in found
    assert "Counter.count: not name or name in self.seen -> False" in found
    assert "Counter.count: continue -> pass" in found
    assert "Counter.unused: raise ValueError('never') -> pass" in found
    # What runs at the import, a default and a docstring are none.
    assert {each.function for each in found.values()} == {"larger", "Counter.count", "Counter.unused"}
    assert not any("1" in each.old for each in found.values())


def test_a_mutant_is_the_code_only_while_it_is_active(
    found: dict[str, Mutant], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [each for each in found.values() if not each.function.endswith("unused")]
    text = mutants.mutated(PATH, MODULE, {each.place: number for number, each in enumerate(chosen)})
    active = -1
    monkeypatch.setattr(builtins, mutants.SWITCH, lambda switch: switch == active, raising=False)
    names: dict[str, object] = {}
    exec(text, names)
    counter = names["Counter"]
    assert names["larger"](1, 1) is False  # type: ignore[operator]
    assert counter().count(["a", "", "a"]) == 1  # type: ignore[operator]
    active = chosen.index(found["larger: one > other -> one >= other"])
    assert names["larger"](1, 1) is True  # type: ignore[operator]
    active = chosen.index(found["Counter.count: continue -> pass"])
    assert counter().count(["a", "", "a"]) == 3  # type: ignore[operator]
    active = chosen.index(found["Counter.count: not name or name in self.seen -> True"])
    assert counter().count(["a"]) == 0  # type: ignore[operator]


def test_the_choice_does_not_depend_on_other_functions(found: dict[str, Mutant]) -> None:
    everything = list(found.values())
    some = mutants.chosen(everything, 4)
    assert len(some) == 4
    assert len({each.line for each in some}) == 4
    moved = mutants.mutants_of(PATH, MODULE.replace("LIMIT = 3 + 4", "def added():\n    return None\n\n\nLIMIT = 7"))
    assert [each[3:] for each in mutants.chosen(moved, 4)] == [each[3:] for each in some]
    assert mutants.chosen(everything, None) == everything


def test_mutants_are_killed_or_survive_or_are_not_reached(
    found: dict[str, Mutant], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "copy"
    files = {PATH: MODULE, "pack/__init__.py": "", "tests/unit/test_module.py": TESTS, "pytest.ini": "[pytest]"}
    for name, text in files.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    shutil.copytree(Path(mutants.__file__).parent, checkout / "tests/long")
    monkeypatch.setattr(mutants, "JUDGES", ("tests/unit",))
    monkeypatch.setattr(mutants, "READERS", ())
    names = {
        "Counter.count: continue -> pass": "killed",
        "larger: one > other -> one >= other": "survived",
        "Counter.unused: raise ValueError('never') -> pass": "not reached",
    }
    chosen = [found[name] for name in names]
    mutants.write_mutants(checkout, chosen)
    verdicts = mutants.judge(Path(sys.executable), checkout, chosen, 4)
    assert [each.result for each in verdicts] == list(names.values())
    assert verdicts[0].by == "tests/unit/test_module.py::test_count"
    assert verdicts[1].tests == (1, 1)


def test_the_table_has_a_floor_for_each_module(monkeypatch: pytest.MonkeyPatch, found: dict[str, Mutant]) -> None:
    results = ["killed", "killed", "killed", "survived", "not reached", "survived"]
    verdicts = [Verdict(each, result, (1, 1)) for each, result in zip(found.values(), results, strict=False)]
    row = Module("pack", "pack/*.py", 6, 60)
    lines, enough = mutants.table([row], {"pack": verdicts})
    assert lines[1].split() == ["pack", "6", "3", "2", "1", "0", "60", "%", "60", "%"]
    assert enough
    lines, enough = mutants.table([row._replace(floor=61)], {"pack": verdicts})
    assert not enough
    assert lines[1].endswith("below")
    last = verdicts[-1].mutant
    monkeypatch.setattr(mutants, "EQUIVALENTS", (Equivalent(PATH, last.function, last.old, last.new, "for a reason"),))
    lines, enough = mutants.table([row._replace(floor=75)], {"pack": [*verdicts[:5], verdicts[5]]})
    assert lines[1].split()[:6] == ["pack", "6", "3", "1", "1", "1"]
    assert enough


@pytest.mark.timeout(300)
def test_each_module_and_equivalent_of_the_table_exists() -> None:
    for module in mutants.MODULES:
        assert len(mutants.find_mutants(mutants.ROOT, module, False)) == module.number, module.name
    for each in mutants.EQUIVALENTS:
        there = mutants.mutants_of(each.path, (mutants.ROOT / each.path).read_text())
        assert any(mutant.equivalent == each for mutant in there), each
