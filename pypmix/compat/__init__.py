"""The Standard's Python bindings over pypmix: the module `pmix` of the official binding, on either engine.

`python -m pypmix.compat script.py` runs a program that was written for the official binding. See
`docs/reference/compat.md` for the differences.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.compat.client import PMIxClient as PMIxClient
    from pypmix.compat.helpers import pmix_bool_convert as pmix_bool_convert
    from pypmix.compat.helpers import pmix_cpuset_from_string as pmix_cpuset_from_string
    from pypmix.compat.helpers import pmix_cpuset_to_string as pmix_cpuset_to_string
    from pypmix.compat.helpers import pmix_int_types as pmix_int_types
    from pypmix.compat.helpers import pmix_value_roundtrip as pmix_value_roundtrip
    from pypmix.compat.helpers import pynbcbs as pynbcbs
    from pypmix.compat.server import PMIxServer as PMIxServer
    from pypmix.compat.serveranswers import pmixservermodule as pmixservermodule
    from pypmix.compat.serveranswers import pypmix_credential_cbfunc as pypmix_credential_cbfunc
    from pypmix.compat.serveranswers import pypmix_info_cbfunc as pypmix_info_cbfunc
    from pypmix.compat.serveranswers import pypmix_lookup_cbfunc as pypmix_lookup_cbfunc
    from pypmix.compat.serveranswers import pypmix_modex_cbfunc as pypmix_modex_cbfunc
    from pypmix.compat.serveranswers import pypmix_op_cbfunc as pypmix_op_cbfunc
    from pypmix.compat.serveranswers import pypmix_spawn_cbfunc as pypmix_spawn_cbfunc
    from pypmix.compat.serveranswers import pypmix_tool_connection_cbfunc as pypmix_tool_connection_cbfunc
    from pypmix.compat.serveranswers import pypmix_validation_cbfunc as pypmix_validation_cbfunc
    from pypmix.compat.serveranswers import setmodulefn as setmodulefn
    from pypmix.compat.tool import PMIxScheduler as PMIxScheduler
    from pypmix.compat.tool import PMIxTool as PMIxTool

_HOME = {
    ".client": "PMIxClient",
    ".helpers": (
        "pmix_bool_convert pmix_cpuset_from_string pmix_cpuset_to_string pmix_int_types pmix_value_roundtrip pynbcbs"
    ),
    ".server": "PMIxServer",
    ".serveranswers": (
        "pmixservermodule pypmix_credential_cbfunc pypmix_info_cbfunc pypmix_lookup_cbfunc pypmix_modex_cbfunc "
        "pypmix_op_cbfunc pypmix_spawn_cbfunc pypmix_tool_connection_cbfunc pypmix_validation_cbfunc setmodulefn"
    ),
    ".tool": "PMIxScheduler PMIxTool",
}
_find, _ = _names(__name__, _HOME)


def __getattr__(name: str) -> object:
    if name != "__all__" and not name.startswith("PMIX_"):
        return _find(name)
    from pypmix.compat.names import table

    if name == "__all__":
        value: object = sorted([*_find("__all__"), *table()])
    else:
        try:
            value = table()[name]
        except KeyError:
            raise AttributeError(f"PMIx has no {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from pypmix.compat.names import table

    return sorted({*globals(), *_find("__all__"), *table()})
