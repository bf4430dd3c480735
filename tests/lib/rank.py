"""One rank of a job that runs a scenario: `rank.py MODULE.FUNCTION sync|asyncio ARGUMENTS`.

Scenarios are written once, as coroutines over `pypmix.aio`. The blocking form is the same source without its awaits
over `pypmix`; a scenario that is a plain function exists in the blocking form only. A scenario whose first parameter
is `me` is handed an open client. What it returns or raises is left for the test in the folder of results.
"""

from __future__ import annotations

import marshal
import os
import sys

# A run of all tests starts ten thousand of these: they import as little as they can.

HERE = os.path.dirname(os.path.abspath(__file__))
SCENARIOS = os.path.join(os.path.dirname(HERE), "suite", "scenarios")
SHIPPED = "pypmix.conformance."
"""Before the names of modules whose checks are scenarios that users have, too."""

TRANSLATOR = os.path.join(HERE, "blocking.py")


def translate(path, form):
    """Return the code of a module of scenarios in a form."""
    from lib import blocking

    with open(path, encoding="utf-8") as file:
        return blocking.translate(file.read(), path, form)


def code(path, form):
    """Return the same, kept from one rank to the next as Python keeps the code of what it imports."""
    sources = [os.stat(source) for source in (path, TRANSLATOR)]
    stamp = repr([(each.st_mtime_ns, each.st_size) for each in sources]).encode() + b"\n"
    folder, name = os.path.split(path)
    folder = sys.pycache_prefix + folder if sys.pycache_prefix else os.path.join(folder, "__pycache__")
    kept = os.path.join(folder, f"{name}.{form}.{sys.implementation.cache_tag}")
    try:
        with open(kept, "rb") as file:
            if file.readline() == stamp:
                return marshal.load(file)
    except (OSError, ValueError, EOFError, TypeError):
        pass
    found = translate(path, form)
    if not sys.dont_write_bytecode:
        draft = f"{kept}.{os.getpid()}"
        try:
            os.makedirs(folder, exist_ok=True)
            with open(draft, "wb") as file:
                file.write(stamp + marshal.dumps(found))
            os.replace(draft, kept)
        except OSError:
            pass
    return found


def load(module, form):
    if module.startswith(SHIPPED):
        import pypmix

        path = os.path.join(os.path.dirname(pypmix.__file__), "conformance", f"{module.removeprefix(SHIPPED)}.py")
    else:
        path = os.path.join(SCENARIOS, f"{module}.py")
    namespace = {"__name__": module, "__file__": path}
    exec(code(path, form), namespace)
    return namespace


def wants_client(scenario):
    code = scenario.__code__
    return code.co_varnames[: code.co_argcount][:1] == ("me",)


def watch_clients():
    """Return a list to which each client that this process opens adds its engine."""
    from pypmix import clientbase

    engines = []
    open_client = clientbase.open_client

    def watched(*arguments):
        session = open_client(*arguments)
        engines.append(str(session.info))
        return session

    clientbase.open_client = watched
    return engines


def run_blocking(scenario, arguments):
    if not wants_client(scenario):
        return scenario(**arguments)
    from pypmix import Client

    with Client() as me:
        return scenario(me, **arguments)


async def run_async(scenario, arguments):
    if not wants_client(scenario):
        return await scenario(**arguments)
    from pypmix.aio import Client

    async with Client() as me:
        return await scenario(me, **arguments)


def leave(result):
    """Write what this rank leaves, so that a reader sees all of it or nothing."""
    import pickle

    path = os.path.join(os.environ["PYPMIX_TEST_RESULTS"], f"{result[0]}-{os.getpid()}")
    with open(path, "wb") as file:
        file.write(pickle.dumps(result))
    os.rename(path, f"{path}.pickle")


def main(name, form, arguments):
    rank = int(os.environ.get("PMIX_RANK", 0))
    module, _, function = name.rpartition(".")
    engines = []
    try:
        engines = watch_clients()
        namespace = load(module, form)
        scenario, arguments = namespace[function], eval(arguments, {})
        scenario = getattr(scenario, "program", scenario)
        if form == "sync":
            result = run_blocking(scenario, arguments)
        else:
            import asyncio

            result = asyncio.run(run_async(scenario, arguments))
    except Exception as error:
        import traceback

        text = traceback.format_exc()
        try:
            leave((rank, tuple(engines), None, error, text))
        except Exception:
            leave((rank, tuple(engines), None, AssertionError(text), text))
        raise
    leave((rank, tuple(engines), result, None, ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
