"""The exit of a forked rank: what a program sees of the interpreter's shutdown, without destroying shared objects.

A full shutdown destroys each object that the fork server has made, which copies all pages that the rank still shares
with it: this would cost several times as much as the fork. If the rank has loaded no extension module that may rely on
the shutdown, this module does the part that programs can see: it waits for threads, runs `atexit` functions, clears the
modules that the rank has imported, so that objects are finalized, files closed and destructors run, and flushes
standard output.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_EXTENSIONS = (".so", ".abi3.so")
FLUSH_FAILED = 120
"""The interpreter's exit code if standard output cannot be flushed."""


class Shutdown:
    """Ends processes forked from this one, which has imported all modules that they share."""

    def __init__(self) -> None:
        # `__main__` separates the shared modules from the rank's: a rank copies a page for each module it looks at.
        sys.modules["__main__"] = sys.modules.pop("__main__")
        # Computed once here, instead of in each rank.
        self._standard = f"{os.path.dirname(os.__file__)}/lib-dynload/"
        self._run_atexit: Callable[[], None] = vars(atexit)["_run_exitfuncs"]
        self._plain = not self._have_extensions(sys.modules.values())

    def exit(self, code: int) -> None:
        """End the process, or return if the interpreter has to shut down fully."""
        if sys.flags.inspect or not self._plain or self._have_extensions(_list_rank_modules()):
            return
        threading: Any = sys.modules.get("threading")
        if threading is not None:
            vars(threading)["_shutdown"]()
        self._run_atexit()
        code = _flush_output(code)
        # The last first, as the interpreter does.
        for module in _list_rank_modules():
            # A program may put other objects into `sys.modules`.
            if isinstance(module, ModuleType):
                _clear(module)
        # The shared objects are frozen, and the collector skips them.
        gc.collect()
        os._exit(_flush_output(code))

    def _have_extensions(self, modules: Iterable[object]) -> bool:
        """Return True if any module is an extension outside the standard library."""
        for module in list(modules):
            path = getattr(module, "__file__", None)
            if path and path.endswith(_EXTENSIONS) and not path.startswith(self._standard):
                return True
        return False


def _list_rank_modules() -> list[object]:
    """Return the modules that only this rank has imported, the last first."""
    try:
        return _list_until_main(reversed(sys.modules.items()))
    except RuntimeError:
        # A thread imported a module during the iteration.
        return _list_until_main(reversed(list(sys.modules.items())))


def _list_until_main(modules: Iterable[tuple[str, object]]) -> list[object]:
    found = []
    for name, module in modules:
        found.append(module)
        if name == "__main__":
            break
    return found


def _clear(module: ModuleType) -> None:
    names = vars(module)
    for private in (True, False):
        for name in list(names):
            if (name[:1] == "_" and name[:2] != "__") is private and name not in ("__builtins__", "__name__"):
                names[name] = None


def _flush_output(code: int) -> int:
    """Flush the standard streams; return the exit code, `FLUSH_FAILED` if standard output failed."""
    try:
        sys.stdout.flush()
    except (ValueError, AttributeError):
        # The program closed or removed it.
        pass
    except OSError as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        code = FLUSH_FAILED
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        # There is no stream left to report it on.
        pass
    return code
