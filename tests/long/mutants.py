"""Change single lines of pypmix, one at a time, and count the changes that the unit tests notice: `tox -e mutants`.

A *mutant* is one small change: a comparison turned round, a condition that always holds, a call that is left out. A
test that fails with it *kills* it. A mutant that survives shows a decision which no test asserts. The table at the end
has, by module, how many mutants were killed, how many survived, and how many no test reaches. `MODULES` has a floor for
each module, in percent of the mutants that are reached, and the run fails below one. `EQUIVALENTS` lists mutants that
change nothing a test could see, with the reason; they do not count.

All mutants are put into a copy of the checkout at once, each behind a switch (`mutated`), so that the tests are
collected once. `mutation.py` runs them: first without a mutant, to see which tests reach which, then each mutant in a
fork, with tests that reach it, until one fails. The judges are `tests/unit` and `tests/wire`; for the exchange also
the parts of `tests/faults` that start no process, and for the reactor the tests of `tests/component` that have sockets.

Which mutants are tried follows from a hash of their code and not from a random number. A change of the package moves
those of the changed lines alone. `--all` tries all, `--only MODULE` those of one row of the table.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from long.sabotage import ROOT, copied

SWITCH = "_mutant"
"""The built-in function that mutated code asks whether a mutant is active; `mutation.py` defines it."""

JUDGES = ("tests/unit", "tests/wire")
FAULTS = tuple(f"tests/faults/test_crossing{part}.py" for part in ("", "_addresses", "_answers", "_groups", "_tree"))
SOCKETS = tuple(f"tests/component/test_{name}.py" for name in ("reactor", "python_server_sockets"))
READERS = tuple(f"tests/unit/test_{name}.py" for name in ("house", "ratchet", "import_graph", "papers", "pages"))
"""Tests that read the source, and so notice every mutant."""


class Module(NamedTuple):
    """A row of the table.

    Args:
        name: What it is called.
        pattern: Its files, below the checkout.
        number: How many mutants are tried of all its files.
        floor: The least percentage of the mutants reached that must be killed: what was measured less some ten, since
            other mutants are tried if the code changes.
        judges: Tests that judge it besides `JUDGES`.
    """

    name: str
    pattern: str
    number: int
    floor: int
    judges: tuple[str, ...] = ()


MODULES = (
    Module("collective/machine", "pypmix/engine/collective/machine.py", 10, 90),
    Module("groups", "pypmix/engine/groups/*.py", 39, 85),
    Module("python/datastore", "pypmix/engine/python/datastore.py", 8, 85),
    Module("python/modex", "pypmix/engine/python/modex.py", 8, 85),
    Module("python/client", "pypmix/engine/python/client.py", 11, 85),
    Module("python/server", "pypmix/engine/python/server.py", 6, 80),
    Module("python/reactor", "pypmix/engine/python/reactor.py", 8, 80, SOCKETS),
    Module("wire/decode", "pypmix/wire/decode.py", 9, 85),
    Module("wire/encode", "pypmix/wire/encode.py", 8, 80),
    Module("exchange/coordinator", "pypmix/host/exchange/coordinator.py", 9, 65, FAULTS),
    Module("exchange/participant", "pypmix/host/exchange/participant.py", 7, 85, FAULTS),
    Module("exchange/deciding", "pypmix/host/exchange/deciding.py", 6, 80, FAULTS),
    Module("peeruid", "pypmix/engine/peeruid.py", 6, 80),
    Module("operations", "pypmix/aio/operations/*.py", 26, 90),
)


class Equivalent(NamedTuple):
    """Mutants that no test can tell from the original.

    Args:
        path: The file.
        function: The qualified name of the function.
        old: The code that is changed.
        new: The code in its place.
        reason: Why nobody sees it.
    """

    path: str
    function: str
    old: str
    new: str
    reason: str


ENGINE = "pypmix/engine/"

EQUIVALENTS = (
    Equivalent(
        f"{ENGINE}groups/standing.py",
        "Standing._depart",
        "return True",
        "return None",
        "screens are asked whether they return False, and other callers do not ask",
    ),
    Equivalent(
        f"{ENGINE}python/client.py",
        "Client.is_to_stop",
        "return False",
        "return None",
        "it is only asked whether it is true",
    ),
    Equivalent(
        f"{ENGINE}python/client.py",
        "Client._fence_some",
        "0",
        "1",
        "the check that is saved for procs of the own job refuses none of them",
    ),
    Equivalent(
        f"{ENGINE}python/reactor.py",
        "Reactor.__init__",
        "0",
        "1",
        "visits are compared and not counted, and a bell that rings at first is answered with nothing",
    ),
    Equivalent(
        f"{ENGINE}python/reactor.py",
        "Reactor._turned",
        "1",
        "2",
        "a bell that was rung is read as a whole, however often it was",
    ),
    Equivalent("pypmix/wire/encode.py", "_procs", "32", "33", "it bounds a cache: only the speed differs"),
    Equivalent("pypmix/wire/encode.py", "_proc", "0", "1", "rank 0 is packed alike by the branch for large ranks"),
)


class Mutant(NamedTuple):
    """One change.

    Args:
        path: The file, below the checkout.
        place: Its place among all mutants of the file.
        line: The line.
        function: The qualified name of the function.
        kind: What kind of change it is.
        old: The code that is changed.
        new: The code in its place.
    """

    path: str
    place: int
    line: int
    function: str
    kind: str
    old: str
    new: str

    @property
    def equivalent(self) -> Equivalent | None:
        """Why it does not count, None if it does."""
        key = self.path, self.function, self.old, self.new
        return next((each for each in EQUIVALENTS if each[:4] == key), None)

    def __str__(self) -> str:
        shown = [text if len(text) < 60 else text[:57] + "..." for text in (self.old, self.new)]
        return f"{self.path}:{self.line} {self.function}: {self.kind}, {shown[0]} -> {shown[1]}"


OPPOSITES: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}

WEIGHTS = {"compare": 3.0, "boolop": 3.0, "constant": 1.5, "return None": 0.7, "condition": 1.0}
"""How much more often than others a kind is chosen; 2 for those that are not here."""

DROPPED = {
    ast.AugAssign: "drop assignment",
    ast.Delete: "drop del",
    ast.Continue: "drop jump",
    ast.Break: "drop jump",
    ast.Raise: "drop raise",
}


def changed_expressions(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the kinds of changes of an expression, and what takes its place."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "compare", ast.Compare(node.left, [OPPOSITES[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield "boolop", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "bool", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "constant", ast.Constant(node.value + 1)


def dropped(node: ast.stmt) -> str:
    """Return the kind of change that leaving a statement out is, empty if it is none."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        return "drop call"
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
        return "drop assignment"
    if isinstance(node, ast.Return) and node.value is None:
        return "drop return"
    return DROPPED.get(type(node), "")


class Mutator(ast.NodeTransformer):
    """Numbers the mutants of a module, and puts some of them into it, each behind its switch.

    Args:
        path: The file, below the checkout.
        switches: The numbers of the switches of the mutants that are put in, by index.

    Attributes:
        mutants: All that there are, in their order.
    """

    def __init__(self, path: str, switches: Mapping[int, int] | None = None) -> None:
        self._path = path
        self._switches = switches or {}
        self._names: list[str] = []
        self._in_function = False
        self.mutants: list[Mutant] = []

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            return self._visit_scope(node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return node
        if not self._in_function:
            return self.generic_visit(node)
        original = copy.deepcopy(node)
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                node.value = self.visit(node.value)
            return node
        if isinstance(node, ast.match_case):
            node.body = [self.visit(statement) for statement in node.body]
            return node
        found: Any = self.generic_visit(node)
        if isinstance(original, ast.If | ast.IfExp):
            for value in (True, False):
                switch = self._add(original.test, "condition", ast.unparse(original.test), str(value))
                if switch is not None:
                    found.test = self._either(switch, ast.Constant(value), found.test)
        if isinstance(original, ast.expr):
            for kind, other in changed_expressions(original):
                switch = self._add(original, kind, ast.unparse(original), ast.unparse(other))
                if switch is not None:
                    found = self._either(switch, other, found)
        elif isinstance(original, ast.Return) and original.value is not None:
            if not (isinstance(original.value, ast.Constant) and original.value.value is None):
                switch = self._add(original, "return None", ast.unparse(original), "return None")
                if switch is not None:
                    found.value = self._either(switch, ast.Constant(None), found.value)
        elif isinstance(original, ast.stmt) and (kind := dropped(original)):
            switch = self._add(original, kind, ast.unparse(original), "pass")
            if switch is not None:
                found = ast.If(ast.UnaryOp(ast.Not(), self._is_active(switch)), [found], [])
        return found

    def _visit_scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        """Visit the body alone: what stands before it has run when the first test begins."""
        self._names.append(node.name)
        outside, self._in_function = self._in_function, not isinstance(node, ast.ClassDef)
        node.body = [self.visit(statement) for statement in node.body]
        self._in_function = outside
        self._names.pop()
        return node

    def _add(self, node: ast.stmt | ast.expr, kind: str, old: str, new: str) -> int | None:
        """Number a mutant, and return its switch if it is to be put in."""
        index = len(self.mutants)
        self.mutants.append(Mutant(self._path, index, node.lineno, ".".join(self._names), kind, old, new))
        return self._switches.get(index)

    @staticmethod
    def _is_active(switch: int) -> ast.expr:
        return ast.Call(ast.Name(SWITCH, ast.Load()), [ast.Constant(switch)], [])

    def _either(self, switch: int, mutated: ast.expr, original: ast.expr) -> ast.expr:
        return ast.IfExp(self._is_active(switch), copy.deepcopy(mutated), original)


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Return all mutants of a module."""
    mutator = Mutator(path)
    mutator.visit(ast.parse(text))
    return mutator.mutants


def mutated(path: str, text: str, switches: Mapping[int, int]) -> str:
    """Return a module with some of its mutants, each behind a switch.

    Args:
        path: The file.
        text: The module.
        switches: The numbers of the switches, by the mutants' indices.
    """
    tree = Mutator(path, switches).visit(ast.parse(text))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def order_of(mutant: Mutant, repeated: int) -> float:
    """Return a mutant's place in the order in which mutants are tried; it depends on its own function alone."""
    words = mutant.path, mutant.function, mutant.kind, mutant.old, mutant.new, str(repeated)
    digest = hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest()
    number: float = int.from_bytes(digest, "big") / 2**64
    return 1 - float(number ** (1 / WEIGHTS.get(mutant.kind, 2.0)))


def chosen(mutants: Sequence[Mutant], number: int | None) -> list[Mutant]:
    """Return the mutants that are tried, at most one of a line; all if there is no number."""
    if number is None:
        return list(mutants)
    seen: dict[tuple[object, ...], int] = {}
    places: list[tuple[float, Mutant]] = []
    for mutant in mutants:
        key = mutant.path, mutant.function, mutant.kind, mutant.old, mutant.new
        seen[key] = seen.get(key, 0) + 1
        places.append((order_of(mutant, seen[key]), mutant))
    found: dict[tuple[str, int], Mutant] = {}
    for _, mutant in sorted(places):
        found.setdefault((mutant.path, mutant.line), mutant)
    return list(found.values())[:number]


class Verdict(NamedTuple):
    """How a mutant ended.

    Args:
        mutant: The mutant.
        result: `killed`, `survived` or `not reached`.
        tests: How many tests were tried, and how many reach it.
        by: The test that killed it.
    """

    mutant: Mutant
    result: str
    tests: tuple[int, int]
    by: str = ""


def table(modules: Sequence[Module], verdicts: Mapping[str, Sequence[Verdict]]) -> tuple[list[str], bool]:
    """Return the lines of the table by module, and whether each module reaches its floor."""
    columns = ("mutants", "killed", "survived", "not reached", "equivalent", "score", "floor")
    lines = ["module".ljust(22) + "".join(title.rjust(13) for title in columns)]
    enough = True
    totals = [0] * 5
    for module in modules:
        found = verdicts[module.name]
        counted = [each for each in found if each.mutant.equivalent is None]
        killed, survived, unreached = (
            sum(each.result == result for each in counted) for result in ("killed", "survived", "not reached")
        )
        row = [len(found), killed, survived, unreached, len(found) - len(counted)]
        totals = [total + value for total, value in zip(totals, row, strict=True)]
        score = 100 * killed / max(1, killed + survived)
        below = score < module.floor
        enough = enough and not below
        cells = [*map(str, row), f"{score:.0f} %", f"{module.floor} %"]
        lines.append(module.name.ljust(22) + "".join(cell.rjust(13) for cell in cells) + (" below" if below else ""))
    score = 100 * totals[1] / max(1, totals[1] + totals[2])
    lines.append("all".ljust(22) + "".join(cell.rjust(13) for cell in [*map(str, totals), f"{score:.0f} %", ""]))
    return lines, enough


def judges_of(module: Module, mutants: Sequence[Mutant]) -> tuple[str, ...]:
    """Return the tests that judge a module besides `JUDGES`, if some of the mutants are of it."""
    concerned = any(Path(mutant.path).match(module.pattern) for mutant in mutants)
    return module.judges if concerned else ()


def judge(python: Path, checkout: Path, mutants: Sequence[Mutant], seconds: float) -> list[Verdict]:
    """Try mutants that are in a checkout, whose switches are their places here.

    Args:
        python: The interpreter.
        checkout: The copy with the mutants.
        mutants: The mutants.
        seconds: How long the tests of a mutant may take that no test kills, in CPU time.
    """
    tests = [*JUDGES, *dict.fromkeys(path for module in MODULES for path in judges_of(module, mutants))]
    ignored = [f"--ignore={path}" for path in READERS]
    results = checkout.parent / "verdicts.json"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), str(checkout / "tests")])}
    variables |= {"PYPMIX_MUTANTS": json.dumps([len(mutants), seconds, str(results)])}
    command = [str(python), "-m", "pytest", "-q", "-p", "long.mutation", "-p", "no:cacheprovider", *ignored, *tests]
    done = subprocess.run(command, cwd=checkout, env=variables, stdin=subprocess.DEVNULL)
    if not results.exists():
        raise SystemExit(f"no mutant was tried: pytest ended with {done.returncode}")
    found = json.loads(results.read_text())
    return [
        Verdict(mutant, result, (tried, reaching), by)
        for mutant, (result, (tried, reaching), by) in zip(mutants, found, strict=True)
    ]


def write_mutants(checkout: Path, mutants: Sequence[Mutant]) -> None:
    """Put mutants into a checkout, each behind a switch with its place among them as number."""
    for path in {mutant.path for mutant in mutants}:
        switches = {mutant.place: number for number, mutant in enumerate(mutants) if mutant.path == path}
        file = checkout / path
        file.write_text(mutated(path, file.read_text(), switches))


def find_mutants(root: Path, module: Module, everything: bool) -> list[Mutant]:
    """Return the mutants of a module that are tried."""
    paths = sorted(path.relative_to(root).as_posix() for path in root.glob(module.pattern))
    all_of_it = [mutant for path in paths for mutant in mutants_of(path, (root / path).read_text())]
    return chosen(all_of_it, None if everything else module.number)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="show the mutants")
    parser.add_argument("--all", action="store_true", help="try all mutants of each module, which takes hours")
    parser.add_argument("--only", action="append", metavar="MODULE", choices=[module.name for module in MODULES])
    parser.add_argument("--seconds", type=float, default=4, help="of tests for a mutant that survives (4)")
    given = parser.parse_args(arguments)
    modules = [module for module in MODULES if not given.only or module.name in given.only]
    found = {module.name: find_mutants(ROOT, module, given.all) for module in modules}
    mutants = [mutant for module in modules for mutant in found[module.name]]
    if given.list:
        print(*mutants, sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="pypmix-mutants-") as folder:
        python = copied(ROOT, Path(folder))
        write_mutants(Path(folder, "checkout"), mutants)
        verdicts = dict(zip(mutants, judge(python, Path(folder, "checkout"), mutants, given.seconds), strict=True))
    for mutant, verdict in verdicts.items():
        if verdict.result != "killed" and mutant.equivalent is None:
            print(f"{verdict.result} ({verdict.tests[0]} of {verdict.tests[1]} tests): {mutant}")
    lines, enough = table(modules, {name: [verdicts[each] for each in those] for name, those in found.items()})
    print(*lines, sep="\n")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
