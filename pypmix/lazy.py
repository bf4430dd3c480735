"""The one place where modules are imported by name, when something of them is used first.

Every rank pays for what `import pypmix` and opening a client load, and most ranks use few of PMIx's operations. Three
things are lazy, and mypy sees the type of each:

- A name of a package: `names` makes the package's `__getattr__` and `__dir__`. Type checkers read the same names in the
  package's `__init__.pyi`, which `native/blocking.py` makes of the same table.
- A method of a client's class: `late_methods` puts placeholders there, which put the real function in their place. The
  class declares the methods under `TYPE_CHECKING`.
- What a table of names chooses at run time: `load`. The caller annotates the variable that it assigns the result to.

Where only one thing is meant, an import statement in a function does it.
"""

from __future__ import annotations

from sys import modules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")
    F = TypeVar("F", bound=Callable[..., Any])


COROUTINE = 0x80
"""`inspect.CO_COROUTINE`, the flag of the code of an `async def`; importing `inspect` takes longer than all else."""


def load(module: str, name: str = "") -> Any:
    """Import a module, and return its member of a name, or the module itself if the name is empty."""
    __import__(module)
    return getattr(modules[module], name) if name else modules[module]


def names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package whose names are imported when they are used.

    `__all__` is one of these names. Names that have changed still work, with a warning (`pypmix.oldnames`).

    Args:
        package: The package.
        homes: The names that each module has, separated by spaces; a name that is the module's own is the module. What
            begins with a dot is a module of the package.
    """
    home: dict[str, str] = {}

    def find(name: str) -> Any:
        if not home:
            for module in homes:
                home.update(dict.fromkeys(homes[module].split(), package + module if module[0] == "." else module))
        if name == "__all__":
            return [*home]
        where = home.get(name)
        if where is None:
            if name[:2] == "__":
                # An import statement asks for `__path__`, also in programs without old names.
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            if _has_module(package, name):
                # An import statement asks for a module of the package before it imports it.
                raise AttributeError(f"module {package!r} has not imported its module {name!r}")
            return load("pypmix.oldnames", "find")(f"{package}.{name}")
        found = load(where, "" if where.endswith("." + name) else name)
        setattr(modules[package], name, found)
        return found

    return find, lambda: sorted(modules[package].__all__)


def _has_module(package: str, name: str) -> bool:
    """Return True if there is a file for a module of a package."""
    from os.path import exists

    # A module that takes its names from others has no folder.
    folders = getattr(modules[package], "__path__", ())
    return any(exists(f"{folder}/{name}.py") or exists(f"{folder}/{name}/__init__.py") for folder in folders)


def renamed(owner: str) -> Callable[[F], F]:
    """Return a decorator of a method that takes arguments by their old names as well, with a warning.

    Args:
        owner: The whole name of the class, as the table of `pypmix.oldnames` has it.
    """
    from functools import wraps

    def decorate(function: F) -> F:
        code = function.__code__
        known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

        if code.co_flags & COROUTINE:
            # A plain function that returns the coroutine would not be a coroutine function for `inspect`.
            @wraps(function)
            async def wait(*args: Any, **options: Any) -> Any:
                if not options.keys() <= known:
                    load("pypmix.oldnames", "rename_arguments")(owner, function, options)
                return await function(*args, **options)

            return wait  # type: ignore[return-value]

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if not options.keys() <= known:
                load("pypmix.oldnames", "rename_arguments")(owner, function, options)
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


class LateMethod:
    """Stands for a method of a class in a module that is not imported yet."""

    __slots__ = ("_home", "_name", "_owner")

    def __init__(self, owner: type, home: tuple[str, str], name: str) -> None:
        self._owner = owner
        self._home = home
        self._name = name

    def __get__(self, instance: object, kind: type | None = None) -> Any:
        function: Any = load(*self._home).__dict__[self._name]
        setattr(self._owner, self._name, function)
        return function.__get__(instance, kind)


def late_methods(package: str, topics: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that adds methods by topic.

    Args:
        package: The package that has a module for each topic, and in it a class of the same name, capitalized.
        topics: The names of the methods of each, separated by spaces.
    """

    def add(cls: type[T]) -> type[T]:
        for topic, names in topics.items():
            home = f"{package}.{topic}", topic.capitalize()
            for name in names.split():
                setattr(cls, name, LateMethod(cls, home, name))
        return cls

    return add


TOPICS = {
    "connecting": "connect _disconnect",
    "control": "log control allocate monitors credentials",
    "events": "events on notify",
    "exchanging": "bcast allgather gather scatter",
    "fabric": "fabric",
    "forwarding": "output input _push_input _iof_deregister",
    "groups": "group _group_destruct _group_leave _group_names",
    "invitations": "invite _group_join invitations",
    "psets": "_psets _pset_names watch_psets",
    "publishing": "publish lookup _lookup_one _lookup_each unpublish",
    "queries": "query _query_each _resolve_peers",
    "spawning": "spawn parent _spawned _job_ends _local_value",
}
"""The operations of clients and tools, by topic; the same for the sync and the async form."""


def missing(name: str, extra: str, error: ImportError) -> ImportError:
    """Return the error for a package that is not installed, and that an extra of this one brings."""
    return ImportError(f"{name} cannot be imported ({error}): pip install 'pypmix-hpc[{extra}]'", name=error.name)
