"""The examples in docstrings, as their tests run them."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

MOST = 5
"""The lines of an example."""


def find_examples(kind: Any, name: str) -> list[doctest.Example]:
    """Return the examples of a member; without a name, of a function, or of a class or of the one that it extends."""
    if name:
        text = inspect.getdoc(getattr(kind, name))
    else:
        homes = [each for each in getattr(kind, "__mro__", (kind,)) if each.__module__.startswith("pypmix")]
        text = next((each.__doc__ for each in homes if ">>>" in (each.__doc__ or "")), "")
    return doctest.DocTestParser().get_examples(text or "")


def read_program(kind: Any, name: str) -> str:
    """Return the program of the examples of a member, or of a class or function."""
    return "".join([each.source for each in find_examples(kind, name)])
