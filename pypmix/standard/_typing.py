"""The few names of `typing` that classes need at run time, without importing it.

`typing` costs about as much start-up time as the bare interpreter, and every rank of a job pays it.
Type checkers see the real names.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generic as Generic
    from typing import TypeVar as TypeVar
    from typing import dataclass_transform as dataclass_transform
else:

    class TypeVar:
        __slots__ = ("name",)

        def __init__(self, name, *_constraints, **_options):
            self.name = name

    class Generic:
        __slots__ = ()

        def __class_getitem__(cls, _parameters):
            return cls

    def dataclass_transform(**_options):
        return lambda cls: cls
