"""Names of statuses and other numbers, and structures as lines of text.

The words are the Standard's own names, without `PMIX_` for all but statuses and data types; those of libpmix differ
from release to release.
"""

from __future__ import annotations

from pypmix.compat.names import table
from pypmix.compat.running import attempt
from pypmix.compat.scalars import to_proc, to_text
from pypmix.compat.structures import to_record
from pypmix.compat.values import to_app, to_info, to_value
from pypmix.standard import enums, statuses
from pypmix.standard.structures import ResourceUnit
from pypmix.standard.types import App, Info, Value, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import IntEnum, IntFlag

PMIX_INFO = 24
PMIX_VALUE = 21

EVENTS = statuses.ERR_LOST_CONNECTION_TO_SERVER
"""From this number downwards, most numbers are events; their names as statuses are deprecated."""


def _find_name(number: object, enum: type[IntEnum]) -> str | None:
    if not isinstance(number, int):
        return None
    name = enum(number).name
    return None if name.startswith(("UNKNOWN_", "CUSTOM_")) else name


def _word(number: object, enum: type[IntEnum]) -> str:
    return _find_name(number, enum) or f"UNKNOWN ({number!r:.40})"


def _flags(number: object, enum: type[IntFlag], none: str) -> str:
    if not isinstance(number, int) or number < 0:
        return f"UNKNOWN ({number!r:.40})"
    words = [member.name or "" for member in enum if member and not member & (member - 1) and member & number]
    rest = number & ~sum(member for member in enum if not member & (member - 1))
    return "|".join(words + [f"{rest:#x}"] * bool(rest)) or none


def value_text(value: Value) -> str:
    """Return a value with its type, as a line."""
    return f"PMIX_{type_name(value.type)}: {value.data!r}"


def info_text(info: Info) -> str:
    """Return an info as a line."""
    flags = f" [{_flags(info.flags, enums.InfoFlags, '')}]" if info.flags else ""
    name = get_attribute_name(info.key)
    named = info.key if name == info.key else f"{name} ({info.key})"
    return f"{named}{flags} = {value_text(info.value)}"


def app_text(app: App) -> str:
    """Return an application as a line."""
    words = [f"{app.maxprocs} x {' '.join([app.cmd or app.argv[0], *app.argv[1:]])}"]
    words += [f"cwd={app.cwd}"] * bool(app.cwd) + list(app.env) + [info_text(info) for info in app.info]
    return "; ".join(words)


def unit_text(unit: ResourceUnit) -> str:
    """Return a resource unit as a line."""
    return f"{unit.count} x {_flags(unit.type, enums.DeviceType, 'UNKNOWN')}"


def get_attribute_name(text: str) -> str:
    """Return the name of the attribute with a key string; any other string unchanged."""
    from pypmix.standard.attrs import by_key

    attr = by_key(text)
    return f"PMIX_{attr.name}" if attr is not None else text


class Printing:
    """The methods that print."""

    def error_string(self, pystat: int) -> str:
        """`PMIx_Error_string`: the name of a status or an event, such as `PMIX_ERR_TIMEOUT`."""
        found = [_find_name(pystat, enums.Status), _find_name(pystat, enums.EventCode)]
        if isinstance(pystat, int) and pystat <= EVENTS:
            found.reverse()
        name = found[0] or found[1]
        return f"PMIX_{name}" if name else f"UNKNOWN ({pystat!r:.40})"

    def error_code(self, errname: object) -> int:
        """`PMIx_Error_code`: the status of a name."""
        status, text = attempt(to_text, errname)
        if text is None:
            return status if errname is not None else statuses.ERR_BAD_PARAM
        name = text if text.startswith("PMIX_") else f"PMIX_{text}"
        found = table().get(name)
        known = isinstance(found, int) and self.error_string(found) != f"UNKNOWN ({found!r})"
        return found if known and isinstance(found, int) else statuses.ERR_NOT_FOUND

    def proc_state_string(self, pystat: int) -> str:
        """`PMIx_Proc_state_string`."""
        return _word(pystat, enums.ProcState)

    def scope_string(self, pystat: int) -> str:
        """`PMIx_Scope_string`."""
        return _word(pystat, enums.Scope)

    def persistence_string(self, pystat: int) -> str:
        """`PMIx_Persistence_string`."""
        return _word(pystat, enums.Persist)

    def data_range_string(self, pystat: int) -> str:
        """`PMIx_Data_range_string`."""
        return _word(pystat, enums.Range)

    def info_directives_string(self, pystat: int) -> str:
        """`PMIx_Info_directives_string`."""
        return _flags(pystat, enums.InfoFlags, "OPTIONAL")

    def data_type_string(self, pystat: int) -> str:
        """`PMIx_Data_type_string`."""
        name = _find_name(pystat, enums.DataType)
        return f"PMIX_{name}" if name else f"UNKNOWN ({pystat!r:.40})"

    def alloc_directive_string(self, pystat: int) -> str:
        """`PMIx_Alloc_directive_string`."""
        return _word(pystat, enums.AllocDirective)

    def iof_channel_string(self, pystat: int) -> str:
        """`PMIx_IOF_channel_string`."""
        return _flags(pystat, enums.IOFChannel, "NONE")

    def job_state_string(self, pystat: int) -> str:
        """`PMIx_Job_state_string`."""
        return _word(pystat, enums.JobState)

    def link_state_string(self, pystat: int) -> str:
        """`PMIx_Link_state_string`."""
        return _word(pystat, enums.LinkState)

    def device_type_string(self, pystat: int) -> str:
        """`PMIx_Device_type_string`."""
        return _flags(pystat, enums.DeviceType, "UNKNOWN")

    def value_comparison_string(self, pystat: int) -> str:
        """`PMIx_Value_comparison_string`."""
        return _word(pystat, enums.ValueComparison)

    def group_operation_string(self, pystat: int) -> str:
        """`PMIx_Group_operation_string`."""
        return _word(pystat, enums.GroupOperation)

    def resource_block_directive_string(self, pystat: int) -> str:
        """`PMIx_Resource_block_directive_string`."""
        return _word(pystat, enums.ResBlockDirective)

    def alloc_inheritance_string(self, pystat: int) -> str:
        """`PMIx_Alloc_inheritance_string`."""
        return _word(pystat, enums.AllocInheritance)

    def get_attribute_string(self, rep: object) -> str:
        """`PMIx_Get_attribute_string`: return the key string of an attribute's name; any other string unchanged."""
        text = to_text(rep)
        found = table().get(text)
        return str(found) if isinstance(found, str) else text

    def get_attribute_name(self, rep: object) -> str:
        """`PMIx_Get_attribute_name`: return the name of the attribute with a key string; any other string unchanged."""
        return get_attribute_name(to_text(rep))

    def value_string(self, pyval: object) -> tuple[int, str | None]:
        """`PMIx_Value_string`."""
        return attempt(lambda: value_text(to_value(pyval)))

    def info_string(self, pyinfo: object) -> tuple[int, str | None]:
        """`PMIx_Info_string`."""
        return attempt(lambda: info_text(to_info(pyinfo)))

    def proc_string(self, pyproc: object) -> tuple[int, str | None]:
        """`PMIx_Proc_string`."""
        return attempt(lambda: str(to_proc(pyproc)))

    def app_string(self, pyapp: object) -> tuple[int, str | None]:
        """`PMIx_App_string`."""
        return attempt(lambda: app_text(to_app(pyapp)))

    def resource_unit_string(self, pyunit: object) -> tuple[int, str | None]:
        """`PMIx_Resource_unit_string`."""
        return attempt(lambda: unit_text(to_record(ResourceUnit, pyunit)))

    def data_print(self, prefix: object, pysrc: object, data_type: int | None = None) -> tuple[int, str | None]:
        """`PMIx_Data_print`: return a prefix and a value or an info as a line."""
        if data_type is None:
            data_type = PMIX_INFO if isinstance(pysrc, dict) and "key" in pysrc else PMIX_VALUE
        if data_type not in (PMIX_INFO, PMIX_VALUE):
            return statuses.ERR_NOT_SUPPORTED, None
        show: Callable[[object], tuple[int, str | None]] = (
            self.info_string if data_type == PMIX_INFO else self.value_string
        )
        status, text = show(pysrc)
        if text is None:
            return status, None
        status, before = attempt(lambda: "" if prefix is None else to_text(prefix))
        return (statuses.SUCCESS, f"{before}{text}") if before is not None else (status, None)
