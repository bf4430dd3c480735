"""The end of a forked rank: what the end of the interpreter does for a program, without taking apart what is shared.

A full end of the interpreter takes each object apart that the fork server has made, which copies all pages that the
rank still shares with it: this would cost several times what the fork has cost. Where the rank has loaded no extension
module that may rely on it, this does what programs can see: threads are waited for, `atexit` functions run, the modules
that the rank has imported are cleared, so that their objects are finalized, files closed and destructors run, and
standard output is flushed.
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
"""The exit code of the interpreter where standard output cannot be flushed."""


class Leaving:
    """Ends processes that are forked from this one, which has imported all that they share."""

    def __init__(self) -> None:
        # It parts what is shared from what a rank imports: each module that a rank looks at is a page that it copies.
        sys.modules["__main__"] = sys.modules.pop("__main__")
        # Found out here, and not by each rank.
        self._standard = f"{os.path.dirname(os.__file__)}/lib-dynload/"
        self._run_atexit: Callable[[], None] = vars(atexit)["_run_exitfuncs"]
        self._plain = not self._have_extensions(sys.modules.values())

    def leave(self, code: int) -> None:
        """End the process, or return where the interpreter itself has to."""
        own = _own()
        if sys.flags.inspect or not self._plain or self._have_extensions(own):
            return
        threading: Any = sys.modules.get("threading")
        if threading is not None:
            vars(threading)["_shutdown"]()
        self._run_atexit()
        code = _flushed(code)
        # The last first, as the interpreter does.
        for module in _own():
            # A program may have put anything else there.
            if isinstance(module, ModuleType):
                _clear(module)
        # What is shared is frozen, and not looked at.
        gc.collect()
        os._exit(_flushed(code))

    def _have_extensions(self, modules: Iterable[object]) -> bool:
        """Tell whether there are extension modules but those of the standard library."""
        for module in list(modules):
            path = getattr(module, "__file__", None)
            if path and path.endswith(_EXTENSIONS) and not path.startswith(self._standard):
                return True
        return False


def _own() -> list[object]:
    """Return the modules that a rank has besides those that are shared, the last first."""
    try:
        return _until_main(reversed(sys.modules.items()))
    except RuntimeError:
        # A thread has imported something in between.
        return _until_main(reversed(list(sys.modules.items())))


def _until_main(modules: Iterable[tuple[str, object]]) -> list[object]:
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


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except (ValueError, AttributeError):
        # The program has closed it, or has none.
        pass
    except OSError as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        code = FLUSH_FAILED
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        # There is nowhere to tell it.
        pass
    return code
