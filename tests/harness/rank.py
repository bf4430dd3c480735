"""One rank of a job that runs a scenario: `rank.py MODULE.FUNCTION sync|asyncio ARGUMENTS`.

Scenarios are written once, as coroutines over `pypmix.aio`. The blocking form is the same source without its awaits
over `pypmix`; a scenario that is a plain function exists in the blocking form only. A scenario whose first parameter
is `me` is handed an open client. What it returns or raises is left for the test in the folder of results.
"""

from __future__ import annotations

import ast
import os
import pickle
import sys
import traceback
from pathlib import Path

SCENARIOS = Path(__file__).resolve().parent.parent / "suite" / "scenarios"

BLOCKING_MODULES = {"harness.aio": "harness.sync", "pypmix.aio": "pypmix"}


class Blocking(ast.NodeTransformer):
    """Turns a module of coroutines into the same module of functions that block."""

    def visit_AsyncFunctionDef(self, node):
        self.generic_visit(node)
        return ast.copy_location(ast.FunctionDef(**vars(node)), node)

    def visit_Await(self, node):
        self.generic_visit(node)
        return node.value

    def visit_AsyncWith(self, node):
        self.generic_visit(node)
        return ast.copy_location(ast.With(**vars(node)), node)

    def visit_AsyncFor(self, node):
        self.generic_visit(node)
        return ast.copy_location(ast.For(**vars(node)), node)

    def visit_ImportFrom(self, node):
        node.module = BLOCKING_MODULES.get(node.module, node.module)
        return node


def load(module, form):
    path = SCENARIOS / f"{module}.py"
    tree = ast.parse(path.read_text())
    if form == "sync":
        tree = ast.fix_missing_locations(Blocking().visit(tree))
    namespace = {"__name__": module, "__file__": str(path)}
    exec(compile(tree, str(path), "exec"), namespace)
    return namespace


def wants_client(scenario):
    code = scenario.__code__
    return code.co_varnames[: code.co_argcount][:1] == ("me",)


def run_blocking(scenario, arguments):
    if not wants_client(scenario):
        return scenario(**arguments), ""
    from pypmix import Client

    with Client() as me:
        engine = str(me.engine)
        return scenario(me, **arguments), engine


async def run_async(scenario, arguments):
    if not wants_client(scenario):
        return await scenario(**arguments), ""
    from pypmix.aio import Client

    async with Client() as me:
        engine = str(me.engine)
        return await scenario(me, **arguments), engine


def leave(result):
    """Write what this rank leaves, so that a reader sees all of it or nothing."""
    folder = Path(os.environ["PYPMIX_TEST_RESULTS"])
    path = folder / f"{result[0]}-{os.getpid()}"
    path.write_bytes(pickle.dumps(result))
    path.rename(path.with_suffix(".pickle"))


def main(name, form, arguments):
    rank = int(os.environ.get("PMIX_RANK", 0))
    module, function = name.split(".")
    engine = os.environ.get("PYPMIX_ENGINE", "")
    try:
        namespace = load(module, form)
        scenario, arguments = namespace[function], ast.literal_eval(arguments)
        if form == "sync":
            result, used = run_blocking(scenario, arguments)
        else:
            import asyncio

            result, used = asyncio.run(run_async(scenario, arguments))
    except Exception as error:
        text = traceback.format_exc()
        try:
            leave((rank, engine, None, error, text))
        except Exception:
            leave((rank, engine, None, AssertionError(text), text))
        raise
    leave((rank, used or engine, result, None, ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
