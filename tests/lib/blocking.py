"""Turns a module of coroutines over `pypmix.aio` into the same module of functions over `pypmix` that block."""

from __future__ import annotations

MODULES = {
    "lib.aio": "lib.sync",
    "pypmix.aio": "pypmix",
    "pypmix.conformance.awaited": "lib.sync",
    "pypmix.conformance.calls": "lib.calls",
    "pypmix.aio.recipes.admission": "pypmix.recipes.admission",
    "pypmix.aio.recipes.debugging": "pypmix.recipes.debugging",
    "pypmix.aio.recipes.draft": "pypmix.recipes.draft",
}


def translate(source, path, form):
    """Return the code of a module in a form, `sync` or `asyncio`."""
    import ast

    class Blocking(ast.NodeTransformer):
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
            node.module = MODULES.get(node.module, node.module)
            return node

    tree = ast.parse(source)
    if form == "sync":
        tree = ast.fix_missing_locations(Blocking().visit(tree))
    return compile(tree, path, "exec")
