"""Make `pypmix/aio/operations/raw.py` of `pypmix.standard.ops`: one method per function of the Standard.

`native/blocking.py` writes it, with its blocking form.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
import typing

from pypmix.standard import ops
from pypmix.standard.ops.core import HostOp, Op

LEFT_OUT = {"Finalize"}
"""`close` of a client is `PMIx_Finalize`: it ends the session as well."""

NAMES = {"directives": "info", "range": "data_range", "id": "number", "infos": "data"}
"""The parameters that are not called as the field: C calls directives `info`, and no parameter shadows a builtin."""

TYPES = {"tuple[Info, ...]": "Infos", "tuple[Proc, ...]": "Procs"}

HEAD = '''\
# Made from pypmix/standard/ops by native/raw.py: change it there.
"""The functions of the Standard, one method each, with the arguments of C."""

from __future__ import annotations

from pypmix.arguments import ranked, timed, together
from pypmix.standard import ops
from pypmix.standard.types import App, Query
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.aio.waits import Port
    from pypmix.arguments import Infos, Procs
    from pypmix.engine.base import Delivery
    from pypmix.standard.ops import Connected, Credential, GroupAnswer, GroupResults, Output
    from pypmix.standard.structures import Cpuset, Topology
    from pypmix.standard.types import DeviceDistance, Info, Pdata, Proc, Value


class Raw:
    """The functions of the Standard as C has them: `raw` of a client or a tool.

    Each method is one function, without its `PMIx_`, and makes one request. Procs may be a proc, a rank of the caller's
    job, a job, a group, or several of these; none are all of the caller's job. `info` is a mapping, or infos, and
    `timeout` stands for `attrs.TIMEOUT` in it: seconds, None for no limit. Values keep their PMIx types. The other
    methods of a client do more: they find defaults, commit before a fence, and take back a group or a pull if a wait
    for it is cancelled.
    """

    def __init__(self, port: Port) -> None:
        self._port = port

    def _together(self, procs: Procs) -> tuple[Proc, ...]:
        return together(ranked(procs, self._port.session.proc))
'''


def functions() -> list[type]:
    """Return the operations that are a function of the Standard, by name."""
    modules = [importlib.import_module(f"{ops.__name__}.{each.name}") for each in pkgutil.iter_modules(ops.__path__)]
    found = [
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, Op) and each.__module__ == module.__name__
    ]
    named = [each for each in found if not issubclass(each, HostOp) and re.match("`PMIx_", each.__doc__ or "")]
    return sorted([each for each in named if each.__name__ not in LEFT_OUT], key=name_function)


def name_function(op: type) -> str:
    """Return the name of a method: the function's name without `PMIx_`."""
    found = re.match(r"`PMIx_(\w+)`", op.__doc__ or "")
    assert found is not None
    return found[1].lower()


def _result(op: type) -> str:
    source = inspect.getsource(op)
    found = re.match(r"class \w+\(\w+\[(.*)\]\):", source)
    assert found is not None, op
    return found[1].strip('"')


def _method(op: typing.Any) -> str:
    declared: dict[str, str] = {}
    for base in reversed(op.__mro__):
        declared.update(getattr(base, "__declared__", {}))
    parameters, arguments = [], []
    for field in op.__fields__:
        name, kind = NAMES.get(field, field), declared[field]
        if kind in TYPES:
            arguments.append(f"infos({name})" if "Info" in kind else f"self._together({name})")
        elif kind == "tuple[Query, ...]":
            kind = "Query | tuple[Query, ...]"
            arguments.append(f"({name},) if isinstance({name}, Query) else tuple({name})")
        elif kind == "tuple[App, ...]":
            kind = "App | tuple[App, ...]"
            arguments.append(f"({name},) if isinstance({name}, App) else tuple({name})")
        elif kind.startswith("tuple["):
            arguments.append(f"tuple({name})")
        else:
            arguments.append(name)
        if field == "directives" and "TIMEOUT" in op.__doc__:
            arguments[-1] = f"timed({arguments[-1]}, timeout)"
        default = ""
        if field in op.__defaults__:
            default = " = None" if kind in TYPES else f" = {op.__defaults__[field]!r}"
        parameters.append(f"{name}: {TYPES.get(kind, kind)}{default}")
    if any(each.startswith("timed(") for each in arguments):
        parameters += ["*", "timeout: float | None = None"]
    head = f"async def {name_function(op)}({', '.join(['self', *parameters])}) -> {_result(op)}:"
    text = inspect.cleandoc(op.__doc__ or "").replace(" Also an upcall.", "").replace("Attributes:", "Args:")
    for field, name in NAMES.items():
        if field in op.__fields__:
            text = re.sub(rf"^(\s+){field}:", rf"\1{name}:", text, flags=re.M)
    docs = textwrap.indent(f'"""{text}"""' if "\n" not in text else f'"""{text}\n"""', "    ")
    watched = any("Callable" in declared[field] for field in op.__fields__)
    attend = "    self._port.attend()\n" if watched else ""
    body = f"{attend}    return await self._port.run(ops.{op.__name__}({', '.join(arguments)}))"
    return textwrap.indent(f"{head}\n{docs}\n{body}\n", "    ")


def make_text() -> str:
    """Return the text of the module, not formatted."""
    return "\n".join([HEAD, *[_method(op) for op in functions()]])
