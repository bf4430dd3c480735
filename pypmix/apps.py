"""Applications, as `spawn` starts them."""

from __future__ import annotations

import os

from pypmix.standard.types import App, check_integer
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pypmix.standard.values import Infos

    Word = str | os.PathLike[str]
    Apps = Sequence[Word] | App | Iterable[App]


_OUTER = ("PMIX_", "PYPMIX_SERVER")
_PARAMETERS = "PMIX_MCA_"


def app(
    command: Sequence[Word],
    *,
    n: int = 1,
    env: Mapping[str, str] | None = None,
    cwd: Word | None = None,
    info: Infos = None,
) -> App:
    """Make an application for `spawn`, which starts several of them as one job.

    Args:
        command: The program and its arguments.
        n: How many procs run it.
        env: Variables to add to the environment that the host gives to all. Variables that make a process a client
            of its server (`PMIX_NAMESPACE` and the like) are left out, so that a whole environment may be given.
        cwd: Their working directory; the caller's by default.
        info: Infos or a mapping for this application, such as `attrs.HOST`.

    Raises:
        TypeError, ValueError, OverflowError: It is not a command, or not a number of procs.

    Example:
        >>> workers = app(["./worker", "--fast"], n=4, env={"OMP_NUM_THREADS": "2"})
        >>> job = me.spawn([workers, app(["./reader"], info={attrs.HOST: "node1"})])
    """
    if isinstance(command, str | bytes | os.PathLike):
        raise TypeError(f"a command is a list of words such as ['./worker', '--fast'], not {command!r}")
    words = tuple([_text(word, "a word of a command") for word in command])
    if not words or not words[0]:
        raise ValueError("an application needs a command")
    n = check_integer(n, "a number of procs")
    if n < 1:
        raise ValueError(f"an application has at least one proc, not {n}")
    if n >= 2**31:
        raise OverflowError(f"a number of procs has 31 bits, {n} has more")
    variables = [] if env is None else [_variable(name, value) for name, value in env.items() if _is_passed_on(name)]
    return App(words[0], words, tuple(variables), None if cwd is None else _text(cwd, "a directory"), n, infos(info))


def _text(word: object, what: str) -> str:
    path = os.fspath(word) if isinstance(word, os.PathLike) else word
    if not isinstance(path, str):
        raise TypeError(f"{what} is a string or a path, not {type(word).__name__}")
    if "\0" in path:
        raise ValueError(f"{what} must not contain a NUL character")
    return path


def _variable(name: str, value: str) -> str:
    if not _text(name, "a variable's name") or "=" in name:
        raise ValueError(f"{name!r} is not the name of an environment variable")
    return f"{name}={_text(value, 'a variable')}"


def _is_passed_on(name: str) -> bool:
    return not isinstance(name, str) or not name.startswith(_OUTER) or name.startswith(_PARAMETERS)


def app_tuple(apps: Apps, n: int | None, env: Mapping[str, str] | None, cwd: Word | None) -> tuple[App, ...]:
    """Return a command, an application, or several as a tuple of applications."""
    found: tuple[object, ...]
    if isinstance(apps, App):
        found = (apps,)
    elif isinstance(apps, str | bytes | os.PathLike):
        raise TypeError(f"a command is a list of words such as ['./worker', '--fast'], not {apps!r}")
    else:
        found = tuple(apps)
    if not found or not isinstance(found[0], App):
        return (app(found, n=1 if n is None else n, env=env, cwd=cwd),)  # type: ignore[arg-type]
    if not (n is None and env is None and cwd is None):
        raise ValueError("n, env and cwd go with a command; an App has its own: pypmix.app([...], n=...)")
    return tuple([_whole(each) for each in found])


def _whole(item: object) -> App:
    """Return an application with a command and a name of its program: libpmix 4.2 needs both."""
    if not isinstance(item, App):
        raise TypeError(f"applications are App objects, not {type(item).__name__}")
    if type(item.maxprocs) is not int:
        item = item.replace(maxprocs=check_integer(item.maxprocs, "a number of procs"))
    if not item.argv and item.cmd:
        return App(item.cmd, (item.cmd,), item.env, item.cwd, item.maxprocs, item.info)
    if not item.cmd and item.argv:
        return App(item.argv[0], item.argv, item.env, item.cwd, item.maxprocs, item.info)
    return item
