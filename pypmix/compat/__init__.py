"""The Standard's Python bindings over pypmix: what `import pmix` gives in the official one, on either engine.

`python -m pypmix.compat script.py` runs a program that was written for the official binding. See
`docs/reference/compat.md` for what is different.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.compat.client import PMIxClient as PMIxClient
    from pypmix.compat.helpers import pmix_bool_convert as pmix_bool_convert
    from pypmix.compat.helpers import pmix_cpuset_from_string as pmix_cpuset_from_string
    from pypmix.compat.helpers import pmix_cpuset_to_string as pmix_cpuset_to_string
    from pypmix.compat.helpers import pmix_int_types as pmix_int_types
    from pypmix.compat.helpers import pmix_value_roundtrip as pmix_value_roundtrip
    from pypmix.compat.helpers import pynbcbs as pynbcbs
    from pypmix.compat.scheduler import PMIxScheduler as PMIxScheduler
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
    from pypmix.compat.tool import PMIxTool as PMIxTool

_HOME = {
    "PMIxClient": "client",
    "PMIxScheduler": "scheduler",
    "PMIxServer": "server",
    "PMIxTool": "tool",
    "pmix_bool_convert": "helpers",
    "pmix_cpuset_from_string": "helpers",
    "pmix_cpuset_to_string": "helpers",
    "pmix_int_types": "helpers",
    "pmix_value_roundtrip": "helpers",
    "pynbcbs": "helpers",
    "pmixservermodule": "serveranswers",
    "pypmix_credential_cbfunc": "serveranswers",
    "pypmix_info_cbfunc": "serveranswers",
    "pypmix_lookup_cbfunc": "serveranswers",
    "pypmix_modex_cbfunc": "serveranswers",
    "pypmix_op_cbfunc": "serveranswers",
    "pypmix_spawn_cbfunc": "serveranswers",
    "pypmix_tool_connection_cbfunc": "serveranswers",
    "pypmix_validation_cbfunc": "serveranswers",
    "setmodulefn": "serveranswers",
}


def __getattr__(name: str) -> object:
    from sys import modules

    if name == "__all__":
        from pypmix.compat.names import table

        value: object = sorted([*_HOME, *table()])
    elif name in _HOME:
        module = f"pypmix.compat.{_HOME[name]}"
        __import__(module)
        value = getattr(modules[module], name)
    elif name.startswith("PMIX_"):
        from pypmix.compat.names import table

        try:
            value = table()[name]
        except KeyError:
            raise AttributeError(f"PMIx has no {name!r}") from None
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from pypmix.compat.names import table

    return sorted({*globals(), *_HOME, *table()})
